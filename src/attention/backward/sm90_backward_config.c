/* attention_backward_sm90 as a family: field table, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/backward/sm90_backward.h"
#include "attention/rule.h"

#include <stddef.h>

#include "attention_backward_sm90/layout.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"
#include "flash_backward/params.h"

enum {
  MAX_CONSUMERS = 3,    /* with the producer 512 threads; a fourth would leave each 128 registers */
  STEP = 16,            /* wgmma's K: rows of one product of the sums */
  MAX_TILE = 256,       /* wgmma's N, and rows of a tensor map's box */
  MAX_STAGES = 4,       /* more does not fit with any tile worth having */
  SHARED_BYTES = 232448 /* of sm_90, per block after opting in: target.c */
};

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1
#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(kjit_attention_backward_sm90_config, name), NULL, 0, NULL},
enum { FIELD_COUNT = 0 KJIT_ATTENTION_BACKWARD_SM90_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= (int)BACKWARD_FIELDS_MAX, "too many fields");
_Static_assert(sizeof(kjit_attention_backward_sm90_config) == 4 * FIELD_COUNT, "a config is its fields");

static const kjit_field_info rows[FIELD_COUNT] = {KJIT_ATTENTION_BACKWARD_SM90_FIELDS(ROW)};

/* ---- Geometry ---- */

bool sm90_backward_owns_keys(const kjit_attention_backward_sm90_config *config) {
  return config->pass & (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV);
}

/* Do the consumers share their 64 keys? A thread cannot hold dk and dv of wide heads. */
static bool shares(const kjit_attention_backward_sm90_config *config) {
  return config->pass == BACKWARD_SM90_SUM && config->head_dim > 2 * BACKWARD_SM90_GROUP_ROWS;
}

bool sm90_backward_splits(const kjit_attention_backward_sm90_config *config) {
  const int32_t half = 2 * BACKWARD_SM90_GROUP_ROWS;
  return config->pass == (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV) && config->head_dim > half &&
         config->head_dim_v > half;
}

int32_t sm90_backward_own_rows(const kjit_attention_backward_sm90_config *config) {
  return BACKWARD_SM90_GROUP_ROWS * (shares(config) || sm90_backward_splits(config) ? 1 : config->consumers);
}

/* Is this one of the two kernels around the one that sums dq in global memory? They make no steps. */
static bool is_around_sums(const kjit_attention_backward_sm90_config *config) {
  return config->pass == BACKWARD_SM90_BEGIN || config->pass == BACKWARD_SM90_END;
}

static uint32_t bands(int32_t columns) {
  return (uint32_t)integer_divide_up(columns, BACKWARD_SM90_BAND_COLUMNS);
}

bool sm90_backward_carries(const kjit_attention_backward_sm90_config *config) {
  return config->pass == BACKWARD_SM90_SUM && config->persistent && config->staggered &&
         config->tile == 2 * BACKWARD_SM90_GROUP_ROWS && bands(config->head_dim) == 1 && bands(config->head_dim_v) == 1;
}

/* What summing dq takes besides: two buffers of dS, each consumer's part of dq, the next tile of keys, mbarriers. */
static uint32_t summing_bytes(const kjit_attention_backward_sm90_config *config) {
  const uint32_t consumers = (uint32_t)config->consumers, rows_of_step = (uint32_t)config->tile;
  const uint32_t columns = (uint32_t)BACKWARD_SM90_DQ_COLUMNS(config->head_dim, config->tile);
  const uint32_t ds = 2 * consumers * rows_of_step * BACKWARD_SM90_ROW_BYTES;
  const uint32_t dq = config->direct ? 0 : BACKWARD_SM90_GROUP_ROWS * columns * 4;
  const uint32_t barriers =
      2 * consumers + (config->staggered ? 2 * 2 : 0) + (config->persistent ? BACKWARD_SM90_TILE_BARRIERS : 0);
  const uint32_t keys = consumers * BACKWARD_SM90_GROUP_ROWS * BACKWARD_SM90_ROW_BYTES;
  return ds + consumers * dq + (sm90_backward_carries(config) ? keys : 0) + barriers * BACKWARD_SM90_BARRIER_BYTES;
}

