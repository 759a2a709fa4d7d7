/* flash_forward as a family: the instance of struct kjit_family. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_FAMILY_H
#define KJIT_ATTENTION_FLASH_FLASH_FAMILY_H

#include "attention/flash/flash_config.h"

extern const kjit_family flash_forward_family;

/* Give a variant the traits of a problem whose defaults are filled in, if its dtype and d_head fit the problem.
 * KJIT_ERR_INVALID_CONFIG if they do not. */
kjit_status flash_fit(const kjit_attention_problem *problem, struct flash_variant *variant, kjit_error *error);

#endif
