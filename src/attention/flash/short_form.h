/* The seeds' text spellings of a config, for any field table:
 *
 *   short form  "(" tuple "): " feature { "+" feature }
 *     tuple     the DTYPE and INT fields in order, ", " between them
 *     feature   the token of a BOOL field (present: 1, absent: 0), or the LOAD fields as one: load_<a>_<b>_<c>_tiles
 *   demangled   type "{" value { ", " value } "}": every field in order, each value with or without its C++ cast
 *
 * Blanks may stand between any two tokens. A dtype is a name in any case or a number. */
#ifndef KJIT_ATTENTION_FLASH_SHORT_FORM_H
#define KJIT_ATTENTION_FLASH_SHORT_FORM_H

#include "family/field_table.h"
#include "family/scanner.h"

/* Read either spelling. KJIT_ERR_PARSE names the column (in bytes, from 1) and what stands there; `config` is then all
 * zero. Values are read, not judged. */
kjit_status short_form_parse(const struct field_table *table, const char *text, void *config, kjit_error *error);

/* The same from where the scanner stands; what follows is left to the caller. On failure `config` holds anything. */
kjit_status short_form_read(const struct field_table *table, struct scanner *scanner, void *config);

/* The short form, features in field order. `tuple` false: the features alone. `omit`: the name of a tuple member to
 * leave out, or NULL. */
void short_form_print(const struct field_table *table, const void *config, _Bool tuple, const char *omit,
                      struct text *out);

#endif
