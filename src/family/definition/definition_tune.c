/* What a family says of tuning: which fields the caller gives, by what problems are told apart, and which config is
 * chosen for a problem that no tuned table knows.
 *
 * 1. definition_make_tuning() checks classes and the rows of `choose`, and makes the table of a class's members: the
 *    given fields, then the classes, each a number of 32 bits.
 * 2. definition_classify() and definition_choose_values() answer for a problem.
 * 3. definition_digest() says what the kernels are compiled from, so that timings of other sources are not believed.
 *
 * Threads: one thread makes a definition; afterwards everything is read only. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/definition/definition.h"
#include "family/tune_subject.h"
#include "jit/request/custom_request.h"

_Static_assert(DEFINITION_CLASSES_MAX + DEFINITION_GIVEN_MAX <= TUNE_CLASS_MAX, "every class fits");

/* A choice is made before there is a config, so that an expression for it may name given fields alone. */
static kjit_status check_known(const struct definition_maker *maker, const kjit_family_text *at,
                               const struct expression *expression, const char *what) {
  struct family_definition *const definition = maker->definition;
  definition->problem_parameters |= expression->parameters;
  if (!expression->derived && !(expression->fields & ~definition->given)) return KJIT_OK;
  return definition_refuse(maker, at,
                           "%s must follow from the call and from fields with \"given: true\": it chooses "
                           "the config",
                           what);
}

/* -- Classes ------------------------------------------------------------------------------------------------------- */

/* A class puts calls into groups that share one measured config. Buckets must rise, otherwise a value would belong to
 * two of them. */
static kjit_status make_class(const struct definition_maker *maker, size_t index) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_class_row *const row = &maker->description->classes[index];
  struct definition_class *const class = &definition->classes[index];
  char what[80];
  kjit_status status = definition_check_name(maker, &row->name, "class");
  if (status != KJIT_OK) return status;
  if (!row->value.text || row->bucket_count > DEFINITION_BUCKETS_MAX)
    return definition_refuse(maker, &row->name, "the class %s needs an expression and at most %d buckets",
                             row->name.text, DEFINITION_BUCKETS_MAX);
  for (size_t i = 0; i < row->bucket_count; i++)
    if ((i && row->buckets[i] <= row->buckets[i - 1]) || row->buckets[i] < INT32_MIN || row->buckets[i] > INT32_MAX)
      return definition_refuse(maker, &row->name, "the buckets of the class %s must rise and fit 32 bits",
                               row->name.text);
  int64_t *buckets = arena_alloc_array(&definition->arena, row->bucket_count, sizeof *buckets);
  class->name = arena_copy(&definition->arena, row->name.text, strlen(row->name.text));
  if (!buckets || !class->name) return error_no_memory(maker->error);
  for (size_t i = 0; i < index; i++)
    if (!strcmp(definition->classes[i].name, class->name))
      return definition_refuse(maker, &row->name, "the class %s stands here twice", class->name);
  if (row->bucket_count) memcpy(buckets, row->buckets, row->bucket_count * sizeof *buckets);
  class->buckets = buckets;
  class->bucket_count = row->bucket_count;
  (void)snprintf(what, sizeof what, "classes.%s", class->name);
  status = definition_expression(maker, &row->value, EXPRESSION_MAY_CALL, what, &class->value);
  if (status == KJIT_OK) status = check_known(maker, &row->value, &class->value, what);
  definition->class_count = index + 1;
  return status;
}

static kjit_status make_classes(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  definition->classes =
      arena_alloc_array(&definition->arena, maker->description->class_count, sizeof *definition->classes);
  if (!definition->classes) return error_no_memory(maker->error);
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < maker->description->class_count && status == KJIT_OK; i++)
    status = make_class(maker, i);
  return status;
}

/* -- Rows of choose ------------------------------------------------------------------------------------------------ */

static kjit_status make_assignment(const struct definition_maker *maker, const kjit_family_assignment *given,
                                   struct definition_choose *choose) {
  struct family_definition *const definition = maker->definition;
  uint32_t *const field = &choose->field[choose->count];
  struct expression *const value = &choose->value[choose->count];
  char what[80];
  kjit_status status = definition_find_field(maker, &given->field, field);
  if (status != KJIT_OK) return status;
  const char *const name = definition->fields[*field].name;
  for (size_t i = 0; i < choose->count; i++)
    if (choose->field[i] == *field)
      return definition_refuse(maker, &given->field, "choose sets the field %s twice", name);
  if (definition->given >> *field & 1)
    return definition_refuse(maker, &given->field, "choose sets the field %s, which the caller gives", name);
  if (!given->value.text) return definition_refuse(maker, &given->field, "choose has no value for the field %s", name);
  (void)snprintf(what, sizeof what, "choose: %s", name);
  status = definition_expression(maker, &given->value, EXPRESSION_MAY_CALL | EXPRESSION_MAY_PLACE, what, value);
  choose->count++;
  return status == KJIT_OK ? check_known(maker, &given->value, value, what) : status;
}

