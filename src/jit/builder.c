/* How a request is answered. Each number stands again where its step is.
 *
 * 1. The request is identified: its digest with NVRTC's identity, which is read from the library's file, not by opening
 *    it.
 * 2. Memory (resident.c): an artifact that is there is handed out. Else the first thread leads the making of it, and
 *    those that come later follow: they wait for the leader, each no longer than its own deadline.
 * 3. The leader makes the key: the text that names everything that can change the cubin.
 * 4. The tiers are looked through: bundles, the site's folder, the user's folder (builder_produce.c, to step 8).
 * 5. After a miss the key's lock in the user's folder is taken, so that one process builds; the others wait for its
 *    entry. A call with a deadline leaves steps 5 to 8 to a thread of builder_background.c and waits as a follower,
 *    because a compile in this process cannot be interrupted, and one that is killed again and again is never done. So
 *    does a call that is not to wait for step 8 (publishes_later): the thread lands before it publishes.
 * 6. A compile that failed a moment ago, here or elsewhere, is not tried again.
 * 7. NVRTC compiles: in the compile server, or where there is none, in this process (server/server.c, compile.c).
 * 8. The entry is published under a temporary name and renamed.
 * 9. The leader lands: the artifact, or the error, is every follower's answer, and stays in memory. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/builder.h"
#include "jit/builder_background.h"
#include "jit/builder_produce.h"
#include "jit/cache/temp_file.h"
#include "jit/source/include_terms.h"

/* What is written for a try: more than file systems keep inside an inode, so that a full disk is noticed. */
#define PAGE_BYTES 4096

/* How often a caller who may cancel is asked while a thread waits. */
#define STOP_EVERY_NS 5000000

/* The part of the key that names the tools: NVRTC, the linker or both. NULL: it is not there, or asking would read
 * files where that is forbidden. That it is missing is believed for a second: it may be installed meanwhile, but a hit
 * must not search for it. */
static const char *identify(struct builder *builder, const struct jit_request *request, bool may_read_files) {
  const enum compile_tools tools = compile_tools_of(request);
  const bool identified = atomic_load(&builder->identified[tools]);
  if (!identified && (!may_read_files || builder_now_ns(builder) < atomic_load(&builder->missing_until_ns[tools])))
    return NULL;
  const char *identity = compile_identity(builder->nvrtc, request, NULL);
  if (identity)
    atomic_store(&builder->identified[tools], 1);
  else
    atomic_store(&builder->missing_until_ns[tools], builder_now_ns(builder) + 1000000000);
  return identity;
}

/* Step 2, found: hand a resident artifact out, which is a kernel or a remembered failure. */
static kjit_status deliver(kjit_artifact *artifact, kjit_artifact **out, kjit_error *error) {
  const struct entry *entry = &artifact_image(artifact)->entry;
  *out = artifact;
  if (entry->cubin_bytes) return KJIT_OK;
  return error_set(error, KJIT_ERR_COMPILE, "%s", entry->message.data);
}

/* True for an end that concerns one caller alone: its time has passed or it has cancelled. It says nothing about the
 * kernel, so a follower takes over. */
static bool is_private(kjit_status status) {
  return status == KJIT_ERR_TIMEOUT || status == KJIT_ERR_CANCELLED;
}

/* Step 3. Outside of this process's memory a request is known by its key. */
static kjit_status begin_key(struct builder_call *call, struct key *key, kjit_error *error) {
  const kjit_status status = key_make(key, call->builder->mem, call->request, call->compiler, error);
  call->key = key;
  return status;
}

static void end_key(struct builder_call *call) {
  key_finish(call->key);
  call->key = NULL;
}

/* Wait until the leader has landed or this call is over. A caller who may cancel is asked every few milliseconds. */
static kjit_status wait_for_leader(struct builder_call *call, struct flight *flight, kjit_artifact **out,
                                   kjit_error *error) {
  struct builder *builder = call->builder;
  for (;;) {
    const int64_t slice_ns = builder_now_ns(builder) + STOP_EVERY_NS;
    const bool asks = call->request->stop && slice_ns < call->deadline_ns;
    const kjit_status status =
        resident_wait(builder->resident, flight, asks ? slice_ns : call->deadline_ns, out, error);
    if (status != KJIT_ERR_TIMEOUT || *out || error->status || builder_call_is_over(call)) return status;
  }
}

