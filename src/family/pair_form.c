/* Reading and writing "name=value,..." over a field table. A bit for each field tells what was given already. Pure. */
#include "family/pair_form.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static kjit_status no_field(const struct scanner *scanner, const struct field_table *table) {
  char expected[64];
  snprintf(expected, sizeof expected, "a field of %s", table->family);
  return scan_unexpected(scanner, expected);
}

/* A dtype's name in any case, or its number. */
static kjit_status read_dtype(struct scanner *scanner, int32_t *value) {
  const size_t bytes = scan_word_length(scanner->at);
  if (!field_dtype_from_name(scanner->at, bytes, value)) return scan_integer(scanner, "a dtype", value);
  scanner->at += bytes;
  return KJIT_OK;
}

/* name "=" value, into the config. `seen` has a bit for each field. */
static kjit_status read_item(struct scanner *scanner, const struct field_table *table, uint64_t *seen, void *config) {
  int32_t value;
  scan_blanks(scanner);
  const kjit_field_info *field = field_table_find(table, scanner->at, scan_word_length(scanner->at));
  if (!field) return no_field(scanner, table);
  const uint64_t bit = UINT64_C(1) << (field - table->fields);
  if (*seen & bit) return scan_unexpected(scanner, "every field once");
  *seen |= bit;
  scanner->at += strlen(field->name);
  kjit_status status = scan_character(scanner, '=');
  if (status != KJIT_OK) return status;
  scan_blanks(scanner);
  status = field->kind == KJIT_FIELD_DTYPE ? read_dtype(scanner, &value) : scan_integer(scanner, "a number", &value);
  if (status == KJIT_OK) field_put(field, config, value);
  return status;
}

kjit_status pair_form_read(const struct field_table *table, struct scanner *scanner, uint64_t *seen, void *config) {
  kjit_status status = read_item(scanner, table, seen, config);
  for (scan_blanks(scanner); status == KJIT_OK && *scanner->at == ','; scan_blanks(scanner)) {
    scanner->at++;
    status = read_item(scanner, table, seen, config);
  }
  return status;
}

/* Read every pair, and see that no field is missing. */
static kjit_status read_all(struct scanner *scanner, const struct field_table *table, void *config) {
  uint64_t seen = 0;
  kjit_status status = pair_form_read(table, scanner, &seen, config);
  if (status == KJIT_OK) status = scan_end(scanner);
  for (size_t i = 0; i < table->count && status == KJIT_OK; i++) {
    if (!(seen >> i & 1))
      status =
          error_set(scanner->error, KJIT_ERR_PARSE, "%s is missing: every field must be given", table->fields[i].name);
  }
  return status;
}

kjit_status pair_form_parse(const struct field_table *table, const char *text, void *config, kjit_error *error) {
  struct scanner scanner = {.start = text, .at = text, .error = error};
  const kjit_status status = read_all(&scanner, table, config);
  if (status != KJIT_OK) memset(config, 0, table->config_bytes);
  return status;
}

static void append_lower(struct text *out, const char *word) {
  for (; *word; word++) {
    const char lower = (char)tolower((unsigned char)*word);
    text_append_bytes(out, &lower, 1);
  }
}

void pair_form_print(const struct field_table *table, const void *config, struct text *out) {
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    const int32_t value = field_get(field, config);
    const char *dtype = field->kind == KJIT_FIELD_DTYPE ? field_dtype_name(value) : NULL;
    text_appendf(out, "%s%s=", i ? "," : "", field->name);
    if (dtype)
      append_lower(out, dtype);
    else
      text_appendf(out, "%d", (int)value);
  }
}