/* Shared memory of a kernel that makes steps, as pipeline.cuh lays it out: own tiles, tiles of the steps, what summing
 * dq takes, statistics of queries, mbarriers. */
static uint32_t step_bytes(const kjit_attention_backward_sm90_config *config) {
  const uint32_t wide = bands(config->head_dim), value = bands(config->head_dim_v);
  const uint32_t stages = (uint32_t)config->stages, value_stages = (uint32_t)config->value_stages;
  const uint32_t rows_of_step = (uint32_t)config->tile;
  const uint32_t own = (uint32_t)sm90_backward_own_rows(config) * BACKWARD_SM90_ROW_BYTES * (wide + value);
  const uint32_t steps = rows_of_step * BACKWARD_SM90_ROW_BYTES * (stages * wide + value_stages * value);
  const uint32_t statistics = sm90_backward_owns_keys(config) ? stages * BACKWARD_SM90_QUERY_BYTES * rows_of_step : 0;
  const uint32_t barriers = BACKWARD_SM90_BARRIER_BYTES * (1 + 2 * stages + 2 * value_stages);
  const uint32_t summing = config->pass == BACKWARD_SM90_SUM ? summing_bytes(config) : 0;
  const uint32_t p = BACKWARD_SM90_GROUP_ROWS * rows_of_step * 2 + 2 * BACKWARD_SM90_BARRIER_BYTES;
  return own + steps + summing + statistics + barriers + (sm90_backward_splits(config) ? p : 0);
}

static uint32_t shared_bytes(const kjit_attention_backward_sm90_config *config) {
  if (config->pass == BACKWARD_SM90_BEGIN) return 0;
  const uint32_t rows_of_dq = BACKWARD_SM90_GROUP_ROWS * BACKWARD_SM90_ROW_BYTES * bands(config->head_dim);
  return (config->pass == BACKWARD_SM90_END ? rows_of_dq : step_bytes(config)) + BACKWARD_SM90_ALIGNMENT - 1;
}

/* Registers of a consumer thread for what it sums, for S and dP, and for the operands of the sums. Without `pipelined`
 * P's operand has been used when dS's is made; where dq is summed P's takes the place of P. */
static int32_t registers(const kjit_attention_backward_sm90_config *config) {
  if (is_around_sums(config)) return 0;
  if (shares(config)) return 3 * 64 + config->tile / 4; /* half of dk, dv and dq, the next S of half of the queries */
  if (sm90_backward_splits(config))                     /* one of both sums, S or dP, P and an operand */
    return (config->head_dim > config->head_dim_v ? config->head_dim : config->head_dim_v) / 2 + config->tile * 5 / 4;
  const int32_t dx = config->pass & (FLASH_BACKWARD_DQ | FLASH_BACKWARD_DK) ? config->head_dim / 2 : 0;
  const int32_t dv = config->pass & FLASH_BACKWARD_DV ? config->head_dim_v / 2 : 0;
  const int32_t scores = (dx ? 2 : 1) * config->tile / 2;
  if (config->pass == BACKWARD_SM90_SUM) return dx + dv + scores + (config->tile == BACKWARD_SM90_GROUP_ROWS ? 16 : 0);
  const int32_t operands = (config->pipelined && dx && dv ? 2 : 1) * config->tile / 4;
  return dx + dv + scores + operands;
}

/* Of the 256, 240 or 160 that setmaxnreg gives a consumer thread; the rest is for addresses, statistics, and for what
 * the compiler needs. Above these bounds ptxas spills; what the planner chooses is compiled by tests. */
static int32_t most_registers(int32_t consumers) {
  static const int32_t most[MAX_CONSUMERS] = {224, 208, 128};
  return most[consumers - 1];
}

