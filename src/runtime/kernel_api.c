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
  return builder_custom(runtime->builder, request, NULL, get_artifact, &wanted, error);
}

static kjit_status current_arch(kjit_runtime *runtime, const char **arch, kjit_error *error) {
  int32_t ordinal;
  const struct device *device;
  kjit_status status = gpu_current(&runtime->gpu, &ordinal, error);
  if (status == KJIT_OK) status = gpu_device(&runtime->gpu, ordinal, &device, error);
  if (status == KJIT_OK) *arch = device->info.arch;
  return status;
}

struct wanted_kernel {
  kjit_runtime *runtime;
  kjit_kernel **out;
};

static kjit_status get_kernel(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted_kernel *wanted = user;
  if (request->flags & KJIT_BUILD_KEY_ONLY)
    return error_invalid(error, "request.flags", "KJIT_BUILD_KEY_ONLY gives no kernel");
  return runtime_kernel_get(wanted->runtime, request, wanted->out, error);
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
  struct wanted_kernel wanted = {runtime, out};
  status = builder_custom(runtime->builder, request, arch, get_kernel, &wanted, error);
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
