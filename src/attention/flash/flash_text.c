/* Text of flash_forward's configs, read and written over their field tables. flash_text.h has the grammar.
 *
 * Threads: everything here is pure. */
#include "attention/flash/flash_text.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/pair_form.h"
#include "family/scanner.h"

#define LOAD_HEAD "load_"
#define LOAD_TAIL "tiles"

/* Room for the list of what a message says is expected; names that do not fit are left out. */
#define EXPECTED_BYTES 256

static bool in_tuple(const kjit_field_info *field) {
  return field->kind == KJIT_FIELD_DTYPE || field->kind == KJIT_FIELD_INT;
}

/* The first LOAD field, for which the group of load counts stands. */
static const kjit_field_info *first_load(const struct field_table *table) {
  for (size_t i = 0; i < table->count; i++) {
    if (table->fields[i].kind == KJIT_FIELD_LOAD) return &table->fields[i];
  }
  return NULL;
}

static kjit_status unexpected_value(const struct scanner *scanner, const kjit_field_info *field,
                                    const char *spellings) {
  char expected[EXPECTED_BYTES];
  snprintf(expected, sizeof expected, "%s as %s", field->name, spellings);
  return scan_unexpected(scanner, expected);
}

static kjit_status read_integer(struct scanner *scanner, const kjit_field_info *field, int32_t *value) {
  char expected[EXPECTED_BYTES];
  snprintf(expected, sizeof expected, "%s as a number", field->name);
  return scan_integer(scanner, expected, value);
}

static kjit_status read_dtype(struct scanner *scanner, const kjit_field_info *field, int32_t *value) {
  struct scanner ahead = {scanner->start, scanner->at, NULL};
  const size_t length = scan_word_length(scanner->at);
  if (field_dtype_from_name(scanner->at, length, value))
    ahead.at += length;
  else if (scan_integer(&ahead, "", value) != KJIT_OK)
    return unexpected_value(scanner, field, "FP16, BF16 or a number");
  scanner->at = ahead.at;
  return KJIT_OK;
}

static kjit_status read_boolean(struct scanner *scanner, const kjit_field_info *field, int32_t *value) {
  *value = scan_word(scanner, "true") || scan_word(scanner, "1");
  if (*value || scan_word(scanner, "false") || scan_word(scanner, "0")) return KJIT_OK;
  return unexpected_value(scanner, field, "true, false, 0 or 1");
}

/* Read one value of the demangled spelling, by its field's kind. */
static kjit_status read_value(struct scanner *scanner, const kjit_field_info *field, void *config) {
  int32_t value = 0;
  kjit_status status;
  scan_blanks(scanner);
  if (field->kind == KJIT_FIELD_DTYPE)
    status = read_dtype(scanner, field, &value);
  else if (field->kind == KJIT_FIELD_BOOL)
    status = read_boolean(scanner, field, &value);
  else
    status = read_integer(scanner, field, &value);
  field_put(field, config, value);
  return status;
}

/* Skip the C++ cast that may stand before a value in the demangled spelling. It must be the field's own. */
static kjit_status skip_cast(struct scanner *scanner, const kjit_field_info *field) {
  static const char *const casts[] = {[KJIT_FIELD_DTYPE] = "(c10::ScalarType)",
                                      [KJIT_FIELD_INT] = "(int)",
                                      [KJIT_FIELD_BOOL] = "(bool)",
                                      [KJIT_FIELD_LOAD] = "(int)"};
  const char *cast = casts[field->kind];
  scan_blanks(scanner);
  if (*scanner->at != '(') return KJIT_OK;
  if (strncmp(scanner->at, cast, strlen(cast)) == 0) {
    scanner->at += strlen(cast);
    return KJIT_OK;
  }
  scanner->at++; /* the fault is the type behind the parenthesis */
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

/* Read the tuple: the DTYPE and INT fields in order. */
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

/* Append "load_<Q>_<K>_<V>_tiles", where each letter begins its field's name. */
static void append_load_name(const struct field_table *table, struct text *out) {
  text_append(out, LOAD_HEAD);
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    if (field->kind == KJIT_FIELD_LOAD) text_appendf(out, "<%.*s>_", (int)strcspn(field->name, "_"), field->name);
  }
  text_append(out, LOAD_TAIL);
}

