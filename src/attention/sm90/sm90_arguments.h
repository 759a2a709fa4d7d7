/* What the kernel gets of a call's arguments. Pure: no driver is asked. */
#ifndef KJIT_ATTENTION_SM90_SM90_ARGUMENTS_H
#define KJIT_ATTENTION_SM90_SM90_ARGUMENTS_H

#include <kjit/attention_sm90.h>

#include "attention/sm90/sm90_tiles.h"
#include "attention_sm90/params.h"

/* Do checked tensors have the config's dtype, head sizes and mask? KJIT_ERR_INVALID_CONFIG. */
kjit_status sm90_arguments_match(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                                 kjit_error *error);

/* Everything of the kernel's argument but the maps and what is in device memory: tickets, partial results and arrivals,
 * without which no tile is split. */
void sm90_arguments_fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                         const struct sm90_tiles *tiles, const kjit_device_info *device,
                         struct attention_sm90_params *params);

#endif
