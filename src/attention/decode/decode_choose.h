/* The config for a problem with few query rows, and into how many runs its key blocks are cut: rules over numbers, no
 * GPU. Pure; any thread. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_CHOOSE_H
#define KJIT_ATTENTION_DECODE_DECODE_CHOOSE_H

#include "attention/decode/decode_config.h"

struct decode_tiles {
  int64_t row_tiles;  /* of a key head: ceil(seq_q * group / rows) */
  int64_t count;      /* over all key heads and batch entries      */
  int64_t key_blocks; /* of a tile                                 */
};

struct decode_tiles decode_tiles_of(const kjit_attention_problem *problem,
                                    const kjit_attention_decode_sm90_config *config);

/* Choose for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the
 * family does not compute, or that another family computes faster. */
kjit_status decode_choose(const kjit_attention_problem *problem, uint32_t sm_count,
                          kjit_attention_decode_sm90_config *out, kjit_error *error);

/* Check that the kernel can index this problem, whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status decode_check_problem(const kjit_attention_problem *problem, kjit_error *error);

/* The number of runs: at least 1, at most the key blocks of all tiles. */
uint32_t decode_runs(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                     uint32_t sm_count);

#endif