static kjit_status make_choose(const struct definition_maker *maker, size_t index) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_choose_row *const row = &maker->description->choose[index];
  struct definition_choose *const choose = &definition->choose[index];
  char what[32];
  (void)snprintf(what, sizeof what, "choose[%zu]", index);
  if (row->assignment_count > KJIT_FIELD_COUNT_MAX || (row->assignment_count && !row->assignments))
    return definition_refuse(maker, &row->when, "%s: at most %d fields, and their rows", what, KJIT_FIELD_COUNT_MAX);
  choose->value = arena_alloc_array(&definition->arena, row->assignment_count, sizeof *choose->value);
  choose->field = arena_alloc_array(&definition->arena, row->assignment_count, sizeof *choose->field);
  if (!choose->value || !choose->field) return error_no_memory(maker->error);
  kjit_status status =
      definition_expression(maker, &row->when, EXPRESSION_MAY_CALL | EXPRESSION_MAY_PLACE, what, &choose->when);
  if (status == KJIT_OK) status = check_known(maker, &row->when, &choose->when, what);
  for (size_t i = 0; i < row->assignment_count && status == KJIT_OK; i++)
    status = make_assignment(maker, &row->assignments[i], choose);
  definition->choose_count = index + 1;
  return status;
}

static kjit_status make_all_choose(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const size_t count = maker->description->choose_count;
  definition->choose = arena_alloc_array(&definition->arena, count, sizeof *definition->choose);
  if (!definition->choose) return error_no_memory(maker->error);
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = make_choose(maker, i);
  return status;
}

/* -- The subject of tuned tables ----------------------------------------------------------------------------------- */

static const struct family_definition *definition_of(const struct tune_subject *subject) {
  return subject->families[0]->definition;
}

/* A class that a file names: legal values of given fields, and buckets by their names. */
static kjit_status check_class(const struct tune_subject *subject, const int32_t *class, kjit_error *error) {
  const struct family_definition *const definition = definition_of(subject);
  const size_t given = subject->class->count - definition->class_count;
  for (size_t i = 0; i < given; i++) {
    const kjit_field_info *const member = &subject->class->fields[i];
    const kjit_field_info *const field =
        field_table_find(&definition->family.table, member->name, strlen(member->name));
    if (!definition_is_legal(&definition->fields[field->offset / sizeof(int32_t)], class[i]))
      return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %" PRId32 ": no value of the field", member->name,
                       class[i]);
  }
  for (size_t i = 0; i < definition->class_count; i++) {
    const struct definition_class *const row = &definition->classes[i];
    bool known = !row->bucket_count;
    for (size_t bucket = 0; bucket < row->bucket_count && !known; bucket++)
      known = row->buckets[bucket] == class[given + i];
    if (!known)
      return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %" PRId32 ": must be a bucket", row->name,
                       class[given + i]);
  }
  return KJIT_OK;
}

static bool gives(const struct tune_subject *subject, const int32_t *class, const kjit_field_info *field,
                  int32_t *value) {
  const struct family_definition *const definition = definition_of(subject);
  const size_t index = field->offset / sizeof(int32_t);
  if (!(definition->given >> index & 1)) return false;
  *value = class[__builtin_popcountll(definition->given & ((UINT64_C(1) << index) - 1))];
  return true;
}

static kjit_status digest(const struct tune_subject *subject, size_t index, struct builder *builder, struct digest *out,
                          kjit_error *error) {
  (void)index;
  (void)builder;
  return definition_digest(definition_of(subject), out, error);
}

/* The members of a class: given fields as they are, then the buckets as numbers. */
static kjit_status make_members(const struct definition_maker *maker, struct field_table *table) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_text nowhere = {0};
  const size_t given = (size_t)__builtin_popcountll(definition->given);
  if (given > DEFINITION_GIVEN_MAX)
    return definition_refuse(maker, &nowhere, "%zu fields are given; at most %d", given, DEFINITION_GIVEN_MAX);
  kjit_field_info *members =
      arena_alloc_array(&definition->arena, given + definition->class_count + 1, sizeof *members);
  if (!members) return error_no_memory(maker->error);
  size_t count = 0;
  for (size_t i = 0; i < definition->field_count; i++)
    if (definition->given >> i & 1) members[count++] = definition->family.table.fields[i];
  for (size_t i = 0; i < definition->class_count; i++)
    members[count++] =
        (kjit_field_info){.name = definition->classes[i].name, .token = "", .text = "", .kind = KJIT_FIELD_INT};
  for (size_t i = 0; i < count; i++) {
    members[i].offset = (uint32_t)(i * sizeof(int32_t));
    for (size_t other = 0; other < i; other++)
      if (!strcmp(members[i].name, members[other].name))
        return definition_refuse(maker, &nowhere, "the class %s has the name of a given field", members[i].name);
  }
  *table = (struct field_table){.family = "a class", .fields = members, .count = count, .any_dtype = true};
  table->config_bytes = count * sizeof(int32_t);
  return KJIT_OK;
}