/* Leave a flight. A caller whose deadline has passed will ask again, so the compile goes on without a waiter. Without a
 * server it cannot be interrupted, and always goes on. */
static void leave(const struct builder_call *call, struct flight *flight) {
  const struct builder *builder = call->builder;
  if (!builder->server || builder_now_ns(builder) >= call->deadline_ns) resident_want_later(builder->resident, flight);
  resident_leave(builder->resident, flight);
}

/* Hand the flight to a thread of its own, waiting as long as too many run. Returns false when the caller keeps the
 * flight: `*over` says that its time has passed; otherwise no thread can be had. */
static bool hand_over(struct builder_call *call, const struct resident_join *join, bool *over) {
  const struct file_ops *ops = call->builder->ops;
  *over = 0;
  for (;;) {
    bool full = false;
    if (background_start(call, join->flight, join->refused, &full)) return true;
    if (!full) return false;
    *over = builder_call_is_over(call);
    if (*over) return false;
    ops->sleep_ns(ops->user, STOP_EVERY_NS);
  }
}

/* Which thread makes the artifact after a miss, and lands the flight. */
enum maker { MAKER_THIS_THREAD, MAKER_ANOTHER, MAKER_NOBODY };

/* Step 5 for a call with a deadline, or one that publishes later: a thread of its own makes the artifact, and this one
 * waits. */
static enum maker lead_in_background(struct builder_call *call, const struct resident_join *join, kjit_status *status,
                                     kjit_artifact **out, kjit_error *error) {
  struct resident *resident = call->builder->resident;
  const bool suits = (builder_call_may_end(call) || call->request->publishes_later) && call->key->complete;
  bool over;
  if (!suits || call->request->sources->withheld) return MAKER_THIS_THREAD;
  resident_follow(resident, join->flight);
  const bool handed = hand_over(call, join, &over);
  if (handed) *status = wait_for_leader(call, join->flight, out, error);
  leave(call, join->flight);
  if (!handed && !over) return MAKER_THIS_THREAD;
  if (!handed) *status = builder_call_end(call, "too many compiles go on already; this one was given up", error);
  if (handed && !*out && is_private(*status)) {
    error_clear(error);
    *status = builder_call_end(call, "the compile goes on in the background for a later call; this one ended", error);
  }
  return handed ? MAKER_ANOTHER : MAKER_NOBODY;
}

/* Step 9: hand the outcome to every follower. */
static void land(struct builder_call *call, struct flight *flight, kjit_status status, kjit_artifact *artifact,
                 int64_t expires_ns, kjit_error *found) {
  found->status = (int32_t)status;
  resident_land(call->builder->resident, flight, artifact, expires_ns, found);
}

/* Step 5: supply the texts of sources of which only the digests are known so far, because the key was made from a
 * record (builder_custom.c). */
static kjit_status supply_sources(struct builder_call *call, kjit_error *error) {
  const struct jit_request *request = call->request;
  const struct source_set *sources;
  if (!request->sources->withheld || !request->supply) return KJIT_OK;
  return request->supply(request->supply_user, &sources, error);
}

/* Steps 3 to 8. `*landed` is set when another thread lands the flight. */
static kjit_status make(struct builder_call *call, const struct resident_join *join, bool *landed, kjit_artifact **out,
                        int64_t *expires_ns, kjit_error *error) {
  struct key key;
  kjit_status status = begin_key(call, &key, error);
  if (status == KJIT_OK) status = join->refused ? KJIT_ERR_NOT_FOUND : builder_look_up(call, out, error);
  if (status == KJIT_ERR_NOT_FOUND) {
    status = supply_sources(call, error);
    if (status != KJIT_OK) goto done;
    const enum maker maker = lead_in_background(call, join, &status, out, error);
    if (maker == MAKER_THIS_THREAD) status = builder_produce(call, join->refused, out, expires_ns, error);
    *landed = maker == MAKER_ANOTHER;
  }
done:
  end_key(call);
  return status;
}

