/* The public functions of include/kjit/cache.h. Each checks that there is a runtime and calls the builder's cache,
 * where the work is done. Any thread. */
#include <kjit/cache.h>

#include "base/error.h"
#include "jit/admin/cache_admin.h"
#include "jit/admin/remote_admin.h"
#include "runtime/runtime_state.h"

static kjit_status no_runtime(kjit_error *error) {
  error_clear(error);
  return error_invalid(error, "runtime", "must not be NULL");
}

const char *kjit_cache_path(const kjit_runtime *runtime) {
  return runtime ? builder_cache_path(runtime->builder) : NULL;
}

kjit_status kjit_cache_list(kjit_runtime *runtime, kjit_cache_visit visit, void *user, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_list(runtime->builder, visit, user, error);
}

kjit_status kjit_cache_show(kjit_runtime *runtime, const char *prefix, kjit_cache_visit visit, void *user,
                            kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_show(runtime->builder, prefix, visit, user, error);
}

kjit_status kjit_cache_verify(kjit_runtime *runtime, uint32_t flags, kjit_cache_report *report, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_verify(runtime->builder, flags, report, error);
}

kjit_status kjit_cache_prune(kjit_runtime *runtime, uint64_t max_bytes, kjit_cache_report *report, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_prune(runtime->builder, max_bytes, report, error);
}

kjit_status kjit_cache_clear(kjit_runtime *runtime, kjit_cache_report *report, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_clear(runtime->builder, report, error);
}

kjit_status kjit_cache_get_stats(kjit_runtime *runtime, kjit_cache_stats *stats, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_get_stats(runtime->builder, stats, error);
}

kjit_status kjit_cache_why(kjit_runtime *runtime, const char *key, char nearest[65], kjit_cache_difference_visit visit,
                           void *user, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_why(runtime->builder, key, nearest, visit, user, error);
}

kjit_status kjit_cache_export(kjit_runtime *runtime, const char *path, const char *filter, kjit_cache_report *report,
                              kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_export(runtime->builder, path, filter, report, error);
}

kjit_status kjit_cache_import(kjit_runtime *runtime, const char *path, kjit_cache_report *report, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_cache_import(runtime->builder, path, report, error);
}

kjit_status kjit_remote_check(kjit_runtime *runtime, kjit_remote_report *report, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_remote_compare(runtime->builder, 0, report, error);
}

kjit_status kjit_remote_push(kjit_runtime *runtime, kjit_remote_report *report, kjit_error *error) {
  if (!runtime) return no_runtime(error);
  return builder_remote_compare(runtime->builder, 1, report, error);
}
