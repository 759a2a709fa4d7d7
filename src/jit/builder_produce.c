/* Steps 4 to 8 of "How a request is answered" (builder.c): from the tiers to a published entry. Runs in the thread that
 * leads the key's flight, or in one of builder_background.c; no lock of the process is held. */
#include "jit/builder_produce.h"

#include <string.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "jit/builder_held.h"
#include "jit/cache/cache_publish.h"
#include "jit/cache/failure_cache.h"
#include "jit/cache/text_store.h"
#include "jit/compile/compile.h"
#include "jit/compile/symbols.h"
#include "jit/inspect.h"
#include "jit/toolkit/toolkit_find.h"

/* Pauses between two looks at a lock: short at first, because the other process may be nearly done, then longer, so
 * that many waiting processes are no burden. */
#define POLL_FIRST_NS 500000
#define POLL_LAST_NS  20000000

/* The same between two looks at a remote store, which 500 machines may take at the same time. */
#define LEASE_POLL_FIRST_NS 10000000
#define LEASE_POLL_LAST_NS  320000000

static kjit_status look_in(struct builder_call *call, struct disk_cache *cache, bool refresh, kjit_artifact **out,
                           kjit_error *error) {
  struct builder *builder = call->builder;
  struct entry_image image;
  const kjit_status status = disk_cache_get(cache, call->key, refresh, &image);
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  if (status != KJIT_OK) return status;
  count_add(&builder->counters, cache->origin == KJIT_ORIGIN_SITE ? COUNT_site_hits : COUNT_user_hits, 1);
  return artifact_create(out, builder->mem, &image, &call->identity, cache->origin, error);
}

static kjit_status look_in_bundles(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  struct builder *builder = call->builder;
  struct entry_image image;
  const kjit_status status = bundle_set_get(&builder->bundles, call->key, &image, &call->refusal);
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  if (status != KJIT_OK) return status;
  count_add(&builder->counters, COUNT_bundle_hits, 1);
  return artifact_create(out, builder->mem, &image, &call->identity, KJIT_ORIGIN_BUNDLE, error);
}

static kjit_status look_in_remote(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  struct builder *builder = call->builder;
  struct entry_image image;
  const kjit_status status = remote_get(builder->remote, call->key, call->deadline_ns, &image);
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  if (status != KJIT_OK) return status;
  return artifact_create(out, builder->mem, &image, &call->identity, KJIT_ORIGIN_REMOTE, error);
}

/* Step 4. */
kjit_status builder_look_up(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  kjit_status status = look_in_bundles(call, out, error);
  if (status == KJIT_ERR_NOT_FOUND) status = look_in(call, &call->builder->site, 0, out, error);
  if (status == KJIT_ERR_NOT_FOUND) status = look_in(call, &call->builder->user, 0, out, error);
  if (status == KJIT_ERR_NOT_FOUND) status = look_in_remote(call, out, error);
  return status;
}

/* Cut a text that a caller or a compiler made longer than an entry may hold. */
static struct entry_text text_of(const char *data, size_t limit) {
  const size_t bytes = strnlen(data, limit);
  return (struct entry_text){data, bytes};
}

