/* Keys of a step of attention_sm90, consumers and Q buffers: what was measured best for each class of head sizes, and
 * how a tile is fitted into shared memory. Used by the planner (sm90_choose.c) and where it suits a config to a variant
 * (sm90_suit.c). Pure; any thread. */
#ifndef KJIT_ATTENTION_SM90_SM90_STEPS_H
#define KJIT_ATTENTION_SM90_SM90_STEPS_H

#include <stdbool.h>

#include "attention/sm90/sm90_config.h"

enum {
  SM90_KEY_STEP = 16,
  /* The tile for few keys. There is one size, so that a growing cache of keys does not compile a kernel at each length.
   */
  SM90_FEW_KEYS = 64,
};

/* The choices that were measured best for a class of heads: keys of a step with up to two consumers and with three, and
 * the query length from which on three consumers are better. Three consumers' tiles of 192 rows read keys a third less
 * often, but more of a causal tile lies beyond the diagonal, which costs short problems more. */
struct sm90_steps {
  int32_t tile_n, tile_n_of_three, rows_of_three;
};

/* The choices for heads with so many columns of V. `is_triangle`: a causal mask hides much of what the problem has. */
const struct sm90_steps *sm90_steps_of(int64_t head_dim_v, bool is_triangle);

/* Two or three consumers, by the query length. */
int32_t sm90_best_consumers(const kjit_attention_problem *problem, const struct sm90_steps *steps);

/* The keys of a step, which are at most SM90_FEW_KEYS where there are no more keys than that. */
int32_t sm90_shorten(int32_t tile_n, int64_t seq_kv);

/* Set the number of consumers, and the keys of a step that belong to it. */
void sm90_set_consumers(kjit_attention_sm90_config *config, const struct sm90_steps *steps, int64_t seq_kv,
                        int32_t consumers);

/* Take the largest tile, up to the given one, that leaves room for `q_buffers` Q buffers. With two, O is stored through
 * them, until sm90_keep_output(). */
void sm90_fit_tile(kjit_attention_sm90_config *config, int32_t tile_n, int32_t q_buffers);

/* The end of a tile overlaps with the start of the next when there are two Q buffers, which are taken if they cost no
 * keys, or memory for O, which is taken if it costs at most one step of keys. A block of a split launch has one split,
 * or few long ones, so nothing would overlap. */
void sm90_choose_tile(kjit_attention_sm90_config *config);

#endif
