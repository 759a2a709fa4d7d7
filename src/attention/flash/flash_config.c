/* A config as data: order, hash, text. */
#include "attention/flash/flash_fields.h"

#include "attention/flash/short_form.h"
#include "base/error.h"

int kjit_flash_config_compare(const kjit_flash_config *a, const kjit_flash_config *b) {
  return field_table_compare(&flash_fields, a, b);
}

uint64_t kjit_flash_config_hash(const kjit_flash_config *config) {
  return field_table_hash(&flash_fields, config);
}

kjit_status kjit_flash_config_parse(const char *text, kjit_flash_config *out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_flash_config){0};
  if (!text) return error_invalid(error, "text", "must not be NULL");
  return short_form_parse(&flash_fields, text, out, error);
}

kjit_status kjit_flash_config_print(const kjit_flash_config *config, uint32_t flags, char *text, size_t capacity,
                                    kjit_error *error) {
  const uint32_t known = KJIT_PRINT_NO_D_HEAD | KJIT_PRINT_NO_TUPLE | KJIT_PRINT_JSON;
  struct text out;
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  if (!text || !capacity) return error_invalid(error, "text", "must have room for KJIT_FLASH_CONFIG_TEXT_MAX bytes");
  text_init_fixed(&out, text, capacity);
  if (flags & ~known) return error_invalid(error, "flags", "only KJIT_PRINT_* may be set");
  if (flags & KJIT_PRINT_JSON) {
    field_table_json(&flash_fields, config, &out);
  } else {
    const char *omit = flags & KJIT_PRINT_NO_D_HEAD ? "d_head" : NULL;
    short_form_print(&flash_fields, config, !(flags & KJIT_PRINT_NO_TUPLE), omit, &out);
  }
  if (!out.failed) return KJIT_OK;
  *text = '\0';
  return error_invalid(error, "capacity", "too small; KJIT_FLASH_CONFIG_TEXT_MAX never is");
}
