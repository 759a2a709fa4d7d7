#include "attention/flash/flash_choose.h"

#include "attention/attention_problem.h"
#include "attention/flash/flash_arguments.h"
#include "attention/flash/flash_rules.h"
#include "attention/flash/flash_traits.h"
#include "base/error.h"

struct tile {
  int32_t B_r, B_c, n_warps;
  int32_t Q, K, V; /* load counts */
};

/* The tile for head sizes up to `columns`, by the shared memory that a block may have.
 *
 * `large` was measured on an H200 (docs/performance.md, "Choice"): 32 query rows a warp, so that each fragment of K and
 * V serves two products, as long as the accumulators fit; 16 from head size 176 on. `small` leaves room for two blocks
 * on a multiprocessor with 99 KiB; it was not measured. */
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

/* sm_80, sm_90, sm_100 and their kin have 163 KiB or more; sm_86, sm_89 and sm_120 have 99. */
#define LARGE_SHARED (163u * 1024u)

/* O stays in registers and Q need not: with room in shared memory, Q and K that are wider than V by up to a half leave
 * the tile as V wants it, and Q is then read in slices. Else the wider of the two decides. */
static struct tile choose_tile(const kjit_flash_traits *traits, uint32_t shared_per_block) {
  const int32_t d = flash_traits_columns(traits->head_dim), dv = flash_traits_columns(traits->head_dim_v);
  const _Bool large = shared_per_block >= LARGE_SHARED, by_v = d <= dv || (large && 2 * d <= 3 * dv);
  const int32_t columns = by_v ? dv : d;
  size_t i = 0;
  while (columns > tiles[i].columns)
    i++;
  struct tile tile = large ? tiles[i].large : tiles[i].small;
  if (d > columns) tile.Q = tile.K = 2;
  return tile;
}

/* Halve an edge while half of it holds the whole axis, down to `least`. */
static int32_t shrink(int32_t edge, int64_t length, int32_t least) {
  while (edge / 2 >= least && length <= edge / 2)
    edge /= 2;
  return edge;
}

static kjit_status check_choice(const kjit_flash_variant *variant, uint32_t shared_per_block, kjit_error *error) {
  kjit_error reason;
  error_clear(&reason);
  if (flash_rules_check_variant(variant, &reason) != KJIT_OK) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "no config of flash_forward fits: %.400s", reason.message);
  }
  const uint32_t needed = kjit_flash_variant_geometry(variant).shared_bytes;
  if (needed <= shared_per_block) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "no config of flash_forward fits: d_head %d needs %u bytes of shared memory per block; there are %u",
                   (int)variant->config.d_head, needed, shared_per_block);
}

kjit_status flash_choose(const kjit_attention_problem *problem, uint32_t shared_per_block, kjit_flash_config *out,
                         kjit_error *error) {
  kjit_status status = flash_arguments_check_problem(problem, error);
  if (status != KJIT_OK) return status;
  const kjit_flash_traits traits = flash_traits_of(problem);
  const struct tile tile = choose_tile(&traits, shared_per_block);
  kjit_flash_variant variant = {.config = {.dtype = problem->dtype,
                                           .d_head = flash_traits_d_head(&traits),
                                           .B_r = shrink(tile.B_r, problem->seq_q, 64),
                                           .B_c = shrink(tile.B_c, problem->seq_kv, 32),
                                           .n_warps = tile.n_warps,
                                           .async_copy = 1,
                                           .eager_load_blocks = 1,
                                           .swizzled = 1,
                                           .Q_mma_load_K_tiles = tile.Q,
                                           .K_mma_load_K_tiles = tile.K,
                                           .V_mma_load_K_tiles = tile.V,
                                           .optimized_softmax = 1},
                                .traits = traits};
  if (variant.config.n_warps > variant.config.B_r / 16) variant.config.n_warps = variant.config.B_r / 16;
  status = check_choice(&variant, shared_per_block, error);
  if (status == KJIT_OK) *out = kjit_flash_variant_canonical(&variant).config;
  return status;
}

kjit_status kjit_flash_variant_choose(const kjit_attention_problem *problem, const char *arch, kjit_flash_variant *out,
                                      kjit_error *error) {
  const struct target_limits *limits = NULL;
  kjit_attention_problem taken;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_flash_variant){0};
  kjit_status status = attention_problem_take(&taken, problem, error);
  if (status == KJIT_OK) status = flash_rules_limits(arch, &limits, error);
  if (status == KJIT_OK) status = flash_choose(&taken, limits->shared_per_block, &out->config, error);
  if (status == KJIT_OK) out->traits = flash_traits_of(&taken);
  return status;
}

kjit_status kjit_flash_config_choose(int32_t dtype, int64_t seq_q, int64_t seq_kv, int64_t head_dim, const char *arch,
                                     kjit_flash_config *out, kjit_error *error) {
  const struct target_limits *limits = NULL;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_flash_config){0};
  if (seq_q < 1) return error_invalid(error, "seq_q", "must be at least 1");
  if (seq_kv < 1) return error_invalid(error, "seq_kv", "must be at least 1");
  const kjit_status status = flash_rules_limits(arch, &limits, error);
  if (status != KJIT_OK) return status;
  const kjit_attention_problem problem = {
      .dtype = dtype, .seq_q = seq_q, .seq_kv = seq_kv, .head_dim = head_dim, .head_dim_v = head_dim};
  return flash_choose(&problem, limits->shared_per_block, out, error);
}
