/* The sets, classes and rows of choose of a family file.
 *
 *   sets:
 *     small: ["BM=64,BN=64", {BM: 128, BN: 64}]
 *     wide: {cross: {BM: [64, 128], stages: all}, where: "BM * stages <= 512"}
 *   classes:
 *     rows: {of: m, buckets: [1, 16, 128]}
 *   choose:
 *     - {when: m <= 16, config: {BM: 64, BN: "roundup(n, 8)"}}
 *
 * Threads: nothing is shared. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "family/file/file_reader.h"

#define KEY_COUNT(keys) (sizeof(keys) / sizeof *(keys))

/* More than a config's text may have. */
#define CONFIG_TEXT_MAX 8192

/* {BM: 128, BN: 64} as "BM=128,BN=64". */
static kjit_status read_config(const struct file_reader *reader, const struct yaml_node *node, kjit_family_text *out) {
  char buffer[CONFIG_TEXT_MAX];
  struct text text;
  if (node->kind == YAML_SCALAR) return file_read_text(reader, node, out);
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  text_init_fixed(&text, buffer, sizeof buffer);
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next) {
    kjit_family_text value = {0};
    status = file_read_text(reader, child, &value);
    if (status == KJIT_OK) text_appendf(&text, "%s%s=%s", text.bytes ? "," : "", child->key, value.text);
  }
  if (status != KJIT_OK) return status;
  if (text.failed) return file_refuse(reader, node, "the config is longer than %d bytes", CONFIG_TEXT_MAX);
  *out = (kjit_family_text){arena_copy(reader->arena, buffer, text.bytes), node->line, node->column};
  return out->text ? KJIT_OK : error_no_memory(reader->error);
}

static kjit_status read_list(const struct file_reader *reader, const struct yaml_node *node, kjit_family_set_row *row) {
  kjit_family_text *configs = arena_alloc_array(reader->arena, node->count, sizeof *configs);
  if (!configs) return error_no_memory(reader->error);
  row->configs = configs;
  row->config_count = node->count;
  kjit_status status = KJIT_OK;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next)
    status = read_config(reader, child, configs++);
  return status;
}

static kjit_status read_cross(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_set_row *const row = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_axis *axis = arena_alloc_array(reader->arena, node->count, sizeof *axis);
  if (!axis) return error_no_memory(reader->error);
  row->axes = axis;
  row->axis_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, axis++) {
    axis->field = file_key_text(child);
    if (child->kind == YAML_SCALAR && !strcmp(child->text, "all")) continue;
    status = file_read_texts(reader, child, &axis->values, &axis->value_count);
    if (status == KJIT_OK && !axis->value_count)
      return file_refuse(reader, child, "%.48s has no values; \"all\" stands for every legal one", child->key);
  }
  return status;
}

static kjit_status read_where(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_set_row *)target)->where);
}

static const struct file_key set_keys[] = {{"cross", read_cross}, {"where", read_where}};

kjit_status file_read_sets(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_set_row *row = arena_alloc_array(reader->arena, node->count, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->sets = row;
  description->set_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    row->name = file_key_text(child);
    if (child->kind == YAML_SEQUENCE)
      status = read_list(reader, child, row);
    else
      status = file_read_mapping(reader, child, set_keys, KEY_COUNT(set_keys), row);
  }
  return status;
}

static kjit_status read_of(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_class_row *)target)->value);
}

static kjit_status read_buckets(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_class_row *const row = target;
  kjit_status status = file_expect(reader, node, YAML_SEQUENCE);
  int64_t *bucket = arena_alloc_array(reader->arena, node->count, sizeof *bucket);
  if (!bucket) return error_no_memory(reader->error);
  row->buckets = bucket;
  row->bucket_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next)
    status = file_read_integer(reader, child, bucket++);
  return status;
}

static const struct file_key class_keys[] = {{"of", read_of}, {"buckets", read_buckets}};

kjit_status file_read_classes(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_class_row *row = arena_alloc_array(reader->arena, node->count, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->classes = row;
  description->class_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    row->name = file_key_text(child);
    if (child->kind == YAML_SCALAR)
      status = read_of(reader, child, row);
    else
      status = file_read_mapping(reader, child, class_keys, KEY_COUNT(class_keys), row);
    if (status == KJIT_OK && !row->value.text)
      return file_refuse(reader, child, "the class %.48s needs \"of\", its expression", child->key);
  }
  return status;
}

static kjit_status read_choose_when(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_choose_row *)target)->when);
}

static kjit_status read_choose_config(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_choose_row *const row = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_assignment *assignment = arena_alloc_array(reader->arena, node->count, sizeof *assignment);
  if (!assignment) return error_no_memory(reader->error);
  row->assignments = assignment;
  row->assignment_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, assignment++) {
    assignment->field = file_key_text(child);
    status = file_read_text(reader, child, &assignment->value);
  }
  return status;
}

static const struct file_key choose_keys[] = {{"when", read_choose_when}, {"config", read_choose_config}};

kjit_status file_read_choose(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_SEQUENCE);
  kjit_family_choose_row *row = arena_alloc_array(reader->arena, node->count, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->choose = row;
  description->choose_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    status = file_read_mapping(reader, child, choose_keys, KEY_COUNT(choose_keys), row);
    if (status == KJIT_OK && !row->assignments)
      return file_refuse(reader, child, "a row of choose needs \"config\", the fields that it sets");
  }
  return status;
}
