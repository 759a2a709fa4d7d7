#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/request/custom_request.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

static kjit_status check_build_args(const kjit_runtime *runtime, const kjit_build_request *request, kjit_error *error) {
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  return request ? KJIT_OK : error_invalid(error, "request", "must not be NULL");
}

kjit_status kjit_build(kjit_runtime *runtime, const kjit_build_request *request, kjit_artifact **out,
                       kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = check_build_args(runtime, request, error);
  if (status != KJIT_OK) return status;
  struct custom_request custom;
  status = custom_request_init(&custom, &runtime->mem, request, NULL, error);
  if (status != KJIT_OK) return status;
  status = builder_get(runtime->builder, &custom.request, out, error);
  custom_request_finish(&custom);
  return status;
}

static kjit_status current_arch(kjit_runtime *runtime, const char **arch, kjit_error *error) {
  int32_t ordinal;
  const struct device *device;
  kjit_status status = gpu_current(&runtime->gpu, &ordinal, error);
  if (status == KJIT_OK) status = gpu_device(&runtime->gpu, ordinal, &device, error);
  if (status == KJIT_OK) *arch = device->info.arch;
  return status;
}

kjit_status kjit_kernel_get(kjit_runtime *runtime, const kjit_build_request *request, kjit_kernel **out,
                            kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = check_build_args(runtime, request, error);
  const char *arch = NULL;
  if (status == KJIT_OK) status = current_arch(runtime, &arch, error);
  if (status != KJIT_OK) return status;
  struct custom_request custom;
  status = custom_request_init(&custom, &runtime->mem, request, arch, error);
  if (status != KJIT_OK) return status;
  if (custom.request.flags & KJIT_BUILD_KEY_ONLY)
    status = error_invalid(error, "request.flags", "KJIT_BUILD_KEY_ONLY gives no kernel");
  else
    status = runtime_kernel_get(runtime, &custom.request, out, error);
  custom_request_finish(&custom);
  if (status == KJIT_OK) atomic_fetch_add_explicit(&(*out)->borrowed, 1, memory_order_relaxed);
  return status;
}

void kjit_kernel_release(kjit_kernel *kernel) {
  if (kernel) atomic_fetch_sub_explicit(&kernel->borrowed, 1, memory_order_relaxed);
}

const kjit_artifact *kjit_kernel_artifact(const kjit_kernel *kernel) {
  return kernel ? kernel->artifact : NULL;
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
