#include "attention/flash/short_form.h"

#include <stdio.h>
#include <string.h>

#define LOAD_HEAD "load_"
#define LOAD_TAIL "tiles"

/* Room for what a message says is expected; a family with more features than fit loses the last names. */
#define EXPECTED_BYTES 256

static _Bool in_tuple(const struct field *field) {
  return field->kind == FIELD_DTYPE || field->kind == FIELD_INT;
}

/* The load group stands for its first field. */
static const struct field *first_load(const struct field_table *table) {
  for (size_t i = 0; i < table->count; i++) {
    if (table->fields[i].kind == FIELD_LOAD) return &table->fields[i];
  }
  return NULL;
}

static kjit_status unexpected_value(const struct scanner *scanner, const struct field *field, const char *spellings) {
  char expected[EXPECTED_BYTES];
  snprintf(expected, sizeof expected, "%s as %s", field->name, spellings);
  return scan_unexpected(scanner, expected);
}

static kjit_status read_integer(struct scanner *scanner, const struct field *field, int32_t *value) {
  char expected[EXPECTED_BYTES];
  snprintf(expected, sizeof expected, "%s as a number", field->name);
  return scan_integer(scanner, expected, value);
}

static kjit_status read_dtype(struct scanner *scanner, const struct field *field, int32_t *value) {
  struct scanner ahead = {scanner->start, scanner->at, NULL};
  const size_t length = scan_word_length(scanner->at);
  if (field_dtype_from_name(scanner->at, length, value))
    ahead.at += length;
  else if (scan_integer(&ahead, "", value) != KJIT_OK)
    return unexpected_value(scanner, field, "FP16, BF16 or a number");
  scanner->at = ahead.at;
  return KJIT_OK;
}

static kjit_status read_boolean(struct scanner *scanner, const struct field *field, int32_t *value) {
  *value = scan_word(scanner, "true") || scan_word(scanner, "1");
  if (*value || scan_word(scanner, "false") || scan_word(scanner, "0")) return KJIT_OK;
  return unexpected_value(scanner, field, "true, false, 0 or 1");
}

static kjit_status read_value(struct scanner *scanner, const struct field *field, void *config) {
  int32_t value = 0;
  kjit_status status;
  scan_blanks(scanner);
  if (field->kind == FIELD_DTYPE)
    status = read_dtype(scanner, field, &value);
  else if (field->kind == FIELD_BOOL)
    status = read_boolean(scanner, field, &value);
  else
    status = read_integer(scanner, field, &value);
  field_put(field, config, value);
  return status;
}

/* A cast may stand before a value of the demangled spelling; it is the field's own. */
static kjit_status skip_cast(struct scanner *scanner, const struct field *field) {
  static const char *const casts[] = {
      [FIELD_DTYPE] = "(c10::ScalarType)", [FIELD_INT] = "(int)", [FIELD_BOOL] = "(bool)", [FIELD_LOAD] = "(int)"};
  const char *cast = casts[field->kind];
  scan_blanks(scanner);
  if (*scanner->at != '(') return KJIT_OK;
  if (strncmp(scanner->at, cast, strlen(cast)) == 0) {
    scanner->at += strlen(cast);
    return KJIT_OK;
  }
  scanner->at++; /* what is wrong is the type behind the parenthesis */
  return unexpected_value(scanner, field, cast);
}

static kjit_status parse_demangled(struct scanner *scanner, const struct field_table *table, void *config) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < table->count && status == KJIT_OK; i++) {
    status = scan_character(scanner, i ? ',' : '{');
    if (status == KJIT_OK) status = skip_cast(scanner, &table->fields[i]);
    if (status == KJIT_OK) status = read_value(scanner, &table->fields[i], config);
  }
  return status == KJIT_OK ? scan_character(scanner, '}') : status;
}

static kjit_status parse_tuple(struct scanner *scanner, const struct field_table *table, void *config) {
  kjit_status status = KJIT_OK;
  char opening = '(';
  for (size_t i = 0; i < table->count && status == KJIT_OK; i++) {
    if (!in_tuple(&table->fields[i])) continue;
    status = scan_character(scanner, opening);
    if (status == KJIT_OK) status = read_value(scanner, &table->fields[i], config);
    opening = ',';
  }
  if (status == KJIT_OK) status = scan_character(scanner, ')');
  return status == KJIT_OK ? scan_character(scanner, ':') : status;
}

/* "load_<Q>_<K>_<V>_tiles": each letter is the beginning of its field's name. */
static void append_load_name(const struct field_table *table, struct text *out) {
  text_append(out, LOAD_HEAD);
  for (size_t i = 0; i < table->count; i++) {
    const struct field *field = &table->fields[i];
    if (field->kind == FIELD_LOAD) text_appendf(out, "<%.*s>_", (int)strcspn(field->name, "_"), field->name);
  }
  text_append(out, LOAD_TAIL);
}

/* `before`, the load group's name, and with `tokens` all other features. */
static kjit_status unexpected_feature(const struct scanner *scanner, const struct field_table *table,
                                      const char *before, _Bool tokens) {
  char buffer[EXPECTED_BYTES];
  struct text expected;
  text_init_fixed(&expected, buffer, sizeof buffer);
  text_append(&expected, before);
  append_load_name(table, &expected);
  for (size_t i = 0; i < table->count && tokens; i++) {
    if (table->fields[i].kind == FIELD_BOOL) text_appendf(&expected, ", %s", table->fields[i].token);
  }
  return scan_unexpected(scanner, buffer);
}

