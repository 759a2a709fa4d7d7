/* NVTX ranges: named stretches of time that a profiler such as Nsight Systems shows on the thread that spent them.
 *
 * A profiler says by $NVTX_INJECTION64_PATH which library of its own an NVTX user is to load. Without that variable, or
 * when the library cannot be used, there is nobody to tell, and nvtx_open() says so. */
#ifndef KJIT_BASE_NVTX_H
#define KJIT_BASE_NVTX_H

#include <stdbool.h>

/* Load the profiler's library, once in the process; it stays loaded. True: somebody listens. Thread-safe. */
bool nvtx_open(void);

/* Begin a range "WHAT LABEL ARCH" in the domain "kjit" on this thread; nvtx_pop() ends the one begun last. Only after
 * nvtx_open() was true. Labels beyond 400 bytes are cut. Thread-safe. */
void nvtx_push(const char *what, const char *label, const char *arch);
void nvtx_pop(void);

#endif