/* Write the entry of a compile into memory: the image is what is published, and what the artifact is made of. */
static kjit_status make_image(const struct builder_call *call, const struct compile_result *result, const char *message,
                              struct entry_image *image, kjit_error *error) {
  const struct jit_request *request = call->request;
  struct entry entry = {0};
  entry.key_text = (struct entry_text){call->key->text.data, call->key->text.bytes};
  entry.family = text_of(request->family, ENTRY_LINE_MAX_BYTES);
  entry.label = text_of(request->label, ENTRY_LINE_MAX_BYTES);
  entry.message = text_of(message, ENTRY_LINE_MAX_BYTES);
  entry.log = text_of(result->log ? result->log : "", ENTRY_LOG_MAX_BYTES);
  entry.symbols = text_of(*message || !result->symbols ? "" : result->symbols, SYMBOLS_MAX_BYTES);
  entry.cubin = result->cubin;
  entry.cubin_bytes = *message ? 0 : result->cubin_bytes;
  entry.figures = (struct entry_figures){result->registers,    result->spill_bytes, result->local_bytes,
                                         result->shared_bytes, result->max_threads, result->compile_ns};
  image->bytes = entry_image_bytes(&entry);
  if (!image->bytes)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "kernel %s: cubin larger than 128 MiB", request->entry);
  image->data = mem_alloc(call->builder->mem, image->bytes);
  if (!image->data) return error_no_memory(error);
  entry_write(&entry, image->data);
  const char *damage = entry_read(image->data, image->bytes, &image->entry);
  if (!damage) return KJIT_OK;
  entry_image_finish(image, call->builder->mem);
  return error_set(error, KJIT_ERR_INTERNAL, "kernel %s: its entry is unsound: %s", request->entry, damage);
}

/* The message of a failure. It must not be empty, because the message tells a failure's entry from a kernel's. */
static const char *failure_message(const kjit_error *error) {
  return error->message[0] ? error->message : kjit_status_text(KJIT_ERR_COMPILE);
}

/* Step 7: compile in the compile server; without one, in this process. */
static kjit_status compile_somewhere(struct builder_call *call, struct compile_result *result, kjit_error *error) {
  struct builder *builder = call->builder;
  const compile_stop stop = builder_call_is_over; /* without a deadline too, because the builder may be cancelled */
  kjit_status status = KJIT_OK;
  /* A worker's answer has neither PTX nor times. */
  const bool inspects = nvrtc_inspected(builder->nvrtc) & (NVRTC_INSPECT_PTX | NVRTC_INSPECT_TIME);
  if (builder->server && !inspects &&
      compile_server_run(builder->server, call->request, stop, call, result, &status, error))
    return status;
  /* Counted before the compile asks whether the builder is cancelled, so that who cancels and then waits sees it. */
  atomic_fetch_add(&builder->compiling, 1);
  status = compile_run(builder->nvrtc, call->request, builder->mem, stop, call, result, error);
  atomic_fetch_sub(&builder->compiling, 1);
  return status;
}

/* Pass the compiler's warnings about a kernel to the log callback, line by line. */
static void tell_log(const struct builder_call *call, const char *text) {
  for (const char *line = text; line && *line;) {
    const size_t bytes = strcspn(line, "\n");
    const int shown = bytes < 400 ? (int)bytes : 400;
    if (bytes) log_write(call->builder->log, KJIT_LOG_INFO, "%.80s: %.*s", call->request->label, shown, line);
    line += bytes + (line[bytes] == '\n');
  }
}

/* Compile and make the artifact. A rejected source gives an artifact too, which holds the compiler's log. */
static kjit_status compile(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  struct builder *builder = call->builder;
  struct compile_result result = {0};
  struct entry_image image = {0};
  const int64_t start_ns = builder_now_ns(builder);
  const bool ranges = nvrtc_inspected(builder->nvrtc) & NVRTC_INSPECT_RANGES;
  if (ranges) nvtx_push("compile", call->request->label, call->request->target.name);
  kjit_status status = compile_somewhere(call, &result, error);
  if (ranges) nvtx_pop();
  if (status == KJIT_ERR_CANCELLED) {
    error_clear(error);
    status = builder_call_end(call, "the compile was stopped", error);
  }
  count_add(&builder->counters, COUNT_build_ns, (uint64_t)(builder_now_ns(builder) - start_ns));
  count_add(&builder->counters, status == KJIT_OK ? COUNT_builds : COUNT_build_failures, 1);
  if (status == KJIT_OK) tell_log(call, result.log);
  kjit_status kept = status;
  if (status == KJIT_OK || status == KJIT_ERR_COMPILE)
    kept = make_image(call, &result, status == KJIT_OK ? "" : failure_message(error), &image, error);
  if (builder->dump_dir && image.data)
    inspect_dump(builder->dump_dir, call->request, call->key, &result, status == KJIT_OK ? "" : failure_message(error),
                 builder->mem, builder->log);
  if (image.data) kept = artifact_create(out, builder->mem, &image, &call->identity, KJIT_ORIGIN_BUILT, error);
  if (*out) artifact_set_phases(*out, &result, call->request->includes_ns);
  compile_result_finish(&result, builder->mem);
  return kept == KJIT_OK ? status : kept;
}

