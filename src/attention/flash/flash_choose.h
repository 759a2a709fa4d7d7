/* The config for a problem where the caller names none. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CHOOSE_H
#define KJIT_ATTENTION_FLASH_FLASH_CHOOSE_H

#include <kjit/flash_forward.h>

/* By the shared memory that a block may have instead of the architecture's name, for a problem without defaults left
 * open. KJIT_ERR_UNSUPPORTED when none fits. */
kjit_status flash_choose(const kjit_attention_problem *problem, uint32_t shared_per_block, kjit_flash_config *out,
                         kjit_error *error);

#endif
