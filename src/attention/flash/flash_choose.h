/* flash_forward's config for a problem, where the caller names none. Pure. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CHOOSE_H
#define KJIT_ATTENTION_FLASH_FLASH_CHOOSE_H

#include "attention/flash/flash_config.h"

/* For a problem without defaults left open; canonical. KJIT_ERR_UNSUPPORTED when none fits. */
kjit_status flash_choose(const kjit_attention_problem *problem, const struct family_place *place,
                         struct flash_variant *out, kjit_error *error);

#endif
