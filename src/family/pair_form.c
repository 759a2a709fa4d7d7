/* Reading and writing "name=value,..." over a field table. A bit for each field tells what was given already. Pure. */
#include "family/pair_form.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/element.h"

static kjit_status no_field(const struct scanner *scanner, const struct field_table *table) {
  char expected[64];
  snprintf(expected, sizeof expected, "a field of %s", table->family);
  return scan_unexpected(scanner, expected);
}

/* kjit's own families know three dtypes; a user's know every element type, and those three by both spellings. */
static bool find_dtype(const struct field_table *table, const char *name, size_t bytes, int32_t *value) {
  const struct element *const element = table->any_dtype ? element_from_name(name, bytes) : NULL;
  if (element) *value = element->number;
  return element || field_dtype_from_name(name, bytes, value);
}

static bool find_label(const kjit_field_info *field, const char *name, size_t bytes, int32_t *value) {
  for (size_t i = 0; i < field->value_count; i++) {
    if (strlen(field->value_names[i]) != bytes || memcmp(field->value_names[i], name, bytes) != 0) continue;
    *value = (int32_t)i;
    return true;
  }
  return false;
}

/* A number; a dtype's name in any case; the name of an enum's value. */
static kjit_status read_value(struct scanner *scanner, const struct field_table *table, const kjit_field_info *field,
                              int32_t *value) {
  const size_t bytes = scan_word_length(scanner->at);
  const bool dtype = field->kind == KJIT_FIELD_DTYPE;
  if ((dtype && find_dtype(table, scanner->at, bytes, value)) || find_label(field, scanner->at, bytes, value)) {
    scanner->at += bytes;
    return KJIT_OK;
  }
  return scan_integer(scanner, dtype ? "a dtype" : field->value_count ? "a value's name" : "a number", value);
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
  status = read_value(scanner, table, field, &value);
  if (status == KJIT_OK) field_put(field, config, value);
  return status;
}

/* Pairs up to the first character that belongs to none. `seen` is the caller's, because the short form of flash_forward
 * reads a few traits and asks afterwards which were given. */
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

/* A config that was read in part is zeroed, so that nobody launches with half of it. */
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
    char capitals[32];
    const char *name = field_value_name(table, field, value, capitals);
    text_appendf(out, "%s%s=", i ? "," : "", field->name);
    if (name && field->kind == KJIT_FIELD_DTYPE)
      append_lower(out, name);
    else if (name)
      text_append(out, name);
    else
      text_appendf(out, "%d", (int)value);
  }
}
