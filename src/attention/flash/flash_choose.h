/* flash_forward's config for a problem, where the caller names none. Pure. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CHOOSE_H
#define KJIT_ATTENTION_FLASH_FLASH_CHOOSE_H

#include "attention/flash/flash_config.h"

/* Choose for a problem whose defaults are filled in; canonical. KJIT_ERR_UNSUPPORTED when no config fits. */
kjit_status flash_choose(const kjit_attention_problem *problem, const struct family_place *place,
                         struct flash_variant *out, kjit_error *error);

/* Choose the config whose kernel has the least code, so that it compiles soonest: tiles of 64 rows by 32 keys, whatever
 * the lengths. It computes what flash_choose()'s config does, more slowly. KJIT_ERR_UNSUPPORTED. */
kjit_status flash_choose_small(const kjit_attention_problem *problem, const struct family_place *place,
                               struct flash_variant *out, kjit_error *error);

/* Change a chosen config into one that suits a variant with a score function, which loads `gathered` elements of
 * tensors for each pair one by one; canonical. */
void flash_suit_score(struct flash_variant *variant, int gathered);

#endif