static kjit_status make_subject(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  struct tune_subject *subject = arena_alloc(&definition->arena, sizeof *subject);
  struct field_table *class = arena_alloc(&definition->arena, sizeof *class);
  const kjit_family **families = arena_alloc(&definition->arena, sizeof *families);
  const char *prefix = arena_printf(&definition->arena, "%s-", definition->family.table.family);
  if (!subject || !class || !families || !prefix) return error_no_memory(maker->error);
  *families = &definition->family;
  *subject = (struct tune_subject){.class = class,
                                   .families = families,
                                   .family_count = 1,
                                   .prefix = prefix,
                                   .has_arch_tables = true,
                                   .check = check_class,
                                   .gives = gives,
                                   .digest = digest};
  definition->subject = subject;
  return make_members(maker, class);
}

kjit_status definition_make_tuning(const struct definition_maker *maker) {
  kjit_status status = make_classes(maker);
  if (status == KJIT_OK) status = make_all_choose(maker);
  return status == KJIT_OK ? make_subject(maker) : status;
}

/* -- Answers for a problem ----------------------------------------------------------------------------------------- */

kjit_status definition_classify(const struct family_definition *definition, size_t index, const int32_t *values,
                                const int64_t *parameters, int32_t *bucket, kjit_error *error) {
  const struct definition_class *const class = &definition->classes[index];
  const struct expression_values known = {.fields = values, .parameters = parameters};
  int64_t value = 0;
  const kjit_status status = expression_evaluate(&class->value, &known, &value, error);
  size_t last = 0;
  while (last + 1 < class->bucket_count && class->buckets[last + 1] <= value)
    last++;
  if (class->bucket_count) value = class->buckets[last];
  *bucket = (int32_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
  return status;
}

static kjit_status assign(const struct family_definition *definition, const struct definition_choose *choose,
                          const struct expression_values *known, int32_t *values, kjit_error *error) {
  for (size_t i = 0; i < choose->count; i++) {
    int64_t value = 0;
    const kjit_status status = expression_evaluate(&choose->value[i], known, &value, error);
    if (status != KJIT_OK) return status;
    if (!definition_is_legal(&definition->fields[choose->field[i]], value))
      return expression_refuse(&choose->value[i].source, 0, KJIT_ERR_INVALID_CONFIG, error,
                               "is %" PRId64 ": no value of the field", value);
    values[choose->field[i]] = (int32_t)value;
  }
  return KJIT_OK;
}

kjit_status definition_choose_values(const struct family_definition *definition, const int64_t *parameters,
                                     const struct family_place *place, int32_t *values, kjit_error *error) {
  int64_t limits[LIMIT_COUNT];
  int32_t given[KJIT_FIELD_COUNT_MAX];
  const struct expression_values known = {.fields = given, .parameters = parameters, .limits = limits};
  memcpy(given, values, definition->family.table.config_bytes);
  for (size_t i = 0; i < definition->field_count; i++)
    if (!(definition->given >> i & 1)) values[i] = definition->fields[i].default_value;
  kjit_status status = definition_limits(place, limits, error);
  for (size_t i = 0; i < definition->choose_count && status == KJIT_OK; i++) {
    const struct definition_choose *const choose = &definition->choose[i];
    int64_t holds = 1;
    if (choose->when.step_count) status = expression_evaluate(&choose->when, &known, &holds, error);
    if (status == KJIT_OK && holds) return assign(definition, choose, &known, values, error);
  }
  return status;
}

kjit_status definition_digest(const struct family_definition *definition, struct digest *out, kjit_error *error) {
  const struct custom_extras extras = {.open_ended = true};
  struct custom_request custom = {0};
  struct digest_state state;
  struct text defines;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  kjit_status status = custom_request_begin(&custom, &definition->mem, &definition->request, "sm_80", &extras, error);
  if (status == KJIT_OK) status = custom_request_collect(&custom, 1, error);
  if (status != KJIT_OK) goto done;
  for (size_t i = 0; i < definition->field_count; i++)
    values[i] = definition->fields[i].default_value;
  digest_begin(&state);
  digest_add(&state, &custom.request.sources->digest, sizeof custom.request.sources->digest);
  for (size_t i = 0; i < definition->derived_count; i++)
    digest_add(&state, definition->derived[i].source.text, strlen(definition->derived[i].source.text) + 1);
  for (size_t i = 0; i < definition->request.option_count; i++)
    digest_add(&state, definition->request.options[i], strlen(definition->request.options[i]) + 1);
  text_init(&defines, &definition->mem, (size_t)1 << 20);
  definition_print(&definition->family, values, &defines);
  if (defines.failed) status = error_no_memory(error);
  if (!defines.failed) digest_add(&state, defines.data, defines.bytes);
  text_finish(&defines);
  digest_end(&state, out);

done:
  custom_request_finish(&custom);
  return status;
}
