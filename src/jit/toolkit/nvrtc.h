/* NVRTC, opened when first needed. Its identity is known without opening it. */
#ifndef KJIT_JIT_TOOLKIT_NVRTC_H
#define KJIT_JIT_TOOLKIT_NVRTC_H

#include "base/log.h"
#include "base/mem.h"

#include <nvrtc.h> /* types only: nothing is linked */
#include <stdbool.h>

/* NVRTC's functions. A test passes a table of fakes. */
struct nvrtc_api {
#define NVRTC_FN(type, name, args, required) type(*name) args;
#include "jit/toolkit/nvrtc_api.def"
#undef NVRTC_FN
};

struct nvrtc;
struct linker_api; /* jit/toolkit/linker.h */

/* `path` is libnvrtc or a folder that holds it. NULL: $KJIT_NVRTC (when `use_environment`), then the usual places.
 * Opens nothing yet. */
kjit_status nvrtc_create(struct nvrtc **out, const struct mem *mem, const char *path, bool use_environment,
                         kjit_error *error);
/* The same over a given table and identity: for tests. */
kjit_status nvrtc_create_fake(struct nvrtc **out, const struct mem *mem, const struct nvrtc_api *api,
                              const char *identity, kjit_error *error);
void nvrtc_destroy(struct nvrtc *nvrtc); /* accepts NULL */

/* "nvrtc-<id>", or "nvrtc-<id>-<id>" where the folder has its builtins too: the ELF build-id of each in hex, or
 * "file-<digest of the file>" where it has none. Read from the files, once they are found, without loading either. NULL
 * with KJIT_ERR_NO_NVRTC when there is no such file. Thread-safe. */
const char *nvrtc_identity(struct nvrtc *nvrtc, kjit_error *error);

/* The file. NULL as above. */
const char *nvrtc_file(struct nvrtc *nvrtc, kjit_error *error);

/* The file of its builtins, "" when its folder has none. NULL when there is no NVRTC. */
const char *nvrtc_builtins(struct nvrtc *nvrtc);

/* What compiles are to leave besides code: PTX, times of phases, and ranges for a profiler (base/nvtx.h). Set before
 * the first compile. */
enum { NVRTC_INSPECT_PTX = 1, NVRTC_INSPECT_TIME = 2, NVRTC_INSPECT_RANGES = 4 };
void nvrtc_inspect(struct nvrtc *nvrtc, unsigned what);
unsigned nvrtc_inspected(const struct nvrtc *nvrtc);

/* Open on first use. KJIT_ERR_NO_NVRTC says where it was looked for and what to do, or that the file lacks a function,
 * is older than 12.0 or is no longer the one whose identity was read. Thread-safe. */
kjit_status nvrtc_open(struct nvrtc *nvrtc, const struct nvrtc_api **api, int *major, int *minor, kjit_error *error);

/* nvJitLink, looked for beside this NVRTC first. KJIT_ERR_NO_NVRTC. Thread-safe. */
const char *nvrtc_linker_identity(struct nvrtc *nvrtc, kjit_error *error);
kjit_status nvrtc_open_linker(struct nvrtc *nvrtc, const struct linker_api **api, kjit_error *error);

/* "<NVRTC's identity>+<nvJitLink's>", as long as `nvrtc` lives. NULL as for each of them. Thread-safe. */
const char *nvrtc_identity_with_linker(struct nvrtc *nvrtc, kjit_error *error);

#endif
