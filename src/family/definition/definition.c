/* Makes a family of its description, in the order in which the parts rely on one another:
 *
 * 1. fields: names, kinds, legal values, defaults;
 * 2. parameters of the kernel, because the grid names them;
 * 3. expressions: derived constants, rules, canonical form, block, shared memory, cluster, grid;
 * 4. given fields, classes and rules of choice, by which configs are tuned and chosen;
 * 5. the name expression;
 * 6. sets, each config of which is checked against the rules;
 * 7. the source: it is read, and its constants are compared with the fields.
 *
 * Threads: one thread makes a definition; afterwards only its reference count and its sources change. */
#include "family/definition/definition.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"

kjit_status definition_refuse(const struct definition_maker *maker, const kjit_family_text *at, const char *format,
                              ...) {
  char why[400];
  va_list arguments;
  const kjit_family_description *const description = maker->description;
  va_start(arguments, format);
  (void)vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  if (description->file && at->line)
    return error_set(maker->error, KJIT_ERR_PARSE, "%s:%u:%u: %s", description->file, (unsigned)at->line,
                     (unsigned)at->column, why);
  return error_set(maker->error, KJIT_ERR_PARSE, "%.80s: %s",
                   description->file   ? description->file
                   : description->name ? description->name
                                       : "family",
                   why);
}

kjit_status definition_unknown(const struct definition_maker *maker, const kjit_family_text *at, const char *what,
                               const struct nearest *nearest) {
  return definition_refuse(
      maker, at, "\"%.*s\" is %s%s%s%s", nearest->wanted_bytes < 64 ? (int)nearest->wanted_bytes : 64, nearest->wanted,
      what, nearest->best ? "; did you mean \"" : "", nearest->best ? nearest->best : "", nearest->best ? "\"?" : "");
}

kjit_status definition_check_name(const struct definition_maker *maker, const kjit_family_text *name,
                                  const char *what) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  const char *const text = name->text ? name->text : "";
  const size_t bytes = strlen(text);
  if (!bytes || strspn(text, letters) != bytes || (*text >= '0' && *text <= '9'))
    return definition_refuse(maker, name, "the %s \"%.60s\" must be letters, digits and underscores, a digit not first",
                             what, text);
  if (bytes > DEFINITION_NAME_MAX)
    return definition_refuse(maker, name, "the %s \"%.60s...\" is longer than %d bytes", what, text,
                             DEFINITION_NAME_MAX);
  if (strcmp(what, "value") != 0 && expression_is_reserved(text))
    return definition_refuse(maker, name, "the %s \"%s\" has a name that means something else in expressions", what,
                             text);
  return KJIT_OK;
}

/* The expression is parsed in the scope of what has been defined so far, so a derived constant can only use those in
 * front of it and a circle cannot be written. Text and file name are copied, because a rule that a config breaks
 * years later still has to say where it stands. */
kjit_status definition_expression(const struct definition_maker *maker, const kjit_family_text *text, unsigned may,
                                  const char *what, struct expression *out) {
  struct family_definition *const definition = maker->definition;
  const char *const file = maker->description->file;
  *out = (struct expression){0};
  if (!text->text) return KJIT_OK;
  struct expression_source source = {.line = text->line, .column = text->column};
  source.text = arena_copy(&definition->arena, text->text, strlen(text->text));
  source.what = arena_copy(&definition->arena, what, strlen(what));
  if (!source.text || !source.what) return error_no_memory(maker->error);
  if (file && text->line) {
    source.file = arena_copy(&definition->arena, file, strlen(file));
    if (!source.file) return error_no_memory(maker->error);
  }
  const struct expression_scope scope = {.fields = definition->field_names,
                                         .field_count = definition->field_count,
                                         .derived = definition->derived_names,
                                         .derived_count = definition->derived_count,
                                         .parameters = definition->integer_parameters,
                                         .parameter_count = definition->parameter_count,
                                         .labels = definition->labels,
                                         .label_count = definition->label_count,
                                         .dtype_fields = definition->dtype_fields,
                                         .may = may};
  return expression_parse(out, &definition->arena, &scope, &source, maker->error);
}

/* Counts come from the caller's struct and are used to size arrays, so they are checked before anything is
 * allocated. A count without its table would otherwise be a crash far from its cause. */
