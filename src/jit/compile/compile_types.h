/* What goes into a compile beside the request, and what comes out of it. Of compile.h, and of the files that it is made
 * of. */
#ifndef KJIT_JIT_COMPILE_COMPILE_TYPES_H
#define KJIT_JIT_COMPILE_COMPILE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the time of a compile went, in milliseconds; zero where NVRTC was not asked (NVRTC_INSPECT_TIME). */
struct compile_phases {
  double front_end_ms, optimizer_ms, ptxas_ms, link_ms;
};

struct compile_result {
  void *cubin; /* mem_free; NULL after a failed compile; an object with KJIT_BUILD_OBJECT */
  size_t cubin_bytes;
  char *log;             /* mem_free; without the "ptxas info" lines that state figures; "" if nothing remains */
  char *symbols;         /* mem_free; the kernels and names (compile/symbols.h); NULL: not known */
  uint32_t registers;    /* of the entry, as are the following; without one, of the first kernel */
  uint32_t spill_bytes;  /* stores + loads */
  uint32_t local_bytes;  /* stack frame */
  uint32_t shared_bytes; /* static */
  uint32_t max_threads;  /* from the cubin's .nv.info (EIATTR_MAX_THREADS), 0 if unstated */
  uint64_t compile_ns;
  char *ptx; /* mem_free; NULL unless it was asked for (NVRTC_INSPECT_PTX) */
  struct compile_phases phases;
};

/* Asked before and, from NVRTC 12.8 on, while compiling, possibly from another thread; true means stop. NULL: never. */
typedef bool (*compile_stop)(void *user);

/* A compile that makes or uses a precompiled header, in a process that made it or was forked from one that did. */
struct compile_pch {
  const char *source; /* whole text, in the place of prologue and main file: see preamble.h */
  const char *file;   /* the precompiled header */
  bool create;        /* make it; else use it */
  bool done;          /* out: NVRTC made or used it; if not, the result is not to be relied on */
};

#endif
