/* The few driver calls that the example makes itself: a context on device 0, memory, copies. libcuda is opened at run
 * time, so that the program starts where there is none. */
#ifndef KJIT_EXAMPLES_BUNDLE_GPU_H
#define KJIT_EXAMPLES_BUNDLE_GPU_H

#include <stddef.h>

/* Make device 0's context current on this thread. 0: there is no driver or no GPU. */
int gpu_open(void);

/* Memory on the device, with a copy of `data` in it when that is not NULL. NULL on failure; freed with the process. */
void *gpu_memory(const void *data, size_t bytes);

/* Wait for everything, then copy back. 0 on failure. */
int gpu_fetch(void *data, const void *memory, size_t bytes);

#endif
