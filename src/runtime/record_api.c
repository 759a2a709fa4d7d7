/* kjit_runtime_record(): checks the argument and hands it to the builder, which records all requests. Any thread. */
#include <kjit/record.h>

#include "base/error.h"
#include "runtime/runtime_state.h"

kjit_status kjit_runtime_record(kjit_runtime *runtime, const char *path, kjit_error *error) {
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  return builder_record(runtime->builder, path, error);
}
