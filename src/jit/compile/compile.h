/* One request through NVRTC, nvJitLink or both: prologue + source and parts to cubin, log and figures. No cache, no
 * GPU.
 *
 * NVRTC sees the request alone: the headers are given in memory by name, there is no search folder, and the folder that
 * the process stands in is shut out. With --generate-line-info or -G it writes that folder into the debug sections all
 * the same; the code does not change. */
#ifndef KJIT_JIT_COMPILE_COMPILE_H
#define KJIT_JIT_COMPILE_COMPILE_H

#include "jit/compile/compile_types.h"
#include "jit/request/request.h"
#include "jit/toolkit/nvrtc.h"

/* Which tools a request needs. */
enum compile_tools {
  COMPILE_TOOLS_NVRTC,
  COMPILE_TOOLS_LINKER,
  COMPILE_TOOLS_BOTH,
  COMPILE_TOOLS_NONE,
  COMPILE_TOOLS_COUNT
};
enum compile_tools compile_tools_of(const struct jit_request *request);

/* Their builds, as the key names them; alive as long as `nvrtc`. NULL with KJIT_ERR_NO_NVRTC when one is not there.
 * Thread-safe. */
const char *compile_identity(struct nvrtc *nvrtc, const struct jit_request *request, kjit_error *error);

/* KJIT_OK
 * KJIT_ERR_COMPILE      the compiler rejected it, or gave no machine code or none for the entry: result->log and
 *                       compile_ms are filled, the error holds the first line that says error
 * KJIT_ERR_UNSUPPORTED  this NVRTC does not compile for the target: the error lists what it compiles for
 * KJIT_ERR_INVALID_ARG  an option that NVRTC does not know
 * KJIT_ERR_CANCELLED    `stop` said so; whether that is a cancellation or a deadline is the caller's to say
 * KJIT_ERR_NO_NVRTC     as nvrtc_open(), and when the builtins are missing
 * KJIT_ERR_NO_MEMORY
 * Finish the result in every case. */
kjit_status compile_run(struct nvrtc *nvrtc, const struct jit_request *request, const struct mem *mem,
                        compile_stop stop, void *stop_user, struct compile_result *result, kjit_error *error);

/* compile_run() with a precompiled header, or without one when `pch` is NULL. NVRTC's own messages about the header are
 * taken out of the log. */
kjit_status compile_run_pch(struct nvrtc *nvrtc, const struct jit_request *request, const struct mem *mem,
                            compile_stop stop, void *stop_user, struct compile_pch *pch, struct compile_result *result,
                            kjit_error *error);
void compile_result_finish(struct compile_result *result, const struct mem *mem);

#endif
