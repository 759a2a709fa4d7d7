/* The arguments of a call: does a config fit them, and what does the kernel get of them. Pure: no driver is asked. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_ARGUMENTS_H
#define KJIT_ATTENTION_FLASH_FLASH_ARGUMENTS_H

#include <kjit/flash_forward.h>

#include "flash_forward/params.h"

/* KJIT_ERR_UNSUPPORTED for a problem, without defaults left open, that no kernel of the family computes. */
kjit_status flash_arguments_check_problem(const kjit_attention_problem *problem, kjit_error *error);

/* Has a problem without defaults left open the dtype and the head sizes of the config? KJIT_ERR_INVALID_CONFIG. */
kjit_status flash_arguments_match(const kjit_attention_problem *problem, const kjit_flash_config *config,
                                  kjit_error *error);

/* The kernel's argument, from checked ones and the problem that they are. */
void flash_arguments_fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                          struct flash_forward_params *params);

#endif
