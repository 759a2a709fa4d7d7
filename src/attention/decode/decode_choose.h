/* The config for a problem with few query rows, and into how many runs its key blocks are cut: rules over numbers, no
 * GPU. Pure; any thread. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_CHOOSE_H
#define KJIT_ATTENTION_DECODE_DECODE_CHOOSE_H

#include "attention/decode/decode_runs.h"

/* Choose for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the
 * family does not compute, or that another family computes faster. */
kjit_status decode_choose(const kjit_attention_problem *problem, const struct decode_card *card,
                          kjit_attention_decode_sm90_config *out, kjit_error *error);

#endif
