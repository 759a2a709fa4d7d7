/* Configs through their field table: values by field, order, #define lines and JSON. Pure functions. */
#include "family/field_table.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "family/element.h"

/* The dtypes of kjit's own families, spelt as flash_forward's short form prints them. A user's family may have any of
 * element.c's. */
static const struct {
  int32_t number;
  const char *name;
} dtypes[] = {{KJIT_FP16, "FP16"}, {KJIT_FP32, "FP32"}, {KJIT_BF16, "BF16"}, {KJIT_FP8_E4M3, "FP8_E4M3"}};

#define DTYPE_COUNT (sizeof dtypes / sizeof *dtypes)

/* A field lies where its row says, by offset. memcpy() reads it from a public struct and from an array of int32 alike,
 * without an aliasing rule broken. */
int32_t field_get(const kjit_field_info *field, const void *config) {
  int32_t value;
  memcpy(&value, (const char *)config + field->offset, sizeof value);
  return value;
}

void field_put(const kjit_field_info *field, void *config, int32_t value) {
  memcpy((char *)config + field->offset, &value, sizeof value);
}

const char *field_dtype_name(int32_t dtype) {
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (dtypes[i].number == dtype) return dtypes[i].name;
  }
  return NULL;
}

bool field_dtype_from_name(const char *name, size_t bytes, int32_t *dtype) {
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (strlen(dtypes[i].name) != bytes || strncasecmp(dtypes[i].name, name, bytes) != 0) continue;
    *dtype = dtypes[i].number;
    return true;
  }
  return false;
}

/* The order of configs: by value, in the order of fields. Lists and manifests are sorted by it, so it may not depend on
 * names or on memory. */
int field_table_compare(const struct field_table *table, const void *a, const void *b) {
  for (size_t i = 0; i < table->count; i++) {
    const int32_t left = field_get(&table->fields[i], a), right = field_get(&table->fields[i], b);
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

const kjit_field_info *field_table_find(const struct field_table *table, const char *name, size_t bytes) {
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    if (strlen(field->name) == bytes && !memcmp(field->name, name, bytes)) return field;
  }
  return NULL;
}

/* The field whose name follows `last` in byte order; NULL after the last. */
static const kjit_field_info *next_by_name(const struct field_table *table, const kjit_field_info *last) {
  const kjit_field_info *next = NULL;
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    if (last && strcmp(field->name, last->name) <= 0) continue;
    if (!next || strcmp(field->name, next->name) < 0) next = field;
  }
  return next;
}

/* The lines are sorted by name, because they are part of the key: a family whose fields change their order keeps its
 * keys. A table has at most 64 rows, so looking for the next name each time is cheap beside a key's digest. */
void field_table_defines(const struct field_table *table, const void *config, struct text *out) {
  const kjit_field_info *field = next_by_name(table, NULL);
  for (; field; field = next_by_name(table, field))
    text_appendf(out, "#define KJIT_%s %d\n", field->name, (int)field_get(field, config));
}

/* A value's name as JSON has it, NULL for a number. The names of users' dtypes are lower case in their files and are
 * written in capitals here, so that readers of the JSON meet one spelling for all families. */
const char *field_value_name(const struct field_table *table, const kjit_field_info *field, int32_t value,
                             char capitals[32]) {
  if (field->kind == KJIT_FIELD_ENUM)
    return value >= 0 && (size_t)value < field->value_count ? field->value_names[value] : NULL;
  if (field->kind != KJIT_FIELD_DTYPE) return NULL;
  const struct element *const element = table->any_dtype ? element_from_number(value) : NULL;
  if (!element) return field_dtype_name(value);
  size_t length = 0;
  for (; element->name[length] && length < 31; length++)
    capitals[length] = (char)toupper((unsigned char)element->name[length]);
  capitals[length] = '\0';
  return capitals;
}

static void append_json_value(const struct field_table *table, const kjit_field_info *field, int32_t value,
                              struct text *out) {
  char capitals[32];
  const char *const name = field_value_name(table, field, value, capitals);
  if (name)
    text_appendf(out, "\"%s\"", name);
  else if (field->kind == KJIT_FIELD_BOOL && (value == 0 || value == 1))
    text_append(out, value ? "true" : "false");
  else
    text_appendf(out, "%d", (int)value);
}

void field_table_json(const struct field_table *table, const void *config, struct text *out) {
  text_append(out, "{");
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    text_appendf(out, "%s\"%s\": ", i ? ", " : "", field->name);
    append_json_value(table, field, field_get(field, config), out);
  }
  text_append(out, "}");
}
