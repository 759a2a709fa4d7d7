/* Which part of a list of requests this machine builds: given by --shard, or read from a scheduler's variables. */
#ifndef KJIT_TOOLS_SHARD_H
#define KJIT_TOOLS_SHARD_H

#include <kjit/common.h>

struct shard {
  uint64_t index, count; /* `index` begins at 1; 1 of 1 is the whole list */
  const char *variable;  /* the variable that gave the index; NULL when --shard did, or nothing */
};

/* "I/N"; "/N" takes I from the scheduler: SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX (a Kubernetes indexed Job) or
 * PARALLEL_SEQ (GNU parallel). NULL: in a Slurm array, which says how many there are, that part; otherwise everything.
 * KJIT_ERR_INVALID_ARG says what is wrong. `error` is never NULL. */
kjit_status shard_read(const char *text, struct shard *shard, kjit_error *error);

#endif