static kjit_status lead(struct builder_call *call, struct resident_join *join, kjit_artifact **out, kjit_error *error) {
  kjit_artifact *artifact = NULL;
  int64_t expires_ns = INT64_MAX;
  kjit_error found = {0};
  bool landed = false;
  kjit_status status = make(call, join, &landed, &artifact, &expires_ns, &found);
  if (!landed) land(call, join->flight, status, artifact, expires_ns, &found);
  if (status == KJIT_OK && builder_now_ns(call->builder) >= call->deadline_ns) {
    /* The artifact is kept for the next call, but this caller was promised an answer in time or none. */
    kjit_artifact_release(artifact);
    artifact = NULL;
    status = builder_call_end(call, "compiled, but only", &found);
  }
  if (error) *error = found;
  *out = artifact;
  return status;
}

/* Wait for another thread's answer. `*again` is set when that answer was not for us, so that we ask once more. */
static kjit_status follow(struct builder_call *call, struct flight *flight, bool *again, kjit_artifact **out,
                          kjit_error *error) {
  struct builder *builder = call->builder;
  const int64_t start_ns = builder_now_ns(builder);
  kjit_error found = {0};
  kjit_status status = wait_for_leader(call, flight, out, &found);
  leave(call, flight);
  if (*out) *out = artifact_as(*out, KJIT_ORIGIN_MEMORY);
  count_add(&builder->counters, COUNT_waits, 1);
  count_add(&builder->counters, COUNT_wait_ns, (uint64_t)(builder_now_ns(builder) - start_ns));
  if (is_private(status)) {
    *again = !builder_call_is_over(call);
    error_clear(&found);
    if (!*again) status = builder_call_end(call, "another thread is still compiling it", &found);
  }
  if (error) *error = found;
  return status;
}

/* For a call that forbids compiling: the tiers have the kernel or they do not; nobody's compile is waited for. */
static kjit_status look_up_only(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  const struct jit_request *request = call->request;
  struct key key;
  kjit_status status = begin_key(call, &key, error);
  if (status == KJIT_OK) status = builder_look_up(call, out, error);
  end_key(call);
  if (status == KJIT_OK) resident_keep(call->builder->resident, &call->identity, *out);
  if (status != KJIT_ERR_NOT_FOUND) return status;
  count_add(&call->builder->counters, COUNT_misses, 1);
  return error_set(error, KJIT_ERR_NOT_FOUND, "kernel %s for %s: in no cache tier, and the call forbids compiling it",
                   request->entry, request->target.name);
}

static kjit_status absent(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  const struct jit_request *request = call->request;
  if (!(request->flags & KJIT_BUILD_RESIDENT_ONLY)) return look_up_only(call, out, error);
  return error_set(error, KJIT_ERR_NOT_RESIDENT,
                   "kernel %s for %s: not in memory, and the call forbids loading or compiling it", request->entry,
                   request->target.name);
}

/* Step 2: what memory has; otherwise lead or follow. */
static kjit_status get_identified(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  struct builder *builder = call->builder;
  const bool may_lead = !(call->request->flags & (KJIT_BUILD_RESIDENT_ONLY | KJIT_BUILD_NO_COMPILE));
  for (;;) {
    struct resident_join join;
    bool again = false;
    kjit_status status = KJIT_OK;
    switch (resident_ask(builder->resident, &call->identity, builder_now_ns(builder), may_lead, &join)) {
    case RESIDENT_FOUND:
      count_add(&builder->counters, COUNT_memory_hits, 1);
      return deliver(join.artifact, out, error);
    case RESIDENT_LEAD:
      return lead(call, &join, out, error);
    case RESIDENT_FOLLOW:
      status = follow(call, join.flight, &again, out, error);
      if (!again) return status;
      break;
    case RESIDENT_ABSENT:
      return absent(call, out, error);
    case RESIDENT_NO_MEMORY:
      return error_no_memory(error);
    }
  }
}

static kjit_status get_key_only(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  struct key key;
  kjit_status status = begin_key(call, &key, error);
  if (status == KJIT_OK) status = builder_make_key(call, out, error);
  end_key(call);
  return status;
}

static bool is_unread(kjit_status status, const kjit_error *error) {
  return status == KJIT_ERR_COMPILE && error && strstr(error->message, INCLUDE_UNREAD);
}

