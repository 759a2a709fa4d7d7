/* flash_forward's planner: a table of tiles by head size and shared memory, whose edges are halved for short problems.
 * docs/performance.md has the measurements behind it. Pure; any thread. */
#include "attention/flash/flash_choose.h"

#include <stdbool.h>

#include "attention/rule.h"
#include "base/error.h"

struct tile {
  int32_t B_r, B_c, n_warps;
  int32_t Q, K, V; /* load counts */
};

/* The tile for head sizes up to `columns`, by the shared memory that a block may have.
 *
 * `large` was measured on an H200 (docs/performance.md, "Choice"): 32 query rows a warp, so that each fragment of K and
 * V is used by two products, as long as the accumulators fit in registers; 16 rows from head size 176 on. `small`
 * leaves room for two blocks on an SM with 99 KiB; it was not measured. */
static const struct {
  int32_t columns;
  struct tile large, small;
} tiles[] = {
    {32, {128, 64, 4, 2, 2, 0}, {128, 64, 4, 2, 2, 2}},
    {64, {128, 96, 4, 0, 2, 2}, {128, 64, 4, 2, 2, 2}},
    {96, {128, 64, 4, 2, 2, 0}, {128, 32, 4, 2, 2, 2}},
    {128, {128, 48, 4, 2, 2, 0}, {128, 32, 4, 2, 2, 2}},
    {160, {64, 32, 2, 2, 2, 0}, {64, 32, 4, 2, 2, 2}},
    {224, {64, 64, 4, 0, 0, 0}, {64, 32, 4, 2, 2, 2}},
    {FLASH_MAX_HEAD, {64, 32, 4, 0, 0, 0}, {64, 32, 4, 2, 2, 2}},
};

/* From here on `large` is taken: sm_80, sm_90, sm_100 and their kin have 163 KiB or more; sm_86, sm_89 and sm_120 have
 * 99. */
#define LARGE_SHARED (163u * 1024u)

/* Choose the tile. O must stay in registers, but Q need not: when Q and K are wider than V by up to a half and shared
 * memory has room, the tile is the one for V, and Q is read in slices. Otherwise the wider of the two decides. */
static struct tile choose_tile(const struct flash_traits *traits, uint32_t shared_per_block) {
  const int32_t d = flash_traits_columns(traits->head_dim), dv = flash_traits_columns(traits->head_dim_v);
  const bool large = shared_per_block >= LARGE_SHARED, by_v = d <= dv || (large && 2 * d <= 3 * dv);
  const int32_t columns = by_v ? dv : d;
  size_t i = 0;
  while (columns > tiles[i].columns)
    i++;
  struct tile tile = large ? tiles[i].large : tiles[i].small;
  if (d > columns) tile.Q = tile.K = 2;
  return tile;
}

/* Halve an edge as long as half of it still holds the whole axis, down to `least`. */
static int32_t shrink(int32_t edge, int64_t length, int32_t least) {
  while (edge / 2 >= least && length <= edge / 2)
    edge /= 2;
  return edge;
}

static kjit_status check_choice(const struct flash_variant *variant, const struct family_place *place,
                                kjit_error *error) {
  kjit_error reason;
  error_clear(&reason);
  if (flash_check(variant, &reason) == KJIT_OK && flash_check_place(variant, place, &reason) == KJIT_OK) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "no config of flash_forward fits: %.400s", reason.message);
}

/* A tile's config for a problem, with asynchronous copies and swizzling always on. A warp needs 16 query rows, so a
 * shrunk tile may have fewer warps. */
static kjit_status take_tile(const struct flash_traits *traits, int32_t dtype, const struct tile *tile,
                             int32_t optimized_softmax, const struct family_place *place, struct flash_variant *out,
                             kjit_error *error) {
  struct flash_variant variant = {.config = {.dtype = dtype,
                                             .d_head = flash_traits_d_head(traits),
                                             .B_r = tile->B_r,
                                             .B_c = tile->B_c,
                                             .n_warps = tile->n_warps,
                                             .async_copy = 1,
                                             .eager_load_blocks = 1,
                                             .swizzled = 1,
                                             .Q_mma_load_K_tiles = tile->Q,
                                             .K_mma_load_K_tiles = tile->K,
                                             .V_mma_load_K_tiles = tile->V,
                                             .optimized_softmax = optimized_softmax},
                                  .traits = *traits};
  if (variant.config.n_warps > variant.config.B_r / 16) variant.config.n_warps = variant.config.B_r / 16;
  const kjit_status status = check_choice(&variant, place, error);
  if (status != KJIT_OK) return status;
  flash_canonicalize(&variant);
  *out = variant;
  return KJIT_OK;
}

/* The table's tile, shrunk to the problem, with the optimised softmax. */
kjit_status flash_choose(const kjit_attention_problem *problem, const struct family_place *place,
                         struct flash_variant *out, kjit_error *error) {
  const kjit_status status = rule_check_heads(problem, "flash_forward", error);
  if (status != KJIT_OK) return status;
  const struct flash_traits traits = flash_traits_of(problem);
  struct tile tile = choose_tile(&traits, place->shared_per_block);
  tile.B_r = shrink(tile.B_r, problem->seq_q, 64);
  tile.B_c = shrink(tile.B_c, problem->seq_kv, 32);
  return take_tile(&traits, problem->dtype, &tile, 1, place, out, error);
}

kjit_status flash_choose_small(const kjit_attention_problem *problem, const struct family_place *place,
                               struct flash_variant *out, kjit_error *error) {
  static const struct tile small = {64, 16, 4, 2, 2, 0}; /* steps of 32 keys take a third longer to compile */
  const kjit_status status = rule_check_heads(problem, "flash_forward", error);
  if (status != KJIT_OK) return status;
  const struct flash_traits traits = flash_traits_of(problem);
  return take_tile(&traits, problem->dtype, &small, 0, place, out, error);
}

/* Steps of 96 keys leave no registers for what a score function reads and computes: a bias that is read element by
 * element spills 1,128 bytes there and 200 in steps of 80 keys; two such biases spill 2,828 bytes, and none in steps of
 * 48 keys. Instructions a key are as many (docs/lab-notes/flash_forward.md). */
void flash_suit_score(struct flash_variant *variant, int gathered) {
  enum { MOST_KEYS = 80, MOST_KEYS_OF_MANY = 48 };
  const int32_t most = gathered > 1 ? MOST_KEYS_OF_MANY : MOST_KEYS;
  if (variant->config.B_c <= most) return;
  variant->config.B_c = most;
  flash_canonicalize(variant);
}
