/* Which part of a list this machine does: given, or read from what a scheduler sets. */
#ifndef KJIT_TOOLS_SHARD_H
#define KJIT_TOOLS_SHARD_H

#include <kjit/common.h>

struct shard {
  uint64_t index, count; /* index from 1; 1 of 1 is everything */
  const char *variable;  /* that the index came from; NULL: the command line, or nothing */
};

/* "I/N"; "/N" takes I from the scheduler: SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX (a Kubernetes indexed Job) or
 * PARALLEL_SEQ (GNU parallel). NULL: in a Slurm array, which says how many there are, that part; otherwise everything.
 * KJIT_ERR_INVALID_ARG says what is wrong. `error` is never NULL. */
kjit_status shard_read(const char *text, struct shard *shard, kjit_error *error);

#endif
