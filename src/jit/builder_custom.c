/* A caller's own kernel source, from the request to the builder. The steps of one call:
 *
 *  1. The request is checked, and its fingerprint made of everything but the files on disk.
 *  2. A record of that fingerprint (source_memo.h), still true of the files, gives names and digests: enough for the
 *     key. If a compile is needed after all, builder_produce.c asks for the texts (supply()); when the files have
 *     changed meanwhile, the call starts again.
 *  3. Without a record the sources are collected, and the record is kept. A request of parts alone has none.
 *  4. A compile that fails for an include that the walk did not reach is repeated with every branch's includes.
 *
 * No state but the memo's is shared between calls. */
#include "jit/builder_custom.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/error.h"
#include "base/files/file.h"
#include "jit/builder_call.h"
#include "jit/builder_internal.h"
#include "jit/compile/compile_inspect.h"
#include "jit/request/custom_request.h"
#include "jit/source_memo.h"
#include "jit/toolkit/toolkit_find.h"

/* 64 MiB, as for the whole of a source. */
#define MAIN_FILE_LIMIT ((size_t)64 << 20)

struct custom_call {
  struct builder *builder;
  struct custom_request custom;
  struct digest fingerprint;
  const struct source_record *record; /* NULL when the sources were collected */
  bool everything, stale;
  struct builder_call ask; /* for its deadline alone */
};

static kjit_status collect(struct custom_call *call, kjit_error *error) {
  const int64_t started_ns = source_memo_now_ns();
  const kjit_status status = custom_request_collect(&call->custom, call->everything, error);
  call->custom.request.includes_ns += source_memo_now_ns() - started_ns;
  if (status == KJIT_ERR_CANCELLED) {
    error_clear(error);
    return builder_call_end(&call->ask, "the source's includes were still being read", error);
  }
  if (status != KJIT_OK || !custom_request_has_source(&call->custom)) return status;
  source_memo_put(call->builder->memo, &call->fingerprint, &call->custom, call->everything, started_ns);
  return KJIT_OK;
}

/* Called in the middle of a build for a key that was made from a record. */
static kjit_status supply(void *user, const struct source_set **sources, kjit_error *error) {
  struct custom_call *call = user;
  kjit_status status = collect(call, error);
  if (status != KJIT_OK) return status;
  if (digest_equal(&call->custom.request.sources->digest, &call->record->set.digest)) {
    *sources = call->custom.request.sources;
    return KJIT_OK;
  }
  call->stale = 1;
  return error_set(error, KJIT_ERR_CANCELLED, "%s: a file changed while it was asked for", call->custom.request.label);
}

static kjit_status recall(struct custom_call *call, bool resident_only, kjit_error *error) {
  const struct source_record *record = source_memo_find(call->builder->memo, &call->fingerprint, resident_only);
  if (resident_only && !record) {
    const struct jit_request *request = &call->custom.request;
    return error_set(error, KJIT_ERR_NOT_RESIDENT,
                     "kernel %s for %s: not in memory, and the call forbids loading or compiling it", request->entry,
                     request->target.name);
  }
  if (record) call->everything = record->everything;
  if (record && (resident_only || source_record_is_fresh(record))) {
    call->record = record;
    custom_request_use(&call->custom, &record->set);
    call->custom.request.supply = supply;
    call->custom.request.supply_user = call;
    return KJIT_OK;
  }
  source_record_release(record);
  return collect(call, error);
}

/* Collect the sources, of which until now only a record of digests was known. */
static kjit_status collect_again(struct custom_call *call, kjit_error *error) {
  call->custom.request.supply = NULL;
  error_clear(error);
  return collect(call, error);
}

static kjit_status run(struct custom_call *call, builder_custom_act act, void *user, kjit_error *error) {
  const uint32_t flags = call->custom.request.flags;
  const bool strict = flags & KJIT_BUILD_STRICT_SOURCES && !(flags & KJIT_BUILD_RESIDENT_ONLY);
  kjit_status status = strict || !custom_request_has_source(&call->custom)
                           ? collect(call, error)
                           : recall(call, (flags & KJIT_BUILD_RESIDENT_ONLY) != 0, error);
  if (status == KJIT_OK) status = act(user, &call->custom.request, error);
  if (status == KJIT_ERR_CANCELLED && call->stale) {
    status = collect_again(call, error);
    if (status == KJIT_OK) status = act(user, &call->custom.request, error);
  }
  if (status != KJIT_ERR_COMPILE || call->everything || !strstr(error->message, INCLUDE_UNREAD)) return status;
  call->everything = 1;
  status = collect_again(call, error);
  return status == KJIT_OK ? act(user, &call->custom.request, error) : status;
}

