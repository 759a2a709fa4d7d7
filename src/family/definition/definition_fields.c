/* The fields of a description: names, kinds, legal values and defaults. The first part of definition_create().
 *
 * Threads: one thread makes a definition. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/definition/definition.h"
#include "family/element.h"

/* Kinds as files spell them, and as the public table has them: two enums, because expressions know no KJIT_FIELD_LOAD.
 * */
static const char *const kinds[] = {
    [VALUE_INT] = "int", [VALUE_BOOL] = "bool", [VALUE_DTYPE] = "dtype", [VALUE_ENUM] = "enum"};
#define KIND_COUNT (sizeof kinds / sizeof *kinds)

static const kjit_field_kind public_kinds[] = {[VALUE_INT] = KJIT_FIELD_INT,
                                               [VALUE_BOOL] = KJIT_FIELD_BOOL,
                                               [VALUE_DTYPE] = KJIT_FIELD_DTYPE,
                                               [VALUE_ENUM] = KJIT_FIELD_ENUM};

/* A kind by its name; a misspelt one is told with the nearest. */
static kjit_status find_kind(const struct definition_maker *maker, const kjit_family_field_row *row,
                             enum value_kind *kind) {
  struct nearest nearest;
  for (size_t i = 0; row->kind && i < KIND_COUNT; i++) {
    *kind = (enum value_kind)i;
    if (!strcmp(kinds[i], row->kind)) return KJIT_OK;
  }
  const kjit_family_text at = {row->kind ? row->kind : "", row->name.line, row->name.column};
  nearest_begin(&nearest, at.text, strlen(at.text));
  nearest_offer_all(&nearest, kinds, KIND_COUNT);
  return definition_unknown(maker, &at, "no kind of field (int, bool, dtype, enum)", &nearest);
}

/* An enum's values are its names, numbered from 0. */
static kjit_status make_labels(const struct definition_maker *maker, const kjit_family_field_row *row, size_t index,
                               struct definition_field *field) {
  struct family_definition *const definition = maker->definition;
  const char **labels = arena_alloc_array(&definition->arena, row->value_count, sizeof *labels);
  int32_t *values = arena_alloc_array(&definition->arena, row->value_count, sizeof *values);
  if (!labels || !values) return error_no_memory(maker->error);
  for (size_t i = 0; i < row->value_count; i++) {
    const kjit_status status = definition_check_name(maker, &row->values[i], "value");
    if (status != KJIT_OK) return status;
    labels[i] = arena_copy(&definition->arena, row->values[i].text, strlen(row->values[i].text));
    if (!labels[i]) return error_no_memory(maker->error);
    for (size_t other = 0; other < i; other++)
      if (!strcmp(labels[other], labels[i]))
        return definition_refuse(maker, &row->values[i], "the value \"%s\" stands here twice", labels[i]);
    values[i] = (int32_t)i;
    definition->labels[definition->label_count++] = (struct expression_label){labels[i], (uint32_t)index, (int32_t)i};
  }
  field->labels = labels;
  field->values = values;
  field->value_count = row->value_count;
  return KJIT_OK;
}

/* The listed values of an int or a dtype. A value that stands twice is refused, because a set that crosses the field
 * would hold each of its configs twice. */
static kjit_status make_list(const struct definition_maker *maker, const kjit_family_field_row *row,
                             struct definition_field *field) {
  int32_t *values = arena_alloc_array(&maker->definition->arena, row->value_count, sizeof *values);
  if (!values) return error_no_memory(maker->error);
  for (size_t i = 0; i < row->value_count; i++) {
    const kjit_family_text *const text = &row->values[i];
    if (!text->text || !definition_read_value(field, text->text, strlen(text->text), &values[i]))
      return definition_refuse(maker, text, "\"%.40s\" is no %s that fits 32 bits", text->text ? text->text : "",
                               kinds[field->kind]);
    for (size_t other = 0; other < i; other++)
      if (values[other] == values[i])
        return definition_refuse(maker, text, "the value %.40s stands here twice", text->text);
  }
  field->values = values;
  field->value_count = row->value_count;
  return KJIT_OK;
}

/* An int's range. The last number must be reached by whole steps, so that `most` is itself legal and a range has one
 * way to be written. All zero means that the row has neither key. */
