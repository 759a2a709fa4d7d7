/* A config as pairs: "dtype=bf16,head_dim=128,…", every field of its table once. */
#ifndef KJIT_FAMILY_PAIR_FORM_H
#define KJIT_FAMILY_PAIR_FORM_H

#include "family/field_table.h"
#include "family/scanner.h"

/* In any order, blanks around any word. KJIT_ERR_PARSE names the column (in bytes, from 1) and what stands there;
 * `config` is then all zero. Values are read, not judged. */
kjit_status pair_form_parse(const struct field_table *table, const char *text, void *config, kjit_error *error);

/* Some pairs of them, each at most once, into a config that has the others already. `seen` has a bit for each field, at
 * its index. What follows is left to the caller. */
kjit_status pair_form_read(const struct field_table *table, struct scanner *scanner, uint64_t *seen, void *config);

/* Fields in order, no blanks, dtypes in lower case. */
void pair_form_print(const struct field_table *table, const void *config, struct text *out);

#endif
