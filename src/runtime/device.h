/* What a GPU is: read from the driver once. */
#ifndef KJIT_RUNTIME_DEVICE_H
#define KJIT_RUNTIME_DEVICE_H

#include <kjit/kernel.h>

#include "base/threads/gate.h"
#include "runtime/driver.h"

struct device {
  struct gate gate; /* open: all of the following is filled but `handle`, which always is */
  CUdevice handle;
  uint32_t capability; /* 10 * major + minor */
  kjit_device_info info;
};

/* Ask the driver for everything. Needs no context. KJIT_ERR_DRIVER. */
kjit_status device_read(const struct driver *driver, struct device *device, int32_t ordinal, kjit_error *error);

#endif