/* Fill in the error for an unknown feature: `before`, the load group's name and, with `tokens`, all other features are
 * expected. */
static kjit_status unexpected_feature(const struct scanner *scanner, const struct field_table *table,
                                      const char *before, bool tokens) {
  char buffer[EXPECTED_BYTES];
  struct text expected;
  text_init_fixed(&expected, buffer, sizeof buffer);
  text_append(&expected, before);
  append_load_name(table, &expected);
  for (size_t i = 0; i < table->count && tokens; i++) {
    if (table->fields[i].kind == KJIT_FIELD_BOOL) text_appendf(&expected, ", %s", table->fields[i].token);
  }
  return scan_unexpected(scanner, buffer);
}

static kjit_status read_load(struct scanner *scanner, const struct field_table *table, void *config) {
  struct scanner ahead = {scanner->start, scanner->at + strlen(LOAD_HEAD), NULL};
  for (size_t i = 0; i < table->count; i++) {
    int32_t value = 0;
    if (table->fields[i].kind != KJIT_FIELD_LOAD) continue;
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

/* Find the field that a feature word sets; NULL for an unknown word. */
static const kjit_field_info *find_feature(const struct field_table *table, const char *word) {
  const size_t length = scan_word_length(word);
  if (strncmp(word, LOAD_HEAD, strlen(LOAD_HEAD)) == 0) return first_load(table);
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    if (field->kind != KJIT_FIELD_BOOL || strlen(field->token) != length) continue;
    if (memcmp(field->token, word, length) == 0) return field;
  }
  return NULL;
}

/* Read one feature. `seen` has one bit for each field, at its index, so that none is named twice. */
static kjit_status parse_feature(struct scanner *scanner, const struct field_table *table, void *config,
                                 uint64_t *seen) {
  scan_blanks(scanner);
  const kjit_field_info *field = find_feature(table, scanner->at);
  if (!field) return unexpected_feature(scanner, table, "one of ", 1);
  const uint64_t bit = UINT64_C(1) << (field - table->fields);
  if (*seen & bit) return scan_unexpected(scanner, "each feature once");
  *seen |= bit;
  if (field->kind == KJIT_FIELD_LOAD) return read_load(scanner, table, config);
  field_put(field, config, 1);
  scanner->at += strlen(field->token);
  return KJIT_OK;
}

/* Read the features, in any order. The load group must be among them. */
static kjit_status parse_features(struct scanner *scanner, const struct field_table *table, void *config) {
  uint64_t seen = 0;
  kjit_status status = parse_feature(scanner, table, config, &seen);
  for (scan_blanks(scanner); status == KJIT_OK && *scanner->at == '+'; scan_blanks(scanner)) {
    scanner->at++;
    status = parse_feature(scanner, table, config, &seen);
  }
  const kjit_field_info *load = first_load(table);
  if (status != KJIT_OK || !load || seen >> (load - table->fields) & 1) return status;
  return unexpected_feature(scanner, table, "\"+\" and ", 0);
}

static kjit_status short_form_read(const struct field_table *table, struct scanner *scanner, void *config) {
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
    const kjit_field_info *field = &table->fields[i];
    if (!in_tuple(field) || (omit && strcmp(field->name, omit) == 0)) continue;
    const int32_t value = field_get(field, config);
    const char *dtype = field->kind == KJIT_FIELD_DTYPE ? field_dtype_name(value) : NULL;
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
    const kjit_field_info *field = &table->fields[i];
    if (field->kind == KJIT_FIELD_LOAD) text_appendf(out, "%d_", (int)field_get(field, config));
  }
  text_append(out, LOAD_TAIL);
}

