/* The sets of a family: lists of configs, and the legal configs of a cross product.
 *
 * A list's configs must be legal, because somebody wrote each down on purpose. Of a cross product those that break a
 * rule are left out, for that is what it is good for; `where` leaves out more.
 *
 * Threads: one thread makes a definition. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/definition/definition.h"

/* One axis of a cross product. */
struct axis {
  const struct definition_field *field;
  size_t index;          /* of the field */
  const int32_t *values; /* NULL: every legal one */
  size_t count;
  kjit_family_text at; /* for messages */
};

struct product {
  const struct definition_maker *maker;
  struct axis axes[KJIT_FIELD_COUNT_MAX];
  size_t axis_count, candidates;
  struct expression where;
};

static kjit_status count_candidates(const struct definition_maker *maker, const kjit_family_text *at, size_t more) {
  struct family_definition *const definition = maker->definition;
  if (more <= DEFINITION_CANDIDATES_MAX && definition->candidate_count + more <= DEFINITION_CANDIDATES_MAX) {
    definition->candidate_count += more;
    return KJIT_OK;
  }
  return definition_refuse(maker, at,
                           "the family's sets go through more than %d configs; narrow a range or name fewer "
                           "fields",
                           DEFINITION_CANDIDATES_MAX);
}

/* An inner error, with the place of what it is about. */
static kjit_status refuse_inner(const struct definition_maker *maker, const kjit_family_text *at, kjit_status status,
                                const kjit_error *inner) {
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(maker->error);
  return definition_refuse(maker, at, "%s", inner->message);
}

/* Make a set that is a list of configs. Each is read and checked by the family's rules now, so that a set has legal
 * ones. */
static kjit_status make_list(const struct definition_maker *maker, const kjit_family_set_row *row,
                             struct definition_set *set) {
  struct family_definition *const definition = maker->definition;
  const size_t count = definition->field_count;
  kjit_status status = count_candidates(maker, &row->name, row->config_count);
  int32_t *values =
      status == KJIT_OK ? arena_alloc_array(&definition->arena, row->config_count * count, sizeof *values) : NULL;
  if (status != KJIT_OK) return status;
  if (!values) return error_no_memory(maker->error);
  for (size_t i = 0; i < row->config_count; i++) {
    kjit_error inner = {0};
    const kjit_family_text *const text = &row->configs[i];
    if (!text->text) return definition_refuse(maker, &row->name, "config %zu of the set is missing", i);
    status = definition_parse(&definition->family, text->text, values + i * count, &inner);
    if (status == KJIT_OK) status = definition_check(&definition->family, values + i * count, &inner);
    if (status != KJIT_OK) return refuse_inner(maker, text, status, &inner);
  }
  set->values = values;
  set->count = row->config_count;
  return KJIT_OK;
}

/* Make one axis of a cross product: its field, and the values listed or, without a list, all legal values of the field.
 * An unknown field is refused with the nearest name. */
static kjit_status make_axis(const struct definition_maker *maker, const kjit_family_axis *row, struct axis *axis) {
  struct family_definition *const definition = maker->definition;
  const char *const name = row->field.text ? row->field.text : "";
  struct nearest nearest;
  axis->at = row->field;
  while (axis->index < definition->field_count && strcmp(definition->field_names[axis->index], name) != 0)
    axis->index++;
  if (axis->index == definition->field_count) {
    nearest_begin(&nearest, name, strlen(name));
    nearest_offer_all(&nearest, definition->field_names, definition->field_count);
    return definition_unknown(maker, &row->field, "no field of this family", &nearest);
  }
  axis->field = &definition->fields[axis->index];
  axis->count = row->value_count ? row->value_count : definition_value_count(axis->field);
  if (!row->value_count) return KJIT_OK;
  if (row->value_count > DEFINITION_CANDIDATES_MAX) return count_candidates(maker, &row->field, row->value_count);
  int32_t *values = arena_alloc_array(&definition->arena, row->value_count, sizeof *values);
  if (!values) return error_no_memory(maker->error);
  for (size_t i = 0; i < row->value_count; i++) {
    const char *const text = row->values[i].text ? row->values[i].text : "";
    if (!definition_read_value(axis->field, text, strlen(text), &values[i]) ||
        !definition_is_legal(axis->field, values[i]))
      return definition_refuse(maker, &row->values[i], "\"%.40s\" is no legal value of %s", text, name);
  }
  axis->values = values;
  return KJIT_OK;
}

/* The product of the axes is bounded before it is formed: ten axes of ten values are ten thousand million configs.
 * Each factor is cut at one above the bound, so that the multiplication cannot overflow. */
static kjit_status make_axes(struct product *product, const kjit_family_set_row *row) {
  const struct definition_maker *const maker = product->maker;
  product->candidates = 1;
  if (row->axis_count > KJIT_FIELD_COUNT_MAX)
    return definition_refuse(maker, &row->name, "a cross product names each field at most once");
  for (size_t i = 0; i < row->axis_count; i++) {
    struct axis *const axis = &product->axes[i];
    const kjit_status status = make_axis(maker, &row->axes[i], axis);
    if (status != KJIT_OK) return status;
    for (size_t other = 0; other < i; other++)
      if (product->axes[other].index == axis->index)
        return definition_refuse(maker, &axis->at, "the cross product names %s twice", axis->at.text);
    const size_t most = DEFINITION_CANDIDATES_MAX + 1; /* enough to be refused, and no overflow */
    product->candidates *= axis->count < most ? axis->count : most;
    if (product->candidates > DEFINITION_CANDIDATES_MAX) return count_candidates(maker, &row->name, most);
    product->axis_count = i + 1;
  }
  return count_candidates(maker, &row->name, product->candidates);
}

