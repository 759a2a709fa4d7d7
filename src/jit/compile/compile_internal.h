/* What the files of a compile share: one job, from the request to the finished machine code. */
#ifndef KJIT_JIT_COMPILE_COMPILE_INTERNAL_H
#define KJIT_JIT_COMPILE_COMPILE_INTERNAL_H

#include <stdatomic.h>

#include "base/text.h"
#include "jit/compile/compile_types.h"
#include "jit/request/link_plan.h"
#include "jit/toolkit/nvrtc.h"

/* Template errors give some megabytes; more is nothing that a person reads or a cache should hold. */
#define COMPILE_LOG_LIMIT ((size_t)16 << 20)

/* One kernel, even with debug information, stays in the tens of megabytes. */
#define COMPILE_CODE_LIMIT ((size_t)256 << 20)

struct stop_state {
  compile_stop stop;
  void *user;
  atomic_bool stopped; /* NVRTC wants the same answer once it was yes */
};

/* One compile under way. */
struct job {
  struct nvrtc *nvrtc;
  const struct nvrtc_api *api;
  int major, minor;
  const struct mem *mem;
  const struct jit_request *request;
  struct link_plan plan;
  struct compile_result *result;
  struct stop_state stop;
  struct compile_pch *pch; /* NULL: none */
  nvrtcProgram program;
  char *link_log;    /* what the linker said beside errors; NULL: nothing */
  struct text names; /* the "name …" lines of the symbols */
  kjit_error *error;
};

/* Replace result->cubin by what the linker makes of it and of the parts. */
kjit_status link_run(struct job *job);

/* The first line that says error, else the first of all. */
void compile_error_line(const char *log, const char **line, int *bytes);

/* Messages about name expressions name a hidden file of NVRTC's; have them name the expression. In place. */
void compile_log_rewrite(char *log);

/* Take unused variables (unused.h) out of a cubin that no linker will see, unless the request wants it whole. Before
 * the program is destroyed. */
void compile_drop_unused(struct job *job);

/* Read the finished machine code: list its kernels with their figures, and check that the entry is among them. Takes
 * the lines with figures out of the log. */
kjit_status compile_read_output(struct job *job);

#endif
