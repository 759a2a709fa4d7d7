/* Reads a family file into the struct that kjit_family_create() takes. Each section has a row in a table; the longer
 * ones are in file_fields.c and file_sets.c.
 *
 * Threads: nothing is shared. */
#include "family/file/family_file.h"

#include <string.h>

#include "base/error.h"
#include "base/files/file.h"
#include "family/file/file_reader.h"

#define KEY_COUNT(keys) (sizeof(keys) / sizeof *(keys))

/* Members of the description that are one text or one list each. */
#define READ_STRING(key, member)                                                                                       \
  static kjit_status read_##key(const struct file_reader *reader, const struct yaml_node *node, void *target) {        \
    return file_read_string(reader, node, &((kjit_family_description *)target)->member);                               \
  }
#define READ_STRINGS(key, member, count)                                                                               \
  static kjit_status read_##key(const struct file_reader *reader, const struct yaml_node *node, void *target) {        \
    kjit_family_description *const description = target;                                                               \
    return file_read_strings(reader, node, &description->member, &description->count);                                 \
  }

READ_STRING(family, name)
READ_STRING(doc, text)
READ_STRING(source, source.name)
READ_STRING(entry, entry)
READ_STRINGS(include, include_dirs, include_dir_count)
READ_STRINGS(options, options, option_count)

static kjit_status read_template(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_description *)target)->template_name);
}

static kjit_status read_shared(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_description *)target)->shared_bytes);
}

/* One expression, or up to three. */
static kjit_status read_extents(const struct file_reader *reader, const struct yaml_node *node,
                                kjit_family_text out[3]) {
  const kjit_family_text *texts = NULL;
  size_t count = 0;
  const kjit_status status = file_read_texts(reader, node, &texts, &count);
  if (status != KJIT_OK) return status;
  if (count < 1 || count > 3)
    return file_refuse(reader, node,
                       "%s has one to three expressions, x, y, z; one that has commas needs quotes inside [ ]",
                       node->key);
  memcpy(out, texts, count * sizeof *texts);
  return KJIT_OK;
}

static kjit_status read_block(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return read_extents(reader, node, ((kjit_family_description *)target)->block);
}

static kjit_status read_cluster(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return read_extents(reader, node, ((kjit_family_description *)target)->cluster);
}

static kjit_status read_grid(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return read_extents(reader, node, ((kjit_family_description *)target)->grid);
}

/* A row for each child of a section. NULL when out of memory. */
static void *rows(const struct file_reader *reader, const struct yaml_node *node, size_t size) {
  return arena_alloc_array(reader->arena, node->count, size);
}

static kjit_status read_derived(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_derived_row *row = rows(reader, node, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->derived = row;
  description->derived_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    row->name = file_key_text(child);
    status = file_read_text(reader, child, &row->value);
  }
  return status;
}

static kjit_status read_parameters(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_parameter_row *row = rows(reader, node, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->parameters = row;
  description->parameter_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    row->name = file_key_text(child);
    status = file_read_text(reader, child, &row->type);
  }
  return status;
}

static kjit_status read_require(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_rule_row *)target)->condition);
}

static kjit_status read_because(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_string(reader, node, &((kjit_family_rule_row *)target)->sentence);
}

/* A rule's two keys. The sentence is required too: it is what whoever breaks the rule gets to read. */
static const struct file_key rule_keys[] = {{"require", read_require}, {"because", read_because}};

static kjit_status read_rules(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_SEQUENCE);
  kjit_family_rule_row *row = rows(reader, node, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->rules = row;
  description->rule_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    status = file_read_mapping(reader, child, rule_keys, KEY_COUNT(rule_keys), row);
    if (status != KJIT_OK) return status;
    if (!row->condition.text) return file_refuse(reader, child, "a rule needs \"require\", its expression");
    if (!row->sentence) return file_refuse(reader, child, "a rule needs \"because\", the sentence that says why");
  }
  return status;
}

static kjit_status read_when(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_canonical_row *)target)->when);
}

static kjit_status read_value(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  return file_read_text(reader, node, &((kjit_family_canonical_row *)target)->value);
}

static const struct file_key canonical_keys[] = {{"when", read_when}, {"value", read_value}};

