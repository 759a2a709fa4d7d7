/* A config as pairs: "dtype=bf16,head_dim=128,…", every field of its table once. */
#ifndef KJIT_JIT_PAIR_FORM_H
#define KJIT_JIT_PAIR_FORM_H

#include "jit/field_table.h"

/* In any order, blanks around any word. KJIT_ERR_PARSE names the column (in bytes, from 1) and what stands there;
 * `config` is then all zero. Values are read, not judged. */
kjit_status pair_form_parse(const struct field_table *table, const char *text, void *config, kjit_error *error);

/* Fields in order, no blanks, dtypes in lower case. */
void pair_form_print(const struct field_table *table, const void *config, struct text *out);

#endif