/* Every field has its default, or is an axis. */
static kjit_status begin_config(const struct product *product, const kjit_family_text *at, int32_t *values) {
  const struct family_definition *const definition = product->maker->definition;
  for (size_t i = 0; i < definition->field_count; i++) {
    bool given = definition->fields[i].has_default;
    for (size_t axis = 0; axis < product->axis_count; axis++)
      given |= product->axes[axis].index == i;
    if (!given)
      return definition_refuse(product->maker, at, "the cross product does not name %s, which has no default",
                               definition->field_names[i]);
    values[i] = definition->fields[i].default_value;
  }
  return KJIT_OK;
}

/* Candidate `number`, the last axis fastest. */
static void fill_config(const struct product *product, size_t number, int32_t *values) {
  for (size_t i = product->axis_count; i-- > 0;) {
    const struct axis *const axis = &product->axes[i];
    const size_t at = number % axis->count;
    number /= axis->count;
    values[axis->index] = axis->values ? axis->values[at] : definition_value_at(axis->field, at);
  }
}

static bool is_wanted(const struct product *product, const int32_t *values) {
  const struct family_definition *const definition = product->maker->definition;
  int64_t derived[DEFINITION_DERIVED_MAX], truth = 1;
  const struct expression_values known = {.fields = values, .derived = derived};
  if (definition_check(&definition->family, values, NULL) != KJIT_OK) return false;
  if (!product->where.step_count) return true;
  if (definition_evaluate_derived(definition, values, derived, NULL) != KJIT_OK) return false;
  return expression_evaluate(&product->where, &known, &truth, NULL) == KJIT_OK && truth;
}

/* Twice through the candidates: to count what is kept, and to keep it. */
static kjit_status make_product(const struct definition_maker *maker, const kjit_family_set_row *row,
                                struct definition_set *set) {
  struct family_definition *const definition = maker->definition;
  struct product product = {.maker = maker};
  int32_t values[KJIT_FIELD_COUNT_MAX];
  char what[80];
  (void)snprintf(what, sizeof what, "sets.%.48s.where", row->name.text);
  kjit_status status = make_axes(&product, row);
  if (status == KJIT_OK) status = begin_config(&product, &row->name, values);
  if (status == KJIT_OK) status = definition_expression(maker, &row->where, 0, what, &product.where);
  if (status != KJIT_OK) return status;
  unsigned char *wanted = arena_alloc_array(&definition->arena, product.candidates, 1);
  if (!wanted) return error_no_memory(maker->error);
  for (size_t i = 0; i < product.candidates; i++) {
    fill_config(&product, i, values);
    wanted[i] = is_wanted(&product, values);
    set->count += wanted[i];
  }
  int32_t *kept = arena_alloc_array(&definition->arena, set->count * definition->field_count, sizeof *kept);
  if (!kept) return error_no_memory(maker->error);
  set->values = kept;
  for (size_t i = 0; i < product.candidates; i++) {
    if (!wanted[i]) continue;
    fill_config(&product, i, values);
    memcpy(kept, values, definition->family.table.config_bytes);
    kept += definition->field_count;
  }
  if (set->count) return KJIT_OK;
  return definition_refuse(maker, &row->name, "no config of the set %.48s is legal", row->name.text);
}

/* Sets are made behind fields and rules, because each of their configs is parsed and checked as a user's would be. So a
 * set that names an illegal config is found when the file is opened, and not on the machine that warms it. */
kjit_status definition_make_sets(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const size_t count = maker->description->set_count;
  const char **names = arena_alloc_array(&definition->arena, count + 1, sizeof *names);
  definition->sets = arena_alloc_array(&definition->arena, count, sizeof *definition->sets);
  if (!names || !definition->sets) return error_no_memory(maker->error);
  definition->family.sets = names;
  for (size_t i = 0; i < count; i++) {
    const kjit_family_set_row *const row = &maker->description->sets[i];
    struct definition_set *const set = &definition->sets[i];
    kjit_status status = definition_check_name(maker, &row->name, "set");
    if (status != KJIT_OK) return status;
    for (size_t other = 0; other < i; other++)
      if (!strcmp(definition->sets[other].name, row->name.text))
        return definition_refuse(maker, &row->name, "the set %s stands here twice", row->name.text);
    set->name = arena_copy(&definition->arena, row->name.text, strlen(row->name.text));
    if (!set->name) return error_no_memory(maker->error);
    if (row->config_count && row->axis_count)
      return definition_refuse(maker, &row->name, "the set %s is a list or a cross product, not both", set->name);
    if (!row->config_count && !row->axis_count)
      return definition_refuse(maker, &row->name, "the set %s is empty", set->name);
    status = row->config_count ? make_list(maker, row, set) : make_product(maker, row, set);
    if (status != KJIT_OK) return status;
    definition->set_count = i + 1;
    names[i] = set->name;
  }
  return KJIT_OK;
}

static const struct definition_set *find_set(const kjit_family *family, const char *name) {
  const struct family_definition *const definition = family->definition;
  for (size_t i = 0; i < definition->set_count; i++)
    if (!strcmp(definition->sets[i].name, name)) return &definition->sets[i];
  return NULL;
}

size_t definition_set_count(const kjit_family *family, const char *name) {
  const struct definition_set *const set = find_set(family, name);
  return set ? set->count : 0;
}

void definition_set_get(const kjit_family *family, const char *name, size_t index, int32_t *values) {
  const struct definition_set *const set = find_set(family, name);
  if (set) memcpy(values, set->values + index * family->table.count, family->table.config_bytes);
}