void short_form_print(const struct field_table *table, const void *config, bool tuple, const char *omit,
                      struct text *out) {
  const kjit_field_info *load = first_load(table);
  const char *separator = "";
  if (tuple) print_tuple(table, config, omit, out);
  for (size_t i = 0; i < table->count; i++) {
    const kjit_field_info *field = &table->fields[i];
    if (field != load && (field->kind != KJIT_FIELD_BOOL || !field_get(field, config))) continue;
    text_append(out, separator);
    if (field == load)
      print_load(table, config, out);
    else
      text_append(out, field->token);
    separator = "+";
  }
}

/* ---- Kernels: a config and its traits ---- */

#define INDEX(name, kind, text) TRAIT_##name,
enum { KJIT_FLASH_FORWARD_TRAITS(INDEX) };

/* Defaults of the traits that a name leaves out: head_dim is d_head, head_dim_v is head_dim. */
static struct flash_traits unsaid(int32_t d_head, int32_t head_dim) {
  return (struct flash_traits){.head_dim = d_head, .head_dim_v = head_dim};
}

static kjit_status read_traits(struct scanner *scanner, int32_t d_head, struct flash_traits *traits) {
  uint64_t seen = 0;
  *traits = unsaid(d_head, d_head);
  const kjit_status status = pair_form_read(&flash_trait_fields, scanner, &seen, traits);
  if (!(seen >> TRAIT_head_dim_v & 1)) traits->head_dim_v = traits->head_dim;
  return status == KJIT_OK ? scan_end(scanner) : status;
}

/* Read a kernel: a config, then pairs of the traits that are not plain. */
kjit_status flash_text_parse(const char *text, struct flash_variant *variant, kjit_error *error) {
  struct scanner scanner = {text, text, error};
  kjit_status status = short_form_read(&flash_config_fields, &scanner, &variant->config);
  scan_blanks(&scanner);
  if (status == KJIT_OK && !*scanner.at) {
    *variant = flash_variant_plain(&variant->config);
    return KJIT_OK;
  }
  if (status == KJIT_OK) status = read_traits(&scanner, variant->config.d_head, &variant->traits);
  if (status != KJIT_OK) *variant = (struct flash_variant){0};
  return status;
}

/* Write a kernel: a config, then the traits that differ from their defaults. */
void flash_text_print(const struct flash_variant *variant, struct text *out) {
  const struct flash_traits plain = unsaid(variant->config.d_head, variant->traits.head_dim);
  char separator = ' ';
  short_form_print(&flash_config_fields, &variant->config, 1, NULL, out);
  for (size_t i = 0; i < flash_trait_fields.count; i++) {
    const kjit_field_info *field = &flash_trait_fields.fields[i];
    const int32_t value = field_get(field, &variant->traits);
    if (value == field_get(field, &plain)) continue;
    text_appendf(out, "%c%s=%d", separator, field->name, (int)value);
    separator = ',';
  }
}

/* ---- The public functions ---- */

kjit_status kjit_flash_config_parse(const char *text, kjit_flash_config *out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_flash_config){0};
  if (!text) return error_invalid(error, "text", "must not be NULL");
  return short_form_parse(&flash_config_fields, text, out, error);
}

kjit_status kjit_flash_config_print(const kjit_flash_config *config, uint32_t flags, char *text, size_t capacity,
                                    kjit_error *error) {
  const uint32_t known = KJIT_PRINT_NO_D_HEAD | KJIT_PRINT_NO_TUPLE | KJIT_PRINT_JSON;
  struct text out;
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  if (!text || !capacity) return error_invalid(error, "text", "must have room for KJIT_FLASH_CONFIG_TEXT_MAX bytes");
  text_init_fixed(&out, text, capacity);
  if (flags & ~known) return error_invalid(error, "flags", "only KJIT_PRINT_* may be set");
  if (flags & KJIT_PRINT_JSON) {
    field_table_json(&flash_config_fields, config, &out);
  } else {
    const char *omit = flags & KJIT_PRINT_NO_D_HEAD ? "d_head" : NULL;
    short_form_print(&flash_config_fields, config, !(flags & KJIT_PRINT_NO_TUPLE), omit, &out);
  }
  if (!out.failed) return KJIT_OK;
  *text = '\0';
  return error_invalid(error, "capacity", "too small; KJIT_FLASH_CONFIG_TEXT_MAX never is");
}
