/* Configs of attention_serving_sm90: their fields, the numbers that follow from them, and which are legal. Pure. */
#ifndef KJIT_ATTENTION_SERVING_SM90_SERVING_SM90_CONFIG_H
#define KJIT_ATTENTION_SERVING_SM90_SERVING_SM90_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention_serving_sm90/layout.h"
#include "family/family.h"

/* X(name, kind, text): the fields in their order. The kernel sees each as `#define KJIT_<name> <value>`. */
#define SERVING_SM90_FIELDS(X)                                                                                         \
  X(dtype, DTYPE, "element type of q and o: FP16 (5) or BF16 (15)")                                                    \
  X(cache, DTYPE, "element type of k and v: dtype, or FP8_E4M3 (24)")                                                  \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(rows, INT, "query rows of a tile, query heads that share a key head packed into them: 16, 32, 64 or 128")          \
  X(keys, INT, "key rows of a block: 16, 32, 64 or 128")                                                               \
  X(stages, INT, "blocks of K and V in shared memory: 2 to 16")                                                        \
  X(blocks_per_sm, INT, "blocks of threads that share a multiprocessor: 1 or 2")                                       \
  X(softcap, BOOL, "scores are capped")                                                                                \
  X(one_part, BOOL, "a block of threads computes one part of one tile: for few tiles; rows is 64 or 128")              \
  X(gathered, BOOL, "k and v are loaded row by row, from pages that no box of TMA fits: with one_part")                \
  X(runs, BOOL, "a block of threads computes several parts of tiles, for more of these: with one_part")                \
  X(grouped, BOOL,                                                                                                     \
    "a box of TMA has all columns of a head, from pages: with runs, rows 64, whole bands of 64 columns")               \
  X(apart, BOOL, "a warpgroup of its own loads boxes of k and v, as with runs, and appends nothing: with one_part")

enum { SERVING_SM90_SHARED_BYTES = 232448 }; /* of sm_90, per block after opting in: target.c */

struct serving_sm90_config {
#define SERVING_SM90_MEMBER(name, kind, text) int32_t name;
  SERVING_SM90_FIELDS(SERVING_SM90_MEMBER)
#undef SERVING_SM90_MEMBER
};

extern const kjit_family serving_sm90_family;

/* The family's values as a struct. */
static inline const struct serving_sm90_config *serving_sm90_view(const int32_t *values) {
  return (const struct serving_sm90_config *)values;
}

uint32_t serving_sm90_shared_bytes(const struct serving_sm90_config *config); /* dynamic, with room to align it */
/* k and v have 8 bits an element. */
bool serving_sm90_is_narrow(const struct serving_sm90_config *config);

/* Bytes of a row of k or v, which has so many columns, in shared memory and in a box of TMA. */
uint32_t serving_sm90_row_bytes(const struct serving_sm90_config *config, int32_t columns);

/* The kernel appends new keys and rotates q itself, as config.cuh has it: with one_part, 64 rows and 16-bit k and v. */
bool serving_sm90_appends(const struct serving_sm90_config *config);

uint32_t serving_sm90_registers(
    const struct serving_sm90_config *config); /* of a thread for S, P and O, and for Q with one_part and 64 rows */

/* Bytes of a partial result: O of a tile in fp32, and each row's maximum and sum. */
size_t serving_sm90_partial_bytes(const struct serving_sm90_config *config);

/* The two rules that depend on the tile: a thread's registers, a block's shared memory. */
bool serving_sm90_fits(const struct serving_sm90_config *config);

#endif