bool sm90_backward_fits(const kjit_attention_backward_sm90_config *config) {
  return registers(config) <= most_registers(config->consumers) && shared_bytes(config) <= SHARED_BYTES;
}

/* ---- Rules ---- */

static kjit_status check_kind(const kjit_attention_backward_sm90_config *config, kjit_error *error) {
  if (config->dtype != KJIT_FP16 && config->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
  const kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  if (status != KJIT_OK) return status;
  if (!rule_is_between(config->causal, 0, 1)) return rule_broken(error, "causal", config->causal, "0 or 1");
  return rule_check_head("head_dim_v", config->head_dim_v, error);
}

static kjit_status check_counts(const kjit_attention_backward_sm90_config *config, kjit_error *error) {
  const int32_t pass = config->pass;
  if (pass != 1 && pass != 2 && pass != 4 && pass != 6 && pass != BACKWARD_SM90_SUM && !is_around_sums(config))
    return rule_broken(error, "pass", pass,
                       "1 (dq), 2 (dk), 4 (dv), 6 (dk and dv), 7 (dk, dv, and dq in sums), 8 (delta, and sums of zero) "
                       "or 16 (dq from sums)");
  if (!rule_is_between(config->consumers, 1, MAX_CONSUMERS))
    return rule_broken(error, "consumers", config->consumers, "1 to 3");
  if (sm90_backward_splits(config) && config->consumers != 2)
    return rule_broken(error, "consumers", config->consumers, "2 with pass 6 and both head sizes above 128");
  if (!rule_is_between(config->tile, STEP, MAX_TILE) || config->tile % STEP != 0)
    return rule_broken(error, "tile", config->tile, "a multiple of 16 from 16 to 256");
  if (!rule_is_between(config->pipelined, sm90_backward_splits(config) ? 1 : 0, 1))
    return rule_broken(error, "pipelined", config->pipelined, "0 or 1; 1 with pass 6 and both head sizes above 128");
  if (!rule_is_between(config->stages, config->pipelined ? 2 : 1, MAX_STAGES))
    return rule_broken(error, "stages", config->stages, "1 to 4, from 2 with pipelined");
  const bool keeps_value = config->pipelined && pass & FLASH_BACKWARD_DV && pass != BACKWARD_SM90_SUM;
  if (rule_is_between(config->value_stages, keeps_value ? 2 : 1, MAX_STAGES)) return KJIT_OK;
  return rule_broken(error, "value_stages", config->value_stages, "1 to 4, from 2 with pipelined and dv");
}

/* How queries and columns of dq are shared by two consumers: config.cuh. */
static kjit_status check_sums(const kjit_attention_backward_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->direct, 0, 1)) return rule_broken(error, "direct", config->direct, "0 or 1");
  if (!rule_is_between(config->staggered, 0, 1)) return rule_broken(error, "staggered", config->staggered, "0 or 1");
  if (!rule_is_between(config->persistent, 0, 1)) return rule_broken(error, "persistent", config->persistent, "0 or 1");
  if (!rule_is_between(config->stores, 0, 1)) return rule_broken(error, "stores", config->stores, "0 or 1");
  const int32_t half = BACKWARD_SM90_GROUP_ROWS, whole = 2 * half, head_dim = config->head_dim;
  if (config->pass != BACKWARD_SM90_SUM && !is_around_sums(config)) return KJIT_OK;
  if (config->pass == BACKWARD_SM90_SUM && config->consumers != 2)
    return rule_broken(error, "consumers", config->consumers, "2 with pass 7");
  if (config->tile != half && config->tile != whole)
    return rule_broken(error, "tile", config->tile, "64 or 128 with pass 7, 8 and 16");
  if (config->tile == whole && head_dim > whole)
    return rule_broken(error, "tile", config->tile, "64 with pass 7, 8 and 16 and head_dim above 128");
  if (config->tile == half && head_dim != 64 && (head_dim < half || (head_dim > whole && head_dim <= 192)))
    return rule_broken(error, "head_dim", head_dim, "64 to 128 or above 192 with pass 7, 8 and 16 and tile 64");
  if (config->stores && config->pass == BACKWARD_SM90_SUM && config->direct)
    return rule_broken(error, "stores", 1, "0 with direct");
  if (config->persistent && config->pass == BACKWARD_SM90_SUM &&
      (config->direct || shares(config) || config->head_dim_v > whole || (config->tile == half && head_dim <= half)))
    return rule_broken(error, "persistent", 1, "0 with direct, with tile 64 and head_dim up to 64, and above 128");
  if (!shares(config)) return KJIT_OK;
  if (config->head_dim_v <= 192)
    return rule_broken(error, "head_dim_v", config->head_dim_v, "above 192 with pass 7 and head_dim above 192");
  return config->direct ? KJIT_OK : rule_broken(error, "direct", 0, "1 with pass 7 and head_dim above 192");
}

