/* A call with everything looked up. */
#include "attention/flash/flash_call.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

struct kjit_flash_plan {
  const struct mem *mem;
  struct flash_call call;
};

/* What the arguments claim of their pointers, asked of the driver. */
static kjit_status check_pointers(kjit_runtime *runtime, const struct flash_call *call, kjit_error *error) {
  const struct flash_forward_params *params = &call->params;
  const struct {
    const char *name;
    const void *data;
  } tensors[] = {{"q", params->q}, {"k", params->k}, {"v", params->v}, {"o", params->o}, {"lse", params->lse}};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors && status == KJIT_OK; i++) {
    if (tensors[i].data) status = runtime_check_pointer(runtime, tensors[i].data, call->device, tensors[i].name, error);
  }
  return status;
}

kjit_status kjit_flash_plan_create(kjit_runtime *runtime, const kjit_flash_config *config,
                                   const kjit_attention_args *args, kjit_flash_plan **out, kjit_error *error) {
  struct flash_call call;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = flash_call_prepare(&call, runtime, config, args, error);
  if (status == KJIT_OK) status = check_pointers(runtime, &call, error);
  if (status != KJIT_OK) return status;
  kjit_flash_plan *plan = mem_alloc(runtime_mem(runtime), sizeof *plan);
  if (!plan) return error_no_memory(error);
  plan->mem = runtime_mem(runtime);
  plan->call = call;
  *out = plan;
  return KJIT_OK;
}

kjit_status kjit_flash_plan_run(const kjit_flash_plan *plan, CUstream stream, kjit_error *error) {
  error_clear(error);
  if (!plan) return error_invalid(error, "plan", "must not be NULL");
  return flash_call_enqueue(&plan->call, stream, error);
}

void kjit_flash_plan_destroy(kjit_flash_plan *plan) {
  if (plan) mem_free(plan->mem, plan);
}
