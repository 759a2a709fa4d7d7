/* A kernel family described once: its config's fields. Everything generic over families works on this table. */
#ifndef KJIT_FAMILY_FIELD_TABLE_H
#define KJIT_FAMILY_FIELD_TABLE_H

#include <kjit/common.h>

#include "base/text.h"

enum field_kind { FIELD_DTYPE, FIELD_INT, FIELD_BOOL, FIELD_LOAD };

struct field {
  const char *name;  /* struct member, JSON key, and #define KJIT_<name> */
  const char *token; /* in the short form; "" if it has none */
  const char *text;  /* documentation, one line */
  enum field_kind kind;
  uint32_t offset; /* of the int32_t in the struct */
};

/* More fields than any family has; short_form.c keeps a bit for each. */
#define FIELD_COUNT_MAX 64

/* A config is `count` int32_t members at the offsets given, without padding: `config_bytes` = 4 * count. */
struct field_table {
  const char *family; /* "flash_forward" */
  const char *type;   /* what C++ calls the config, as demangled names spell it */
  const struct field *fields;
  size_t count; /* at most FIELD_COUNT_MAX */
  size_t config_bytes;
};

int32_t field_get(const struct field *field, const void *config);
void field_put(const struct field *field, void *config, int32_t value);

/* "FP16", "FP32", "BF16"; NULL for a number that is no dtype. Static storage. */
const char *field_dtype_name(int32_t dtype);

/* The dtype of this name, in any case. False when there is none. */
_Bool field_dtype_from_name(const char *name, size_t bytes, int32_t *dtype);

/* Lexicographic in field order: -1, 0, 1. */
int field_table_compare(const struct field_table *table, const void *a, const void *b);

/* XXH3-64 of the config's bytes: not for storing, it differs between byte orders. */
uint64_t field_table_hash(const struct field_table *table, const void *config);

/* `#define KJIT_<name> <value>\n` for each field, sorted by name; booleans 0 or 1, dtypes by number. */
void field_table_defines(const struct field_table *table, const void *config, struct text *out);

/* One JSON object, fields in order; booleans true/false, dtype as its name. A value that is neither is its number. */
void field_table_json(const struct field_table *table, const void *config, struct text *out);

#endif
