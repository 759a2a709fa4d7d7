#include "attention/flash/flash_text.h"

#include "attention/flash/flash_fields.h"
#include "attention/flash/short_form.h"
#include "base/error.h"
#include "family/pair_form.h"

#define INDEX(name, kind, text) TRAIT_##name,
enum { KJIT_FLASH_FORWARD_TRAITS(INDEX) };

/* What the name says where it says nothing: a head size of V follows that of Q, as a problem's does. */
static kjit_flash_traits unsaid(int32_t d_head, int32_t head_dim) {
  return (kjit_flash_traits){.head_dim = d_head, .head_dim_v = head_dim};
}

static kjit_status read_traits(struct scanner *scanner, int32_t d_head, kjit_flash_traits *traits) {
  uint64_t seen = 0;
  *traits = unsaid(d_head, d_head);
  const kjit_status status = pair_form_read(&flash_trait_fields, scanner, &seen, traits);
  if (!(seen >> TRAIT_head_dim_v & 1)) traits->head_dim_v = traits->head_dim;
  return status == KJIT_OK ? scan_end(scanner) : status;
}

kjit_status flash_text_parse(const char *text, kjit_flash_variant *variant, kjit_error *error) {
  struct scanner scanner = {text, text, error};
  kjit_status status = short_form_read(&flash_fields, &scanner, &variant->config);
  scan_blanks(&scanner);
  if (status == KJIT_OK && !*scanner.at) {
    *variant = kjit_flash_variant_plain(&variant->config);
    return KJIT_OK;
  }
  if (status == KJIT_OK) status = read_traits(&scanner, variant->config.d_head, &variant->traits);
  if (status != KJIT_OK) *variant = (kjit_flash_variant){0};
  return status;
}

void flash_text_print(const kjit_flash_variant *variant, struct text *out) {
  const kjit_flash_traits plain = unsaid(variant->config.d_head, variant->traits.head_dim);
  char separator = ' ';
  short_form_print(&flash_fields, &variant->config, 1, NULL, out);
  for (size_t i = 0; i < flash_trait_fields.count; i++) {
    const struct field *field = &flash_trait_fields.fields[i];
    const int32_t value = field_get(field, &variant->traits);
    if (value == field_get(field, &plain)) continue;
    text_appendf(out, "%c%s=%d", separator, field->name, (int)value);
    separator = ',';
  }
}
