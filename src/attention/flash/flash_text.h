/* Text of flash_forward's configs, in the spellings of the project that the family's fields come from:
 *
 *   short form  "(" tuple "): " feature { "+" feature }
 *     tuple     the DTYPE and INT fields in order, ", " between them
 *     feature   the token of a BOOL field (present: 1, absent: 0), or the LOAD fields as one: load_<a>_<b>_<c>_tiles
 *   demangled   type "{" value { ", " value } "}": every field in order, each value with or without its C++ cast
 *
 *   kernel      a config in either spelling; then, behind a blank, the traits that are not plain as "name=value" pairs
 *
 * Blanks may stand between any two tokens. A dtype is a name in any case or a number. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_TEXT_H
#define KJIT_ATTENTION_FLASH_FLASH_TEXT_H

#include <stdbool.h>

#include "attention/flash/flash_config.h"

/* Read a config in either spelling, by its table. KJIT_ERR_PARSE names the column (in bytes, from 1) and the text
 * there; `config` is all zero then. Values are read but not checked against rules. */
kjit_status short_form_parse(const struct field_table *table, const char *text, void *config, kjit_error *error);

/* The short form, features in field order. `tuple` false: the features alone. `omit`: the name of a tuple member to
 * leave out, or NULL. */
void short_form_print(const struct field_table *table, const void *config, bool tuple, const char *omit,
                      struct text *out);

/* Read a kernel: a config and its traits. */
kjit_status flash_text_parse(const char *text, struct flash_variant *variant, kjit_error *error);
void flash_text_print(const struct flash_variant *variant, struct text *out);

#endif
