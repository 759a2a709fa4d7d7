/* The fields of a family file.
 *
 * Threads: nothing is shared. */
#include <string.h>

#include "base/error.h"
#include "family/file/file_reader.h"

static kjit_status read_kind(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_string(reader, node, &((kjit_family_field_row *)target)->kind);
}

static kjit_status read_values(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_field_row *const row = target;
  return file_read_texts(reader, node, &row->values, &row->value_count);
}

static kjit_status read_range(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_field_row *const row = target;
  kjit_status status = file_expect(reader, node, YAML_SEQUENCE);
  if (status != KJIT_OK) return status;
  if (node->count != 2) return file_refuse(reader, node, "a range is [least, most]");
  status = file_read_integer(reader, node->first, &row->least);
  if (status == KJIT_OK) status = file_read_integer(reader, node->first->next, &row->most);
  if (!row->step) row->step = 1; /* so that [0, 0] is a range too */
  return status;
}

static kjit_status read_step(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_field_row *const row = target;
  const kjit_status status = file_read_integer(reader, node, &row->step);
  if (status == KJIT_OK && row->step < 1) return file_refuse(reader, node, "a step is at least 1");
  return status;
}

static kjit_status read_default(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_field_row *)target)->default_value);
}

static kjit_status read_doc(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_field_row *const row = target;
  const kjit_status status = file_read_string(reader, node, &row->text);
  if (status == KJIT_OK && strpbrk(row->text, "\r\n")) return file_refuse(reader, node, "doc is one line");
  return status;
}

static kjit_status read_given(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  const char *text = NULL;
  const kjit_status status = file_read_string(reader, node, &text);
  if (status != KJIT_OK) return status;
  ((kjit_family_field_row *)target)->given = !strcmp(text, "true");
  if (!strcmp(text, "true") || !strcmp(text, "false")) return KJIT_OK;
  return file_refuse(reader, node, "given is true or false");
}

static const struct file_key keys[] = {
    {"kind", read_kind},       {"values", read_values}, {"range", read_range}, {"step", read_step},
    {"default", read_default}, {"doc", read_doc},       {"given", read_given},
};

kjit_status file_read_fields(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_field_row *row = arena_alloc_array(reader->arena, node->count, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->fields = row;
  description->field_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    row->name = file_key_text(child);
    status = file_read_mapping(reader, child, keys, sizeof keys / sizeof *keys, row);
    if (status == KJIT_OK && !row->kind)
      return file_refuse(reader, child, "the field %.48s needs \"kind\": int, bool, dtype or enum", child->key);
    if (status == KJIT_OK && row->step && row->least == 0 && row->most == 0 && row->step > 1)
      return file_refuse(reader, child, "the field %.48s has a step and no range", child->key);
  }
  return status;
}
