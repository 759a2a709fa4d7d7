/* A config's fields, described once: names, kinds and where each lies. Everything that is generic over families, their
 * text forms and the kernels' #define lines, works on this table. Pure. */
#ifndef KJIT_FAMILY_FIELD_TABLE_H
#define KJIT_FAMILY_FIELD_TABLE_H

#include <stdbool.h>

#include <kjit/family.h>

#include "base/text.h"

/* `count` int32_t members at the offsets given, without padding: a family's config, or a struct that is read and
 * written in the same way. `config_bytes` = 4 * count. */
struct field_table {
  const char *family; /* the family's name, "flash_forward"; of another struct what messages call it */
  const char *type;   /* the config's type as C++'s demangled names spell it; NULL: there is no such spelling */
  const kjit_field_info *fields;
  size_t count; /* at most KJIT_FIELD_COUNT_MAX */
  size_t config_bytes;
  bool any_dtype; /* dtype fields may hold every type of family/element.h, and not only those of kjit_dtype */
};

int32_t field_get(const kjit_field_info *field, const void *config);
void field_put(const kjit_field_info *field, void *config, int32_t value);

/* "FP16", "FP32", "BF16"; NULL for a number that is no dtype. Static storage. */
const char *field_dtype_name(int32_t dtype);

/* The dtype of this name, in any case. False when there is none. */
bool field_dtype_from_name(const char *name, size_t bytes, int32_t *dtype);

/* The value's name, a dtype's in capitals. NULL where it has none. `capitals` has room for any dtype's name. */
const char *field_value_name(const struct field_table *table, const kjit_field_info *field, int32_t value,
                             char capitals[32]);

/* Lexicographic in field order: -1, 0, 1. */
int field_table_compare(const struct field_table *table, const void *a, const void *b);

/* The field of this name, or NULL. */
const kjit_field_info *field_table_find(const struct field_table *table, const char *name, size_t bytes);

/* `#define KJIT_<name> <value>\n` for each field, sorted by name; booleans 0 or 1, dtypes by number. */
void field_table_defines(const struct field_table *table, const void *config, struct text *out);

/* One JSON object, fields in order; booleans true/false, dtypes and enums by name. A value that
 * has no name is its number. */
void field_table_json(const struct field_table *table, const void *config, struct text *out);

#endif
