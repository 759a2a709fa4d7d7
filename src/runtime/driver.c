/* Opens libcuda and looks up the functions that driver_api.def lists.
 *
 * 1. The signature of every function in the list is compared with <cuda.h> at compile time, because a wrong one would
 *    only show as a crash.
 * 2. driver_open() opens the library by dlopen and fills the table. A missing function means that the driver is older
 *    than CUDA 12.0; optional ones may be missing.
 * 3. driver_fail() turns a CUresult into a kjit_error. Results that mean "no usable driver or GPU" become
 *    KJIT_ERR_NO_DRIVER, which callers treat differently from a failed call.
 *
 * A struct driver is filled once and only read afterwards, by any thread. */
#include "runtime/driver.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define DRIVER_FN(name, symbol, args)                                                                                  \
  _Static_assert(_Generic(&cu##name, CUresult(CUDAAPI *) args : 1, default : 0), symbol " differs from <cuda.h>");
#include "runtime/driver_api.def"
#undef DRIVER_FN

static const char usual_name[] = "libcuda.so.1";

static kjit_status report_lacking(const struct driver *driver, const char *symbol, kjit_error *error) {
  return error_set(error, KJIT_ERR_NO_DRIVER,
                   "the driver library %s lacks %s: kjit needs a driver for CUDA 12.0 or later; " DRIVER_WORKS_WITHOUT,
                   driver->lib.path, symbol);
}

/* Look up one function. POSIX promises that a function pointer and a void pointer have the same representation; ISO C
 * does not, and forbids the cast, hence the memcpy. */
static bool find(const struct dynlib *lib, const char *symbol, void *member, size_t bytes) {
  void *const address = dynlib_symbol(lib, symbol);
  _Static_assert(sizeof address == sizeof(void (*)(void)), "dlsym gives functions as data pointers");
  memcpy(member, &address, bytes);
  return address != NULL;
}

static kjit_status fill_table(struct driver *driver, kjit_error *error) {
  struct driver_api *const cu = &driver->cu;
#define DRIVER_FN(name, symbol, args)                                                                                  \
  if (!find(&driver->lib, symbol, &cu->name, sizeof cu->name)) return report_lacking(driver, symbol, error);
#define DRIVER_FN_OPTIONAL(name, symbol, args) (void)find(&driver->lib, symbol, &cu->name, sizeof cu->name);
#include "runtime/driver_api.def"
#undef DRIVER_FN
  return KJIT_OK;
}

static void read_version(struct driver *driver) {
  if (driver->cu.DriverGetVersion(&driver->version) != CUDA_SUCCESS) driver->version = 0;
}

kjit_status driver_open(struct driver *driver, const char *path, kjit_error *error) {
  *driver = (struct driver){0};
  kjit_error reason;
  error_clear(&reason);
  if (dynlib_open(&driver->lib, path ? path : usual_name, &reason) != KJIT_OK) {
    return error_set(error, KJIT_ERR_NO_DRIVER,
                     "no CUDA driver: %.240s; looked for %.100s %s; install NVIDIA's driver or set KJIT_LIBCUDA to "
                     "its libcuda; " DRIVER_WORKS_WITHOUT,
                     reason.message, path ? path : usual_name, path ? "as told" : "on the loader's path");
  }
  const kjit_status status = fill_table(driver, error);
  if (status != KJIT_OK) {
    driver_close(driver);
    return status;
  }
  read_version(driver);
  return KJIT_OK;
}

void driver_open_fake(struct driver *driver, const struct driver_api *table) {
  *driver = (struct driver){.cu = *table};
  read_version(driver);
}

void driver_close(struct driver *driver) {
  dynlib_close(&driver->lib);
  *driver = (struct driver){0};
}

/* True for results that say that there is no usable driver, GPU or context, rather than that one call went wrong. */
static bool means_no_driver(CUresult result) {
  switch (result) {
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_DEINITIALIZED:
  case CUDA_ERROR_STUB_LIBRARY:
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_INVALID_CONTEXT:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
  case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
  case CUDA_ERROR_SYSTEM_NOT_READY:
    return true;
  default:
    return false;
  }
}

/* Make an error of a failed driver call: what was tried, the driver's name for the failure, and its explanation. */
kjit_status driver_fail(const struct driver_api *cu, kjit_status status, CUresult result, kjit_error *error,
                        const char *format, ...) {
  if (status == KJIT_ERR_DRIVER && means_no_driver(result)) status = KJIT_ERR_NO_DRIVER;
  const char *name = NULL, *words = NULL;
  if (cu->GetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "an unknown CUDA error";
  if (cu->GetErrorString(result, &words) != CUDA_SUCCESS || !words) words = "the driver has no words for it";
  char what[320]; /* leaves room in kjit_error.message for the driver's longest sentence */
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (length < 0) what[0] = '\0';
  return error_set_cause(error, status, KJIT_CAUSE_CUDA, (int64_t)result, "%s: %s: %s", what, name, words);
}
