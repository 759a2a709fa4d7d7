/* Where the toolkit's headers are that belong to the NVRTC in use, so that nobody has to name the folder. */
#ifndef KJIT_JIT_TOOLKIT_TOOLKIT_FIND_H
#define KJIT_JIT_TOOLKIT_TOOLKIT_FIND_H

#include <stdbool.h>

#include "base/threads/push.h"
#include "jit/request/custom_request.h"
#include "jit/toolkit/nvrtc.h"

#define TOOLKIT_DIRS 4

/* Zero it before use. */
struct toolkit {
  struct push_place place; /* struct toolkit_place */
  const struct mem *mem;
  const char *cache_dir; /* where NVRTC's own headers may lie; NULL: there is no such folder. Borrowed */
  bool writable;         /* they may be put there */
};

void toolkit_init(struct toolkit *toolkit, const struct mem *mem);
void toolkit_finish(struct toolkit *toolkit);

/* The folders, and the compiler's version as its files' names say it; nothing where there is no NVRTC or no toolkit.
 * `memory_only`: nothing is searched, what was found before counts. Thread-safe. */
void toolkit_extras(struct toolkit *toolkit, struct nvrtc *nvrtc, bool memory_only, struct custom_extras *extras);

/* CUDA_VERSION of the cuda.h in a folder; 0 when there is none. */
unsigned toolkit_header_version(const struct mem *mem, const char *dir);

#endif
