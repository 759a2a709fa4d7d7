/* Plans: a call with all checks, choices and look-ups done, forward or backward, behind one function that enqueues it.
 */
#ifndef KJIT_ATTENTION_ATTENTION_PLAN_H
#define KJIT_ATTENTION_ATTENTION_PLAN_H

#include <kjit/attention.h>

typedef kjit_status (*attention_plan_enqueue)(const void *call, CUstream stream, kjit_error *error);

/* Copy a prepared call into a plan. NULL when out of memory. */
kjit_attention_plan *attention_plan_make(kjit_runtime *runtime, const void *call, size_t bytes,
                                         attention_plan_enqueue enqueue);

#endif
