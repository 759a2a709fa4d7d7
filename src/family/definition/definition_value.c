/* The values of one field: which are legal, and how they are read and written.
 *
 * Threads: nothing is shared. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "family/definition/definition.h"
#include "family/element.h"

bool definition_is_legal(const struct definition_field *field, int64_t value) {
  if (!field->values) return value >= field->least && value <= field->most && (value - field->least) % field->step == 0;
  for (size_t i = 0; i < field->value_count; i++)
    if (field->values[i] == value) return true;
  return false;
}

size_t definition_value_count(const struct definition_field *field) {
  return field->values ? field->value_count : (size_t)((field->most - field->least) / field->step) + 1;
}

int32_t definition_value_at(const struct definition_field *field, size_t index) {
  return field->values ? field->values[index] : (int32_t)(field->least + (int64_t)index * field->step);
}

/* Stops as soon as 32 bits are exceeded, so that no length of digits overflows the sum. */
static bool read_number(const char *text, size_t bytes, int32_t *value) {
  const bool minus = bytes > 0 && *text == '-';
  int64_t number = 0;
  if (bytes == (size_t)minus) return false;
  for (size_t i = minus; i < bytes; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    number = 10 * number + (text[i] - '0');
    if (number > (int64_t)INT32_MAX + minus) return false;
  }
  *value = (int32_t)(minus ? -number : number);
  return true;
}

static bool is_text(const char *word, const char *text, size_t bytes) {
  return strlen(word) == bytes && !memcmp(word, text, bytes);
}

/* A value by its name or by its number. A label is looked for before a number is tried; one cannot look like the other,
 * since labels are names. */
bool definition_read_value(const struct definition_field *field, const char *text, size_t bytes, int32_t *value) {
  const struct element *const element = field->kind == VALUE_DTYPE ? element_from_name(text, bytes) : NULL;
  if (element) {
    *value = element->number;
    return true;
  }
  if (field->kind == VALUE_BOOL && (is_text("true", text, bytes) || is_text("false", text, bytes))) {
    *value = *text == 't';
    return true;
  }
  for (size_t i = 0; field->labels && i < field->value_count; i++) {
    *value = (int32_t)i;
    if (is_text(field->labels[i], text, bytes)) return true;
  }
  return read_number(text, bytes, value);
}

void definition_print_value(const struct definition_field *field, int32_t value, struct text *out) {
  const struct element *const element = field->kind == VALUE_DTYPE ? element_from_number(value) : NULL;
  if (element)
    text_append(out, element->name);
  else if (field->labels && value >= 0 && (size_t)value < field->value_count)
    text_append(out, field->labels[value]);
  else
    text_appendf(out, "%d", (int)value);
}

/* At most sixteen values are written out, because the words go into one line of an error message. */
void definition_print_domain(const struct definition_field *field, struct text *out) {
  if (!field->values) {
    text_appendf(out, "from %lld to %lld", (long long)field->least, (long long)field->most);
    if (field->step != 1) text_appendf(out, " in steps of %lld", (long long)field->step);
    return;
  }
  const size_t shown = field->value_count < 16 ? field->value_count : 16;
  text_append(out, field->value_count == 1 ? "" : "one of ");
  for (size_t i = 0; i < shown; i++) {
    if (i) text_append(out, ", ");
    definition_print_value(field, field->values[i], out);
  }
  if (shown < field->value_count) text_append(out, ", ...");
}
