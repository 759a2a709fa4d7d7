/* What a launch is, with its zeros resolved and its limits held, and whether a device can do it. */
#ifndef KJIT_RUNTIME_LAUNCH_CHECK_H
#define KJIT_RUNTIME_LAUNCH_CHECK_H

#include "runtime/module.h"

/* A launch with its zeros resolved. */
struct launch_shape {
  uint32_t grid[3], block[3], cluster[3];
  uint32_t threads;        /* per block */
  uint32_t cluster_blocks; /* 0: no cluster */
};

/* Check the rules of a launch that hold on every device, and resolve its zeros into `shape`. KJIT_ERR_INVALID_ARG names
 * the field, its value and the rule. */
kjit_status launch_check_shape(const kjit_launch *launch, struct launch_shape *shape, kjit_error *error);

/* Check the limits of the device and of the kernel on it, and prepare the kernel there for the launch's shared memory
 * and clusters. KJIT_ERR_UNSUPPORTED, KJIT_ERR_DRIVER. */
kjit_status launch_check_device(struct kjit_kernel *kernel, int32_t ordinal, const kjit_launch *launch,
                                const struct launch_shape *shape, kjit_error *error);

/* More than any launch needs: those that the fields stand for, and the caller's. */
#define LAUNCH_ATTRIBUTES_MAX 48

/* The launch's fields as the driver's attributes; 0: a plain launch. */
unsigned launch_attributes(const kjit_launch *launch, const struct launch_shape *shape,
                           CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES_MAX]);

/* The launch as the driver's struct, with the attributes of launch_attributes(). */
CUlaunchConfig launch_config(const kjit_launch *launch, const struct launch_shape *shape, CUstream stream,
                             CUlaunchAttribute *attributes, unsigned count);

/* The caller's struct as this library knows it: the given one, or `local` filled from it. NULL with the error set. */
const kjit_launch *launch_intake(const kjit_launch *given, kjit_launch *local, kjit_error *error);

#endif
