#include "attention/attention_call.h"

#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/sm90/sm90_arguments.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_rules.h"
#include "attention/tune/tune_store.h"
#include "base/error.h"
#include "base/recent.h"
#include "base/struct_intake.h"
#include "runtime/runtime_internal.h"

/* What is decided for a problem on a device, and what it depends on: the rest never changes in a runtime's life. */
struct key {
  kjit_attention_problem problem;
  uint64_t device;
};
struct decision {
  struct attention_choice choice;
  uint32_t parts; /* of attention_sm90's tiles */
};
_Static_assert(sizeof(struct key) == 8 * 10, "a key has no padding");
_Static_assert(sizeof(struct decision) % 8 == 0, "a decision is whole words");

/* Problems that a program comes back to: the length of a growing cache of keys is another one with every position. A
 * power of two. */
#define PLACES 256

static void *create_decisions(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), sizeof(struct decision));
}

static void destroy_decisions(kjit_runtime *runtime, void *decisions) {
  recent_destroy(runtime_mem(runtime), decisions);
}

/* A config of the caller's own. */
static kjit_status take_config(const kjit_attention_sm90_config *config, const kjit_attention_problem *problem,
                               const kjit_device_info *device, struct decision *decision, kjit_error *error) {
  kjit_status status = sm90_arguments_match(problem, config, error);
  if (status == KJIT_OK) status = sm90_rules_check_arch(device->arch_specific, error);
  if (status == KJIT_OK) status = sm90_check_problem(problem, error);
  if (status != KJIT_OK) return status;
  *decision = (struct decision){{.family = ATTENTION_SM90, .sm90 = *config},
                                sm90_call_parts(problem, config, device->multiprocessors)};
  return KJIT_OK;
}

/* By table or rules, or as the last time. */
static kjit_status decide(kjit_runtime *runtime, const kjit_attention_problem *problem, const kjit_device_info *device,
                          struct decision *decision, kjit_error *error) {
  memset(decision, 0, sizeof *decision); /* what is kept has no padding */
  struct recent *decisions =
      runtime_slot_get(runtime, RUNTIME_SLOT_ATTENTION_CHOICES, create_decisions, destroy_decisions);
  if (!decisions) return error_no_memory(error);
  const struct key key = {*problem, (uint64_t)device->ordinal};
  if (recent_get(decisions, &key, decision)) return KJIT_OK;
  struct attention_place place = attention_place_of_device(device);
  place.tuned = tune_store_of_device(runtime, device);
  const kjit_status status = attention_choose(problem, &place, &decision->choice, error);
  if (status != KJIT_OK) return status;
  const _Bool is_sm90 = decision->choice.family == ATTENTION_SM90;
  decision->parts = is_sm90 ? sm90_call_parts(problem, &decision->choice.sm90, device->multiprocessors) : 1;
  recent_put(decisions, &key, decision);
  return KJIT_OK;
}

static kjit_status prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                           const kjit_attention_args *args, kjit_error *error) {
  kjit_attention_problem problem;
  struct decision decision;
  kjit_status status = runtime_current_device(runtime, &call->device, error);
  if (status == KJIT_OK) status = attention_arguments_check(args, call->device, error);
  if (status != KJIT_OK) return status;
  attention_arguments_problem(args, &problem);
  const kjit_device_info *device = runtime_known_device(runtime, call->device);
  if (!device) device = runtime_device(runtime, call->device, error);
  if (!device) return (kjit_status)error->status;
  status = config ? take_config(config, &problem, device, &decision, error)
                  : decide(runtime, &problem, device, &decision, error);
  if (status != KJIT_OK) return status;
  const struct attention_choice *choice = &decision.choice;
  call->family = choice->family;
  if (choice->family == ATTENTION_SM90)
    return sm90_call_prepare(&call->sm90, runtime, &choice->sm90, decision.parts, args, &problem, device, error);
  return flash_call_prepare(&call->flash, runtime, &choice->flash, args, error);
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
