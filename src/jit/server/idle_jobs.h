/* Job processes that have answered and wait for another request.
 *
 * A forked process must copy the pages that it writes and start the compiler's passes anew, which is 12 ms of each
 * compile, and 60 ms of one with a precompiled header of CUB. So a process that answered serves again. It ends by
 * itself after a while without work or after many requests (worker_job.c); one that is asked just then is found closed,
 * and the job goes to a new process. */
#ifndef KJIT_JIT_SERVER_IDLE_JOBS_H
#define KJIT_JIT_SERVER_IDLE_JOBS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/digest.h"

/* Each holds some tens of megabytes; more are not kept, because no more compile at once on most machines. */
#define IDLE_JOBS_MOST 16

struct idle_job {
  int socket;
  bool has_preamble; /* it was forked from the process that holds `preamble` precompiled */
  struct digest preamble;
};

struct idle_jobs {
  pthread_mutex_t mutex; /* held for look-ups in the table alone */
  size_t count;
  struct idle_job table[IDLE_JOBS_MOST]; /* the one used last stands last */
};

bool idle_jobs_init(struct idle_jobs *idle);
void idle_jobs_finish(struct idle_jobs *idle); /* ends the processes */

/* The socket of a process with this preamble (NULL: with none), which is the caller's then; -1 when there is none. */
int idle_jobs_take(struct idle_jobs *idle, const struct digest *preamble);

/* Keep a process that has answered; its socket is the table's then. */
void idle_jobs_put(struct idle_jobs *idle, const struct digest *preamble, int socket);

/* Around fork(), as for struct fork_guard. A child has none of the processes. */
void idle_jobs_fork_prepare(struct idle_jobs *idle);
void idle_jobs_fork_parent(struct idle_jobs *idle);
void idle_jobs_fork_child(struct idle_jobs *idle);

#endif
