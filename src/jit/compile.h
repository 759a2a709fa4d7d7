/* One request through NVRTC: prologue + source to cubin, log and ptxas's figures. No cache, no GPU. */
#ifndef KJIT_JIT_COMPILE_H
#define KJIT_JIT_COMPILE_H

#include "jit/nvrtc.h"
#include "jit/request.h"

struct compile_result {
  void *cubin; /* mem_free; NULL after a failed compile */
  size_t cubin_bytes;
  char *log;             /* mem_free; without the "ptxas info" lines; "" if nothing remains */
  uint32_t registers;    /* of the entry, as are the following */
  uint32_t spill_bytes;  /* stores + loads */
  uint32_t local_bytes;  /* stack frame */
  uint32_t shared_bytes; /* static */
  uint32_t max_threads;  /* from the cubin's .nv.info (EIATTR_MAX_THREADS), 0 if unstated */
  double compile_ms;
};

/* Asked while compiling; true means stop (KJIT_ERR_CANCELLED / _TIMEOUT is the caller's to choose). NULL: never. */
typedef _Bool (*compile_stop)(void *user);

/* The options in front of the request's own: language, architecture, no NVRTC cache where this version has one, ptxas
 * verbose. They are part of the key; canonical order. */
size_t compile_standing_options(const char *const **options);

/* KJIT_ERR_COMPILE fills result->log and compile_ms. A cubin of size 0 is an error (a virtual architecture). */
kjit_status compile_run(struct nvrtc *nvrtc, const struct jit_request *request, const struct mem *mem,
                        compile_stop stop, void *stop_user, struct compile_result *result, kjit_error *error);
void compile_result_finish(struct compile_result *result, const struct mem *mem);

#endif
