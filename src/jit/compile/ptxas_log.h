/* ptxas's -v lines in a compile log: the figures of its kernels, and the log without them. */
#ifndef KJIT_JIT_COMPILE_PTXAS_LOG_H
#define KJIT_JIT_COMPILE_PTXAS_LOG_H

#include <kjit/common.h>

struct ptxas_figures {
  uint32_t registers;
  uint32_t spill_bytes;  /* stores + loads */
  uint32_t local_bytes;  /* stack frame */
  uint32_t shared_bytes; /* static */
};

/* Read the figures of `entry`: zeros for one that the log does not name. The log is as before. */
void ptxas_log_find(char *log, const char *entry, struct ptxas_figures *figures);

/* The same over figures that are known already: what this log does not say stays. */
void ptxas_log_update(char *log, const char *entry, struct ptxas_figures *figures);

/* Take out, in place, the lines that state what every compile states. All else stays, ptxas's remarks on performance
 * too. Empty lines at the end go. */
void ptxas_log_strip(char *log);

#endif
