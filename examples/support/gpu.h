/* The driver calls that a program of a user's makes itself, shared by the examples: a context, memory, a stream, a
 * graph. libcuda is opened at run time, so that the programs start where there is none; KJIT_LIBCUDA names another
 * library, as it does for kjit. Every function returns 0 or NULL on failure. */
#ifndef KJIT_EXAMPLES_SUPPORT_GPU_H
#define KJIT_EXAMPLES_SUPPORT_GPU_H

#include <cuda.h>
#include <stddef.h>

/* Make device 0's context current on this thread. 0: there is no driver or no GPU. */
int gpu_open(void);
/* A stream that does not wait for the legacy default stream. */
int gpu_stream(CUstream *stream);

/* Memory on the device with a copy of `data`, or zeros where that is NULL. Freed with the process. */
void *gpu_memory(const void *data, size_t bytes);
/* Wait for everything, then copy to the device, or back from it. */
int gpu_store(void *memory, const void *data, size_t bytes);
int gpu_fetch(void *data, const void *memory, size_t bytes);

/* What is enqueued between the two becomes a graph in place of being run. */
int gpu_begin_capture(CUstream stream);
int gpu_end_capture(CUstream stream, CUgraphExec *graph);
int gpu_launch_graph(CUgraphExec graph, CUstream stream);

#endif
