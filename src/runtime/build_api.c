/* The public functions that build without loading, and those that describe the devices. Each checks its arguments and
 * calls the builder or gpu.c. Any thread. */
#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/builder_custom.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

static kjit_status check_build_args(const kjit_runtime *runtime, const kjit_build_request *request, kjit_error *error) {
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  return request ? KJIT_OK : error_invalid(error, "request", "must not be NULL");
}

struct wanted_artifact {
  kjit_runtime *runtime;
  kjit_artifact **out;
};

static kjit_status get_artifact(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted_artifact *wanted = user;
  kjit_artifact_release(*wanted->out);
  return builder_get(wanted->runtime->builder, request, wanted->out, error);
}

kjit_status kjit_build(kjit_runtime *runtime, const kjit_build_request *request, kjit_artifact **out,
                       kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = check_build_args(runtime, request, error);
  if (status != KJIT_OK) return status;
  struct wanted_artifact wanted = {runtime, out};
  return builder_custom(runtime->builder, request, NULL, NULL, get_artifact, &wanted, error);
}

kjit_status kjit_device_count(kjit_runtime *runtime, uint32_t *count, kjit_error *error) {
  error_clear(error);
  if (count) *count = 0;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!count) return error_invalid(error, "count", "must not be NULL");
  const kjit_status status = gpu_open(&runtime->gpu, error);
  if (status == KJIT_OK) *count = runtime->gpu.device_count;
  return status;
}

kjit_status kjit_device_get_info(kjit_runtime *runtime, int32_t ordinal, kjit_device_info *info, kjit_error *error) {
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  const struct device *device;
  kjit_status status = KJIT_OK;
  if (ordinal == -1) status = gpu_current(&runtime->gpu, &ordinal, error);
  if (status == KJIT_OK) status = gpu_device(&runtime->gpu, ordinal, &device, error);
  if (status != KJIT_OK) return status;
  return struct_fill(info, &device->info, sizeof device->info, "info", error);
}