static kjit_status make_range(const struct definition_maker *maker, const kjit_family_field_row *row,
                              struct definition_field *field) {
  field->least = row->least;
  field->most = row->most;
  field->step = row->step ? row->step : 1;
  if (row->least == 0 && row->most == 0 && row->step == 0)
    return definition_refuse(maker, &row->name, "the field %.48s has neither values nor a range", field->name);
  if (row->least < INT32_MIN || row->most > INT32_MAX || row->least > row->most)
    return definition_refuse(maker, &row->name,
                             "the field %.48s: a range goes from a number of 32 bits to one that is "
                             "not below it",
                             field->name);
  if (field->step >= 1 && (row->most - row->least) % field->step == 0) return KJIT_OK;
  return definition_refuse(maker, &row->name, "the field %.48s: a step is at least 1 and divides the range",
                           field->name);
}

/* A dtype without a list may be any. */
static kjit_status make_dtypes(const struct definition_maker *maker, struct definition_field *field) {
  size_t count = 0;
  while (element_at(count))
    count++;
  int32_t *values = arena_alloc_array(&maker->definition->arena, count, sizeof *values);
  if (!values) return error_no_memory(maker->error);
  for (size_t i = 0; i < count; i++)
    values[i] = element_at(i)->number;
  field->values = values;
  field->value_count = count;
  return KJIT_OK;
}

/* Each kind has its own idea of legal values; what a kind cannot use is refused rather than ignored, since its author
 * expects it to do something. */
static kjit_status make_values(const struct definition_maker *maker, const kjit_family_field_row *row, size_t index,
                               struct definition_field *field) {
  static const int32_t booleans[] = {0, 1};
  if (row->value_count > DEFINITION_VALUES_MAX)
    return definition_refuse(maker, &row->name, "the field %.48s has %zu values; at most %d", field->name,
                             row->value_count, DEFINITION_VALUES_MAX);
  if (row->value_count && (row->least || row->most || row->step))
    return definition_refuse(maker, &row->name, "the field %.48s has values and a range; one of them says it all",
                             field->name);
  switch (field->kind) {
  case VALUE_ENUM:
    if (!row->value_count)
      return definition_refuse(maker, &row->name, "the field %.48s: an enum needs values, its names", field->name);
    return make_labels(maker, row, index, field);
  case VALUE_BOOL:
    if (row->value_count || row->least || row->most || row->step)
      return definition_refuse(maker, &row->name, "the field %.48s: a bool has no values of its own", field->name);
    field->values = booleans;
    field->value_count = 2;
    return KJIT_OK;
  case VALUE_DTYPE:
    if (!row->value_count && (row->least || row->most || row->step))
      return definition_refuse(maker, &row->name, "the field %.48s: a dtype has values, no range", field->name);
    return row->value_count ? make_list(maker, row, field) : make_dtypes(maker, field);
  default:
    return row->value_count ? make_list(maker, row, field) : make_range(maker, row, field);
  }
}

/* The legal values in words, for people who look at the family. */
static kjit_status make_legal(const struct definition_maker *maker, const struct definition_field *field,
                              kjit_field_info *table_row) {
  char buffer[4096]; /* sixteen names of at most 200 bytes */
  struct text domain;
  text_init_fixed(&domain, buffer, sizeof buffer);
  definition_print_domain(field, &domain);
  table_row->legal = arena_copy(&maker->definition->arena, buffer, domain.bytes);
  return table_row->legal ? KJIT_OK : error_no_memory(maker->error);
}

/* The default must be legal. Without one the first value stands in its place, and has_default says that every config
 * must name the field. */
static kjit_status make_default(const struct definition_maker *maker, const kjit_family_field_row *row,
                                struct definition_field *field) {
  char buffer[256];
  struct text domain;
  const char *const text = row->default_value.text;
  field->default_value = definition_value_at(field, 0);
  field->has_default = text != NULL;
  if (!text) return KJIT_OK;
  if (definition_read_value(field, text, strlen(text), &field->default_value) &&
      definition_is_legal(field, field->default_value))
    return KJIT_OK;
  text_init_fixed(&domain, buffer, sizeof buffer);
  definition_print_domain(field, &domain);
  return definition_refuse(maker, &row->default_value, "the default of %.48s is %.40s: must be %s", field->name, text,
                           buffer);
}

