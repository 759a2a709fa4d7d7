/* The public functions of include/kjit/attention.h for the forward call: choosing a config, launching, and making a
 * plan, which attention_plan.c runs.
 *
 * Threads: any number may choose and launch. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/attention_call.h"
#include "attention/attention_plan.h"
#include "attention/tune/tune_attention.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "base/target.h"
#include "family/config.h"
#include "family/tune/tune_store.h"
#include "runtime/card.h"
#include "runtime/runtime_internal.h"

/* ---- Choosing ---- */

static kjit_status choose_for_arch(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                                   struct attention_choice *out, kjit_error *error) {
  struct family_place place;
  struct attention_measured measured = {0};
  const kjit_status status = family_place_of_arch(arch, &place, error);
  if (status != KJIT_OK) return status;
  if (runtime) measured = tune_attention_measured(tune_store_of_arch(runtime, &tune_attention, &place));
  return attention_choose(problem, &place, &measured, false, out, error);
}

static kjit_status choose_here(kjit_runtime *runtime, const kjit_attention_problem *problem,
                               struct attention_choice *out, kjit_error *error) {
  int32_t ordinal;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL where arch is");
  const kjit_status status = runtime_current_device(runtime, &ordinal, error);
  if (status != KJIT_OK) return status;
  const kjit_device_info *device = runtime_device(runtime, ordinal, error);
  if (!device) return (kjit_status)error->status;
  return attention_call_choose(runtime, problem, device, out, error);
}

/* A card that the caller describes, copied. */
static kjit_status take_card(const kjit_device_info *given, kjit_device_info *out, kjit_error *error) {
  struct target target;
  const kjit_status status =
      struct_intake(out, sizeof *out, given, offsetof(kjit_device_info, memory_gb_s), "device", error);
  if (status != KJIT_OK) return status;
  if (!memchr(out->arch_specific, '\0', sizeof out->arch_specific))
    return error_invalid(error, "device.arch_specific", "must end in NUL");
  if (out->max_shared_per_block == 0) return error_invalid(error, "device.max_shared_per_block", "must be set");
  const kjit_status known = card_check(out, error);
  return known == KJIT_OK ? target_parse(&target, out->arch_specific, error) : known;
}

kjit_status kjit_attention_choose(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                                  kjit_config *config, uint32_t *decided_by, kjit_error *error) {
  kjit_attention_problem taken;
  struct attention_choice choice;
  kjit_error unread;
  choice.family = NULL;
  if (!error) error = &unread;
  error_clear(error);
  if (decided_by) *decided_by = KJIT_DECIDED_BY_NONE;
  if (!config) return error_invalid(error, "config", "must not be NULL");
  *config = (kjit_config){0};
  kjit_status status = attention_problem_take(&taken, problem, error);
  if (status == KJIT_OK)
    status =
        arch ? choose_for_arch(runtime, &taken, arch, &choice, error) : choose_here(runtime, &taken, &choice, error);
  if (status != KJIT_OK) return status;
  assert(choice.family);
  config->family = choice.family->family;
  memcpy(config->values, choice.values, config->family->table.config_bytes);
  if (decided_by) *decided_by = choice.decided_by;
  return KJIT_OK;
}

kjit_status kjit_attention_choose_for(const kjit_attention_problem *problem, const kjit_device_info *device,
                                      kjit_config *config, kjit_error *error) {
  static const struct attention_measured nothing;
  kjit_attention_problem taken;
  kjit_device_info card;
  struct attention_choice choice;
  kjit_error unread;
  choice.family = NULL;
  if (!error) error = &unread;
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  *config = (kjit_config){0};
  kjit_status status = attention_problem_take(&taken, problem, error);
  if (status == KJIT_OK) status = take_card(device, &card, error);
  if (status != KJIT_OK) return status;
  const struct family_place place = family_place_of_device(&card);
  status = attention_choose(&taken, &place, &nothing, false, &choice, error);
  if (status != KJIT_OK) return status;
  assert(choice.family);
  config->family = choice.family->family;
  memcpy(config->values, choice.values, config->family->table.config_bytes);
  return KJIT_OK;
}

static kjit_status tell_front(const kjit_config *config, const struct attention_family *family,
                              const kjit_attention_problem *problem, const kjit_device_info *device, kjit_config *out,
                              kjit_error *error) {
  kjit_attention_problem taken;
  kjit_device_info card;
  kjit_config front = {0};
  front.family = attention_family_front(family, config->values, front.values);
  if (front.family && problem) {
    kjit_status status = attention_problem_take(&taken, problem, error);
    if (status == KJIT_OK) status = take_card(device, &card, error);
    if (status != KJIT_OK) return status;
    const struct family_place place = family_place_of_device(&card);
    if (!family->pays_front(&taken, config->values, &place)) front = (kjit_config){0};
  }
  *out = front;
  return KJIT_OK;
}

kjit_status kjit_attention_front(const kjit_config *config, const kjit_attention_problem *problem,
                                 const kjit_device_info *device, kjit_config *front, kjit_error *error) {
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!front) return error_invalid(error, "front", "must not be NULL");
  *front = (kjit_config){0};
  const kjit_status status = config_take(config, error);
  if (status != KJIT_OK) return status;
  const struct attention_family *const family = attention_family_of(config->family);
  return family ? tell_front(config, family, problem, device, front, error) : KJIT_OK;
}

/* ---- Launching ---- */

kjit_status kjit_attention_forward(kjit_runtime *runtime, const kjit_config *config, const kjit_attention_args *args,
                                   CUstream stream, kjit_error *error) {
  struct attention_call call;
  kjit_status status = attention_call_prepare(&call, runtime, config, args, &stream, error);
  if (status == KJIT_OK) status = attention_call_enqueue(&call, stream, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  return status;
}

/* ---- Plans ---- */

/* Check the tensors' addresses by asking the driver. A plan is made once, so this may take a while. */
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

static kjit_status enqueue_call(const void *call, CUstream stream, kjit_error *error) {
  return attention_call_enqueue(call, stream, error);
}

kjit_status kjit_attention_plan_create(kjit_attention_plan **out, kjit_runtime *runtime, const kjit_config *config,
                                       const kjit_attention_args *args, kjit_error *error) {
  struct attention_call call;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = attention_call_prepare(&call, runtime, config, args, NULL, error);
  if (status == KJIT_OK) status = check_pointers(runtime, args, call.device, error);
  if (status != KJIT_OK) return status;
  *out = attention_plan_make(runtime, &call, sizeof call, enqueue_call);
  return *out ? KJIT_OK : error_no_memory(error);
}
