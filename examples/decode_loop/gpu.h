/* The driver calls that an engine makes itself: a context, memory, a stream, a graph. libcuda is opened at run time, so
 * that the program starts where there is none. Every function returns 0 on failure. */
#ifndef KJIT_EXAMPLES_DECODE_LOOP_GPU_H
#define KJIT_EXAMPLES_DECODE_LOOP_GPU_H

#include <cuda.h>
#include <stddef.h>

/* Make device 0's context current on this thread, and a stream. */
int gpu_open(CUstream *stream);

/* Memory on the device with a copy of `data`, or zeros where that is NULL. Freed with the process. */
void *gpu_memory(const void *data, size_t bytes);

int gpu_store(void *memory, const void *data, size_t bytes);
/* Wait for everything, then copy back. */
int gpu_fetch(void *data, const void *memory, size_t bytes);

/* What is enqueued between the two becomes a graph in place of being run. */
int gpu_begin_capture(CUstream stream);
int gpu_end_capture(CUstream stream, CUgraphExec *graph);
int gpu_launch_graph(CUgraphExec graph, CUstream stream);

#endif
