/* libcuda's functions, found at run time. Nothing here initialises the driver: gpu.h does. */
#ifndef KJIT_RUNTIME_DRIVER_H
#define KJIT_RUNTIME_DRIVER_H

#include <cuda.h> /* types only: nothing is linked */

#include <kjit/common.h>

#include "base/dynlib.h"

#if CUDA_VERSION < 12040
#error "kjit is built with the headers of CUDA 12.4 or later"
#endif

/* A member without its "cu", since <cuda.h> makes macros of the full names; `cu->LaunchKernel` reads as what it is. A
 * test passes a table of fakes. */
struct driver_api {
#define DRIVER_FN(name, symbol, args) CUresult(CUDAAPI *name) args;
#include "runtime/driver_api.def"
#undef DRIVER_FN
};

struct driver {
  struct driver_api cu;
  struct dynlib lib; /* closed when the table is a test's */
  int version;       /* the CUDA version that it serves, 1000 * major + 10 * minor; 0 when unknown */
};

/* The end of every message about a missing driver, so that its reader knows what goes on without one. */
#define DRIVER_WORKS_WITHOUT "compiling and the cache work without it"

/* Open libcuda and fill the table. `path` NULL: libcuda.so.1, wherever the loader finds it. KJIT_ERR_NO_DRIVER says
 * where it was looked for, or which function an old one lacks. */
kjit_status driver_open(struct driver *driver, const char *path, kjit_error *error);

/* For tests: a driver that consists of the functions of a table. */
void driver_open_fake(struct driver *driver, const struct driver_api *table);

/* Only for a driver that was never initialised: an initialised libcuda has threads and exit handlers of its own and
 * stays until the process ends. Accepts a closed one. */
void driver_close(struct driver *driver);

/* Record that a driver call failed: "<formatted>: CUDA_ERROR_…: <the driver's words>", with the code as cause.
 * @return `status`; but KJIT_ERR_NO_DRIVER in place of KJIT_ERR_DRIVER when the code says that there is no context or
 *         no usable driver */
kjit_status driver_fail(const struct driver_api *cu, kjit_status status, CUresult result, kjit_error *error,
                        const char *format, ...) KJIT_PRINTF(5, 6);

#endif
