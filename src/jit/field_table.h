/* A kernel family described once: its config's fields. Everything generic over families works on this table. */
#ifndef KJIT_JIT_FIELD_TABLE_H
#define KJIT_JIT_FIELD_TABLE_H

#include <kjit/common.h>

#include "base/text.h"

enum field_kind { FIELD_DTYPE, FIELD_INT, FIELD_BOOL, FIELD_LOAD };

struct field {
  const char *name; /* struct member, JSON key, and #define KJIT_<name> */
  enum field_kind kind;
  const char *token; /* in the short form; "" if it has none */
  const char *text;  /* documentation, one line */
  uint32_t offset;   /* of the int32_t in the struct */
};

/* A config is `count` int32_t members at the offsets given, without padding: `config_bytes` = 4 * count. */
struct field_table {
  const char *family; /* "flash_forward" */
  const struct field *fields;
  size_t count;
  size_t config_bytes;
};

int32_t field_get(const struct field *field, const void *config);
void field_put(const struct field *field, void *config, int32_t value);

/* Lexicographic in field order: -1, 0, 1. */
int field_table_compare(const struct field_table *table, const void *a, const void *b);
uint64_t field_table_hash(const struct field_table *table, const void *config);

/* `#define KJIT_<name> <value>\n` for each field, sorted by name; booleans 0 or 1, dtypes by number. */
void field_table_defines(const struct field_table *table, const void *config, struct text *out);

/* One JSON object, fields in order; booleans true/false, dtype as its name. */
void field_table_json(const struct field_table *table, const void *config, struct text *out);

#endif