/* One row of the description becomes two: the definition's own, which expressions and rules read, and the public one
 * that kjit_family_field() returns. */
static kjit_status make_field(const struct definition_maker *maker, size_t index, kjit_family_field_row *row,
                              kjit_field_info *table_row) {
  struct family_definition *const definition = maker->definition;
  struct definition_field *const field = &definition->fields[index];
  kjit_status status = definition_check_name(maker, &row->name, "field");
  if (status == KJIT_OK) status = find_kind(maker, row, &field->kind);
  if (status != KJIT_OK) return status;
  for (size_t i = 0; i < index; i++)
    if (!strcmp(definition->field_names[i], row->name.text))
      return definition_refuse(maker, &row->name, "the field %s stands here twice", row->name.text);
  const char *const text = row->text ? row->text : "";
  field->name = arena_copy(&definition->arena, row->name.text, strlen(row->name.text));
  table_row->text = arena_copy(&definition->arena, text, strlen(text));
  if (!field->name || !table_row->text) return error_no_memory(maker->error);
  definition->field_names[index] = table_row->name = field->name;
  definition->field_count = index + 1;
  table_row->token = "";
  table_row->offset = (uint32_t)(index * sizeof(int32_t));
  table_row->kind = public_kinds[field->kind];
  if (field->kind == VALUE_DTYPE) definition->dtype_fields |= UINT64_C(1) << index;
  if (row->given) definition->given |= UINT64_C(1) << index;
  status = make_values(maker, row, index, field);
  table_row->value_names = field->labels;
  table_row->value_count = field->labels ? field->value_count : 0;
  if (status == KJIT_OK) status = make_legal(maker, field, table_row);
  return status == KJIT_OK ? make_default(maker, row, field) : status;
}

/* The longest text that a config can have must fit every buffer for one. */
static kjit_status check_text_length(const struct definition_maker *maker) {
  size_t bytes = 0;
  for (size_t i = 0; i < maker->definition->field_count; i++) {
    const struct definition_field *const field = &maker->definition->fields[i];
    size_t longest = sizeof "-2147483648";
    for (size_t value = 0; field->labels && value < field->value_count; value++)
      if (strlen(field->labels[value]) > longest) longest = strlen(field->labels[value]);
    bytes += 2 * strlen("\"\"") + strlen(field->name) + longest + strlen(": , ");
  }
  if (bytes < DEFINITION_TEXT_MAX) return KJIT_OK;
  return definition_refuse(maker, &maker->description->fields[0].name,
                           "a config's text may be %zu bytes long; at most %d: shorten names", bytes,
                           DEFINITION_TEXT_MAX);
}

/* All arrays are made before the first field, with one sum for the labels of every enum, because an arena's arrays
 * cannot grow. */
kjit_status definition_make_fields(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_description *const description = maker->description;
  const size_t count = description->field_count;
  const kjit_family_text nowhere = {0};
  size_t labels = 0;
  if (!count || count > KJIT_FIELD_COUNT_MAX || !description->fields)
    return definition_refuse(maker, &nowhere, "a family has 1 to %d fields", KJIT_FIELD_COUNT_MAX);
  for (size_t i = 0; i < count; i++)
    labels += description->fields[i].value_count <= DEFINITION_VALUES_MAX ? description->fields[i].value_count : 0;
  kjit_field_info *table = arena_alloc_array(&definition->arena, count, sizeof *table);
  definition->fields = arena_alloc_array(&definition->arena, count, sizeof *definition->fields);
  definition->field_names = arena_alloc_array(&definition->arena, count, sizeof *definition->field_names);
  definition->labels = arena_alloc_array(&definition->arena, labels, sizeof *definition->labels);
  if (!table || !definition->fields || !definition->field_names || !definition->labels)
    return error_no_memory(maker->error);
  for (size_t i = 0; i < count; i++) {
    kjit_family_field_row row = description->fields[i];
    const kjit_status status = make_field(maker, i, &row, &table[i]);
    if (status != KJIT_OK) return status;
  }
  definition->family.table.fields = table;
  definition->family.table.count = count;
  definition->family.table.any_dtype = true;
  definition->family.table.config_bytes = count * sizeof(int32_t);
  return check_text_length(maker);
}
