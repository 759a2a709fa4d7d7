/* Names are looked for in this order: fields, derived constants, parameters of the call, limits of the card, true and
 * false, dtypes, labels of enum fields. A label that two fields give different numbers is written with its field:
 * "epilogue.none".
 *
 * Threads: nothing is shared. */
#include "family/expression/expression_names.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/element.h"

const char *const expression_limit_names[LIMIT_COUNT] = {"sm", "arch_specific", "sm_count", "shared_per_block"};

static const char *const words[] = {"and",   "or",  "not",     "true",    "false", "min",   "max",
                                    "divup", "abs", "roundup", "is_pow2", "log2",  "sizeof"};

bool expression_is_reserved(const char *name) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(words[i], name)) return true;
  for (size_t i = 0; i < LIMIT_COUNT; i++)
    if (!strcmp(expression_limit_names[i], name)) return true;
  for (size_t i = 0; element_at(i); i++)
    if (!strcmp(element_at(i)->name, name)) return true;
  return false;
}

static bool is_name(const char *candidate, const struct token *name) {
  return candidate && strlen(candidate) == name->bytes && !memcmp(candidate, name->start, name->bytes);
}

static bool find(const char *const *names, size_t count, const struct token *name, size_t *index) {
  for (*index = 0; *index < count; ++*index)
    if (is_name(names[*index], name)) return true;
  return false;
}

static bool may_use_limit(const struct expression_scope *scope, size_t limit) {
  if (scope->may & EXPRESSION_MAY_PLACE) return true;
  return scope->may & EXPRESSION_MAY_SMS && limit == LIMIT_SM_COUNT;
}

struct resolution {
  const struct expression_scope *scope;
  const struct expression_source *source;
  const struct token *name;
  kjit_error *error;
};

static kjit_status refuse(const struct resolution *here, const char *why) {
  return expression_refuse(here->source, (size_t)(here->name->start - here->source->text), KJIT_ERR_PARSE, here->error,
                           "\"%.*s\" %s", (int)here->name->bytes, here->name->start, why);
}

/* The suggestion offers only what may stand in this place: a parameter is no help to a rule, which cannot use one. */
static kjit_status unknown(const struct resolution *here) {
  const struct expression_scope *const scope = here->scope;
  const struct token *const name = here->name;
  struct nearest nearest;
  nearest_begin(&nearest, name->start, name->bytes);
  nearest_offer_all(&nearest, scope->fields, scope->field_count);
  nearest_offer_all(&nearest, scope->derived, scope->derived_count);
  for (size_t i = 0; i < scope->parameter_count && scope->may & EXPRESSION_MAY_CALL; i++)
    if (scope->parameters[i]) nearest_offer(&nearest, scope->parameters[i]);
  for (size_t i = 0; i < LIMIT_COUNT; i++)
    if (may_use_limit(scope, i)) nearest_offer(&nearest, expression_limit_names[i]);
  nearest_offer_all(&nearest, words, sizeof words / sizeof *words);
  for (size_t i = 0; element_at(i); i++)
    nearest_offer(&nearest, element_at(i)->name);
  for (size_t i = 0; i < scope->label_count; i++)
    nearest_offer(&nearest, scope->labels[i].name);
  return expression_refuse(here->source, (size_t)(name->start - here->source->text), KJIT_ERR_PARSE, here->error,
                           "nothing is called \"%.*s\" here%s%s%s", name->bytes < 64 ? (int)name->bytes : 64,
                           name->start, nearest.best ? "; did you mean \"" : "", nearest.best ? nearest.best : "",
                           nearest.best ? "\"?" : "");
}

/* A bare label, or "field.label". False: there is none; `ambiguous` when several fields have it by different numbers.
 */
static bool find_label(const struct expression_scope *scope, const struct token *name, int64_t *value,
                       bool *ambiguous) {
  const char *const dot = memchr(name->start, '.', name->bytes);
  const size_t field_bytes = dot ? (size_t)(dot - name->start) : 0;
  const struct token field = {TOKEN_NAME, name->start, field_bytes, 0, 0};
  const struct token label = {TOKEN_NAME, dot ? dot + 1 : name->start,
                              dot ? name->bytes - field_bytes - 1 : name->bytes, 0, 0};
  bool found = false;
  *ambiguous = 0;
  for (size_t i = 0; i < scope->label_count; i++) {
    const struct expression_label *const candidate = &scope->labels[i];
    if (!is_name(candidate->name, &label)) continue;
    if (dot && !is_name(scope->fields[candidate->field], &field)) continue;
    *ambiguous |= found && *value != candidate->value;
    *value = candidate->value;
    found = 1;
  }
  return found;
}

static kjit_status resolve_constant(const struct resolution *here, struct expression_step *step) {
  const struct token *const name = here->name;
  const struct element *const element = element_from_name(name->start, name->bytes);
  bool ambiguous;
  step->operation = STEP_NUMBER;
  if (expression_token_is(name, "true") || expression_token_is(name, "false")) {
    step->operand = expression_token_is(name, "true");
    return KJIT_OK;
  }
  if (find_label(here->scope, name, &step->operand, &ambiguous)) {
    if (!ambiguous) return KJIT_OK;
    return refuse(here, "is a value of several fields with different numbers: write it as field.value");
  }
  if (!element) return unknown(here);
  step->operand = element->number;
  return KJIT_OK;
}

/* Fields win over labels and types of the same name, since they are the family's own words. What an expression uses
 * is collected in `uses`, by which the caller refuses code that would depend on the call or on the card. */
kjit_status expression_resolve(const struct expression_scope *scope, const struct expression_source *source,
                               const struct token *name, struct expression *uses, struct expression_step *step,
                               kjit_error *error) {
  const struct resolution here = {scope, source, name, error};
  size_t index;
  step->at = (uint16_t)(name->start - source->text);
  if (find(scope->fields, scope->field_count, name, &index)) {
    step->operation = STEP_FIELD;
    uses->fields |= UINT64_C(1) << index;
  } else if (find(scope->derived, scope->derived_count, name, &index)) {
    step->operation = STEP_DERIVED;
    uses->derived |= UINT64_C(1) << index;
  } else if (find(scope->parameters, scope->parameter_count, name, &index)) {
    if (!(scope->may & EXPRESSION_MAY_CALL))
      return refuse(&here, "is a parameter of the call: only the grid and the classes may depend on it");
    step->operation = STEP_PARAMETER;
    uses->parameters |= UINT64_C(1) << index;
  } else if (find(expression_limit_names, LIMIT_COUNT, name, &index)) {
    if (!may_use_limit(scope, index))
      return refuse(&here, "is a number of the card, which must not change the code: only rules may name it, and "
                           "sm_count the grid");
    step->operation = STEP_LIMIT;
    uses->limits |= 1u << index;
  } else {
    return resolve_constant(&here, step);
  }
  step->operand = (int64_t)index;
  return KJIT_OK;
}