static kjit_status check_counts(const struct definition_maker *maker) {
  const kjit_family_description *const description = maker->description;
  const kjit_family_text nowhere = {0};
  const struct {
    const char *name;
    size_t count;
    const void *rows;
    size_t most;
  } tables[] = {
      {"derived constants", description->derived_count, description->derived, DEFINITION_DERIVED_MAX},
      {"rules", description->rule_count, description->rules, DEFINITION_RULES_MAX},
      {"canonical rows", description->canonical_count, description->canonical, KJIT_FIELD_COUNT_MAX},
      {"parameters", description->parameter_count, description->parameters, DEFINITION_PARAMETERS_MAX},
      {"sets", description->set_count, description->sets, DEFINITION_SETS_MAX},
      {"classes", description->class_count, description->classes, DEFINITION_CLASSES_MAX},
      {"rows of choose", description->choose_count, description->choose, DEFINITION_CHOOSE_MAX},
  };
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    if (tables[i].count > tables[i].most)
      return definition_refuse(maker, &nowhere, "%zu %s; at most %zu", tables[i].count, tables[i].name, tables[i].most);
    if (tables[i].count && !tables[i].rows)
      return definition_refuse(maker, &nowhere, "the %s are missing, but their count is %zu", tables[i].name,
                               tables[i].count);
  }
  return KJIT_OK;
}

static kjit_status make_name(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_text name = {maker->description->name, 0, 0};
  const kjit_status status = definition_check_name(maker, &name, "family");
  if (status != KJIT_OK) return status;
  if (kjit_family_find(name.text))
    return definition_refuse(maker, &name, "the family %s is kjit's own: a user's needs another name", name.text);
  definition->family.table.family = arena_copy(&definition->arena, name.text, strlen(name.text));
  definition->family.table.type = definition->family.table.family;
  return definition->family.table.family ? KJIT_OK : error_no_memory(maker->error);
}

static const struct kjit_family functions = {
    .parse = definition_parse,
    .print = definition_print,
    .check = definition_check,
    .check_place = definition_check_place,
    .canonicalize = definition_canonicalize,
    .geometry = definition_geometry,
    .derive = definition_derive,
    .set_count = definition_set_count,
    .set_get = definition_set_get,
};

static kjit_status make(const struct definition_maker *maker) {
  static kjit_status (*const parts[])(const struct definition_maker *) = {check_counts,
                                                                          make_name,
                                                                          definition_make_fields,
                                                                          definition_make_parameters,
                                                                          definition_make_expressions,
                                                                          definition_make_tuning,
                                                                          definition_make_template,
                                                                          definition_make_sets,
                                                                          definition_make_source};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && status == KJIT_OK; i++)
    status = parts[i](maker);
  return status;
}

/* Tables of a runtime outlive a family and keep its address in their keys. The address may be given to another
 * family after a release, so each family has a number that is never used again. */
static uint64_t next_serial(void) {
  static atomic_uint_least64_t newest;
  return atomic_fetch_add_explicit(&newest, 1, memory_order_relaxed) + 1;
}

kjit_status definition_create(struct family_definition **out, const struct mem *mem,
                              const kjit_family_description *description, kjit_error *error) {
  *out = NULL;
  struct family_definition *definition = mem_alloc(mem, sizeof *definition);
  if (!definition) return error_no_memory(error);
  definition->mem = *mem;
  definition->family = functions;
  definition->family.definition = definition;
  definition->family.serial = next_serial();
  arena_init(&definition->arena, &definition->mem, ARENA_UNLIMITED);
  atomic_init(&definition->references, 1);
  const struct definition_maker maker = {definition, description, error};
  const kjit_status status = make(&maker);
  if (status == KJIT_OK)
    *out = definition;
  else
    definition_release(definition);
  return status;
}

bool definition_set_file(struct family_definition *definition, const char *path) {
  char absolute[PATH_MAX];
  if (!realpath(path, absolute)) return true; /* it was removed meanwhile: then there is no file to name */
  definition->family.file = arena_copy(&definition->arena, absolute, strlen(absolute));
  return definition->family.file != NULL;
}

void definition_retain(struct family_definition *definition) {
  atomic_fetch_add_explicit(&definition->references, 1, memory_order_relaxed);
}

void definition_release(struct family_definition *definition) {
  if (atomic_fetch_sub_explicit(&definition->references, 1, memory_order_acq_rel) != 1) return;
  const struct mem mem = definition->mem;
  arena_finish(&definition->arena);
  mem_free(&mem, definition);
}
