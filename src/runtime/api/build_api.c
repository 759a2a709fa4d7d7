/* The public functions that build without loading, the one that gives the text that would be compiled, prologue and
 * main source joined, and those that describe the devices. Each checks its arguments and calls the builder or gpu.c.
 * Any thread. */
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "base/text.h"
#include "jit/builder_custom.h"
#include "jit/request/custom_request.h"
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

static kjit_status join(const kjit_runtime *runtime, const struct custom_request *custom, char **text,
                        kjit_error *error) {
  const struct jit_request *request = &custom->request;
  const kjit_source *source = custom_request_source(custom);
  struct text out;
  text_init(&out, runtime_mem(runtime), strlen(request->prologue) + source->bytes);
  text_append(&out, request->prologue);
  text_append_bytes(&out, source->text, source->bytes);
  *text = text_take(&out);
  text_finish(&out);
  return *text ? KJIT_OK : error_no_memory(error);
}

kjit_status kjit_build_source(kjit_runtime *runtime, const kjit_build_request *request, char **text,
                              kjit_error *error) {
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  kjit_status status = check_build_args(runtime, request, error);
  if (status != KJIT_OK) return status;
  struct custom_request custom;
  status = custom_request_begin(&custom, runtime_mem(runtime), request, NULL, NULL, error);
  if (status != KJIT_OK) return status;
  status = join(runtime, &custom, text, error);
  custom_request_finish(&custom);
  return status;
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
