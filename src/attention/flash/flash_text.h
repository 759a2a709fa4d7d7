/* A kernel's name: the config's short form, and behind it the traits that are not plain. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_TEXT_H
#define KJIT_ATTENTION_FLASH_FLASH_TEXT_H

#include <kjit/flash_forward.h>

#include "base/text.h"

/* KJIT_ERR_PARSE names the column (in bytes, from 1) and what stands there; `variant` is then all zero. Values are
 * read, not judged. */
kjit_status flash_text_parse(const char *text, kjit_flash_variant *variant, kjit_error *error);

void flash_text_print(const kjit_flash_variant *variant, struct text *out);

#endif
