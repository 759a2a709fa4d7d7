/* Which part of a list of requests this machine builds: from `--shard I/N`, or from the variables that a scheduler sets
 * for each of its jobs. Without --shard only a Slurm array is followed, because it alone says how many jobs there are.
 * One thread. */
#include "shard.h"

#include "command.h"
#include "request_list.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_BYTES 16 /* more digits than MOST_REQUESTS has */

/* The environment variables by which a scheduler numbers its jobs. `first` and `step` name the variables that say at
 * which number the jobs begin and how far two neighbours are apart; where `first` is NULL they begin at `least`, and
 * where `step` is NULL they are one apart. */
struct scheduler {
  const char *index, *count, *first, *step;
  uint64_t least;
};

static const struct scheduler schedulers[] = {
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", 0},
    {"JOB_COMPLETION_INDEX", NULL, NULL, NULL, 0},
    {"PARALLEL_SEQ", NULL, NULL, NULL, 1},
};

/* Read a variable as a number; `fallback` when it is not set or `name` is NULL. */
static kjit_status variable_read(const char *name, uint64_t fallback, uint64_t *out, kjit_error *error) {
  const char *text = name != NULL ? getenv(name) : NULL;
  *out = fallback;
  if (text == NULL || number_read(text, 0, UINT32_MAX, out)) return KJIT_OK;
  return error_say(error, KJIT_ERR_INVALID_ARG, "%s=%.40s: a whole number is expected", name, text);
}

static const struct scheduler *scheduler_find(void) {
  for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++)
    if (getenv(schedulers[i].index) != NULL) return &schedulers[i];
  return NULL;
}

/* Turn the scheduler's number of this job into a shard's index, which begins at 1. */
static kjit_status index_read(const struct scheduler *scheduler, struct shard *shard, kjit_error *error) {
  uint64_t index = 0, first = 0, step = 1;
  kjit_status status = variable_read(scheduler->index, 0, &index, error);
  if (status == KJIT_OK) status = variable_read(scheduler->first, scheduler->least, &first, error);
  if (status == KJIT_OK) status = variable_read(scheduler->step, 1, &step, error);
  if (status != KJIT_OK) return status;
  if (index < first || step == 0)
    return error_say(error, KJIT_ERR_INVALID_ARG, "%s=%llu: it begins at %llu", scheduler->index,
                     (unsigned long long)index, (unsigned long long)first);
  shard->index = (index - first) / step + 1;
  shard->variable = scheduler->index;
  return KJIT_OK;
}

static kjit_status shard_check(const struct shard *shard, kjit_error *error) {
  if (shard->index >= 1 && shard->index <= shard->count) return KJIT_OK;
  return error_say(error, KJIT_ERR_INVALID_ARG, "shard %llu/%llu: I/N with 1 <= I <= N is expected%s%s",
                   (unsigned long long)shard->index, (unsigned long long)shard->count,
                   shard->variable != NULL ? "; I is from " : "", shard->variable != NULL ? shard->variable : "");
}

/* Without --shard: when the scheduler says both a job's number and how many jobs there are, the list was meant to be
 * divided among them. Otherwise this machine builds all of it. */
static kjit_status shard_guess(struct shard *shard, kjit_error *error) {
  const struct scheduler *scheduler = scheduler_find();
  if (scheduler == NULL || scheduler->count == NULL || getenv(scheduler->count) == NULL) return KJIT_OK;
  kjit_status status = variable_read(scheduler->count, 1, &shard->count, error);
  if (status == KJIT_OK) status = index_read(scheduler, shard, error);
  return status == KJIT_OK ? shard_check(shard, error) : status;
}

static kjit_status bad_text(const char *text, kjit_error *error) {
  return error_say(error, KJIT_ERR_INVALID_ARG, "--shard %.40s: I/N with 1 <= I <= N, or /N, is expected", text);
}

kjit_status shard_read(const char *text, struct shard *shard, kjit_error *error) {
  *shard = (struct shard){.index = 1, .count = 1};
  if (text == NULL) return shard_guess(shard, error);
  char index[INDEX_BYTES] = "";
  const char *slash = strchr(text, '/');
  const size_t bytes = slash != NULL ? (size_t)(slash - text) : 0;
  if (slash == NULL || bytes >= sizeof index || !number_read(slash + 1, 1, MOST_REQUESTS, &shard->count))
    return bad_text(text, error);
  if (bytes > 0) {
    memcpy(index, text, bytes);
    return number_read(index, 1, shard->count, &shard->index) ? KJIT_OK : bad_text(text, error);
  }
  const struct scheduler *scheduler = scheduler_find();
  if (scheduler == NULL)
    return error_say(error, KJIT_ERR_INVALID_ARG,
                     "--shard %.40s: none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX and PARALLEL_SEQ is set", text);
  const kjit_status status = index_read(scheduler, shard, error);
  return status == KJIT_OK ? shard_check(shard, error) : status;
}
