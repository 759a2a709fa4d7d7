/* One call of attention, of whichever family.
 *
 * 1. The arguments are checked once, for the device that is current; they describe a problem.
 * 2. Without a config: what was decided for this problem on this device before is used again, kernel included;
 *    otherwise the planner decides, by the tuned table or by the rules. A config of the caller is fitted to the
 *    problem.
 * 3. The kernel is looked up by its config; the first time it is checked, compiled and loaded.
 * 4. The family prepares its launch.
 *
 * Threads: any number may call. Decisions are kept in base/recent.h and kernels in family/config_kernel.h, both without
 * locks; a thread waits only while a kernel is built. */
#include "attention/attention_call.h"

#include <assert.h>
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/tune/tune_attention.h"
#include "base/error.h"
#include "base/recent.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "family/tune/tune_store.h"
#include "runtime/runtime_internal.h"

/* What a decision depends on. Everything else that it depends on (tuned tables, cards) does not change while the
 * runtime lives. */
struct key {
  kjit_attention_problem problem;
  uint64_t device;
};
struct decision {
  const struct attention_family *family;
  const struct config_kernel *kernel; /* lives as long as the runtime, as the decision does */
  int32_t values[ATTENTION_FIELDS_MAX];
  uint64_t parts;
};
_Static_assert(sizeof(struct key) == 8 * 10, "a key has no padding");
_Static_assert(sizeof(struct decision) == 2 * sizeof(void *) + 4 * ATTENTION_FIELDS_MAX + 8, "nor has a decision");
_Static_assert(sizeof(struct decision) % 8 == 0, "a decision is whole words");

/* How many decisions are remembered, a power of two. A program comes back to few problems, but while it generates text
 * every position is a problem of its own, because the cache of keys grows. */
#define PLACES 256

static void *create_decisions(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), sizeof(struct decision));
}

static void destroy_decisions(kjit_runtime *runtime, void *decisions) {
  recent_destroy(runtime_mem(runtime), decisions);
}

static const struct runtime_slot slot = {create_decisions, destroy_decisions};

kjit_status attention_call_choose(kjit_runtime *runtime, const kjit_attention_problem *problem,
                                  const kjit_device_info *device, struct attention_choice *out, kjit_error *error) {
  const struct family_place place = family_place_of_device(device);
  const struct attention_measured measured =
      tune_attention_measured(tune_store_of_device(runtime, &tune_attention, device));
  return attention_choose(problem, &place, &measured, out, error);
}

/* Steps 3 and 4 for a config that fits the problem: find its kernel, and what a launch takes besides. */
static kjit_status complete(kjit_runtime *runtime, const kjit_attention_problem *problem,
                            const kjit_device_info *device, struct decision *decision, kjit_error *error) {
  const struct attention_family *family = decision->family;
  const kjit_status status =
      config_kernel_get(runtime, family->family, decision->values, device, &decision->kernel, error);
  if (status != KJIT_OK) return status;
  decision->parts = family->count_parts ? family->count_parts(problem, decision->values, device->multiprocessors) : 1;
  return KJIT_OK;
}

/* Step 2 for a config of the caller: fit it to the problem. */
static kjit_status take_config(kjit_runtime *runtime, const kjit_config *config, const kjit_attention_problem *problem,
                               const kjit_device_info *device, struct decision *decision, kjit_error *error) {
  decision->family = attention_family_of(config->family);
  if (!decision->family)
    return error_invalid(error, "config.family", "must be attention_sm90 or flash_forward, which compute attention");
  memcpy(decision->values, config->values, sizeof decision->values);
  const kjit_status status = decision->family->fit(problem, decision->values, error);
  return status == KJIT_OK ? complete(runtime, problem, device, decision, error) : status;
}

/* Step 2 without a config: the decision that is remembered, or a new one by table or rules. */
static kjit_status decide(kjit_runtime *runtime, const kjit_attention_problem *problem, const kjit_device_info *device,
                          struct decision *decision, kjit_error *error) {
  struct attention_choice choice;
  struct recent *decisions = runtime_slot_get(runtime, &slot);
  if (!decisions) return error_no_memory(error);
  const struct key key = {*problem, (uint64_t)device->ordinal};
  if (recent_get(decisions, &key, decision)) return KJIT_OK;
  kjit_status status = attention_call_choose(runtime, problem, device, &choice, error);
  if (status != KJIT_OK) return status;
  decision->family = choice.family;
  memcpy(decision->values, choice.values, sizeof decision->values);
  status = complete(runtime, problem, device, decision, error);
  if (status == KJIT_OK) recent_put(decisions, &key, decision);
  return status;
}

static kjit_status prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_config *config,
                           const kjit_attention_args *args, kjit_error *error) {
  kjit_attention_problem problem;
  struct decision decision;
  decision.family = NULL;
  kjit_status status = runtime_current_device(runtime, &call->device, error);
  if (status == KJIT_OK) status = attention_arguments_check(args, call->device, error);
  if (status != KJIT_OK) return status;
  attention_arguments_problem(args, &problem);
  const kjit_device_info *device = runtime_known_device(runtime, call->device);
  if (!device) device = runtime_device(runtime, call->device, error);
  if (!device) return (kjit_status)error->status;
  status = config ? take_config(runtime, config, &problem, device, &decision, error)
                  : decide(runtime, &problem, device, &decision, error);
  if (status != KJIT_OK) return status;
  assert(decision.family);
  const struct attention_launch launch = {decision.kernel, decision.values, (uint32_t)decision.parts};
  call->family = decision.family;
  return call->family->prepare(&call->of, runtime, &launch, args, &problem, device, error);
}

kjit_status attention_call_prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_config *config,
                                   const kjit_attention_args *args, kjit_error *error) {
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
  return call->family->enqueue(&call->of, stream, error);
}
