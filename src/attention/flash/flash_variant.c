/* A kernel as data: order, hash, text; and which one a problem gets with a config. */
#include "attention/attention_problem.h"
#include "attention/flash/flash_arguments.h"
#include "attention/flash/flash_fields.h"
#include "attention/flash/flash_rules.h"
#include "attention/flash/flash_text.h"
#include "attention/flash/flash_traits.h"
#include "base/error.h"

int kjit_flash_variant_compare(const kjit_flash_variant *a, const kjit_flash_variant *b) {
  return field_table_compare(&flash_variant_fields, a, b);
}

uint64_t kjit_flash_variant_hash(const kjit_flash_variant *variant) {
  return field_table_hash(&flash_variant_fields, variant);
}

kjit_status kjit_flash_variant_parse(const char *text, kjit_flash_variant *out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_flash_variant){0};
  if (!text) return error_invalid(error, "text", "must not be NULL");
  return flash_text_parse(text, out, error);
}

kjit_status kjit_flash_variant_print(const kjit_flash_variant *variant, uint32_t flags, char *text, size_t capacity,
                                     kjit_error *error) {
  struct text out;
  error_clear(error);
  if (!variant) return error_invalid(error, "variant", "must not be NULL");
  if (!text || !capacity) return error_invalid(error, "text", "must have room for KJIT_FLASH_VARIANT_TEXT_MAX bytes");
  text_init_fixed(&out, text, capacity);
  if (flags & ~KJIT_PRINT_JSON) return error_invalid(error, "flags", "only KJIT_PRINT_JSON may be set");
  if (flags & KJIT_PRINT_JSON)
    field_table_json(&flash_variant_fields, variant, &out);
  else
    flash_text_print(variant, &out);
  if (!out.failed) return KJIT_OK;
  *text = '\0';
  return error_invalid(error, "capacity", "too small; KJIT_FLASH_VARIANT_TEXT_MAX never is");
}

kjit_status kjit_flash_variant_of(const kjit_flash_config *config, const kjit_attention_problem *problem,
                                  kjit_flash_variant *out, kjit_error *error) {
  kjit_attention_problem taken;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_flash_variant){0};
  if (!config) return error_invalid(error, "config", "must not be NULL");
  kjit_status status = attention_problem_take(&taken, problem, error);
  if (status == KJIT_OK) status = flash_arguments_match(&taken, config, error);
  if (status != KJIT_OK) return status;
  const kjit_flash_variant variant = {*config, flash_traits_of(&taken)};
  status = flash_rules_check_variant(&variant, error);
  if (status == KJIT_OK) *out = variant;
  return status;
}
