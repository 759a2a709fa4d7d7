/* The config for a problem with few query rows, and into how many runs its key blocks are cut: rules over numbers, no
 * GPU. Pure; any thread. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_CHOOSE_H
#define KJIT_ATTENTION_DECODE_DECODE_CHOOSE_H

#include "attention/decode/decode_runs.h"

/* Choose for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the
 * family does not compute, or that another family computes faster. */
kjit_status decode_choose(const kjit_attention_problem *problem, const struct decode_card *card,
                          kjit_attention_decode_sm90_config *out, kjit_error *error);

/* Check that the kernel can index this problem, whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status decode_check_problem(const kjit_attention_problem *problem, kjit_error *error);

/* An H100's memory gives a multiprocessor 21 bytes a ns, an H200's 30. With less than 25, two steps that are on their
 * way are enough, and more of them only part blocks that read heads that lie side by side. */
bool decode_has_slow_memory(const struct decode_card *card);

#endif
