/* kjit_doctor(): what this machine has. The driver is tried here, everything about compiler and cache folder by the
 * builder; neither failure makes the call fail, because both are what the report is about. Any thread. */
#include <kjit/doctor.h>

#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_state.h"

static void look_at_driver(struct gpu *gpu, kjit_doctor_report *report) {
  kjit_error error;
  error_clear(&error);
  report->driver_status = (int32_t)gpu_require(gpu, &error);
  if (report->driver_status == KJIT_OK) report->device_count = gpu->device_count;
  gpu_describe(gpu, report->driver_path, &report->driver_version);
  _Static_assert(sizeof report->driver_path == DYNLIB_PATH_BYTES, "a library's path fits");
  _Static_assert(sizeof report->driver_message == sizeof error.message, "an error's message fits");
  memcpy(report->driver_message, error.message, sizeof error.message);
}

kjit_status kjit_doctor(kjit_runtime *runtime, kjit_doctor_report *report, kjit_error *error) {
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_doctor_report all = {.struct_size = sizeof all};
  look_at_driver(&runtime->gpu, &all);
  builder_doctor(runtime->builder, &all);
  builder_try_cache(runtime->builder, &all);
  return struct_fill(report, &all, sizeof all, "report", error);
}
