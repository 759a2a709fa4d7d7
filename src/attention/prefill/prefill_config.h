/* Configs of attention_prefill_sm90: their fields, the numbers that follow from them, their canonical form, and which
 * are legal. A config is one of attention_sm90 without a mask and a split of its own, and the softcap. Pure. */
#ifndef KJIT_ATTENTION_PREFILL_PREFILL_CONFIG_H
#define KJIT_ATTENTION_PREFILL_PREFILL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "attention_prefill_sm90/layout.h"
#include "family/family.h"

/* X(name, kind, text): the fields in their order. The kernel sees each as `#define KJIT_<name> <value>`. */
#define PREFILL_FIELDS(X)                                                                                              \
  X(dtype, DTYPE, "element type of q, k, v and o: FP16 (5) or BF16 (15)")                                              \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(consumers, INT, "warpgroups that compute, 64 query rows each: 1 to 3")                                             \
  X(tile_n, INT, "key rows per step: a multiple of 16 up to 256")                                                      \
  X(stages, INT, "tiles of K and V in shared memory: 2 to 4")                                                          \
  X(q_buffers, INT, "tiles of Q in shared memory: 1 or 2")                                                             \
  X(o_chunks, INT, "64-column chunks of O that have shared memory of their own; 0: O is stored through Q's")           \
  X(ping_pong, BOOL, "consumers take turns in issuing products")                                                       \
  X(rescale_slack, INT, "log2 of a row's sum that needs no rescaling of O: 0 to 15")                                   \
  X(packed, INT, "query heads that share a key head, in the rows of one tile: a power of two that divides them")       \
  X(softcap, BOOL, "scores are capped")                                                                                \
  X(loads, INT, "K and V by boxes of 64 columns, 0; of all, from pages, 1; by rows, 2; e4m3 by rows, 3, by boxes, 4")  \
  X(few, BOOL, "sequences of few rows have a list of their own, and their keys may be divided")

struct prefill_config {
#define PREFILL_MEMBER(name, kind, text) int32_t name;
  PREFILL_FIELDS(PREFILL_MEMBER)
#undef PREFILL_MEMBER
};

extern const kjit_family prefill_family;

/* The family's values as a struct. */
static inline const struct prefill_config *prefill_config_view(const int32_t *values) {
  return (const struct prefill_config *)values;
}

/* Dynamic shared memory of a block of threads, with room to align it. */
uint32_t prefill_shared_bytes(const struct prefill_config *config);

/* Bytes of the order of `batch` sequences that each of so many blocks of threads keeps. A multiple of 16. */
size_t prefill_order_bytes(uint32_t run_count, int64_t batch);

/* Does a warpgroup of its own load K and V row by row? */
bool prefill_gathers(const struct prefill_config *config);

/* Most consumers beside the warpgroup that loads row by row. */
int32_t prefill_gathering_consumers(int64_t head_dim_v);

/* The two rules that depend on the tile: a consumer thread's registers, a block's shared memory. */
bool prefill_fits(const struct prefill_config *config);

#endif