static kjit_status check_room(const kjit_attention_backward_sm90_config *config, kjit_error *error) {
  const int32_t needed = registers(config), most = most_registers(config->consumers);
  if (needed > most)
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "tile is %d: with pass %d, head_dim %d, head_dim_v %d and pipelined %d a thread needs %d "
                     "registers; must be at most %d with consumers %d",
                     (int)config->tile, (int)config->pass, (int)config->head_dim, (int)config->head_dim_v,
                     (int)config->pipelined, (int)needed, (int)most, (int)config->consumers);
  if (shared_bytes(config) <= SHARED_BYTES) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "tile is %d: with head_dim %d, head_dim_v %d, consumers %d, stages %d and value_stages %d a block "
                   "needs %u bytes of shared memory; must be at most %d",
                   (int)config->tile, (int)config->head_dim, (int)config->head_dim_v, (int)config->consumers,
                   (int)config->stages, (int)config->value_stages, shared_bytes(config), (int)SHARED_BYTES);
}

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  const kjit_attention_backward_sm90_config *config = sm90_backward_view(values);
  kjit_status status = check_kind(config, error);
  (void)family;
  if (status == KJIT_OK) status = check_counts(config, error);
  if (status == KJIT_OK) status = check_sums(config, error);
  return status == KJIT_OK ? check_room(config, error) : status;
}

/* ---- The family ---- */

/* The kernels around the sums have neither mask nor steps; `tile` says how the sums lie. */
static void canonicalize(const kjit_family *family, int32_t *values) {
  kjit_attention_backward_sm90_config *config = (kjit_attention_backward_sm90_config *)values;
  (void)family;
  if (config->pass != BACKWARD_SM90_SUM) config->direct = 0;
  if (config->pass != BACKWARD_SM90_SUM || shares(config)) config->staggered = 0;
  if (config->pass != BACKWARD_SM90_SUM) config->persistent = 0;
  if (config->pass != BACKWARD_SM90_SUM && config->pass != BACKWARD_SM90_BEGIN) config->stores = 0;
  if (!is_around_sums(config)) return;
  config->causal = config->pipelined = config->direct = 0;
  config->consumers = config->stages = config->value_stages = 1;
  if (config->pass == BACKWARD_SM90_END) config->head_dim_v = 8;
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const kjit_attention_backward_sm90_config *config = sm90_backward_view(values);
  const uint32_t groups = is_around_sums(config) ? 1 : (uint32_t)config->consumers + 1;
  (void)family;
  *out = (kjit_geometry){.threads = {BACKWARD_SM90_GROUP_THREADS * groups, 1, 1}, .shared_bytes = shared_bytes(config)};
}

const kjit_family sm90_backward_family = {
    .table = {.family = "attention_backward_sm90",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(kjit_attention_backward_sm90_config)},
    .entry = "attention_backward_sm90",
    .main_file = "attention_backward_sm90/attention_backward_sm90.cu",
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .canonicalize = canonicalize,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
