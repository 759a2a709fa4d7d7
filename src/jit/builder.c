#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/builder_internal.h"

/* Between two questions to a caller who may cancel. */
#define STOP_EVERY_NS 5000000

static int64_t now_ns(const struct builder *builder) {
  return builder->ops->monotonic_ns(builder->ops->user);
}

/* The part of the key that names the tools: NVRTC, the linker or both. NULL: it is not there, or asking would read
 * files where that is forbidden. That it is missing is believed for a second: it may be installed meanwhile, but a hit
 * must not search for it. */
static const char *identify(struct builder *builder, const struct jit_request *request, _Bool may_read_files) {
  const enum compile_tools tools = compile_tools_of(request);
  const _Bool identified = atomic_load(&builder->identified[tools]);
  if (!identified && (!may_read_files || now_ns(builder) < atomic_load(&builder->missing_until_ns[tools]))) return NULL;
  const char *identity = compile_identity(builder->nvrtc, request, NULL);
  if (identity)
    atomic_store(&builder->identified[tools], 1);
  else
    atomic_store(&builder->missing_until_ns[tools], now_ns(builder) + 1000000000);
  return identity;
}

/* Hand a resident artifact out: a kernel, or the failure that is remembered. */
static kjit_status deliver(kjit_artifact *artifact, kjit_artifact **out, kjit_error *error) {
  const struct entry *entry = &artifact_image(artifact)->entry;
  *out = artifact;
  if (entry->cubin_bytes) return KJIT_OK;
  return error_set(error, KJIT_ERR_COMPILE, "%s", entry->message.data);
}

/* A leader that ran out of its own time says nothing about the kernel: a follower takes over. */
static _Bool is_private(kjit_status status) {
  return status == KJIT_ERR_TIMEOUT || status == KJIT_ERR_CANCELLED;
}

_Bool builder_call_is_over(void *user) {
  const struct builder_call *call = user;
  const struct jit_request *request = call->request;
  return now_ns(call->builder) >= call->deadline_ns || (request->stop && request->stop(request->stop_user));
}

kjit_status builder_call_end(const struct builder_call *call, const char *what, kjit_error *error) {
  const struct jit_request *request = call->request;
  if (now_ns(call->builder) >= call->deadline_ns)
    return error_set(error, KJIT_ERR_TIMEOUT, "kernel %s for %s: %s after %u ms", request->entry, request->target.name,
                     what, request->timeout_ms);
  return error_set(error, KJIT_ERR_CANCELLED, "kernel %s for %s: %s, and the caller cancelled", request->entry,
                   request->target.name, what);
}

/* Outside this process's memory a request is known by its key. */
static kjit_status get_keyed(struct builder_call *call, _Bool refused, kjit_artifact **out, int64_t *expires_ns,
                             kjit_error *error) {
  struct key key;
  kjit_status status = key_make(&key, call->builder->mem, call->request, call->compiler, error);
  call->key = &key;
  const uint32_t flags = call->request->flags;
  if (status == KJIT_OK && flags & KJIT_BUILD_KEY_ONLY)
    status = builder_make_key(call, out, error);
  else if (status == KJIT_OK)
    status = flags & KJIT_BUILD_NO_COMPILE ? builder_look_up(call, out, error)
                                           : builder_produce(call, refused, out, expires_ns, error);
  call->key = NULL;
  key_finish(&key);
  return status;
}

static kjit_status lead(struct builder_call *call, struct resident_join *join, kjit_artifact **out, kjit_error *error) {
  struct builder *builder = call->builder;
  kjit_artifact *artifact = NULL;
  int64_t expires_ns = INT64_MAX;
  kjit_error found = {0};
  kjit_status status = get_keyed(call, join->refused, &artifact, &expires_ns, &found);
  found.status = (int32_t)status;
  resident_land(builder->resident, join->flight, artifact, expires_ns, &found);
  if (status == KJIT_OK && now_ns(builder) >= call->deadline_ns) {
    /* It is kept for the next call; this one was promised an answer in time or none. */
    kjit_artifact_release(artifact);
    artifact = NULL;
    status = builder_call_end(call, "compiled, but only", &found);
  }
  if (error) *error = found;
  *out = artifact;
  return status;
}

