/* Compiling many kernels by several threads, so that what follows only loads and launches them. */
#ifndef KJIT_TOOLS_SUPPORT_PREBUILD_H
#define KJIT_TOOLS_SUPPORT_PREBUILD_H

#include <kjit/family.h>

/* Build all configs for `arch` with up to `threads` threads (0: one per processor, at most 64). The first failure is
 * returned after every thread has ended; its message names the kernel. */
kjit_status prebuild(kjit_runtime *runtime, const kjit_config *configs, size_t count, const char *arch,
                     unsigned threads, kjit_error *error);

#endif