kjit_status builder_make_key(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  const struct text *const text = &call->key->text;
  struct entry_image image = {.data = mem_duplicate(call->builder->mem, text->data, text->bytes), .bytes = text->bytes};
  if (!image.data) return error_no_memory(error);
  /* This image is no entry: an entry has a cubin or a failure, and a key that names a compiler. */
  image.entry.key_text = (struct entry_text){image.data, text->bytes};
  image.entry.log = image.entry.symbols = text_of("", 0);
  return artifact_create(out, call->builder->mem, &image, &call->identity, KJIT_ORIGIN_NONE, error);
}

/* Keep the texts of a caller's source, so that it can be told later which line of it changed. */
static void keep_texts(const struct builder_call *call) {
  struct builder *builder = call->builder;
  struct custom_extras extras = {0};
  if (!call->request->keeps_texts) return;
  toolkit_extras(&builder->toolkit, builder->nvrtc, true, &extras);
  text_store_put(&builder->user, call->request->sources, &(struct text_store_skip){extras.dirs, extras.dir_count});
}

/* Step 8. A kernel is published for every other process; a failure only for a while. */
static void publish(struct builder_call *call, kjit_status status, kjit_artifact *artifact, bool lease,
                    int64_t *expires_ns) {
  struct builder *builder = call->builder;
  const struct entry_image *image = artifact_image(artifact);
  struct entry_name name;
  artifact_entry_name(artifact, &name);
  if (status == KJIT_OK) {
    remote_publish(builder->remote, &call->key->digest, image->data, image->bytes, lease);
    const int64_t start_ns = builder_now_ns(builder);
    const int done = cache_publish(&builder->user, &name, image->data, image->bytes);
    if (done < 0 && builder->mode == KJIT_CACHE_RW) count_add(&builder->counters, COUNT_not_kept, 1);
    keep_texts(call);
    if (!call->request->publishes_later) artifact_set_publish(artifact, builder_now_ns(builder) - start_ns);
    return;
  }
  *expires_ns = builder_now_ns(builder) + builder->failure_s * 1000000000;
  failure_cache_put(&builder->user, &name, image->data, image->bytes, builder->failure_s);
}

/* Step 6: find out whether the compile failed a moment ago, here or in another process. KJIT_ERR_NOT_FOUND if not. */
static kjit_status recall_failure(struct builder_call *call, kjit_artifact **out, int64_t *expires_ns,
                                  kjit_error *error) {
  struct builder *builder = call->builder;
  struct entry_image image;
  int64_t age_s = 0;
  kjit_status status = failure_cache_get(&builder->user, call->key, builder->failure_s, &image, &age_s);
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  if (status != KJIT_OK) return status;
  const char *message = image.entry.message.data;
  status = error_set(error, KJIT_ERR_COMPILE, "%s", message);
  *expires_ns = builder_now_ns(builder) + (builder->failure_s - age_s) * 1000000000;
  const kjit_status made = artifact_create(out, builder->mem, &image, &call->identity, KJIT_ORIGIN_USER, error);
  return made == KJIT_OK ? status : made;
}

/* Step 9 before step 8, in a thread of its own: those who wait have the kernel while it is still being published. From
 * here on the artifact is theirs too, so nothing of it changes any more. */
static void land_early(struct builder_call *call, kjit_artifact *artifact) {
  const kjit_error none = {0};
  resident_land(call->builder->resident, call->flight, artifact, INT64_MAX, &none);
  call->flight = NULL;
}

