/* Plans: kjit_attention_plan_run(), _time() and _destroy(), for calls of any kind. A plan is a call with all checks,
 * choices and look-ups done, so that running it is its launches alone.
 *
 * Threads: a plan does not change after it was made, so any thread may run it. */
#include "attention/attention_plan.h"

#include <stdalign.h>
#include <string.h>

#include "base/error.h"
#include "runtime/runtime_internal.h"

/* Tensor maps, which a call may begin with, need more alignment than the allocator promises. */
#define CALL_ALIGNMENT 64

struct kjit_attention_plan {
  alignas(CALL_ALIGNMENT) attention_plan_enqueue enqueue;
  kjit_runtime *runtime;
  void *memory; /* the block of memory as it was allocated; the plan starts at the first aligned address in it */
  alignas(CALL_ALIGNMENT) unsigned char call[];
};

kjit_attention_plan *attention_plan_make(kjit_runtime *runtime, const void *call, size_t bytes,
                                         attention_plan_enqueue enqueue) {
  void *memory = mem_alloc(runtime_mem(runtime), sizeof(kjit_attention_plan) + bytes + CALL_ALIGNMENT - 1);
  if (!memory) return NULL;
  kjit_attention_plan *plan = (void *)(((uintptr_t)memory + CALL_ALIGNMENT - 1) & ~(uintptr_t)(CALL_ALIGNMENT - 1));
  plan->enqueue = enqueue;
  plan->runtime = runtime;
  plan->memory = memory;
  memcpy(plan->call, call, bytes);
  return plan;
}

kjit_status kjit_attention_plan_run(const kjit_attention_plan *plan, CUstream stream, kjit_error *error) {
  error_clear(error);
  if (!plan) return error_invalid(error, "plan", "must not be NULL");
  return plan->enqueue(plan->call, stream, error);
}

struct timed_plan {
  const kjit_attention_plan *plan;
  CUstream stream;
};

static kjit_status enqueue_timed(void *user, kjit_error *error) {
  const struct timed_plan *timed = user;
  return timed->plan->enqueue(timed->plan->call, timed->stream, error);
}

kjit_status kjit_attention_plan_time(const kjit_attention_plan *plan, CUstream stream, float *milliseconds,
                                     kjit_error *error) {
  error_clear(error);
  if (!milliseconds) return error_invalid(error, "milliseconds", "must not be NULL");
  *milliseconds = 0;
  if (!plan) return error_invalid(error, "plan", "must not be NULL");
  struct timed_plan timed = {plan, stream};
  const kjit_status status = runtime_time(plan->runtime, stream, enqueue_timed, &timed, milliseconds, error);
  if (status != KJIT_OK) *milliseconds = 0;
  return status;
}

void kjit_attention_plan_destroy(kjit_attention_plan *plan) {
  if (plan) mem_free(runtime_mem(plan->runtime), plan->memory);
}