/* The word that begins with LOAD_HEAD. */
static kjit_status read_load(struct scanner *scanner, const struct field_table *table, void *config) {
  struct scanner ahead = {scanner->start, scanner->at + strlen(LOAD_HEAD), NULL};
  for (size_t i = 0; i < table->count; i++) {
    int32_t value = 0;
    if (table->fields[i].kind != FIELD_LOAD) continue;
    if (scan_digits(&ahead, "", &value) != KJIT_OK || *ahead.at != '_') {
      return unexpected_feature(scanner, table, "", 0);
    }
    field_put(&table->fields[i], config, value);
    ahead.at++;
  }
  if (!scan_word(&ahead, LOAD_TAIL)) return unexpected_feature(scanner, table, "", 0);
  scanner->at = ahead.at;
  return KJIT_OK;
}

/* The field that a feature word sets; NULL for an unknown word. */
static const struct field *find_feature(const struct field_table *table, const char *word) {
  const size_t length = scan_word_length(word);
  if (strncmp(word, LOAD_HEAD, strlen(LOAD_HEAD)) == 0) return first_load(table);
  for (size_t i = 0; i < table->count; i++) {
    const struct field *field = &table->fields[i];
    if (field->kind != FIELD_BOOL || strlen(field->token) != length) continue;
    if (memcmp(field->token, word, length) == 0) return field;
  }
  return NULL;
}

/* `seen` has one bit for each field, at its index. */
static kjit_status parse_feature(struct scanner *scanner, const struct field_table *table, void *config,
                                 uint64_t *seen) {
  scan_blanks(scanner);
  const struct field *field = find_feature(table, scanner->at);
  if (!field) return unexpected_feature(scanner, table, "one of ", 1);
  const uint64_t bit = UINT64_C(1) << (field - table->fields);
  if (*seen & bit) return scan_unexpected(scanner, "each feature once");
  *seen |= bit;
  if (field->kind == FIELD_LOAD) return read_load(scanner, table, config);
  field_put(field, config, 1);
  scanner->at += strlen(field->token);
  return KJIT_OK;
}

static kjit_status parse_features(struct scanner *scanner, const struct field_table *table, void *config) {
  uint64_t seen = 0;
  kjit_status status = parse_feature(scanner, table, config, &seen);
  for (scan_blanks(scanner); status == KJIT_OK && *scanner->at == '+'; scan_blanks(scanner)) {
    scanner->at++;
    status = parse_feature(scanner, table, config, &seen);
  }
  const struct field *load = first_load(table);
  if (status != KJIT_OK || !load || seen >> (load - table->fields) & 1) return status;
  return unexpected_feature(scanner, table, "\"+\" and ", 0);
}

kjit_status short_form_read(const struct field_table *table, struct scanner *scanner, void *config) {
  memset(config, 0, table->config_bytes);
  scan_blanks(scanner);
  if (scan_word(scanner, table->type)) return parse_demangled(scanner, table, config);
  const kjit_status status = parse_tuple(scanner, table, config);
  return status == KJIT_OK ? parse_features(scanner, table, config) : status;
}

kjit_status short_form_parse(const struct field_table *table, const char *text, void *config, kjit_error *error) {
  struct scanner scanner = {text, text, error};
  kjit_status status = short_form_read(table, &scanner, config);
  if (status == KJIT_OK) status = scan_end(&scanner);
  if (status != KJIT_OK) memset(config, 0, table->config_bytes);
  return status;
}

static void print_tuple(const struct field_table *table, const void *config, const char *omit, struct text *out) {
  const char *separator = "(";
  for (size_t i = 0; i < table->count; i++) {
    const struct field *field = &table->fields[i];
    if (!in_tuple(field) || (omit && strcmp(field->name, omit) == 0)) continue;
    const int32_t value = field_get(field, config);
    const char *dtype = field->kind == FIELD_DTYPE ? field_dtype_name(value) : NULL;
    text_append(out, separator);
    if (dtype)
      text_append(out, dtype);
    else
      text_appendf(out, "%d", (int)value);
    separator = ", ";
  }
  text_append(out, "): ");
}

static void print_load(const struct field_table *table, const void *config, struct text *out) {
  text_append(out, LOAD_HEAD);
  for (size_t i = 0; i < table->count; i++) {
    const struct field *field = &table->fields[i];
    if (field->kind == FIELD_LOAD) text_appendf(out, "%d_", (int)field_get(field, config));
  }
  text_append(out, LOAD_TAIL);
}

void short_form_print(const struct field_table *table, const void *config, _Bool tuple, const char *omit,
                      struct text *out) {
  const struct field *load = first_load(table);
  const char *separator = "";
  if (tuple) print_tuple(table, config, omit, out);
  for (size_t i = 0; i < table->count; i++) {
    const struct field *field = &table->fields[i];
    if (field != load && (field->kind != FIELD_BOOL || !field_get(field, config))) continue;
    text_append(out, separator);
    if (field == load)
      print_load(table, config, out);
    else
      text_append(out, field->token);
    separator = "+";
  }
}
