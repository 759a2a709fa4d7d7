/* Primary contexts: the one context of a device that PyTorch, the CUDA runtime and nearly every program use. Unlike a
 * context of cuCtxCreate() it is counted, so that the library's own threads may work in it without fearing its end. */
#ifndef KJIT_RUNTIME_PRIMARY_H
#define KJIT_RUNTIME_PRIMARY_H

#include <stdbool.h>

#include "runtime/driver.h"

/* Is the device's primary context current on the calling thread? False too where the driver does not tell. */
bool primary_is_current(const struct driver_api *cu, CUdevice device);

/* Make the device's primary context current on the calling thread, above what is current there, and hold it. It is
 * created if there is none. False: nothing has changed, because the driver cannot or refuses. */
bool primary_enter(const struct driver_api *cu, CUdevice device);

/* After each primary_enter() that was true, on the same thread. */
void primary_leave(const struct driver_api *cu, CUdevice device);

#endif
