/* Where NVRTC's files are, and what build they are, without loading them. */
#ifndef KJIT_JIT_TOOLKIT_NVRTC_FIND_H
#define KJIT_JIT_TOOLKIT_NVRTC_FIND_H

#include "jit/toolkit/nvrtc_identity.h"

/* Where to look. */
struct nvrtc_search {
  const char *asked; /* a file or folder, beside which nothing is tried; NULL: $LD_LIBRARY_PATH, then the best of what
                        this process has loaded and of the usual places */
  const char *asked_by; /* name of what asked for it */
  const char *root;     /* in front of the usual places: "", unless a test has its own */
};

/* The version in the name of one of CUDA's libraries: 13 and 0 of libnvrtc.so.13.0.88, 12 and 0 of libnvrtc.so.12. How
 * many of the two numbers the name has: 0, 1 or 2; what it lacks is 0. */
int nvrtc_file_version(const char *path, int *major, int *minor);

/* Find the library, its builtins and their identity. KJIT_ERR_NO_NVRTC says where it was looked for and what to do. */
kjit_status nvrtc_find(struct nvrtc_place *place, const struct nvrtc_search *search, kjit_error *error);

#endif
