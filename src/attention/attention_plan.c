/* A call with everything looked up. */
#include <stdalign.h>

#include "attention/attention_call.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

struct kjit_attention_plan {
  struct attention_call call; /* first: what aligns the whole */
  const struct mem *mem;
  void *memory; /* where the plan lies somewhere in */
};

/* What the arguments claim of their pointers, asked of the driver. */
static kjit_status check_pointers(kjit_runtime *runtime, const kjit_attention_args *args, int32_t device,
                                  kjit_error *error) {
  const struct {
    const char *name;
    const void *data;
  } tensors[] = {
      {"q", args->q.data}, {"k", args->k.data}, {"v", args->v.data}, {"o", args->o.data}, {"lse", args->lse.data}};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors && status == KJIT_OK; i++) {
    if (tensors[i].data) status = runtime_check_pointer(runtime, tensors[i].data, device, tensors[i].name, error);
  }
  return status;
}

/* Tensor maps want more alignment than memory comes with. */
static kjit_attention_plan *make(const struct mem *mem, const struct attention_call *call) {
  const size_t alignment = alignof(kjit_attention_plan);
  void *memory = mem_alloc(mem, sizeof(kjit_attention_plan) + alignment - 1);
  if (!memory) return NULL;
  kjit_attention_plan *plan = (void *)(((uintptr_t)memory + alignment - 1) & ~(uintptr_t)(alignment - 1));
  plan->call = *call;
  plan->mem = mem;
  plan->memory = memory;
  return plan;
}

static kjit_status create(kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                          const kjit_attention_args *args, kjit_attention_plan **out, kjit_error *error) {
  struct attention_call call;
  kjit_status status = attention_call_prepare(&call, runtime, config, args, error);
  if (status == KJIT_OK) status = check_pointers(runtime, args, call.device, error);
  if (status != KJIT_OK) return status;
  *out = make(runtime_mem(runtime), &call);
  return *out ? KJIT_OK : error_no_memory(error);
}

kjit_status kjit_attention_plan_create(kjit_runtime *runtime, const kjit_attention_args *args,
                                       kjit_attention_plan **out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  return create(runtime, NULL, args, out, error);
}

kjit_status kjit_attention_sm90_plan_create(kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                                            const kjit_attention_args *args, kjit_attention_plan **out,
                                            kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!config) return error_invalid(error, "config", "must not be NULL");
  return create(runtime, config, args, out, error);
}

kjit_status kjit_attention_plan_run(const kjit_attention_plan *plan, CUstream stream, kjit_error *error) {
  error_clear(error);
  if (!plan) return error_invalid(error, "plan", "must not be NULL");
  return attention_call_enqueue(&plan->call, stream, error);
}

void kjit_attention_plan_destroy(kjit_attention_plan *plan) {
  if (plan) mem_free(plan->mem, plan->memory);
}
