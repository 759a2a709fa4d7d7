/* The threads that compile for callers with a deadline: see builder_background.h.
 *
 * 1. background_start() writes the request as a worker would get it and reads it again, which makes a copy that owns
 *    everything, and starts a thread. Threads that have ended are joined first.
 * 2. The thread makes the key, takes the builder's ordinary way past a miss (builder_produce.c) and lands the flight,
 *    which for a request with publishes_later has landed before the kernel is published.
 * 3. A compile that goes on after its caller's deadline ends background_max_ns after it; one that nobody wants any more
 *    ends at once where it can be interrupted.
 * 4. background_finish() sets the builder's `ending` and joins.
 *
 * `background.mutex` guards the list; a thread touches only its own entry, and `ended` last. */
#include "jit/builder_background.h"

#include <string.h>

#include "base/error.h"
#include "base/threads/quiet_thread.h"
#include "jit/builder_produce.h"
#include "jit/server/protocol.h"

/* Most threads at once. More would not end sooner, because compiles in one process wait for each other in NVRTC's front
 * end, and each thread has a stack and a copy of its sources. */
#define BUILDS_MAX 64

struct background_build {
  struct background_build *next;
  pthread_t thread;
  atomic_bool ended;
  struct builder *builder;
  struct flight *flight;
  bool refused;
  struct text payload; /* holds the strings of the request */
  struct wire_request wire;
  const char *compiler;
  struct digest identity;
  int64_t deadline_ns; /* of the compile, not of the call that asked for it */
};

static void build_destroy(struct background_build *build) {
  const struct mem *mem = build->builder->mem;
  wire_request_finish(&build->wire, mem);
  text_finish(&build->payload);
  mem_free(mem, build);
}

/* Copy the call, so that the copy owns everything that it points to. NULL when out of memory. */
static struct background_build *build_create(const struct builder_call *call, struct flight *flight, bool refused) {
  const struct mem *mem = call->builder->mem;
  struct background_build *build = mem_alloc(mem, sizeof *build);
  if (!build) return NULL;
  atomic_init(&build->ended, 0);
  build->builder = call->builder;
  build->flight = flight;
  build->refused = refused;
  build->identity = call->identity;
  build->deadline_ns =
      call->deadline_ns == INT64_MAX ? INT64_MAX : call->deadline_ns + call->builder->background_max_ns;
  text_init(&build->payload, mem, FRAME_MAX_BYTES);
  wire_request_put(&build->payload, call->request, call->compiler, WIRE_COMPILE, 0);
  if (!build->payload.failed && !wire_request_read(&build->wire, mem, build->payload.data, build->payload.bytes)) {
    build->compiler = build->wire.identity;
    build->wire.request.keeps_texts = call->request->keeps_texts;
    build->wire.request.publishes_later = call->request->publishes_later;
    return build;
  }
  build_destroy(build);
  return NULL;
}

static void build_run(struct background_build *build) {
  struct builder *builder = build->builder;
  struct builder_call call = {.builder = builder,
                              .request = &build->wire.request,
                              .compiler = build->compiler,
                              .identity = build->identity,
                              .deadline_ns = build->deadline_ns,
                              .flight = build->flight};
  struct key key;
  kjit_artifact *artifact = NULL;
  int64_t expires_ns = INT64_MAX;
  kjit_error error = {0};
  kjit_status status = key_make(&key, builder->mem, call.request, call.compiler, &error);
  call.key = &key;
  if (status == KJIT_OK) status = builder_produce(&call, build->refused, &artifact, &expires_ns, &error);
  error.status = (int32_t)status;
  key_finish(&key);
  if (call.flight) resident_land(builder->resident, call.flight, artifact, expires_ns, &error); /* else it has landed */
  kjit_artifact_release(artifact);
}

static void *run_thread(void *user) {
  struct background_build *build = user;
  build_run(build);
  atomic_store(&build->ended, 1);
  return NULL;
}

/* Take the builds that have ended, or all of them, out of the list. */
static struct background_build *take_out(struct background *background, bool all) {
  struct background_build *taken = NULL;
  pthread_mutex_lock(&background->mutex);
  for (struct background_build **link = &background->builds; *link;) {
    struct background_build *build = *link;
    if (!all && !atomic_load(&build->ended)) {
      link = &build->next;
      continue;
    }
    *link = build->next;
    background->count--;
    build->next = taken;
    taken = build;
  }
  pthread_mutex_unlock(&background->mutex);
  return taken;
}

static void join_all(struct background_build *builds) {
  while (builds) {
    struct background_build *const next = builds->next;
    (void)pthread_join(builds->thread, NULL);
    build_destroy(builds);
    builds = next;
  }
}

void background_init(struct builder *builder) {
  (void)pthread_mutex_init(&builder->background.mutex, NULL); /* of the default kind: cannot fail on Linux */
}

void background_finish(struct builder *builder) {
  atomic_store(&builder->ending, 1);
  join_all(take_out(&builder->background, 1));
  pthread_mutex_destroy(&builder->background.mutex);
}

bool background_start(const struct builder_call *call, struct flight *flight, bool refused, bool *full) {
  struct background *background = &call->builder->background;
  join_all(take_out(background, 0));
  pthread_mutex_lock(&background->mutex);
  *full = background->count >= BUILDS_MAX;
  background->count += !*full;
  pthread_mutex_unlock(&background->mutex);
  if (*full) return false;
  struct background_build *build = build_create(call, flight, refused);
  pthread_mutex_lock(&background->mutex);
  const bool started = build && quiet_thread_start(&build->thread, run_thread, build);
  if (started) {
    build->next = background->builds;
    background->builds = build;
  } else {
    background->count--;
  }
  pthread_mutex_unlock(&background->mutex);
  if (build && !started) build_destroy(build);
  return started;
}

void background_fork_prepare(struct builder *builder) {
  pthread_mutex_lock(&builder->background.mutex);
}

void background_fork_parent(struct builder *builder) {
  pthread_mutex_unlock(&builder->background.mutex);
}

/* The threads do not exist in the child. What they own is not freed, because they may have been in the middle of a
 * change. */
void background_fork_child(struct builder *builder) {
  builder->background.builds = NULL;
  builder->background.count = 0;
  pthread_mutex_unlock(&builder->background.mutex);
}
