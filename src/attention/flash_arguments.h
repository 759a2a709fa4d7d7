/* The arguments of a call: are they right, and what does the kernel get of them. Pure: no driver is asked. */
#ifndef KJIT_ATTENTION_FLASH_ARGUMENTS_H
#define KJIT_ATTENTION_FLASH_ARGUMENTS_H

#include <kjit/flash_forward.h>

#include "flash_forward/params.h"

/* What this family does not compute: causal, grouped heads, unequal head sizes. KJIT_ERR_UNSUPPORTED. */
kjit_status flash_arguments_check_problem(const kjit_attention_problem *problem, kjit_error *error);

/* Everything that does not depend on a config, on the device that is current. KJIT_ERR_INVALID_ARG names the tensor,
 * the member and the rule; KJIT_ERR_UNSUPPORTED for what this family does not compute. */
kjit_status flash_arguments_check(const kjit_attention_args *args, int32_t device, kjit_error *error);

/* Do checked tensors have the dtype and head size of the config? KJIT_ERR_INVALID_CONFIG. */
kjit_status flash_arguments_match(const kjit_attention_args *args, const kjit_flash_config *config, kjit_error *error);

/* The kernel's argument, from checked ones. */
void flash_arguments_fill(const kjit_attention_args *args, struct flash_forward_params *params);

#endif