/* Compile. With `lease` the fleet's lease of the key is ours, and is given back. */
static kjit_status compile_holding(struct builder_call *call, bool lease, kjit_artifact **out, int64_t *expires_ns,
                                   kjit_error *error) {
  kjit_status status = compile(call, out, error);
  if (status == KJIT_OK && call->flight && call->request->publishes_later) land_early(call, *out);
  if (*out) publish(call, status, *out, lease, expires_ns);
  if (lease && status != KJIT_OK) remote_publish(call->builder->remote, &call->key->digest, NULL, 0, true);
  return status;
}

/* Step 7, one builder in the fleet: while another machine holds the lease of the key, look whether its entry is there.
 * The wait ends after REMOTE_LEASE_S, when every lease that was held at its beginning has run out. */
static kjit_status build_in_fleet(struct builder_call *call, kjit_artifact **out, int64_t *expires_ns,
                                  kjit_error *error) {
  struct builder *builder = call->builder;
  const struct file_ops *ops = builder->ops;
  const int64_t start_ns = builder_now_ns(builder);
  int64_t pause_ns = LEASE_POLL_FIRST_NS;
  for (;;) {
    const enum remote_turn turn = remote_lease(builder->remote, &call->key->digest, call->deadline_ns);
    const bool waited = pause_ns != LEASE_POLL_FIRST_NS;
    /* Who had the lease before us may have put the entry after we looked, so look again. */
    if (turn != REMOTE_TURN_FREE || waited) {
      const kjit_status status = look_in_remote(call, out, error);
      if (status != KJIT_ERR_NOT_FOUND && turn == REMOTE_TURN_OURS)
        remote_publish(builder->remote, &call->key->digest, NULL, 0, true);
      if (status != KJIT_ERR_NOT_FOUND) return status;
    }
    const bool patient = builder_now_ns(builder) - start_ns < REMOTE_LEASE_S * (int64_t)1000000000;
    if (turn == REMOTE_TURN_OTHERS && !patient) remote_lease_in_vain(builder->remote);
    if (turn != REMOTE_TURN_OTHERS || !patient)
      return compile_holding(call, turn == REMOTE_TURN_OURS, out, expires_ns, error);
    if (builder_call_is_over(call)) return builder_call_end(call, "another machine is still compiling it", error);
    if (!waited) count_add(&builder->counters, COUNT_remote_waits, 1);
    ops->sleep_ns(ops->user, pause_ns);
    pause_ns = pause_ns < LEASE_POLL_LAST_NS ? pause_ns * 2 : pause_ns;
  }
}

/* Steps 6 to 8. `alone` says that enough was waited already. */
static kjit_status compile_and_publish(struct builder_call *call, bool alone, kjit_artifact **out, int64_t *expires_ns,
                                       kjit_error *error) {
  kjit_status status = recall_failure(call, out, expires_ns, error);
  if (status != KJIT_ERR_NOT_FOUND) return status;
  if (alone || !call->builder->remote) return compile_holding(call, false, out, expires_ns, error);
  return build_in_fleet(call, out, expires_ns, error);
}

enum wait_end { WAIT_LOCKED, WAIT_ANSWERED, WAIT_ALONE, WAIT_OVER };

/* Step 5: wait until the lock is ours, its holder has published, or the bound on waiting has passed. */
static enum wait_end wait_for_lock(struct builder_call *call, struct cache_lock *lock, kjit_artifact **out,
                                   kjit_status *status, kjit_error *error) {
  struct builder *builder = call->builder;
  const struct file_ops *ops = builder->ops;
  const int folder = builder->user.dir.folder;
  const int64_t start_ns = builder_now_ns(builder);
  for (int64_t pause_ns = POLL_FIRST_NS;; pause_ns = pause_ns < POLL_LAST_NS ? pause_ns * 2 : pause_ns) {
    const enum cache_lock_result result = cache_lock_try(lock, ops, folder);
    if (result == CACHE_LOCK_UNAVAILABLE) return WAIT_ALONE;
    /* The lock is ours. Its last holder may have published after we looked, so look again. */
    *status = look_in(call, &builder->user, 1, out, error);
    if (*status != KJIT_ERR_NOT_FOUND) return WAIT_ANSWERED;
    if (result == CACHE_LOCK_TAKEN) return WAIT_LOCKED;
    const int64_t now = builder_now_ns(builder);
    if (builder_call_is_over(call)) return WAIT_OVER;
    if (now - start_ns >= builder->wait_bound_ns) {
      cache_lock_give_up(lock, ops, folder);
      return WAIT_ALONE;
    }
    ops->sleep_ns(ops->user, pause_ns);
  }
}