kjit_status builder_get(struct builder *builder, const struct jit_request *request, kjit_artifact **out,
                        kjit_error *error) {
  struct builder_call call = {.builder = builder, .request = request, .deadline_ns = INT64_MAX};
  *out = NULL;
  const int64_t begun_ns = request->begun_ns ? request->begun_ns : builder_now_ns(builder);
  if (request->timeout_ms) call.deadline_ns = begun_ns + request->timeout_ms * (int64_t)1000000;
  /* Step 1. */
  call.compiler = identify(builder, request, !(request->flags & KJIT_BUILD_RESIDENT_ONLY));
  key_identify(&call.identity, request, call.compiler);
  if (request->flags & KJIT_BUILD_KEY_ONLY) return get_key_only(&call, out, error);
  const kjit_status status = get_identified(&call, out, error);
  /* Recorded last, because the sources' texts are then often there already. A compile that took another branch than the
   * walk through the includes is left out: it will be asked for again with other sources. */
  if (record_is_on(builder->record) && !(request->flags & KJIT_BUILD_RESIDENT_ONLY) && !is_unread(status, error))
    record_request(builder->record, request, &call.identity);
  return status;
}

void builder_forget(struct builder *builder, const kjit_artifact *artifact) {
  struct entry_name name;
  if (!artifact) return;
  resident_refuse(builder->resident, artifact_identity(artifact), artifact);
  artifact_entry_name(artifact, &name);
  if (builder->user.dir.folder >= 0) disk_cache_set_aside(&builder->user, &name, 0, "the driver refused it");
}

bool builder_tells_ranges(const struct builder *builder) {
  return nvrtc_inspected(builder->nvrtc) & NVRTC_INSPECT_RANGES;
}

struct source_shelf *builder_sources(struct builder *builder) {
  return &builder->sources;
}

kjit_status builder_record(struct builder *builder, const char *path, kjit_error *error) {
  return record_to(builder->record, path, error);
}

void builder_add_stats(const struct builder *builder, kjit_runtime_stats *stats) {
#define ADD(name) stats->name += count_get(&builder->counters, COUNT_##name);
  CACHE_COUNTER_MAP(ADD)
#undef ADD
}

static void copy_cut(char *to, size_t bytes, const char *from) {
  snprintf(to, bytes, "%s", from ? from : "");
}

static void doctor_nvrtc(struct builder *builder, kjit_doctor_report *report) {
  kjit_error error = {0};
  const struct nvrtc_api *api = NULL;
  int major = 0, minor = 0;
  const char *file = nvrtc_file(builder->nvrtc, &error);
  const char *identity = file ? nvrtc_identity(builder->nvrtc, &error) : NULL;
  copy_cut(report->nvrtc_path, sizeof report->nvrtc_path, file);
  copy_cut(report->nvrtc_identity, sizeof report->nvrtc_identity, identity);
  const bool works = identity && nvrtc_open(builder->nvrtc, &api, &major, &minor, &error) == KJIT_OK;
  report->nvrtc_status = works ? KJIT_OK : KJIT_ERR_NO_NVRTC;
  report->nvrtc_major = works ? major : 0;
  report->nvrtc_minor = works ? minor : 0;
  copy_cut(report->nvrtc_message, sizeof report->nvrtc_message, error.message);
}

void builder_try_cache(struct builder *builder, kjit_doctor_report *report) {
  static const char bytes[PAGE_BYTES];
  const struct disk_cache *user = &builder->user;
  struct temp_file temp;
  if (builder->mode != KJIT_CACHE_RW || user->dir.folder < 0) return;
  int done = temp_file_create(&temp, user->ops, user->dir.folder);
  if (done == 0) done = temp_file_write(&temp, user->ops, bytes, sizeof bytes);
  temp_file_finish(&temp, user->ops);
  if (done == 0) return;
  report->cache_status = KJIT_ERR_IO;
  snprintf(report->cache_message, sizeof report->cache_message, "cache folder %s cannot be written: %s", user->dir.path,
           strerror(-done));
}

void builder_doctor(struct builder *builder, kjit_doctor_report *report) {
  doctor_nvrtc(builder, report);
  report->cache_status = builder->cache_error.status;
  report->cache_mode = (uint32_t)builder->mode;
  copy_cut(report->cache_path, sizeof report->cache_path, builder->user.dir.path);
  copy_cut(report->cache_message, sizeof report->cache_message, builder->cache_error.message);
}
