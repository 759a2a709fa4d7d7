/* The config for a problem: rules over numbers, no GPU. docs/attention.md states them with the measurements behind. */
#ifndef KJIT_ATTENTION_SM90_SM90_CHOOSE_H
#define KJIT_ATTENTION_SM90_SM90_CHOOSE_H

#include "attention/sm90/sm90_config.h"

/* For a problem without defaults left open, on a card with so many multiprocessors. The result passes every rule.
 * KJIT_ERR_UNSUPPORTED for a problem that the family does not compute, with the reason. */
kjit_status sm90_choose(const kjit_attention_problem *problem, uint32_t multiprocessors,
                        kjit_attention_sm90_config *out, kjit_error *error);

/* Can the kernel index this problem? Whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status sm90_check_problem(const kjit_attention_problem *problem, kjit_error *error);

#endif