/* The first folder whose headers are of another version than the compiler; NULL when there is none. */
static const char *find_mismatch(const struct builder *builder, const kjit_build_request *request,
                                 const struct custom_extras *extras, unsigned compiler, unsigned *version) {
  const size_t own = request->include_dir_count;
  for (size_t i = 0; i < own + extras->dir_count; i++) {
    const char *dir = i < own ? request->include_dirs[i] : extras->dirs[i - own];
    *version = toolkit_header_version(builder->mem, dir);
    if (*version && *version / 10 != compiler / 10) return dir;
  }
  return NULL;
}

/* A failed compile with the headers of another toolkit: the compiler's message alone would send the reader astray. */
static void explain_mismatch(const struct builder *builder, const kjit_build_request *request,
                             const struct custom_extras *extras, kjit_error *error) {
  const struct nvrtc_api *api;
  int major, minor;
  unsigned version = 0;
  if (nvrtc_open(builder->nvrtc, &api, &major, &minor, NULL) != KJIT_OK) return;
  const char *dir = find_mismatch(builder, request, extras, (unsigned)(major * 1000 + minor * 10), &version);
  if (!dir) return;
  const size_t used = strlen(error->message);
  (void)snprintf(
      error->message + used, sizeof error->message - used,
      "; the headers in %.120s are of CUDA %u.%u and the compiler is NVRTC %d.%d: use headers of its version", dir,
      version / 1000, version / 10 % 100, major, minor);
}

/* The caller's time begins with the call, not when its includes have been read. */
static void begin_clock(struct custom_call *call, int64_t begun_ns) {
  struct jit_request *request = &call->custom.request;
  request->begun_ns = begun_ns;
  call->ask = (struct builder_call){.builder = call->builder, .request = request, .deadline_ns = INT64_MAX};
  if (request->timeout_ms) call->ask.deadline_ns = begun_ns + request->timeout_ms * (int64_t)1000000;
  call->custom.stop = builder_call_is_over;
  call->custom.stop_user = &call->ask;
}

/* The file that a caller's source was read from, for line tables: the one of its name in the request's folders, if that
 * has the same text. False when there is none. */
static bool find_main_file(const struct builder *builder, const kjit_build_request *request,
                           char path[DYNLIB_PATH_BYTES]) {
  const kjit_source *const source = &request->source;
  bool found = false;
  for (size_t i = 0; i < request->include_dir_count && !found; i++) {
    char *text = NULL;
    size_t bytes = 0;
    const int length = snprintf(path, DYNLIB_PATH_BYTES, "%s/%s", request->include_dirs[i], source->name);
    if (length <= 0 || length >= DYNLIB_PATH_BYTES) continue;
    if (file_read(builder->mem, path, MAIN_FILE_LIMIT, &text, &bytes, NULL) != KJIT_OK) continue;
    found = bytes == (source->bytes ? source->bytes : strlen(source->text)) && !memcmp(text, source->text, bytes);
    mem_free(builder->mem, text);
  }
  return found;
}

kjit_status builder_custom(struct builder *builder, const kjit_build_request *request, const struct custom_role *role,
                           const char *arch, builder_custom_act act, void *user, kjit_error *error) {
  struct custom_call call = {.builder = builder};
  struct custom_extras extras = {.role = role};
  kjit_error found = {0};
  const int64_t begun_ns = builder_now_ns(builder);
  char main_path[DYNLIB_PATH_BYTES];
  if (!(request->flags & KJIT_BUILD_NO_TOOLKIT))
    toolkit_extras(&builder->toolkit, builder->nvrtc, (request->flags & KJIT_BUILD_RESIDENT_ONLY) != 0, &extras);
  kjit_status status = custom_request_begin(&call.custom, builder->mem, request, arch, &extras, &found);
  if (status == KJIT_OK) {
    begin_clock(&call, begun_ns);
    const bool resident_only = request->flags & KJIT_BUILD_RESIDENT_ONLY;
    if (request->source.text && !resident_only && compile_wants_lines(&call.custom.request) &&
        find_main_file(builder, request, main_path))
      call.custom.request.main_path = main_path;
    if (custom_request_has_source(&call.custom)) custom_request_fingerprint(&call.custom, &call.fingerprint);
    status = run(&call, act, user, &found);
    if (status == KJIT_ERR_COMPILE) explain_mismatch(builder, request, &extras, &found);
    custom_request_finish(&call.custom);
  }
  source_record_release(call.record);
  if (error) *error = found;
  return status;
}
