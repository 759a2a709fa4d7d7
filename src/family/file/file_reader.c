/* Scalars, lists and mappings of a family file, with errors that name file, line and column.
 *
 * Threads: nothing is shared. */
#include "family/file/file_reader.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"

/* "gemm.yaml:12:7: ...", which editors and terminals make a link of. */
static kjit_status refuse_at(const struct file_reader *reader, uint32_t line, uint32_t column, const char *format,
                             va_list arguments) {
  char why[360];
  (void)vsnprintf(why, sizeof why, format, arguments);
  return error_set(reader->error, KJIT_ERR_PARSE, "%s:%u:%u: %s", reader->name, (unsigned)line, (unsigned)column, why);
}

kjit_status file_refuse(const struct file_reader *reader, const struct yaml_node *node, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const kjit_status status = refuse_at(reader, node->line, node->column, format, arguments);
  va_end(arguments);
  return status;
}

kjit_status file_refuse_key(const struct file_reader *reader, const struct yaml_node *node, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const kjit_status status = refuse_at(reader, node->key_line, node->key_column, format, arguments);
  va_end(arguments);
  return status;
}

static kjit_status unknown_key(const struct file_reader *reader, const struct yaml_node *node,
                               const struct file_key *keys, size_t count) {
  struct nearest nearest;
  /* In {doc: of x, w and y} YAML reads "w and y" as a key without a value. */
  if (node->kind == YAML_SCALAR && !*node->text)
    return file_refuse_key(reader, node,
                           "\"%.60s\" is no key here, and has no value; a text with a comma needs quotes inside { }",
                           node->key);
  nearest_begin(&nearest, node->key, strlen(node->key));
  for (size_t i = 0; i < count; i++)
    nearest_offer(&nearest, keys[i].name);
  return file_refuse_key(reader, node, "\"%.60s\" is no key here%s%s%s", node->key,
                         nearest.best ? "; did you mean \"" : "", nearest.best ? nearest.best : "",
                         nearest.best ? "\"?" : "");
}

/* Keys may stand in any order. YAML's reader has refused a key that stands twice, so no target is written a second
 * time. */
kjit_status file_read_mapping(const struct file_reader *reader, const struct yaml_node *node,
                              const struct file_key *keys, size_t count, void *target) {
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next) {
    size_t i = 0;
    while (i < count && strcmp(keys[i].name, child->key) != 0)
      i++;
    status = i < count ? keys[i].read(reader, child, target) : unknown_key(reader, child, keys, count);
  }
  return status;
}

kjit_status file_expect(const struct file_reader *reader, const struct yaml_node *node, enum yaml_kind kind) {
  static const char *const names[] = {"one value", "a list", "a mapping (key: value)"};
  if (node->kind == kind) return KJIT_OK;
  return file_refuse(reader, node, "%.60s%sexpected %s, found %s%s", node->key ? node->key : "", node->key ? ": " : "",
                     names[kind], names[node->kind],
                     kind == YAML_SCALAR ? "; an expression with a colon, or with commas inside [ ], needs quotes"
                                         : "");
}

kjit_status file_read_text(const struct file_reader *reader, const struct yaml_node *node, kjit_family_text *out) {
  const kjit_status status = file_expect(reader, node, YAML_SCALAR);
  if (status != KJIT_OK) return status;
  if (!*node->text) return file_refuse(reader, node, "%.60s has no value", node->key ? node->key : "the list");
  *out = (kjit_family_text){node->text, node->line, node->column};
  return KJIT_OK;
}

kjit_status file_read_string(const struct file_reader *reader, const struct yaml_node *node, const char **out) {
  kjit_family_text text = {0};
  const kjit_status status = file_read_text(reader, node, &text);
  *out = text.text;
  return status;
}

/* Decimal digits only: strtoll() would also take blanks, a plus sign and, by the locale, other digits. -2^63 is
 * refused, because its digits are read before its sign counts. */
kjit_status file_read_integer(const struct file_reader *reader, const struct yaml_node *node, int64_t *out) {
  kjit_family_text text = {0};
  const kjit_status status = file_read_text(reader, node, &text);
  if (!text.text) return status;
  const bool minus = *text.text == '-';
  int64_t value = 0;
  const char *at = text.text + minus;
  bool fits = *at != '\0';
  for (; *at && fits; at++)
    fits = *at >= '0' && *at <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
           !__builtin_add_overflow(value, *at - '0', &value);
  *out = minus ? -value : value;
  return fits ? KJIT_OK : file_refuse(reader, node, "\"%.40s\" is no whole number of 64 bits", text.text);
}

/* Where a list of one is wanted, people write the value alone, so both are read. */
kjit_status file_read_texts(const struct file_reader *reader, const struct yaml_node *node,
                            const kjit_family_text **out, size_t *count) {
  const bool single = node->kind == YAML_SCALAR;
  const size_t size = single ? 1 : node->count;
  kjit_status status = single ? KJIT_OK : file_expect(reader, node, YAML_SEQUENCE);
  kjit_family_text *texts = arena_alloc_array(reader->arena, size, sizeof *texts);
  if (!texts) return error_no_memory(reader->error);
  const struct yaml_node *child = single ? node : node->first;
  for (size_t i = 0; i < size && status == KJIT_OK; i++, child = child->next)
    status = file_read_text(reader, child, &texts[i]);
  *out = texts;
  *count = size;
  return status;
}

/* The same without places, for what is checked where it is read and needs no line later. */
kjit_status file_read_strings(const struct file_reader *reader, const struct yaml_node *node, const char *const **out,
                              size_t *count) {
  const kjit_family_text *texts = NULL;
  const kjit_status status = file_read_texts(reader, node, &texts, count);
  if (status != KJIT_OK || !texts) return status;
  const char **strings = arena_alloc_array(reader->arena, *count, sizeof *strings);
  if (!strings) return error_no_memory(reader->error);
  for (size_t i = 0; i < *count; i++)
    strings[i] = texts[i].text;
  *out = strings;
  return KJIT_OK;
}

kjit_family_text file_key_text(const struct yaml_node *node) {
  return (kjit_family_text){node->key, node->key_line, node->key_column};
}
