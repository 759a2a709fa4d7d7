/* The expressions of a description, parsed, each with the names that it may use. A derived constant may use those
 * before it, so that there are no circles. Only the grid and the classes may depend on the call, and only rules on the
 * card, because nothing else that depends on them may change the code.
 *
 * Threads: one thread makes a definition. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/definition/definition.h"
#include "family/element.h"

static bool has_name(const char *const *names, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* A derived constant becomes a #define beside the fields, and expressions name both, so one name may not mean two
 * things. `derived_fields` collects every field that it depends on, also by way of other derived constants, because
 * a rule's message lists the fields that a user can change. */
static kjit_status make_derived(const struct definition_maker *maker, size_t index) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_derived_row *const row = &maker->description->derived[index];
  char what[80];
  kjit_status status = definition_check_name(maker, &row->name, "derived constant");
  if (status != KJIT_OK) return status;
  if (has_name(definition->field_names, definition->field_count, row->name.text) ||
      has_name(definition->parameter_names, definition->parameter_count, row->name.text) ||
      has_name(definition->derived_names, definition->derived_count, row->name.text))
    return definition_refuse(maker, &row->name, "the derived constant %s has the name of something else",
                             row->name.text);
  if (!row->value.text)
    return definition_refuse(maker, &row->name, "the derived constant %s has no expression", row->name.text);
  (void)snprintf(what, sizeof what, "derived.%.48s", row->name.text);
  struct expression *const expression = &definition->derived[index];
  status = definition_expression(maker, &row->value, 0, what, expression);
  if (status != KJIT_OK) return status;
  definition->derived_fields[index] = expression->fields;
  for (size_t i = 0; i < index; i++)
    if (expression->derived >> i & 1) definition->derived_fields[index] |= definition->derived_fields[i];
  definition->derived_names[index] = arena_copy(&definition->arena, row->name.text, strlen(row->name.text));
  if (!definition->derived_names[index]) return error_no_memory(maker->error);
  definition->derived_count = index + 1;
  return KJIT_OK;
}

static kjit_status make_all_derived(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const size_t count = maker->description->derived_count;
  definition->derived = arena_alloc_array(&definition->arena, count, sizeof *definition->derived);
  definition->derived_fields = arena_alloc_array(&definition->arena, count, sizeof *definition->derived_fields);
  definition->derived_names = arena_alloc_array(&definition->arena, count, sizeof *definition->derived_names);
  if (!definition->derived || !definition->derived_fields || !definition->derived_names)
    return error_no_memory(maker->error);
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = make_derived(maker, i);
  return status;
}

/* KJIT_<field>_<label> and KJIT_<field>_type are constants too. */
static kjit_status check_macros(const struct definition_maker *maker) {
  const struct family_definition *const definition = maker->definition;
  const kjit_family_text nowhere = {0};
  char macro[2 * DEFINITION_NAME_MAX + 2];
  for (size_t i = 0; i < definition->label_count + definition->field_count; i++) {
    const bool label = i < definition->label_count;
    const size_t field = label ? definition->labels[i].field : i - definition->label_count;
    if (!label && !(definition->dtype_fields >> field & 1)) continue;
    (void)snprintf(macro, sizeof macro, "%s_%s", definition->field_names[field],
                   label ? definition->labels[i].name : "type");
    if (has_name(definition->field_names, definition->field_count, macro) ||
        has_name(definition->derived_names, definition->derived_count, macro))
      return definition_refuse(maker, &nowhere,
                               "KJIT_%s would be defined twice: by the %s of the field %s, and by the "
                               "field or derived constant of that name",
                               macro, label ? "values" : "type", definition->field_names[field]);
  }
  return KJIT_OK;
}

/* A rule without a sentence is refused: the sentence is the whole message for a user whose config breaks the rule,
 * and an expression alone does not say why it must hold. */
static kjit_status make_rules(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const size_t count = maker->description->rule_count;
  char what[32];
  definition->rules = arena_alloc_array(&definition->arena, count, sizeof *definition->rules);
  if (!definition->rules) return error_no_memory(maker->error);
  for (size_t i = 0; i < count; i++) {
    const kjit_family_rule_row *const row = &maker->description->rules[i];
    (void)snprintf(what, sizeof what, "rules[%zu]", i);
    if (!row->condition.text) return definition_refuse(maker, &row->condition, "%s has no expression", what);
    if (!row->sentence || !*row->sentence)
      return definition_refuse(maker, &row->condition, "%s has no sentence that says why", what);
    if (strnlen(row->sentence, DEFINITION_SENTENCE_MAX + 1) > DEFINITION_SENTENCE_MAX)
      return definition_refuse(maker, &row->condition, "the sentence of %s is longer than %d bytes", what,
                               DEFINITION_SENTENCE_MAX);
    const kjit_status status =
        definition_expression(maker, &row->condition, EXPRESSION_MAY_PLACE, what, &definition->rules[i].condition);
    if (status != KJIT_OK) return status;
    definition->rules[i].sentence = arena_copy(&definition->arena, row->sentence, strlen(row->sentence));
    if (!definition->rules[i].sentence) return error_no_memory(maker->error);
    definition->rule_count = i + 1;
  }
  return KJIT_OK;
}

