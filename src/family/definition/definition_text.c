/* A config of a user's family as text, and as what its kernel sees.
 *
 * The text is pairs "BM=128,dtype=fp16,epilogue=bias" in any order; a field that has a default may be left out. It is
 * written with every field, in order. A kernel sees, behind its fields' numbers: the derived constants, the names of
 * each enum as KJIT_<field>_<name>, the CUDA type of each dtype field as KJIT_<field>_type, and the dtypes' numbers as
 * KJIT_fp16 and so on.
 *
 * Threads: everything is read only. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/definition/definition.h"
#include "family/element.h"
#include "family/scanner.h"

static kjit_status unknown_field(const struct scanner *scanner, const struct family_definition *definition,
                                 size_t bytes) {
  struct nearest nearest;
  if (!bytes) return scan_unexpected(scanner, "a field's name");
  nearest_begin(&nearest, scanner->at, bytes);
  nearest_offer_all(&nearest, definition->field_names, definition->field_count);
  return error_set(scanner->error, KJIT_ERR_PARSE, "column %zu: \"%.*s\" is no field of %s%s%s%s",
                   (size_t)(scanner->at - scanner->start) + 1, bytes < 64 ? (int)bytes : 64, scanner->at,
                   definition->family.table.family, nearest.best ? "; did you mean \"" : "",
                   nearest.best ? nearest.best : "", nearest.best ? "\"?" : "");
}

static kjit_status read_value(struct scanner *scanner, const struct definition_field *field, int32_t *value) {
  char expected[360], domain[256];
  struct text out;
  scan_blanks(scanner);
  const size_t bytes = (size_t)(*scanner->at == '-') + scan_word_length(scanner->at + (*scanner->at == '-'));
  if (definition_read_value(field, scanner->at, bytes, value)) {
    scanner->at += bytes;
    return KJIT_OK;
  }
  text_init_fixed(&out, domain, sizeof domain);
  definition_print_domain(field, &out);
  (void)snprintf(expected, sizeof expected, "a value of %s (%s)", field->name, domain);
  return scan_unexpected(scanner, expected);
}

static kjit_status read_pair(struct scanner *scanner, const struct family_definition *definition, uint64_t *seen,
                             int32_t *values) {
  scan_blanks(scanner);
  const size_t bytes = scan_word_length(scanner->at);
  size_t index = 0;
  while (index < definition->field_count && (strlen(definition->field_names[index]) != bytes ||
                                             memcmp(definition->field_names[index], scanner->at, bytes) != 0))
    index++;
  if (index == definition->field_count) return unknown_field(scanner, definition, bytes);
  if (*seen >> index & 1) return scan_unexpected(scanner, "every field at most once");
  *seen |= UINT64_C(1) << index;
  scanner->at += bytes;
  const kjit_status status = scan_character(scanner, '=');
  return status == KJIT_OK ? read_value(scanner, &definition->fields[index], &values[index]) : status;
}

static kjit_status fill_defaults(const struct family_definition *definition, uint64_t seen, int32_t *values,
                                 kjit_error *error) {
  for (size_t i = 0; i < definition->field_count; i++) {
    if (seen >> i & 1) continue;
    if (!definition->fields[i].has_default)
      return error_set(error, KJIT_ERR_PARSE, "%s is missing: it has no default", definition->fields[i].name);
    values[i] = definition->fields[i].default_value;
  }
  return KJIT_OK;
}

kjit_status definition_parse(const kjit_family *family, const char *text, int32_t *values, kjit_error *error) {
  struct scanner scanner = {.start = text, .at = text, .error = error};
  kjit_status status = KJIT_OK;
  uint64_t seen = 0;
  scan_blanks(&scanner);
  for (bool more = *scanner.at != '\0'; more && status == KJIT_OK;) {
    status = read_pair(&scanner, family->definition, &seen, values);
    scan_blanks(&scanner);
    more = *scanner.at == ',';
    scanner.at += more;
  }
  if (status == KJIT_OK) status = scan_end(&scanner);
  if (status == KJIT_OK) status = fill_defaults(family->definition, seen, values, error);
  if (status != KJIT_OK) memset(values, 0, family->table.config_bytes);
  return status;
}

void definition_print(const kjit_family *family, const int32_t *values, struct text *out) {
  const struct family_definition *const definition = family->definition;
  for (size_t i = 0; i < definition->field_count; i++) {
    text_appendf(out, "%s%s=", i ? "," : "", definition->field_names[i]);
    definition_print_value(&definition->fields[i], values[i], out);
  }
}

/* -- What the kernel sees ------------------------------------------------------------------------------------------ */

/* A negative number has parentheses, so that no operator of the source takes its sign apart; the least one has no
 * literal of its own. */
static void print_number(int64_t value, struct text *out) {
  if (value == INT64_MIN)
    text_append(out, "(-9223372036854775807 - 1)");
  else
    text_appendf(out, value < 0 ? "(%" PRId64 ")" : "%" PRId64, value);
}

static const char *cuda_type(int32_t dtype) {
  const struct element *const element = element_from_number(dtype);
  return element ? element->cuda : "void";
}

