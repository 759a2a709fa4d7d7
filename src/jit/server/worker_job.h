/* One job in a process of its own: see worker.h. */
#ifndef KJIT_JIT_SERVER_WORKER_JOB_H
#define KJIT_JIT_SERVER_WORKER_JOB_H

#include <stdbool.h>

#include "base/mem.h"

struct nvrtc;

/* What a server hands to the processes that it forks. */
struct worker_job {
  const struct mem *mem;
  struct nvrtc *nvrtc;
  int socket;
  const char *pch_file; /* the precompiled header of the server; NULL: it has none */
};

/* Read requests, compile and answer, until none comes. False: the first was not sound, or there was nobody to answer
 * to. */
bool worker_job_run(const struct worker_job *job);

/* Precompile the preamble of the request that comes, in a file that only descriptor `*file` still names, and answer
 * whether it can be used. False: it cannot. */
bool worker_job_precompile(const struct worker_job *job, int *file);

#endif