kjit_status definition_find_field(const struct definition_maker *maker, const kjit_family_text *name, uint32_t *index) {
  const struct family_definition *const definition = maker->definition;
  struct nearest nearest;
  const char *const text = name->text ? name->text : "";
  for (*index = 0; *index < definition->field_count; ++*index)
    if (!strcmp(definition->field_names[*index], text)) return KJIT_OK;
  nearest_begin(&nearest, text, strlen(text));
  nearest_offer_all(&nearest, definition->field_names, definition->field_count);
  return definition_unknown(maker, name, "no field of this family", &nearest);
}

/* A row says when a field cannot change the code, and which value it has then. Two rows for one field could set it
 * to and fro for ever, so there is at most one. */
static kjit_status make_canonical_row(const struct definition_maker *maker, size_t index) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_canonical_row *const row = &maker->description->canonical[index];
  struct definition_canonical *const canonical = &definition->canonical[index];
  char what[80];
  kjit_status status = definition_find_field(maker, &row->field, &canonical->field);
  if (status != KJIT_OK) return status;
  const struct definition_field *const field = &definition->fields[canonical->field];
  for (size_t i = 0; i < index; i++)
    if (definition->canonical[i].field == canonical->field)
      return definition_refuse(maker, &row->field, "canonical names the field %s twice", field->name);
  if (!row->when.text) return definition_refuse(maker, &row->field, "canonical.%s has no expression", field->name);
  (void)snprintf(what, sizeof what, "canonical.%s", field->name);
  status = definition_expression(maker, &row->when, 0, what, &canonical->when);
  canonical->value = field->default_value;
  if (status == KJIT_OK && row->value.text &&
      (!definition_read_value(field, row->value.text, strlen(row->value.text), &canonical->value) ||
       !definition_is_legal(field, canonical->value)))
    return definition_refuse(maker, &row->value, "\"%.40s\" is no legal value of %s", row->value.text, field->name);
  definition->canonical_count = index + 1;
  return status;
}

static kjit_status make_canonical(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  definition->canonical =
      arena_alloc_array(&definition->arena, maker->description->canonical_count, sizeof *definition->canonical);
  if (!definition->canonical) return error_no_memory(maker->error);
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < maker->description->canonical_count && status == KJIT_OK; i++)
    status = make_canonical_row(maker, i);
  return status;
}

/* Block, cluster and shared memory may depend on the config alone, because the kernel is compiled for them. The grid
 * may also depend on the call's numbers and on the card. */
static kjit_status make_geometry(const struct definition_maker *maker) {
  static const char *const names[] = {"block[0]",   "block[1]",   "block[2]", "cluster[0]",
                                      "cluster[1]", "cluster[2]", "shared"};
  static const char *const grid[] = {"grid[0]", "grid[1]", "grid[2]"};
  struct family_definition *const definition = maker->definition;
  const kjit_family_description *const description = maker->description;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < GEOMETRY_COUNT && status == KJIT_OK; i++) {
    const kjit_family_text *const text = i < GEOMETRY_CLUSTER  ? &description->block[i]
                                         : i < GEOMETRY_SHARED ? &description->cluster[i - GEOMETRY_CLUSTER]
                                                               : &description->shared_bytes;
    status = definition_expression(maker, text, 0, names[i], &definition->geometry[i]);
  }
  for (size_t i = 0; i < 3 && status == KJIT_OK; i++)
    status = definition_expression(maker, &description->grid[i], EXPRESSION_MAY_CALL | EXPRESSION_MAY_SMS, grid[i],
                                   &definition->grid[i]);
  return status;
}

kjit_status definition_make_expressions(const struct definition_maker *maker) {
  static kjit_status (*const parts[])(const struct definition_maker *) = {make_all_derived, check_macros, make_rules,
                                                                          make_canonical, make_geometry};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && status == KJIT_OK; i++)
    status = parts[i](maker);
  return status;
}
