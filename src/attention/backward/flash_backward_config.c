/* flash_backward as a family: field table, canonical form, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/backward/flash_backward.h"
#include "attention/rule.h"

#include <stddef.h>

#include "base/error.h"
#include "base/integer.h"
#include "base/target.h"
#include "family/config.h"
#include "flash_backward/params.h"

enum {
  MIN_CAPABILITY = 80, /* cp.async, and mma.m16n8k16 with bf16 */
  TILE = 16,           /* mma.m16n8k16: rows of A, and its depth */
  MAX_EDGE = 256,      /* rows of a tile */
  LANES = 32,
  MAX_ACCUMULATORS = 256 /* fp32 registers of a thread: no thread has more */
};

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1
#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(kjit_flash_backward_config, name), NULL, 0, NULL},
enum { FIELD_COUNT = 0 KJIT_FLASH_BACKWARD_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= (int)BACKWARD_FIELDS_MAX, "too many fields");
_Static_assert(sizeof(kjit_flash_backward_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {KJIT_FLASH_BACKWARD_FIELDS(ROW)};

/* ---- Geometry ---- */

bool flash_backward_owns_keys(const kjit_flash_backward_config *config) {
  return config->pass & (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV);
}

static int32_t own_rows(const kjit_flash_backward_config *config) {
  return flash_backward_owns_keys(config) ? config->tile_n : config->tile_m;
}

static int32_t step_rows(const kjit_flash_backward_config *config) {
  return flash_backward_owns_keys(config) ? config->tile_m : config->tile_n;
}

/* Shared memory as config.cuh lays it out. */
static uint32_t shared_bytes(const kjit_flash_backward_config *config) {
  const uint32_t columns =
      (uint32_t)(integer_divide_up(config->head_dim, TILE) * TILE + integer_divide_up(config->head_dim_v, TILE) * TILE);
  const uint32_t own = (uint32_t)own_rows(config) * columns * 2;
  const uint32_t statistics = flash_backward_owns_keys(config) ? 8 : 0; /* LSE and delta of a query */
  const uint32_t stage = (uint32_t)step_rows(config) * (columns * 2 + statistics);
  return config->pass == FLASH_BACKWARD_DELTA ? 0 : own + (uint32_t)config->stages * stage;
}

/* fp32 accumulators of a thread: the gradients of its warp's rows, and S and dP of a step, or these and the products.
 */
static int32_t accumulators(const kjit_flash_backward_config *config) {
  const int32_t dx = config->pass & (FLASH_BACKWARD_DQ | FLASH_BACKWARD_DK) ? config->head_dim : 0;
  const int32_t dv = config->pass & FLASH_BACKWARD_DV ? config->head_dim_v : 0;
  const int32_t scores = (config->pass == FLASH_BACKWARD_READ ? 3 : dx ? 2 : 1) * step_rows(config);
  return own_rows(config) / config->n_warps * (dx + dv + scores) / LANES;
}

/* ---- Rules ---- */

static kjit_status check_kind(const kjit_flash_backward_config *config, kjit_error *error) {
  if (config->dtype != KJIT_FP16 && config->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
  const kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  if (status != KJIT_OK) return status;
  if (config->causal != 0 && config->causal != 1) return rule_broken(error, "causal", config->causal, "0 or 1");
  return rule_check_head("head_dim_v", config->head_dim_v, error);
}

static kjit_status check_pass(const kjit_flash_backward_config *config, kjit_error *error) {
  switch (config->pass) {
  case FLASH_BACKWARD_DQ:
  case FLASH_BACKWARD_DK:
  case FLASH_BACKWARD_DV:
  case FLASH_BACKWARD_DK | FLASH_BACKWARD_DV:
  case FLASH_BACKWARD_DELTA:
  case FLASH_BACKWARD_READ:
    return KJIT_OK;
  default:
    return rule_broken(error, "pass", config->pass,
                       "1 (dq), 2 (dk), 4 (dv), 6 (dk and dv), 8 (delta alone) or 64 (what scores read)");
  }
}

static kjit_status check_edge(const char *field, int32_t rows_of_tile, int32_t step, kjit_error *error) {
  if (rows_of_tile > 0 && rows_of_tile <= MAX_EDGE && rows_of_tile % step == 0) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be a multiple of %d up to %d%s", field,
                   (int)rows_of_tile, (int)step, (int)MAX_EDGE, step == TILE ? "" : ", 16 rows for each warp");
}

static kjit_status check_tiles(const kjit_flash_backward_config *config, kjit_error *error) {
  const int32_t warps = config->n_warps;
  if (warps != 1 && warps != 2 && warps != 4 && warps != 8) return rule_broken(error, "n_warps", warps, "1, 2, 4 or 8");
  const bool keys = flash_backward_owns_keys(config);
  const kjit_status status = check_edge("tile_m", config->tile_m, keys ? TILE : TILE * warps, error);
  if (status != KJIT_OK) return status;
  if (config->stages != 1 && config->stages != 2) return rule_broken(error, "stages", config->stages, "1 or 2");
  return check_edge("tile_n", config->tile_n, keys ? TILE * warps : TILE, error);
}

static kjit_status check_accumulators(const kjit_flash_backward_config *config, kjit_error *error) {
  const int32_t needed = accumulators(config);
  if (config->pass == FLASH_BACKWARD_DELTA || needed <= MAX_ACCUMULATORS) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "n_warps is %d: with pass %d, tile_m %d, tile_n %d, head_dim %d and head_dim_v %d a thread "
                   "accumulates in %d registers; must be at most %d",
                   (int)config->n_warps, (int)config->pass, (int)config->tile_m, (int)config->tile_n,
                   (int)config->head_dim, (int)config->head_dim_v, (int)needed, (int)MAX_ACCUMULATORS);
}

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  /* The rules in the order in which they are checked; each may rely on those before it. */
  static kjit_status (*const rules[])(const kjit_flash_backward_config *,
                                      kjit_error *) = {check_kind, check_pass, check_tiles, check_accumulators};
  kjit_status status = KJIT_OK;
  (void)family;
  for (size_t i = 0; i < sizeof rules / sizeof *rules && status == KJIT_OK; i++)
    status = rules[i](flash_backward_view(values), error);
  return status;
}

