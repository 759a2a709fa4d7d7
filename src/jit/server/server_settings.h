/* How a compile server is set up: what its own file and that of its jobs both read. */
#ifndef KJIT_JIT_SERVER_SERVER_SETTINGS_H
#define KJIT_JIT_SERVER_SERVER_SETTINGS_H

#include <stdbool.h>

#include "base/log.h"
#include "jit/compile/compile.h"

struct compile_server_settings {
  const struct mem *mem; /* these three outlive the server */
  const struct log *log;
  struct nvrtc *nvrtc;
  const char *worker_path; /* copied; NULL: $KJIT_WORKER, then the usual places */
  bool use_environment;
  uint64_t memory_bytes; /* bound on a compile's address space; 0: the machine's memory */
  kjit_pch_mode pch;
};

#endif
