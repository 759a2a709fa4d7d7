/* Problems of a user's family: "dtype=bf16,m=4096,n=4096,k=4096" names given fields and integer parameters.
 *
 * Threads: everything is read only; what is computed is on the stack. */
#include "family/definition/family_problem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/pair_form.h"
#include "family/scanner.h"
#include "family/tune_subject.h"

_Static_assert(KJIT_PARAMETER_COUNT_MAX == DEFINITION_PARAMETERS_MAX, "a problem has room for every parameter");

/* A text that is being read. Names are ticked off by bits, because a name that stands twice and one that is missing are
 * both told. */
struct reading {
  const struct family_definition *definition;
  struct scanner scanner;
  uint64_t fields, parameters; /* that were seen */
  kjit_family_problem *problem;
};

/* Refuse a name that is neither, with the nearest one that would do. A field that the caller does not give is none
 * here, because the choice makes its value. */
static kjit_status refuse_name(const struct reading *reading, const char *name, size_t bytes) {
  const struct family_definition *const definition = reading->definition;
  struct nearest nearest;
  if (!bytes) return scan_unexpected(&reading->scanner, "a given field or an integer parameter");
  nearest_begin(&nearest, name, bytes);
  for (size_t i = 0; i < definition->field_count; i++)
    if (definition->given >> i & 1) nearest_offer(&nearest, definition->field_names[i]);
  for (size_t i = 0; i < definition->parameter_count; i++)
    if (definition->integer_parameters[i]) nearest_offer(&nearest, definition->integer_parameters[i]);
  return error_set(reading->scanner.error, KJIT_ERR_PARSE,
                   "column %zu: \"%.*s\" is no given field and no integer parameter of %s%s%s%s",
                   (size_t)(name - reading->scanner.start) + 1, bytes < 64 ? (int)bytes : 64, name,
                   definition->family.table.family, nearest.best ? "; did you mean \"" : "",
                   nearest.best ? nearest.best : "", nearest.best ? "\"?" : "");
}

/* Is this the name? A candidate is NULL where a parameter is no integer: such a one decides nothing, so a problem has
 * no value for it. */
static bool is_name(const char *candidate, const char *name, size_t bytes) {
  return candidate && strlen(candidate) == bytes && !memcmp(candidate, name, bytes);
}

/* Take a parameter's value. 18 digits always fit an int64, so that no check for overflow is needed behind strtoll(). */
static kjit_status read_number(struct scanner *scanner, int64_t *value) {
  const size_t sign = *scanner->at == '-', digits = strspn(scanner->at + sign, "0123456789");
  char copy[24] = "";
  if (!digits || digits > 18 || scan_word_length(scanner->at + sign) != digits)
    return scan_unexpected(scanner, "a whole number of at most 18 digits");
  memcpy(copy, scanner->at, sign + digits);
  *value = strtoll(copy, NULL, 10);
  scanner->at += sign + digits;
  return KJIT_OK;
}

/* Take a given field's value. It must be legal here already, because a class is made of it before any rule is asked. */
static kjit_status read_field(struct reading *reading, size_t index) {
  const struct definition_field *const field = &reading->definition->fields[index];
  struct scanner *const scanner = &reading->scanner;
  char expected[360], domain[256];
  struct text out;
  int32_t *const value = &reading->problem->given.values[index];
  const size_t bytes = (size_t)(*scanner->at == '-') + scan_word_length(scanner->at + (*scanner->at == '-'));
  if (definition_read_value(field, scanner->at, bytes, value) && definition_is_legal(field, *value)) {
    scanner->at += bytes;
    return KJIT_OK;
  }
  text_init_fixed(&out, domain, sizeof domain);
  definition_print_domain(field, &out);
  text_init_fixed(&out, expected, sizeof expected);
  text_appendf(&out, "a value of %s (%s)", field->name, domain);
  return scan_unexpected(scanner, expected);
}

/* Take one name=value. The bits of what was seen are one word each, since a family has at most 64 fields and as many
 * parameters. */
static kjit_status read_pair(struct reading *reading) {
  const struct family_definition *const definition = reading->definition;
  struct scanner *const scanner = &reading->scanner;
  scan_blanks(scanner);
  const char *const name = scanner->at;
  const size_t bytes = scan_word_length(name);
  size_t field = 0, parameter = 0;
  while (field < definition->field_count &&
         !(definition->given >> field & 1 && is_name(definition->field_names[field], name, bytes)))
    field++;
  while (parameter < definition->parameter_count && !is_name(definition->integer_parameters[parameter], name, bytes))
    parameter++;
  const bool is_field = field < definition->field_count;
  if (!is_field && parameter == definition->parameter_count) return refuse_name(reading, name, bytes);
  uint64_t *const seen = is_field ? &reading->fields : &reading->parameters;
  const uint64_t bit = UINT64_C(1) << (is_field ? field : parameter);
  if (*seen & bit) return scan_unexpected(scanner, "every name at most once");
  *seen |= bit;
  scanner->at += bytes;
  const kjit_status status = scan_character(scanner, '=');
  if (status != KJIT_OK) return status;
  scan_blanks(scanner);
  return is_field ? read_field(reading, field) : read_number(scanner, &reading->problem->parameters[parameter]);
}

/* After the last pair: fields that are left out get their defaults, and a parameter that the choice depends on has
 * none, so its absence is an error; others stay 0. */
