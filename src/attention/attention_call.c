#include "attention/attention_call.h"

#include "attention/attention_arguments.h"
#include "attention/sm90_arguments.h"
#include "attention/sm90_choose.h"
#include "attention/sm90_rules.h"
#include "attention/tune_store.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_internal.h"

/* A config of the caller's own. */
static kjit_status take_config(const kjit_attention_sm90_config *config, const kjit_attention_problem *problem,
                               const struct attention_place *place, struct attention_choice *choice,
                               kjit_error *error) {
  choice->family = ATTENTION_SM90;
  choice->sm90 = *config;
  kjit_status status = sm90_arguments_match(problem, config, error);
  if (status == KJIT_OK) status = sm90_rules_check_arch(place->arch, error);
  return status == KJIT_OK ? sm90_check_problem(problem, error) : status;
}

static kjit_status prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                           const kjit_attention_args *args, kjit_error *error) {
  kjit_attention_problem problem;
  struct attention_choice choice;
  kjit_status status = runtime_current_device(runtime, &call->device, error);
  if (status == KJIT_OK) status = attention_arguments_check(args, call->device, error);
  if (status != KJIT_OK) return status;
  attention_arguments_problem(args, &problem);
  const kjit_device_info *device = runtime_known_device(runtime, call->device);
  if (!device) device = runtime_device(runtime, call->device, error);
  if (!device) return (kjit_status)error->status;
  struct attention_place place = attention_place_of_device(device);
  place.tuned = config ? NULL : tune_store_of_device(runtime, device);
  status = config ? take_config(config, &problem, &place, &choice, error)
                  : attention_choose(&problem, &place, &choice, error);
  if (status != KJIT_OK) return status;
  call->family = choice.family;
  if (choice.family == ATTENTION_SM90)
    return sm90_call_prepare(&call->sm90, runtime, &choice.sm90, args, &problem, device, error);
  return flash_call_prepare(&call->flash, runtime, &choice.flash, args, error);
}

kjit_status attention_call_prepare(struct attention_call *call, kjit_runtime *runtime,
                                   const kjit_attention_sm90_config *config, const kjit_attention_args *args,
                                   kjit_error *error) {
  kjit_attention_args known;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (args && args->struct_size == sizeof *args) return prepare(call, runtime, config, args, error);
  const kjit_status status = struct_intake(&known, sizeof known, args, sizeof known, "args", error);
  return status == KJIT_OK ? prepare(call, runtime, config, &known, error) : status;
}

kjit_status attention_call_enqueue(const struct attention_call *call, CUstream stream, kjit_error *error) {
  if (call->family == ATTENTION_SM90) return sm90_call_enqueue(&call->sm90, stream, error);
  return flash_call_enqueue(&call->flash, stream, error);
}
