/* A problem's kernel without a GPU: which it is, and its cubin. */
#include <kjit/tune.h>

#include "attention/attention_choose.h"
#include "attention/attention_problem.h"
#include "attention/flash/flash_fields.h"
#include "attention/flash/flash_text.h"
#include "attention/sm90/sm90_fields.h"
#include "attention/sm90/sm90_text.h"
#include "attention/tune/tune_store.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

static kjit_status find_place(kjit_runtime *runtime, const char *arch, struct attention_place *place,
                              kjit_error *error) {
  int32_t ordinal;
  const kjit_status status =
      arch ? attention_place_of_arch(arch, place, error) : runtime_current_device(runtime, &ordinal, error);
  if (status != KJIT_OK) return status;
  if (arch) {
    place->tuned = tune_store_of_arch(runtime, place);
    return KJIT_OK;
  }
  const kjit_device_info *device = runtime_device(runtime, ordinal, error);
  if (!device) return (kjit_status)error->status;
  *place = attention_place_of_device(device);
  place->tuned = tune_store_of_device(runtime, device);
  return KJIT_OK;
}

static kjit_status choose(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                          struct attention_choice *choice, kjit_error *error) {
  kjit_attention_problem taken;
  struct attention_place place;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_status status = attention_problem_take(&taken, problem, error);
  if (status == KJIT_OK) status = find_place(runtime, arch, &place, error);
  return status == KJIT_OK ? attention_choose(&taken, &place, choice, error) : status;
}

kjit_status kjit_attention_describe(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                                    char *text, size_t capacity, kjit_error *error) {
  struct attention_choice choice = {0};
  struct text out;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!text || capacity < KJIT_ATTENTION_TEXT_MAX)
    return error_invalid(error, "text", "must have room for KJIT_ATTENTION_TEXT_MAX bytes");
  text_init_fixed(&out, text, capacity);
  kjit_flash_variant variant;
  kjit_status status = choose(runtime, problem, arch, &choice, error);
  if (status == KJIT_OK && choice.family == ATTENTION_FLASH_FORWARD)
    status = kjit_flash_variant_of(&choice.flash, problem, &variant, error);
  if (status != KJIT_OK) return status;
  if (choice.family == ATTENTION_SM90) {
    text_appendf(&out, "%s ", sm90_fields.family);
    sm90_text_print(&choice.sm90, &out);
  } else {
    text_appendf(&out, "%s ", flash_fields.family);
    flash_text_print(&variant, &out);
  }
  return out.failed ? error_set(error, KJIT_ERR_INTERNAL, "the config's text is too long") : KJIT_OK;
}

kjit_status kjit_attention_decided_by(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                                      uint32_t *by, kjit_error *error) {
  struct attention_choice choice = {0};
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!by) return error_invalid(error, "by", "must not be NULL");
  *by = KJIT_DECIDED_BY_NONE;
  const kjit_status status = choose(runtime, problem, arch, &choice, error);
  if (status == KJIT_OK) *by = choice.tuned ? KJIT_DECIDED_BY_TABLE : KJIT_DECIDED_BY_RULES;
  return status;
}

kjit_status kjit_attention_build(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                                 uint32_t flags, kjit_artifact **out, kjit_error *error) {
  struct attention_choice choice = {0};
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!arch) return error_invalid(error, "arch", "must not be NULL");
  kjit_flash_variant variant;
  kjit_status status = choose(runtime, problem, arch, &choice, error);
  if (status != KJIT_OK) return status;
  if (choice.family == ATTENTION_SM90) return kjit_attention_sm90_build(runtime, &choice.sm90, flags, out, error);
  status = kjit_flash_variant_of(&choice.flash, problem, &variant, error);
  return status == KJIT_OK ? kjit_flash_variant_build(runtime, &variant, arch, flags, out, error) : status;
}
