#include "attention/flash_choose.h"

#include "attention/flash_rules.h"
#include "base/error.h"

struct tile {
  int32_t B_r, B_c, n_warps;
  int32_t Q, K, V; /* load counts */
};

/* The tile for head sizes up to `d_head`, by the shared memory that a block may have.
 *
 * `large` was measured on an H200 (docs/performance.md, "Choice"): 32 query rows a warp, so that each fragment of K and
 * V serves two products, as long as the accumulators fit; 16 from head size 176 on. `small` leaves room for two blocks
 * on a multiprocessor with 99 KiB; it was not measured. */
static const struct {
  int64_t d_head;
  struct tile large, small;
} tiles[] = {
    {32, {128, 64, 4, 2, 2, 0}, {128, 64, 4, 2, 2, 2}},      {64, {128, 96, 4, 0, 2, 2}, {128, 64, 4, 2, 2, 2}},
    {96, {128, 64, 4, 2, 2, 0}, {128, 32, 4, 2, 2, 2}},      {128, {128, 48, 4, 2, 2, 0}, {128, 32, 4, 2, 2, 2}},
    {160, {64, 32, 2, 2, 2, 0}, {64, 32, 4, 2, 2, 2}},       {224, {64, 64, 4, 0, 0, 0}, {64, 32, 4, 2, 2, 2}},
    {INT64_MAX, {64, 32, 4, 0, 0, 0}, {64, 32, 4, 2, 2, 2}},
};

/* sm_80, sm_90, sm_100 and their kin have 163 KiB or more; sm_86, sm_89 and sm_120 have 99. */
#define LARGE_SHARED (163u * 1024u)

static struct tile choose_tile(int64_t head_dim, uint32_t shared_per_block) {
  size_t i = 0;
  while (head_dim > tiles[i].d_head)
    i++;
  return shared_per_block >= LARGE_SHARED ? tiles[i].large : tiles[i].small;
}

/* Halve an edge while half of it holds the whole axis, down to `least`. */
static int32_t shrink(int32_t edge, int64_t length, int32_t least) {
  while (edge / 2 >= least && length <= edge / 2)
    edge /= 2;
  return edge;
}

static int32_t clamp(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

static kjit_status check_choice(const kjit_flash_config *config, uint32_t shared_per_block, kjit_error *error) {
  kjit_error reason;
  error_clear(&reason);
  if (flash_rules_check(config, &reason) != KJIT_OK) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "no config of flash_forward fits: %.400s", reason.message);
  }
  const uint32_t needed = kjit_flash_config_geometry(config).shared_bytes;
  if (needed <= shared_per_block) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "no config of flash_forward fits: d_head %d needs %u bytes of shared memory per block; there are %u",
                   (int)config->d_head, needed, shared_per_block);
}

kjit_status flash_choose(int32_t dtype, int64_t seq_q, int64_t seq_kv, int64_t head_dim, uint32_t shared_per_block,
                         kjit_flash_config *out, kjit_error *error) {
  const struct tile tile = choose_tile(head_dim, shared_per_block);
  kjit_flash_config config = {.dtype = dtype,
                              .d_head = clamp(head_dim),
                              .B_r = shrink(tile.B_r, seq_q, 64),
                              .B_c = shrink(tile.B_c, seq_kv, 32),
                              .n_warps = tile.n_warps,
                              .async_copy = 1,
                              .eager_load_blocks = 1,
                              .swizzled = 1,
                              .Q_mma_load_K_tiles = tile.Q,
                              .K_mma_load_K_tiles = tile.K,
                              .V_mma_load_K_tiles = tile.V,
                              .optimized_softmax = 1};
  if (config.n_warps > config.B_r / 16) config.n_warps = config.B_r / 16;
  const kjit_status status = check_choice(&config, shared_per_block, error);
  if (status == KJIT_OK) *out = kjit_flash_config_canonical(&config);
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
  return flash_choose(dtype, seq_q, seq_kv, head_dim, limits->shared_per_block, out, error);
}
