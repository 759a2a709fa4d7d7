/* The public functions of kjit/record.h: each checks its arguments and hands them on, to the builder or to the writer
 * of recorded sources. Any thread. */
#include <kjit/record.h>

#include "base/error.h"
#include "jit/builder_recorded.h"
#include "jit/record/record_sources.h"
#include "runtime/runtime_state.h"

kjit_status kjit_runtime_record(kjit_runtime *runtime, const char *path, kjit_error *error) {
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  return builder_record(runtime->builder, path, error);
}

kjit_status kjit_recorded_build(kjit_runtime *runtime, const char *path, const char *arch, uint32_t flags,
                                kjit_artifact **out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!path) return error_invalid(error, "path", "must not be NULL");
  if (flags & ~JIT_REQUEST_FLAGS) return error_invalid(error, "flags", "only KJIT_BUILD_* may be set");
  return builder_recorded(runtime->builder, path, arch, flags, out, error);
}

kjit_status kjit_record_sweep(const char *path, uint64_t *removed, kjit_error *error) {
  struct mem mem;
  uint64_t found = 0;
  error_clear(error);
  if (removed) *removed = 0;
  if (!path) return error_invalid(error, "path", "must not be NULL");
  (void)mem_init(&mem, NULL);
  const kjit_status status = record_sources_sweep(&mem, file_ops_system(), path, &found, error);
  if (removed) *removed = found;
  return status;
}
