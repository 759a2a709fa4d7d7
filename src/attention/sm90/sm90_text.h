/* The family's text form: "dtype=bf16,head_dim=128,…", every field once. */
#ifndef KJIT_ATTENTION_SM90_SM90_TEXT_H
#define KJIT_ATTENTION_SM90_SM90_TEXT_H

#include <kjit/attention_sm90.h>

#include "base/text.h"

/* In any order, blanks around any word. KJIT_ERR_PARSE names the column (in bytes, from 1) and what stands there;
 * `config` is then all zero. Values are read, not judged. */
kjit_status sm90_text_parse(const char *text, kjit_attention_sm90_config *config, kjit_error *error);

/* Fields in order, no blanks, dtypes in lower case. */
void sm90_text_print(const kjit_attention_sm90_config *config, struct text *out);

#endif
