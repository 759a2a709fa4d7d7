/* Many compiles at once, in the processes of the library's compile server: NVRTC's front end holds one lock per
 * process, and a compiler that crashes or runs out of memory costs one kernel, which is named, and not the run. */
#ifndef KJIT_TOOLS_WARM_POOL_H
#define KJIT_TOOLS_WARM_POOL_H

#include "request_list.h"

/* What became of one request. */
struct warm_result {
  int32_t status;    /* a kjit_status                  */
  uint32_t origin;   /* a kjit_origin, where status is KJIT_OK */
  char message[496]; /* what went wrong, "" where it did not */
};

/* What the runtime counted of a run. */
struct warm_counts {
  uint64_t not_kept;    /* kernels that were built and could not be written into the cache folder */
  char cache_path[512]; /* of that folder; "" when none could be opened */
};

/* Told now and then, and once at the end. */
typedef void (*warm_progress)(void *user, size_t done, size_t total);

/* Get or build every request, `jobs` at a time, with flags KJIT_BUILD_*. `*results` has list->count items, freed with
 * warm_results_free(). KJIT_OK says that every request has a result, good or bad. A signal that interrupt.h catches
 * ends the work: what was not finished then has KJIT_ERR_CANCELLED. With KJIT_COMPILE_SERVER=off threads of this
 * process compile. `counts` may be NULL. */
kjit_status warm_pool_run(const struct request_list *list, size_t jobs, uint32_t flags, warm_progress progress,
                          void *user, struct warm_result **results, struct warm_counts *counts, kjit_error *error);
void warm_results_free(struct warm_result *results); /* accepts NULL */

#endif