static kjit_status check_complete(struct reading *reading) {
  const struct family_definition *const definition = reading->definition;
  kjit_error *const error = reading->scanner.error;
  for (size_t i = 0; i < definition->field_count; i++) {
    if (!(definition->given >> i & 1) || reading->fields >> i & 1) continue;
    if (!definition->fields[i].has_default)
      return error_set(error, KJIT_ERR_PARSE, "%s is missing: the problem gives this field",
                       definition->field_names[i]);
    reading->problem->given.values[i] = definition->fields[i].default_value;
  }
  for (size_t i = 0; i < definition->parameter_count; i++)
    if (definition->problem_parameters >> i & 1 && !(reading->parameters >> i & 1))
      return error_set(error, KJIT_ERR_PARSE, "%s is missing: the choice follows from this parameter",
                       definition->parameter_names[i]);
  return KJIT_OK;
}

/* Problems by name need a description, which kjit's own families do not have: they take a kjit_attention_problem. */
static kjit_status check_family(const kjit_family *family, kjit_error *error) {
  if (!family) return error_invalid(error, "family", "must not be NULL");
  if (family->definition) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "%s is kjit's own family: its problems are those of kjit/attention.h, and kjit/tune.h tunes it",
                   family->table.family);
}

kjit_status kjit_family_problem_parse(const kjit_family *family, const char *text, kjit_family_problem *problem,
                                      kjit_error *error) {
  error_clear(error);
  if (!problem) return error_invalid(error, "problem", "must not be NULL");
  memset(problem, 0, sizeof *problem);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  kjit_status status = check_family(family, error);
  if (status != KJIT_OK) return status;
  struct reading reading = {family->definition, {.start = text, .at = text, .error = error}, 0, 0, problem};
  problem->given.family = family;
  scan_blanks(&reading.scanner);
  for (bool more = *reading.scanner.at != '\0'; more && status == KJIT_OK;) {
    status = read_pair(&reading);
    scan_blanks(&reading.scanner);
    more = *reading.scanner.at == ',';
    reading.scanner.at += more;
  }
  if (status == KJIT_OK) status = scan_end(&reading.scanner);
  if (status == KJIT_OK) status = check_complete(&reading);
  if (status != KJIT_OK) memset(problem, 0, sizeof *problem);
  return status;
}

kjit_status family_problem_take(const kjit_family_problem *problem, kjit_error *error) {
  if (!problem) return error_invalid(error, "problem", "must not be NULL");
  return check_family(problem->given.family, error);
}

/* One bound for every family, so that a caller's buffer cannot be too small for some problems alone. */
static kjit_status check_room(const char *text, size_t capacity, kjit_error *error) {
  if (text && capacity >= KJIT_FAMILY_PROBLEM_TEXT_MAX) return KJIT_OK;
  return error_invalid(error, "text", "must have room for KJIT_FAMILY_PROBLEM_TEXT_MAX bytes");
}

kjit_status kjit_family_problem_print(const kjit_family_problem *problem, char *text, size_t capacity,
                                      kjit_error *error) {
  struct text out;
  const char *comma = "";
  error_clear(error);
  kjit_status status = check_room(text, capacity, error);
  if (status == KJIT_OK) status = family_problem_take(problem, error);
  if (status != KJIT_OK) return status;
  const struct family_definition *const definition = problem->given.family->definition;
  text_init_fixed(&out, text, capacity);
  for (size_t i = 0; i < definition->field_count; i++) {
    if (!(definition->given >> i & 1)) continue;
    text_appendf(&out, "%s%s=", comma, definition->field_names[i]);
    definition_print_value(&definition->fields[i], problem->given.values[i], &out);
    comma = ",";
  }
  for (size_t i = 0; i < definition->parameter_count; i++) {
    if (!definition->integer_parameters[i]) continue;
    if (!problem->parameters[i] && !(definition->problem_parameters >> i & 1)) continue;
    text_appendf(&out, "%s%s=%" PRId64, comma, definition->parameter_names[i], problem->parameters[i]);
    comma = ",";
  }
  return KJIT_OK;
}

/* The class's numbers in the order of its columns: given fields first, then one for each line of `classes`. The check
 * at the end is that of a table's rows, so that what is looked up could have been stored. */
kjit_status family_problem_classify(const kjit_family_problem *problem, int32_t *class, kjit_error *error) {
  const struct family_definition *const definition = problem->given.family->definition;
  const struct tune_subject *const subject = definition->subject;
  size_t count = 0;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < definition->field_count; i++)
    if (definition->given >> i & 1) class[count++] = problem->given.values[i];
  for (size_t i = 0; i < definition->class_count && status == KJIT_OK; i++)
    status = definition_classify(definition, i, problem->given.values, problem->parameters, &class[count++], error);
  return status == KJIT_OK ? subject->check(subject, class, error) : status;
}

kjit_status family_problem_class(const kjit_family_problem *problem, char *text, size_t capacity, kjit_error *error) {
  int32_t class[TUNE_CLASS_MAX] = {0};
  struct text out;
  kjit_status status = check_room(text, capacity, error);
  if (status == KJIT_OK) status = family_problem_take(problem, error);
  if (status == KJIT_OK) status = family_problem_classify(problem, class, error);
  if (status != KJIT_OK) return status;
  text_init_fixed(&out, text, capacity);
  pair_form_print(problem->given.family->definition->subject->class, class, &out);
  return KJIT_OK;
}