/* Until the leader has landed or this call is over. A caller who may cancel is asked every few milliseconds. */
static kjit_status wait_for_leader(struct builder_call *call, struct flight *flight, kjit_artifact **out,
                                   kjit_error *error) {
  struct builder *builder = call->builder;
  for (;;) {
    const int64_t slice_ns = now_ns(builder) + STOP_EVERY_NS;
    const _Bool asks = call->request->stop && slice_ns < call->deadline_ns;
    const kjit_status status =
        resident_wait(builder->resident, flight, asks ? slice_ns : call->deadline_ns, out, error);
    if (status != KJIT_ERR_TIMEOUT || *out || error->status || builder_call_is_over(call)) return status;
  }
}

/* Wait for another thread. `*again`: its answer was not for us. */
static kjit_status follow(struct builder_call *call, struct flight *flight, _Bool *again, kjit_artifact **out,
                          kjit_error *error) {
  struct builder *builder = call->builder;
  const int64_t start_ns = now_ns(builder);
  kjit_error found = {0};
  kjit_status status = wait_for_leader(call, flight, out, &found);
  resident_leave(builder->resident, flight);
  count_add(&builder->counters, COUNT_waits, 1);
  count_add(&builder->counters, COUNT_wait_ns, (uint64_t)(now_ns(builder) - start_ns));
  if (is_private(status)) {
    *again = !builder_call_is_over(call);
    error_clear(&found);
    if (!*again) status = builder_call_end(call, "another thread is still compiling it", &found);
  }
  if (error) *error = found;
  return status;
}

/* Neither compile nor wait for anybody's compile: the tiers have it or not. */
static kjit_status look_up_only(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  const struct jit_request *request = call->request;
  int64_t expires_ns;
  const kjit_status status = get_keyed(call, 0, out, &expires_ns, error);
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

static kjit_status get_identified(struct builder_call *call, kjit_artifact **out, kjit_error *error) {
  struct builder *builder = call->builder;
  const _Bool may_lead = !(call->request->flags & (KJIT_BUILD_RESIDENT_ONLY | KJIT_BUILD_NO_COMPILE));
  for (;;) {
    struct resident_join join;
    _Bool again = 0;
    kjit_status status = KJIT_OK;
    switch (resident_ask(builder->resident, &call->identity, now_ns(builder), may_lead, &join)) {
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

kjit_status builder_get(struct builder *builder, const struct jit_request *request, kjit_artifact **out,
                        kjit_error *error) {
  struct builder_call call = {.builder = builder, .request = request, .deadline_ns = INT64_MAX};
  *out = NULL;
  if (request->timeout_ms) call.deadline_ns = now_ns(builder) + request->timeout_ms * (int64_t)1000000;
  call.compiler = identify(builder, request, !(request->flags & KJIT_BUILD_RESIDENT_ONLY));
  key_identify(&call.identity, request, call.compiler);
  if (request->flags & KJIT_BUILD_KEY_ONLY) return get_keyed(&call, 0, out, NULL, error);
  if (record_is_on(builder->record) && !(request->flags & KJIT_BUILD_RESIDENT_ONLY))
    record_request(builder->record, request, &call.identity);
  return get_identified(&call, out, error);
}

void builder_forget(struct builder *builder, const kjit_artifact *artifact) {
  struct entry_name name;
  if (!artifact) return;
  resident_refuse(builder->resident, artifact_identity(artifact), artifact);
  artifact_entry_name(artifact, &name);
  if (builder->user.dir.folder >= 0) disk_cache_set_aside(&builder->user, &name, 0, "the driver refused it");
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
  const _Bool works = identity && nvrtc_open(builder->nvrtc, &api, &major, &minor, &error) == KJIT_OK;
  report->nvrtc_status = works ? KJIT_OK : KJIT_ERR_NO_NVRTC;
  report->nvrtc_major = works ? major : 0;
  report->nvrtc_minor = works ? minor : 0;
  copy_cut(report->nvrtc_message, sizeof report->nvrtc_message, error.message);
}

void builder_doctor(struct builder *builder, kjit_doctor_report *report) {
  doctor_nvrtc(builder, report);
  report->cache_status = builder->cache_error.status;
  report->cache_mode = (uint32_t)builder->mode;
  copy_cut(report->cache_path, sizeof report->cache_path, builder->user.dir.path);
  copy_cut(report->cache_message, sizeof report->cache_message, builder->cache_error.message);
}