/* field: expression, or field: {when: expression, value: plain value} */
static kjit_status read_canonical(const struct file_reader *reader, const struct yaml_node *node, void *target) {
  kjit_family_description *const description = target;
  kjit_status status = file_expect(reader, node, YAML_MAPPING);
  kjit_family_canonical_row *row = rows(reader, node, sizeof *row);
  if (!row) return error_no_memory(reader->error);
  description->canonical = row;
  description->canonical_count = node->count;
  for (const struct yaml_node *child = node->first; child && status == KJIT_OK; child = child->next, row++) {
    row->field = file_key_text(child);
    if (child->kind == YAML_SCALAR)
      status = read_when(reader, child, row);
    else
      status = file_read_mapping(reader, child, canonical_keys, KEY_COUNT(canonical_keys), row);
    if (status == KJIT_OK && !row->when.text) return file_refuse(reader, child, "%s needs \"when\"", child->key);
  }
  return status;
}

/* The sections of a file; their order in it does not matter. */
static const struct file_key keys[] = {
    {"family", read_family},
    {"doc", read_doc},
    {"source", read_source},
    {"include", read_include},
    {"entry", read_entry},
    {"template", read_template},
    {"options", read_options},
    {"fields", file_read_fields},
    {"derived", read_derived},
    {"rules", read_rules},
    {"means_nothing_when", read_canonical},
    {"block", read_block},
    {"shared", read_shared},
    {"cluster", read_cluster},
    {"grid", read_grid},
    {"parameters", read_parameters},
    {"sets", file_read_sets},
    {"classes", file_read_classes},
    {"choose", file_read_choose},
};

/* The keys without which nothing can be said of a family. Of several that are missing the one that stands first in a
 * file is named, which is why the last is looked at first. */
static kjit_status check_complete(const struct file_reader *reader) {
  const kjit_family_description *const description = reader->description;
  const char *missing = NULL;
  if (!description->field_count) missing = "fields";
  if (!description->entry && !description->template_name.text) missing = "entry (or template)";
  if (!description->source.name) missing = "source";
  if (!description->name) missing = "family";
  if (!missing) return KJIT_OK;
  return error_set(reader->error, KJIT_ERR_PARSE, "%s: the key %s is missing", reader->name, missing);
}

kjit_status family_file_read(kjit_family_description *out, struct arena *arena, const char *text, size_t bytes,
                             const char *name, const char *folder, kjit_error *error) {
  const struct yaml_node *root;
  const struct file_reader reader = {arena, name, out, error};
  *out = kjit_family_description_default();
  out->file = name;
  out->folder = folder;
  kjit_status status = yaml_tree_read(&root, arena, text, bytes, name, error);
  if (status == KJIT_OK) status = file_read_mapping(&reader, root, keys, KEY_COUNT(keys), out);
  return status == KJIT_OK ? check_complete(&reader) : status;
}

/* What is read points into the arena, and the definition copies what it keeps; so the arena ends here. */
kjit_status family_file_parse(struct family_definition **out, const struct mem *mem, const char *text, size_t bytes,
                              const char *name, const char *folder, kjit_error *error) {
  kjit_family_description description;
  struct arena arena;
  *out = NULL;
  arena_init(&arena, mem, ARENA_UNLIMITED);
  kjit_status status = family_file_read(&description, &arena, text, bytes, name, folder, error);
  if (status == KJIT_OK) status = definition_create(out, mem, &description, error);
  arena_finish(&arena);
  return status;
}

/* Paths in the file are relative to its folder: "/" alone keeps its slash, and a name without a folder means the
 * working one. */
kjit_status family_file_open(struct family_definition **out, const struct mem *mem, const char *path,
                             kjit_error *error) {
  const char *const slash = strrchr(path, '/');
  char *text = NULL, *folder = NULL;
  size_t bytes = 0;
  *out = NULL;
  kjit_status status = file_read(mem, path, YAML_BYTES_MAX, &text, &bytes, error);
  if (status != KJIT_OK) return status;
  folder = mem_duplicate(mem, path, slash ? (size_t)(slash - path) + (slash == path) : 0);
  status = folder ? family_file_parse(out, mem, text, bytes, path, folder, error) : error_no_memory(error);
  mem_free(mem, folder);
  mem_free(mem, text);
  return status;
}
