/* attention_short_sm90 as a family: field table, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/short/short_config.h"

#include "attention/rule.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"

enum {
  KEY_STEP = 16,            /* wgmma's K: keys of one product with V */
  MAX_KEYS = 256,           /* wgmma's N, and rows of a tensor map's box */
  MAX_CONSUMERS = 4,        /* with more a thread has fewer than 96 registers */
  MAX_BUFFERS = 8,          /* more loads under way gain nothing */
  MAX_BLOCKS_PER_SM = 4,    /* as with consumers */
  SHARED_BYTES = 232448,    /* of sm_90, per block after opting in: target.c */
  SHARED_BYTES_SM = 233472, /* of an SM of sm_90, all blocks together */
  SYSTEM_BYTES = 1024,      /* that the driver takes of each block's */
  MOST_V_OF_FOUR = 192,     /* columns: ptxas refuses a wider product where threads begin with 128 registers */
  OTHER_REGISTERS = 30      /* for addresses, row maxima and sums, and for what the compiler needs */
};

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1

#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(kjit_attention_short_sm90_config, name), NULL, 0, NULL},

enum { FIELD_COUNT = 0 KJIT_ATTENTION_SHORT_SM90_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_attention_short_sm90_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {KJIT_ATTENTION_SHORT_SM90_FIELDS(ROW)};

/* ---- Geometry ---- */

static uint32_t bands(int32_t columns) {
  return (uint32_t)integer_divide_up(columns, SHORT_BAND_COLUMNS);
}

/* Three consumers get registers of the producer's by setmaxnreg, which takes a whole warpgroup. */
static uint32_t producer_threads(const kjit_attention_short_sm90_config *config) {
  return config->consumers == SHORT_CONSUMERS_WITH_GROUP ? SHORT_GROUP_THREADS : SHORT_PRODUCER_THREADS;
}

uint32_t short_threads(const kjit_attention_short_sm90_config *config) {
  return SHORT_GROUP_THREADS * (uint32_t)config->consumers + producer_threads(config);
}

/* Shared memory as shared.cuh lays it out: the consumers' rings of Q, K and V, and mbarriers. */
uint32_t short_shared_bytes(const kjit_attention_short_sm90_config *config) {
  const uint32_t qk = bands(config->head_dim), v = bands(config->head_dim_v);
  const uint32_t queries = (uint32_t)config->consumers * (uint32_t)config->q_buffers;
  const uint32_t stages = (uint32_t)config->stages, keys = (uint32_t)config->tile_n;
  return queries * SHORT_ROWS * SHORT_ROW_BYTES * (qk > v ? qk : v) + stages * keys * SHORT_ROW_BYTES * (qk + v) +
         SHORT_BARRIER_BYTES * (2 * queries + 3 * stages) + SHORT_ALIGNMENT - 1;
}

uint32_t short_registers(const kjit_attention_short_sm90_config *config) {
  const uint32_t keys = (uint32_t)config->tile_n;
  const uint32_t scores = keys / 2, products = keys / 4 + (uint32_t)config->head_dim_v / 2;
  return (scores > products ? scores : products) + OTHER_REGISTERS;
}

/* ---- Rules ---- */

static kjit_status check_problem_fields(const kjit_attention_short_sm90_config *config, kjit_error *error) {
  if (config->dtype != KJIT_FP16 && config->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
  if (config->causal != 0 && config->causal != 1) return rule_broken(error, "causal", config->causal, "0 or 1");
  const kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  return status == KJIT_OK ? rule_check_head("head_dim_v", config->head_dim_v, error) : status;
}

static kjit_status check_counts(const kjit_attention_short_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->tile_n, KEY_STEP, MAX_KEYS) || config->tile_n % KEY_STEP != 0)
    return rule_broken(error, "tile_n", config->tile_n, "a multiple of 16 from 16 to 256");
  if (!rule_is_between(config->consumers, 1, MAX_CONSUMERS))
    return rule_broken(error, "consumers", config->consumers, "1 to 4");
  if (!rule_is_between(config->stages, 1, MAX_BUFFERS)) return rule_broken(error, "stages", config->stages, "1 to 8");
  if (!rule_is_between(config->q_buffers, 1, MAX_BUFFERS))
    return rule_broken(error, "q_buffers", config->q_buffers, "1 to 8");
  if (rule_is_between(config->blocks_per_sm, 1, MAX_BLOCKS_PER_SM)) return KJIT_OK;
  return rule_broken(error, "blocks_per_sm", config->blocks_per_sm, "1 to 4");
}

