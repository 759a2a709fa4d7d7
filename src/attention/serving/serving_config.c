/* attention_serving as a family: field table, canonical form, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/serving/serving_config.h"

#include "attention/rule.h"
#include "attention/serving/serving_family.h"
#include "attention_serving/layout.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/target.h"
#include "family/config.h"

enum {
  MIN_CAPABILITY = 80, /* cp.async, and mma.m16n8k16 with bf16 */
  TILE = 16,           /* mma.m16n8k16: rows of A, and its depth */
  LANES = 32,
  BAND = 128, /* columns of 8 bits that lie together in shared memory */
  MAX_ROWS = 128,
  MAX_KEYS = 256,
  MAX_WARPS = 8,
  MAX_STAGES = 4,
  MAX_BLOCKS = SERVING_MOST_BLOCKS_PER_SM,
  MAX_ACCUMULATORS = 200, /* fp32 registers of a thread for O and S */
  PLAN_BYTES = 8          /* of shared memory of the plan pass: where a thread's sequences begin, or what one costs */
};

/* ---- Fields ---- */

static const char *const pass_names[] = {"attend", "plan", "append"};

#define COUNT(name, kind, text) +1
#define KIND_DTYPE              KJIT_FIELD_DTYPE, NULL, 0
#define KIND_INT                KJIT_FIELD_INT, NULL, 0
#define KIND_BOOL               KJIT_FIELD_BOOL, NULL, 0
#define KIND_PASS               KJIT_FIELD_ENUM, pass_names, sizeof pass_names / sizeof *pass_names
#define ROW_OF(name, text, kind, names, count)                                                                         \
  {#name, "", text, kind, offsetof(kjit_attention_serving_config, name), names, count, NULL},
#define ROW_WITH(name, text, ...) ROW_OF(name, text, __VA_ARGS__)
#define ROW(name, kind, text)     ROW_WITH(name, text, KIND_##kind)

enum { FIELD_COUNT = 0 KJIT_ATTENTION_SERVING_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_attention_serving_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {KJIT_ATTENTION_SERVING_FIELDS(ROW)};

/* ---- Geometry ---- */

uint32_t serving_threads(const kjit_attention_serving_config *config) {
  return config->pass == KJIT_SERVING_PLAN ? SERVING_PLAN_THREADS : LANES * (uint32_t)config->warps;
}

static uint32_t columns(int32_t head) {
  return ((uint32_t)head + TILE - 1) / TILE * TILE;
}

/* Of K and V together: columns of 8 bits come in bands of 128. */
static uint32_t cache_row_bytes(const kjit_attention_serving_config *config) {
  if (config->cache != KJIT_FP8_E4M3) return (columns(config->head_dim) + columns(config->head_dim_v)) * 2;
  return BAND * (uint32_t)(integer_divide_up(config->head_dim, BAND) + integer_divide_up(config->head_dim_v, BAND));
}

/* Bytes of a row of Q in shared memory. A cache of e4m3 with wide heads has the A operands of Q there, which come in
 * steps of 64 columns. */
static uint32_t query_row_bytes(const kjit_attention_serving_config *config) {
  const bool is_shared =
      config->cache == KJIT_FP8_E4M3 && config->head_dim + 2 * config->head_dim_v > SERVING_NARROW_REGISTER_COLUMNS;
  return (is_shared ? (uint32_t)integer_divide_up(config->head_dim, 64) * 64 : columns(config->head_dim)) * 2;
}

/* Shared memory as config.cuh lays it out: Q and the stages of K and V, or O of each warp along the keys in fp32;
 * maxima and sums; with pages two tables of rows; a word. */
uint32_t serving_shared_bytes(const kjit_attention_serving_config *config) {
  if (config->pass == KJIT_SERVING_APPEND) return 0;
  if (config->pass == KJIT_SERVING_PLAN) {
    return SERVING_PLAN_THREADS * PLAN_BYTES * (1 + SERVING_PLAN_KEPT) + SERVING_PLAN_SUMS_BYTES;
  }
  const uint32_t dv = columns(config->head_dim_v);
  const uint32_t tile_rows = (uint32_t)config->rows, keys = (uint32_t)config->keys;
  const uint32_t key_warps = (uint32_t)config->warps / (tile_rows / TILE);
  const uint32_t tiles =
      tile_rows * query_row_bytes(config) + (uint32_t)config->stages * keys * cache_row_bytes(config);
  const uint32_t output = key_warps * tile_rows * (dv + 8) * 4;
  return (tiles > output ? tiles : output) + key_warps * tile_rows * 8 + (config->paged ? 2 * keys * 16 : 0) + 16;
}

size_t serving_partial_bytes(const kjit_attention_serving_config *config) {
  return (size_t)config->rows * (size_t)(config->head_dim_v + 2) * sizeof(float);
}

/* ---- Rules ---- */

static kjit_status check_kind(const kjit_attention_serving_config *config, kjit_error *error) {
  if (!rule_is_between(config->pass, KJIT_SERVING_ATTEND, KJIT_SERVING_APPEND))
    return rule_broken(error, "pass", config->pass, "attend (0), plan (1) or append (2)");
  if (config->dtype != KJIT_FP16 && config->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
  if (config->cache != config->dtype && config->cache != KJIT_FP8_E4M3)
    return rule_broken(error, "cache", config->cache, "dtype, or FP8_E4M3 (24)");
  if (!rule_is_between(config->paged, 0, 1)) return rule_broken(error, "paged", config->paged, "0 or 1");
  if (!rule_is_between(config->softcap, 0, 1)) return rule_broken(error, "softcap", config->softcap, "0 or 1");
  const kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  return status == KJIT_OK ? rule_check_head("head_dim_v", config->head_dim_v, error) : status;
}

static kjit_status check_cache(const kjit_attention_serving_config *config, kjit_error *error) {
  if (config->cache != KJIT_FP8_E4M3) return KJIT_OK;
  if (config->head_dim % TILE != 0)
    return rule_broken(error, "head_dim", config->head_dim, "a multiple of 16 with cache FP8_E4M3");
  if (config->head_dim_v % TILE == 0) return KJIT_OK;
  return rule_broken(error, "head_dim_v", config->head_dim_v, "a multiple of 16 with cache FP8_E4M3");
}

static kjit_status check_tile(const kjit_attention_serving_config *config, kjit_error *error) {
  const int32_t warps = config->warps;
  if (!rule_is_between(config->rows, TILE, MAX_ROWS) || (config->rows & (config->rows - 1)) != 0)
    return rule_broken(error, "rows", config->rows, "16, 32, 64 or 128");
  if (!rule_is_between(warps, config->rows / TILE, MAX_WARPS) || (warps & (warps - 1)) != 0)
    return rule_broken(error, "warps", warps, "a power of two from rows / 16 to 8");
  const int32_t step = TILE * (warps / (config->rows / TILE));
  if (!rule_is_between(config->keys, step, MAX_KEYS) || config->keys % step != 0)
    return rule_broken(error, "keys", config->keys, "a multiple of 16 * warps / (rows / 16) up to 256");
  if (config->paged && config->keys > warps * LANES)
    return rule_broken(error, "keys", config->keys, "at most 32 * warps with paged, as a thread looks up one of them");
  if (!rule_is_between(config->stages, 2, MAX_STAGES)) return rule_broken(error, "stages", config->stages, "2 to 4");
  if (!rule_is_between(config->blocks_per_sm, 1, MAX_BLOCKS))
    return rule_broken(error, "blocks_per_sm", config->blocks_per_sm, "1 to 8");
  const int32_t registers = config->head_dim_v / 2 + config->keys / (warps / (config->rows / TILE)) / 2;
  if (registers <= MAX_ACCUMULATORS) return KJIT_OK;
  return rule_broken(error, "keys", config->keys,
                     "so small that head_dim_v / 2 + (keys of a warp) / 2 registers are at most 200");
}

kjit_status serving_check(const kjit_attention_serving_config *config, kjit_error *error) {
  kjit_status status = check_kind(config, error);
  if (status == KJIT_OK) status = check_cache(config, error);
  return status == KJIT_OK ? check_tile(config, error) : status;
}

/* ---- The family ---- */

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family;
  return serving_check(serving_config_view(values), error);
}

static kjit_status check_place(const kjit_family *family, const int32_t *values, const struct family_place *place,
                               kjit_error *error) {
  const kjit_attention_serving_config *config = serving_config_view(values);
  struct target target;
  (void)family;
  const kjit_status status = target_parse(&target, place->arch, error);
  if (status != KJIT_OK) return status;
  if (target.capability < MIN_CAPABILITY)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: attention_serving requires sm_80 or higher (current: %s)",
                     target.name);
  const uint32_t needed = serving_shared_bytes(config);
  if (needed <= place->shared_per_block) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "keys is %d: with rows %d and stages %d a block needs %u bytes of shared memory; %s has %u",
                   (int)config->keys, (int)config->rows, (int)config->stages, needed, target.name,
                   place->shared_per_block);
}

/* Fields that a pass does not read get the values of the plainest kernel. */
static void canonicalize(const kjit_family *family, int32_t *values) {
  kjit_attention_serving_config *config = (kjit_attention_serving_config *)values;
  (void)family;
  if (config->pass == KJIT_SERVING_ATTEND) return;
  config->stages = 2;
  config->blocks_per_sm = 1;
  config->paged = config->softcap = 0;
  if (config->pass == KJIT_SERVING_PLAN) {
    config->dtype = config->cache = KJIT_FP16;
    config->head_dim = config->head_dim_v = 64;
  }
  config->rows = config->keys = 64;
  config->warps = 4;
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const kjit_attention_serving_config *config = serving_config_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {serving_threads(config), 1, 1}, .shared_bytes = serving_shared_bytes(config)};
}

const kjit_family serving_kernel_family = {
    .table = {.family = "attention_serving",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(kjit_attention_serving_config)},
    .entry = "attention_serving",
    .main_file = "attention_serving/attention_serving.cu",
    .check = check,
    .check_place = check_place,
    .canonicalize = canonicalize,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
