/* attention_decode_sm90 as a family: field table, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/decode/decode_config.h"

#include "attention/rule.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"

enum {
  KEY_STEP = 16,            /* wgmma's K: keys of one product with V */
  MAX_KEYS = 256,           /* wgmma's N, and rows of a tensor map's box */
  ROW_STEP = 16,            /* rows of a warp's accumulators */
  MIN_STAGES = 2,           /* a block is loaded while another is used */
  MAX_STAGES = 16,          /* more does not fit with any block worth having */
  MAX_BLOCKS_PER_SM = 4,    /* with more a thread has fewer than 128 registers */
  SHARED_BYTES = 232448,    /* of sm_90, per block after opting in: target.c */
  SHARED_BYTES_SM = 233472, /* of an SM of sm_90, all blocks together                 */
  SYSTEM_BYTES = 1024       /* that the driver takes of each block's               */
};

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1

#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(kjit_attention_decode_sm90_config, name), NULL, 0, NULL},

enum { FIELD_COUNT = 0 KJIT_ATTENTION_DECODE_SM90_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_attention_decode_sm90_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {KJIT_ATTENTION_DECODE_SM90_FIELDS(ROW)};

/* ---- Geometry ---- */

static uint32_t bands(int32_t columns) {
  return (uint32_t)integer_divide_up(columns, DECODE_BAND_COLUMNS);
}

/* Shared memory as shared.cuh lays it out: K and V, Q where it is not in registers, the scratch for merging, mbarriers,
 * and one word. */
uint32_t decode_shared_bytes(const kjit_attention_decode_sm90_config *config) {
  const uint32_t stages = (uint32_t)config->stages;
  const uint32_t kv =
      (uint32_t)config->tile_n * DECODE_ROW_BYTES * (bands(config->head_dim) + bands(config->head_dim_v));
  const uint32_t q =
      config->head_dim <= DECODE_REGISTER_HEAD_DIM ? 0 : DECODE_M * DECODE_ROW_BYTES * bands(config->head_dim);
  const uint32_t scratch = 4 * DECODE_SCRATCH_FLOATS * DECODE_THREADS;
  return stages * kv + q + scratch + DECODE_BARRIER_BYTES * (4 * stages + 1) + DECODE_ALIGNMENT - 1;
}

uint32_t decode_registers(const kjit_attention_decode_sm90_config *config) {
  const uint32_t keys = (uint32_t)config->tile_n, columns = (uint32_t)config->head_dim;
  const uint32_t q = config->head_dim <= DECODE_REGISTER_HEAD_DIM ? (columns + 15) / 16 * 4 : 0;
  return q + (uint32_t)config->head_dim_v / 2 + keys / 2 + keys / 4;
}

/* ---- Rules ---- */

static kjit_status check_problem_fields(const kjit_attention_decode_sm90_config *config, kjit_error *error) {
  if (config->dtype != KJIT_FP16 && config->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
  if (config->causal != 0 && config->causal != 1) return rule_broken(error, "causal", config->causal, "0 or 1");
  const kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  return status == KJIT_OK ? rule_check_head("head_dim_v", config->head_dim_v, error) : status;
}

static kjit_status check_counts(const kjit_attention_decode_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->rows, ROW_STEP, DECODE_M) || config->rows % ROW_STEP != 0)
    return rule_broken(error, "rows", config->rows, "a multiple of 16 from 16 to 64");
  if (!rule_is_between(config->tile_n, KEY_STEP, MAX_KEYS) || config->tile_n % KEY_STEP != 0)
    return rule_broken(error, "tile_n", config->tile_n, "a multiple of 16 from 16 to 256");
  if (!rule_is_between(config->stages, MIN_STAGES, MAX_STAGES))
    return rule_broken(error, "stages", config->stages, "2 to 16");
  if (rule_is_between(config->blocks_per_sm, 1, MAX_BLOCKS_PER_SM)) return KJIT_OK;
  return rule_broken(error, "blocks_per_sm", config->blocks_per_sm, "1 to 4");
}

/* The registers that Q, S, P and O may take of the 255, 255, 168 or 128 that a thread has with 1 to 4 blocks on an SM.
 * The rest is for addresses, row maxima and sums, and for what the compiler needs. Above these bounds ptxas spills. */
static int32_t most_registers(int32_t blocks_per_sm) {
  static const int32_t most[MAX_BLOCKS_PER_SM] = {208, 208, 128, 96};
  return most[blocks_per_sm - 1];
}

/* The shared memory that a block may have beside the others of its SM. */
static uint32_t most_shared(int32_t blocks_per_sm) {
  return blocks_per_sm == 1 ? SHARED_BYTES : SHARED_BYTES_SM / (uint32_t)blocks_per_sm - SYSTEM_BYTES;
}

bool decode_fits(const kjit_attention_decode_sm90_config *config) {
  return (int32_t)decode_registers(config) <= most_registers(config->blocks_per_sm) &&
         decode_shared_bytes(config) <= most_shared(config->blocks_per_sm);
}

static kjit_status check_tile(const kjit_attention_decode_sm90_config *config, kjit_error *error) {
  const int32_t registers = (int32_t)decode_registers(config), most = most_registers(config->blocks_per_sm);
  const uint32_t shared = decode_shared_bytes(config);
  if (registers > most)
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "tile_n is %d: with head_dim %d and head_dim_v %d a thread needs %d registers for Q, S, P and O; "
                     "must be at most %d with blocks_per_sm %d",
                     (int)config->tile_n, (int)config->head_dim, (int)config->head_dim_v, (int)registers, (int)most,
                     (int)config->blocks_per_sm);
  if (shared > most_shared(config->blocks_per_sm))
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "tile_n is %d: with head_dim %d, head_dim_v %d and stages %d a block needs %u bytes of shared "
                     "memory; must be at most %u with blocks_per_sm %d",
                     (int)config->tile_n, (int)config->head_dim, (int)config->head_dim_v, (int)config->stages, shared,
                     most_shared(config->blocks_per_sm), (int)config->blocks_per_sm);
  return KJIT_OK;
}

kjit_status decode_check(const kjit_attention_decode_sm90_config *config, kjit_error *error) {
  kjit_status status = check_problem_fields(config, error);
  if (status == KJIT_OK) status = check_counts(config, error);
  return status == KJIT_OK ? check_tile(config, error) : status;
}

/* ---- The family ---- */

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family;
  return decode_check(decode_config_view(values), error);
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const kjit_attention_decode_sm90_config *config = decode_config_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {DECODE_THREADS, 1, 1}, .shared_bytes = decode_shared_bytes(config)};
}

const kjit_family decode_family = {
    .table = {.family = "attention_decode_sm90",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(kjit_attention_decode_sm90_config)},
    .entry = "attention_decode_sm90",
    .main_file = "attention_decode_sm90/attention_decode_sm90.cu",
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