/* The registers of a consumer thread. A quarter of an SM has 512 for each lane, which its warps share in steps of 8; a
 * block's last warp, the producer, is one more on one quarter. */
static uint32_t most_registers(const kjit_attention_short_sm90_config *config) {
  const uint32_t blocks = (uint32_t)config->blocks_per_sm;
  if (config->consumers == SHORT_CONSUMERS_WITH_GROUP) return blocks == 1 ? SHORT_CONSUMER_REGISTERS : 0;
  const uint32_t warps = (uint32_t)integer_divide_up(short_threads(config) / 32 * blocks, 4), each = 512 / warps;
  return each >= 256 ? 255 : each / 8 * 8;
}

/* The shared memory that a block may have beside the others of its SM. */
static uint32_t most_shared(int32_t blocks_per_sm) {
  return blocks_per_sm == 1 ? SHARED_BYTES : SHARED_BYTES_SM / (uint32_t)blocks_per_sm - SYSTEM_BYTES;
}

/* Three consumers and their producer are four warpgroups, which begin with 128 registers a thread; setmaxnreg, which
 * changes that, comes too late for ptxas. */
static bool is_too_wide(const kjit_attention_short_sm90_config *config) {
  return config->consumers == SHORT_CONSUMERS_WITH_GROUP && config->head_dim_v > MOST_V_OF_FOUR;
}

bool short_fits(const kjit_attention_short_sm90_config *config) {
  return !is_too_wide(config) && short_registers(config) <= most_registers(config) &&
         short_shared_bytes(config) <= most_shared(config->blocks_per_sm);
}

static kjit_status check_tile(const kjit_attention_short_sm90_config *config, kjit_error *error) {
  const uint32_t registers = short_registers(config), shared = short_shared_bytes(config);
  if (is_too_wide(config))
    return error_set(error, KJIT_ERR_INVALID_CONFIG, "head_dim_v is %d: must be at most %d with consumers %d",
                     (int)config->head_dim_v, MOST_V_OF_FOUR, (int)config->consumers);
  if (registers > most_registers(config))
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "tile_n is %d: with head_dim_v %d a thread needs %u registers; must be at most %u with consumers "
                     "%d and blocks_per_sm %d",
                     (int)config->tile_n, (int)config->head_dim_v, registers, most_registers(config),
                     (int)config->consumers, (int)config->blocks_per_sm);
  if (shared > most_shared(config->blocks_per_sm))
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "tile_n is %d: with head_dim %d, head_dim_v %d, consumers %d, stages %d and q_buffers %d a block "
                     "needs %u bytes of shared memory; must be at most %u with blocks_per_sm %d",
                     (int)config->tile_n, (int)config->head_dim, (int)config->head_dim_v, (int)config->consumers,
                     (int)config->stages, (int)config->q_buffers, shared, most_shared(config->blocks_per_sm),
                     (int)config->blocks_per_sm);
  return KJIT_OK;
}

kjit_status short_check(const kjit_attention_short_sm90_config *config, kjit_error *error) {
  kjit_status status = check_problem_fields(config, error);
  if (status == KJIT_OK) status = check_counts(config, error);
  return status == KJIT_OK ? check_tile(config, error) : status;
}

/* ---- The family ---- */

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family;
  return short_check(short_config_view(values), error);
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const kjit_attention_short_sm90_config *config = short_config_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {short_threads(config), 1, 1}, .shared_bytes = short_shared_bytes(config)};
}

const kjit_family short_family = {
    .table = {.family = "attention_short_sm90",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(kjit_attention_short_sm90_config)},
    .entry = "attention_short_sm90",
    .main_file = "attention_short_sm90/attention_short_sm90.cu",
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
