/* The config for a problem with few keys: rules over numbers, no GPU. Pure; any thread. */
#ifndef KJIT_ATTENTION_SHORT_SHORT_CHOOSE_H
#define KJIT_ATTENTION_SHORT_SHORT_CHOOSE_H

#include <stdbool.h>

#include "attention/short/short_config.h"
#include "attention/sm90/sm90_tiles.h"

/* Tiles of 64 queries over all query heads and batch entries. */
int64_t short_tiles(const kjit_attention_problem *problem);

/* Choose for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the
 * family does not compute, or that another family computes faster. */
kjit_status short_choose(const kjit_attention_problem *problem, const struct sm90_card *card,
                         kjit_attention_short_sm90_config *out, kjit_error *error);

/* May TMA fetch whole lines of 128 bytes for rows that are none? Then L2 still has the rest of a line when the block of
 * threads of the neighbouring head asks for it. */
bool short_shares_lines(const kjit_attention_problem *problem, const struct sm90_card *card,
                        const kjit_attention_short_sm90_config *config);

/* Check that the kernel can index this problem, whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status short_check_problem(const kjit_attention_problem *problem, kjit_error *error);

#endif