/* Step 5: one builder among all processes that share the folder. */
static kjit_status build_once(struct builder_call *call, kjit_artifact **out, int64_t *expires_ns, kjit_error *error) {
  struct builder *builder = call->builder;
  const int folder = builder->user.dir.folder;
  struct cache_lock lock;
  kjit_status status = KJIT_OK;
  const int64_t start_ns = builder_now_ns(builder);
  cache_lock_init(&lock, &call->key->digest);
  builder_held_add(builder, &lock);
  const enum wait_end end = wait_for_lock(call, &lock, out, &status, error);
  if (end != WAIT_LOCKED || builder_now_ns(builder) - start_ns > POLL_FIRST_NS) {
    count_add(&builder->counters, COUNT_waits, 1);
    count_add(&builder->counters, COUNT_wait_ns, (uint64_t)(builder_now_ns(builder) - start_ns));
  }
  if (end == WAIT_OVER)
    status = builder_call_end(call, "another process is still compiling it", error);
  else if (end != WAIT_ANSWERED)
    status = compile_and_publish(call, end == WAIT_ALONE, out, expires_ns, error);
  builder_held_remove(builder, &lock);
  cache_lock_release(&lock, builder->ops, folder);
  return status;
}

/* The error when no tier has the kernel and it cannot be compiled: what is missing, where it was looked for, what to
 * do. */
static kjit_status cannot_compile(const struct builder_call *call, kjit_status status, const char *why,
                                  kjit_error *error) {
  const struct jit_request *request = call->request;
  if (call->refusal.status)
    return error_set(error, status,
                     "kernel %.60s for %s: a bundle has it but is refused: %.200s; nor can it be compiled here: %.130s",
                     request->entry, request->target.name, call->refusal.message, why);
  return error_set(
      error, status,
      "kernel %.60s for %s is in no bundle and no cache (%.160s%s): add it where NVRTC is, with 'kjit bundle "
      "create' or 'kjit warm'; it cannot be compiled here: %.240s",
      request->entry, request->target.name, request->label, strlen(request->label) > 160 ? "…" : "", why);
}

/* The error when the key was made without a compiler, because none was found. */
static kjit_status no_compiler(const struct builder_call *call, kjit_error *error) {
  kjit_error why = {0};
  if (compile_identity(call->builder->nvrtc, call->request, &why))
    return error_set(error, KJIT_ERR_NO_NVRTC, "NVRTC was missing when this call began; it is there now: call again");
  return cannot_compile(call, KJIT_ERR_NO_NVRTC, why.message, error);
}

kjit_status builder_produce(struct builder_call *call, bool refused, kjit_artifact **out, int64_t *expires_ns,
                            kjit_error *error) {
  struct builder *builder = call->builder;
  *out = NULL;
  count_add(&builder->counters, COUNT_misses, 1);
  if (call->request->sources->withheld)
    return cannot_compile(call, KJIT_ERR_UNSUPPORTED,
                          "this library was built without its kernel sources (KJIT_EMBED_SOURCES=OFF)", error);
  if (!call->key->complete) return no_compiler(call, error);
  /* The driver refused the entry that the folder holds, so another process's build is not waited for either. */
  if (!refused && builder->user.dir.folder >= 0 && atomic_load(&builder->user.writable))
    return build_once(call, out, expires_ns, error);
  return compile_and_publish(call, refused, out, expires_ns, error);
}