static kjit_status check_place(const kjit_family *family, const int32_t *values, const struct family_place *place,
                               kjit_error *error) {
  struct target target;
  const kjit_flash_backward_config *config = flash_backward_view(values);
  const kjit_status status = target_parse(&target, place->arch, error);
  (void)family;
  if (status != KJIT_OK) return status;
  if (target.capability < MIN_CAPABILITY)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: flash_backward requires sm_80 or higher (current: %s)",
                     target.name);
  if (place->shared_per_block == 0)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: the limits of %s are not known to this version", target.name);
  if (shared_bytes(config) <= place->shared_per_block) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "tile_m is %d: with tile_n %d, stages %d, head_dim %d and head_dim_v %d a block needs %u bytes of "
                   "shared memory; must be at most %u on %s",
                   (int)config->tile_m, (int)config->tile_n, (int)config->stages, (int)config->head_dim,
                   (int)config->head_dim_v, shared_bytes(config), place->shared_per_block, target.name);
}

/* ---- The family ---- */

/* Delta alone reads rows of dO and O and makes no steps: no key, no mask, no column of q, no stage changes its code. */
static void canonicalize(const kjit_family *family, int32_t *values) {
  kjit_flash_backward_config *config = (kjit_flash_backward_config *)values;
  (void)family;
  if (config->pass != FLASH_BACKWARD_DELTA) return;
  config->head_dim = 8;
  config->causal = 0;
  config->tile_n = TILE;
  config->stages = 1;
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const kjit_flash_backward_config *config = flash_backward_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {LANES * (uint32_t)config->n_warps, 1, 1}, .shared_bytes = shared_bytes(config)};
}

const kjit_family flash_backward_family = {
    .table = {.family = "flash_backward",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(kjit_flash_backward_config)},
    .entry = "flash_backward",
    .main_file = "flash_backward/flash_backward.cu",
    .check = check,
    .check_place = check_place,
    .canonicalize = canonicalize,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