static void define_dtypes(const struct family_definition *definition, const int32_t *values, struct text *out) {
  for (size_t i = 0; i < definition->field_count; i++) {
    if (definition->fields[i].kind == VALUE_DTYPE)
      text_appendf(out, "#define KJIT_%s_type %s\n", definition->field_names[i], cuda_type(values[i]));
  }
  for (size_t index = 0; element_at(index); index++) {
    const struct element *const element = element_at(index);
    bool used = false;
    for (size_t i = 0; i < definition->field_count; i++)
      used |= definition->fields[i].kind == VALUE_DTYPE && definition_is_legal(&definition->fields[i], element->number);
    if (used) text_appendf(out, "#define KJIT_%s %d\n", element->name, (int)element->number);
  }
}

/* Enum names and the dtypes in use become constants too, so that a kernel can compare KJIT_epilogue with
 * KJIT_epilogue_bias and a misspelt one is an error of the compiler instead of a silent 0. */
void definition_derive(const kjit_family *family, const int32_t *values, struct text *out) {
  const struct family_definition *const definition = family->definition;
  int64_t derived[DEFINITION_DERIVED_MAX];
  if (definition_evaluate_derived(definition, values, derived, NULL) != KJIT_OK) return; /* no legal config is such */
  for (size_t i = 0; i < definition->derived_count; i++) {
    text_appendf(out, "#define KJIT_%s ", definition->derived_names[i]);
    print_number(derived[i], out);
    text_append(out, "\n");
  }
  for (size_t i = 0; i < definition->label_count; i++) {
    const struct expression_label *const label = &definition->labels[i];
    text_appendf(out, "#define KJIT_%s_%s %d\n", definition->field_names[label->field], label->name, (int)label->value);
  }
  define_dtypes(definition, values, out);
}

/* -- Name expressions ---------------------------------------------------------------------------------------------- */

/* A piece is text and, behind it, at most one name in braces. Names are resolved here, so that a misspelt one is
 * told when the family is opened, and printing an entry is a walk without failures. */
static kjit_status add_piece(const struct definition_maker *maker, const char *text, size_t bytes, const char *name,
                             size_t name_bytes) {
  struct family_definition *const definition = maker->definition;
  struct definition_piece *const piece = &definition->pieces[definition->piece_count++];
  *piece = (struct definition_piece){arena_copy(&definition->arena, text, bytes), -1, -1};
  if (!piece->text) return error_no_memory(maker->error);
  if (!name) return KJIT_OK;
  for (size_t i = 0; i < definition->field_count; i++)
    if (strlen(definition->field_names[i]) == name_bytes && !memcmp(definition->field_names[i], name, name_bytes))
      piece->field = (int32_t)i;
  for (size_t i = 0; i < definition->derived_count; i++)
    if (strlen(definition->derived_names[i]) == name_bytes && !memcmp(definition->derived_names[i], name, name_bytes))
      piece->derived = (int32_t)i;
  if (piece->field >= 0 || piece->derived >= 0) return KJIT_OK;
  struct nearest nearest;
  nearest_begin(&nearest, name, name_bytes);
  nearest_offer_all(&nearest, definition->field_names, definition->field_count);
  nearest_offer_all(&nearest, definition->derived_names, definition->derived_count);
  return definition_unknown(maker, &maker->description->template_name, "no field or derived constant", &nearest);
}

kjit_status definition_make_template(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_text *const template = &maker->description->template_name;
  size_t braces = 0;
  if (!template->text == !maker->description->entry)
    return definition_refuse(maker, template, "a family has an entry or a template: one of them names the kernel");
  if (!template->text) return KJIT_OK;
  if (!*template->text || strnlen(template->text, EXPRESSION_TEXT_MAX + 1) > EXPRESSION_TEXT_MAX ||
      strpbrk(template->text, "\r\n"))
    return definition_refuse(maker, template, "a template is one line of 1 to %d bytes", EXPRESSION_TEXT_MAX);
  for (const char *at = template->text; *at; at++)
    braces += *at == '{';
  definition->pieces = arena_alloc_array(&definition->arena, braces + 1, sizeof *definition->pieces);
  if (!definition->pieces) return error_no_memory(maker->error);
  definition->family.print_entry = definition_print_entry;
  const char *at = template->text;
  for (const char *open = strchr(at, '{'); open; open = strchr(at, '{')) {
    const size_t bytes = strcspn(open + 1, "{}");
    if (open[1 + bytes] != '}') return definition_refuse(maker, template, "a \"{\" of the template is not closed");
    const kjit_status status = add_piece(maker, at, (size_t)(open - at), open + 1, bytes);
    if (status != KJIT_OK) return status;
    at = open + 1 + bytes + 1;
  }
  return add_piece(maker, at, strlen(at), NULL, 0);
}

void definition_print_entry(const kjit_family *family, const int32_t *values, struct text *out) {
  const struct family_definition *const definition = family->definition;
  int64_t derived[DEFINITION_DERIVED_MAX];
  if (definition_evaluate_derived(definition, values, derived, NULL) != KJIT_OK) return; /* no legal config is such */
  for (size_t i = 0; i < definition->piece_count; i++) {
    const struct definition_piece *const piece = &definition->pieces[i];
    const struct definition_field *const field = piece->field >= 0 ? &definition->fields[piece->field] : NULL;
    text_append(out, piece->text);
    if (field && field->kind == VALUE_DTYPE)
      text_append(out, cuda_type(values[piece->field]));
    else if (field && field->kind == VALUE_BOOL)
      text_append(out, values[piece->field] ? "true" : "false");
    else if (field)
      print_number(values[piece->field], out);
    else if (piece->derived >= 0)
      print_number(derived[piece->derived], out);
  }
}
