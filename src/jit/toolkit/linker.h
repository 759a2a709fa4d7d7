/* nvJitLink, opened when first needed. Its identity is known without opening it. */
#ifndef KJIT_JIT_TOOLKIT_LINKER_H
#define KJIT_JIT_TOOLKIT_LINKER_H

#include "base/mem.h"
#include "base/threads/push.h"

/* nvJitLink's functions by the names that every version from 12.0 on exports. Results are nvJitLinkResult's numbers: 0
 * is success. Declared here because toolkits may lack its header. A test passes a table of fakes. */
struct linker_api {
#define LINKER_FN(name, symbol, args) int(*name) args;
#include "jit/toolkit/linker_api.def"
#undef LINKER_FN
};

/* nvJitLinkInputType's numbers. */
enum linker_input { LINKER_CUBIN = 1, LINKER_PTX = 2, LINKER_LTOIR = 3, LINKER_FATBIN = 4 };

struct linker_place;
struct linker_loaded;

/* Both pointers are set once, by whoever comes first: no lock is held while files are read or libraries opened. */
struct linker {
  const struct mem *mem;
  struct push_place place;  /* struct linker_place */
  struct push_place loaded; /* struct linker_loaded */
};

void linker_init(struct linker *linker, const struct mem *mem);
void linker_finish(struct linker *linker);

/* "nvjitlink-<id>" as NVRTC's identity has it. `beside` is NVRTC's file, in whose folder it is looked for first, or
 * NULL. NULL with KJIT_ERR_NO_NVRTC when there is none: the error says where it was looked for. Thread-safe. */
const char *linker_identity(struct linker *linker, const char *beside, kjit_error *error);

/* Open on first use. KJIT_ERR_NO_NVRTC, KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status linker_open(struct linker *linker, const char *beside, const struct linker_api **api, kjit_error *error);

#endif
