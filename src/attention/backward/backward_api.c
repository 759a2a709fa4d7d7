/* The public functions of include/kjit/attention_backward.h: choosing configs, launching, and making a plan, which
 * attention_plan.c runs.
 *
 * Threads: any number may choose and launch. */
#include <stddef.h>
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/attention_plan.h"
#include "attention/backward/backward_arguments.h"
#include "attention/backward/backward_call.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "runtime/runtime_internal.h"

#define ALL_GRADIENTS (KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V | KJIT_GRADIENT_TENSORS)

/* As for a forward call, but for the flag that only backward calls have. */
static kjit_status take_problem(kjit_attention_problem *out, const kjit_attention_problem *given, kjit_error *error) {
  kjit_attention_problem plain;
  kjit_status status =
      struct_intake(&plain, sizeof plain, given, offsetof(kjit_attention_problem, seen_keys), "problem", error);
  if (status != KJIT_OK) return status;
  const uint32_t deterministic = plain.flags & KJIT_ATTENTION_DETERMINISTIC;
  plain.flags &= ~KJIT_ATTENTION_DETERMINISTIC;
  plain.struct_size = sizeof plain;
  status = attention_problem_take(out, &plain, error);
  out->flags |= deterministic;
  return status;
}

kjit_status kjit_attention_backward_choose(const kjit_attention_problem *problem, uint32_t gradients, const char *arch,
                                           kjit_config *configs, size_t *count, kjit_error *error) {
  kjit_attention_problem taken;
  struct family_place place;
  struct backward_choice choice = {0};
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!count) return error_invalid(error, "count", "must not be NULL");
  *count = 0;
  if (!configs) return error_invalid(error, "configs", "must not be NULL");
  memset(configs, 0, KJIT_ATTENTION_BACKWARD_KERNELS_MAX * sizeof *configs);
  if (!gradients || gradients & ~ALL_GRADIENTS)
    return error_invalid(error, "gradients", "must be one or more of KJIT_GRADIENT_*");
  if (!arch) return error_invalid(error, "arch", "must not be NULL");
  kjit_status status = take_problem(&taken, problem, error);
  if (status == KJIT_OK) status = family_place_of_arch(arch, &place, error);
  const struct backward_wanted wanted = {.problem = &taken, .gradients = gradients};
  if (status == KJIT_OK) status = backward_choose(&wanted, &place, &choice, error);
  if (status != KJIT_OK) return status;
  for (size_t i = 0; i < choice.count; i++) {
    configs[i].family = choice.kernels[i].family->family;
    memcpy(configs[i].values, choice.kernels[i].values, configs[i].family->table.config_bytes);
  }
  *count = choice.count;
  return KJIT_OK;
}

kjit_status kjit_attention_backward(kjit_runtime *runtime, const kjit_config *configs, size_t count,
                                    const kjit_attention_backward_args *args, CUstream stream, kjit_error *error) {
  struct backward_call call;
  kjit_status status = backward_call_prepare(&call, runtime, configs, count, args, error);
  if (status == KJIT_OK) status = backward_call_enqueue(&call, stream, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  return status;
}

/* Check the tensors' addresses by asking the driver. A plan is made once, so this may take a while. */
static kjit_status check_pointers(kjit_runtime *runtime, const kjit_attention_backward_args *args, int32_t device,
                                  kjit_error *error) {
  struct backward_tensor all[BACKWARD_TENSORS];
  kjit_status status = KJIT_OK;
  backward_arguments_list(args, all);
  for (size_t i = 0; i < BACKWARD_TENSORS && status == KJIT_OK; i++) {
    if (all[i].tensor->data) status = runtime_check_pointer(runtime, all[i].tensor->data, device, all[i].name, error);
  }
  return status;
}

static kjit_status enqueue_call(const void *call, CUstream stream, kjit_error *error) {
  return backward_call_enqueue(call, stream, error);
}

kjit_status kjit_attention_backward_plan_create(kjit_attention_plan **out, kjit_runtime *runtime,
                                                const kjit_config *configs, size_t count,
                                                const kjit_attention_backward_args *args, kjit_error *error) {
  struct backward_call call;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = backward_call_prepare(&call, runtime, configs, count, args, error);
  if (status == KJIT_OK) status = check_pointers(runtime, args, call.device, error);
  if (status != KJIT_OK) return status;
  *out = attention_plan_make(runtime, &call, sizeof call, enqueue_call);
  return *out ? KJIT_OK : error_no_memory(error);
}
