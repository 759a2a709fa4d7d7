/* attention_serving_sm90 as a family: field table, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/serving_sm90/serving_sm90_config.h"

#include "attention/rule.h"
#include "attention/serving/serving_family.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"

enum {
  ROW_STEP = 16,            /* rows of a warp's accumulators */
  LEAST_BOX = 8,            /* rows of the smallest box */
  MAX_KEYS = 128,           /* a lane looks up the page of each box */
  MIN_ONE_PART_KEYS = 64,   /* blocks of keys are counted up to 2^20 */
  MAX_ONE_PART_HEAD = 128,  /* Q is held in registers */
  MAX_ONE_PART_ROWS = 128,  /* of two warpgroups */
  MAX_OWN_QUERY = 128,      /* columns of Q that a thread has registers for, with a narrow cache */
  BOXES = 32,               /* looked up together: a lane of a warp has each */
  MIN_STAGES = 2,           /* a block is loaded while another is used */
  MIN_GATHERED_STAGES = 3,  /* without runs: Q that is rotated lies in all but the first (config.cuh) */
  MAX_STAGES = 16,          /* more does not fit with any block worth having */
  MAX_BLOCKS_PER_SM = 2,    /* a tile's counters are as many as SERVING_MOST_BLOCKS_PER_SM makes room for */
  SHARED_BYTES_SM = 233472, /* of an SM of sm_90, all blocks together */
  SYSTEM_BYTES = 1024       /* that the driver takes of each block's */
};

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1

#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(struct serving_sm90_config, name), NULL, 0, NULL},

enum { FIELD_COUNT = 0 SERVING_SM90_FIELDS(COUNT) };

_Static_assert(MAX_BLOCKS_PER_SM *SERVING_SM90_MERGE_COUNTERS <= SERVING_MOST_BLOCKS_PER_SM,
               "counters have their place");
_Static_assert(FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(struct serving_sm90_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {SERVING_SM90_FIELDS(ROW)};

/* ---- Geometry ---- */

bool serving_sm90_is_narrow(const struct serving_sm90_config *config) {
  return config->cache == KJIT_FP8_E4M3;
}

/* Bands of 128 bytes. */
static uint32_t bands(int32_t columns, uint32_t element_bytes) {
  return (uint32_t)integer_divide_up(columns * (int32_t)element_bytes, SERVING_SM90_ROW_BYTES);
}

/* A warp beside the workers loads. */
static bool has_loader(const struct serving_sm90_config *config) {
  return !config->one_part || serving_sm90_is_narrow(config);
}

/* A second warpgroup loads (one_part.cuh). */
static bool loads_apart(const struct serving_sm90_config *config) {
  return (config->runs || config->gathered || config->apart) && !serving_sm90_is_narrow(config) &&
         config->rows == SERVING_SM90_M;
}

/* Of a block. */
static uint32_t threads_of(const struct serving_sm90_config *config) {
  return has_loader(config) ? SERVING_SM90_THREADS
                            : SERVING_SM90_ONE_PART_THREADS((uint32_t)config->rows, loads_apart(config));
}

bool serving_sm90_appends(const struct serving_sm90_config *config) {
  return config->one_part && !config->runs && !config->apart && !serving_sm90_is_narrow(config) &&
         config->rows == SERVING_SM90_M;
}

/* With a narrow cache and large heads Q lies in shared memory, as config.cuh has it. */
static bool shares_query(const struct serving_sm90_config *config) {
  return serving_sm90_is_narrow(config) && config->head_dim > MAX_OWN_QUERY;
}

static uint32_t shared_query_bytes(const struct serving_sm90_config *config) {
  if (!shares_query(config)) return 0;
  return (uint32_t)config->rows * SERVING_SM90_ROW_BYTES * (uint32_t)integer_divide_up(config->head_dim, 64);
}

/* Memory of the workers for one tile, as config.cuh has it: Q, or what merging takes in its place; with one_part and 64
 * rows only the latter, and without runs behind it Q where that is rotated, unless a warpgroup loads, and new keys;
 * with a narrow cache each warp's O and, behind these, maxima and sums, and Q of large heads. */
static uint32_t work_bytes(const struct serving_sm90_config *config) {
  const uint32_t workers =
      config->one_part ? SERVING_SM90_ONE_PART_WORKERS((uint32_t)config->rows) : SERVING_SM90_WORKERS;
  const uint32_t merge = SERVING_SM90_SCRATCH_BYTES * workers + 16;
  const uint32_t of_band = (uint32_t)config->rows, of_last = of_band > SERVING_SM90_M ? of_band : SERVING_SM90_M;
  const uint32_t q = ((bands(config->head_dim, 2) - 1) * of_band + of_last) * SERVING_SM90_ROW_BYTES;
  if (serving_sm90_appends(config)) {
    const uint32_t kept = (uint32_t)(config->head_dim + config->head_dim_v) * 2;
    const uint32_t turned = SERVING_SM90_M * ((uint32_t)config->head_dim * 2 + 16);
    return merge + (loads_apart(config) ? 0 : turned) + SERVING_FEW_NEW_KEYS * kept;
  }
  if (serving_sm90_is_narrow(config))
    return SERVING_SM90_M * ((uint32_t)config->head_dim_v + 8) * 4 + SERVING_SM90_M * 8 + shared_query_bytes(config);
  if (loads_apart(config)) return merge;
  return q > merge ? q : merge;
}

uint32_t serving_sm90_row_bytes(const struct serving_sm90_config *config, int32_t columns) {
  return SERVING_SM90_CACHE_ROW_BYTES(columns, serving_sm90_is_narrow(config));
}

/* Shared memory as shared.cuh lays it out. */
uint32_t serving_sm90_shared_bytes(const struct serving_sm90_config *config) {
  const uint32_t stages = (uint32_t)config->stages;
  const uint32_t element_bytes = serving_sm90_is_narrow(config) ? 1 : 2;
  const uint32_t kv = (uint32_t)config->keys *
                      (serving_sm90_row_bytes(config, config->head_dim) * bands(config->head_dim, element_bytes) +
                       serving_sm90_row_bytes(config, config->head_dim_v) * bands(config->head_dim_v, element_bytes));
  return stages * kv + work_bytes(config) + SERVING_SM90_JOB_SLOTS * SERVING_SM90_JOB_BYTES +
         SERVING_SM90_BARRIER_BYTES * (4 * stages + 2 * SERVING_SM90_JOBS) + SERVING_SM90_ALIGNMENT - 1;
}

uint32_t serving_sm90_registers(const struct serving_sm90_config *config) {
  if (serving_sm90_is_narrow(config)) {
    const int32_t key_warps = SERVING_SM90_WORKERS / 32 / (config->rows / ROW_STEP);
    const int32_t q = shares_query(config) ? 0 : (int32_t)integer_divide_up(config->head_dim, 64) * 16;
    return (uint32_t)(q + config->head_dim_v / 2 + config->keys / key_warps / 2);
  }
  const bool holds_query = config->one_part && config->rows <= SERVING_SM90_M;
  const int32_t q = holds_query ? (config->head_dim + 15) / 16 * 4 : 0;
  return (uint32_t)(config->head_dim_v / 2 + config->keys / 2 + config->keys / 4 + q);
}

size_t serving_sm90_partial_bytes(const struct serving_sm90_config *config) {
  return (size_t)config->rows * (size_t)(config->head_dim_v + 2) * sizeof(float);
}

/* ---- Rules ---- */

/* The registers that S, P and O, and Q with one_part and 64 rows, may take of the 255 or 168 that a thread has with 1
 * or 2 blocks on an SM. With one_part it has 255 with 2 blocks too, because a block has no further warp that loads;
 * with rows 128 232, and with rows 64 and runs or gathered 200, because that warp's warpgroup leaves its registers to
 * the others. A narrow cache with one_part has that warp, but its threads walk along no tiles. The rest is for
 * addresses, the walk along the tiles, row maxima and sums, and for what the compiler needs. */
static int32_t most_registers(const struct serving_sm90_config *config) {
  static const int32_t most[MAX_BLOCKS_PER_SM] = {208, 120}, of_one_part = 208, of_narrow_one_part[] = {208, 128};
  if (!config->one_part) return most[config->blocks_per_sm - 1];
  return serving_sm90_is_narrow(config) ? of_narrow_one_part[config->blocks_per_sm - 1] : of_one_part;
}

/* The shared memory that a block may have beside the others of its SM. */
static uint32_t most_shared(int32_t blocks_per_sm) {
  return blocks_per_sm == 1 ? SERVING_SM90_SHARED_BYTES : SHARED_BYTES_SM / (uint32_t)blocks_per_sm - SYSTEM_BYTES;
}

bool serving_sm90_fits(const struct serving_sm90_config *config) {
  return (int32_t)serving_sm90_registers(config) <= most_registers(config) &&
         serving_sm90_shared_bytes(config) <= most_shared(config->blocks_per_sm);
}

/* With a narrow cache each warp along the keys has 16 of them or a multiple, and TMA boxes whole chunks. */
static kjit_status check_narrow(const struct serving_sm90_config *config, kjit_error *error) {
  const int32_t warps = SERVING_SM90_WORKERS / 32 / (config->rows / ROW_STEP);
  if (!serving_sm90_is_narrow(config)) return KJIT_OK;
  if (config->head_dim % 16 != 0)
    return rule_broken(error, "head_dim", config->head_dim, "a multiple of 16 with cache FP8_E4M3");
  if (config->head_dim_v % 16 != 0)
    return rule_broken(error, "head_dim_v", config->head_dim_v, "a multiple of 16 with cache FP8_E4M3");
  if (config->keys % (warps * ROW_STEP) == 0) return KJIT_OK;
  return rule_broken(error, "keys", config->keys, "a multiple of 1024 / rows with cache FP8_E4M3");
}

/* Of the bands that a box has. */
static bool has_whole_bands(const struct serving_sm90_config *config) {
  return config->head_dim % SERVING_SM90_BAND_COLUMNS == 0 && config->head_dim_v % SERVING_SM90_BAND_COLUMNS == 0;
}

static kjit_status check_grouped(const struct serving_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->grouped, 0, 1)) return rule_broken(error, "grouped", config->grouped, "0 or 1");
  if (config->grouped && (!loads_apart(config) || config->gathered || config->apart || !has_whole_bands(config)))
    return rule_broken(error, "grouped", config->grouped,
                       "0 without runs, with gathered 1, with rows 128, with cache FP8_E4M3 and with heads of other "
                       "than 64 or 128 columns");
  return KJIT_OK;
}

static kjit_status check_apart(const struct serving_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->apart, 0, 1)) return rule_broken(error, "apart", config->apart, "0 or 1");
  if (config->apart && (!config->one_part || !loads_apart(config) || config->runs || config->gathered))
    return rule_broken(error, "apart", config->apart,
                       "0 without one_part, with runs 1, with gathered 1, with rows 128 and with cache FP8_E4M3");
  return KJIT_OK;
}

/* Lanes hold the places of all stages, or with gathered of at least one block of keys. */
static kjit_status check_places(const struct serving_sm90_config *config, kjit_error *error) {
  const int32_t least_box = config->rows > SERVING_SM90_M ? ROW_STEP : LEAST_BOX;
  if (!config->gathered && config->stages * (config->keys / least_box) > BOXES)
    return rule_broken(error, "stages", config->stages, "at most 256 / keys with one_part 1, with rows 128 512 / keys");
  if (config->gathered && !config->runs && config->stages < MIN_GATHERED_STAGES)
    return rule_broken(error, "stages", config->stages, "at least 3 with gathered 1 and runs 0");
  return KJIT_OK;
}

static kjit_status check_one_part(const struct serving_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->one_part, 0, 1)) return rule_broken(error, "one_part", config->one_part, "0 or 1");
  if (!rule_is_between(config->gathered, 0, 1)) return rule_broken(error, "gathered", config->gathered, "0 or 1");
  if (!rule_is_between(config->runs, 0, 1)) return rule_broken(error, "runs", config->runs, "0 or 1");
  if (!config->one_part && config->gathered)
    return rule_broken(error, "gathered", config->gathered, "0 with one_part 0");
  if (config->runs && !config->one_part) return rule_broken(error, "runs", config->runs, "0 with one_part 0");
  if (!config->one_part) return KJIT_OK;
  if (config->softcap) return rule_broken(error, "softcap", config->softcap, "0 with one_part 1");
  const bool is_narrow = serving_sm90_is_narrow(config);
  if (is_narrow && !config->runs)
    return rule_broken(error, "runs", config->runs, "1 with one_part 1 and cache FP8_E4M3");
  if (config->head_dim > MAX_ONE_PART_HEAD && !is_narrow)
    return rule_broken(error, "head_dim", config->head_dim, "at most 128 with one_part 1");
  if (config->rows < SERVING_SM90_M && !is_narrow)
    return rule_broken(error, "rows", config->rows, "64 or 128 with one_part 1");
  if (config->rows > SERVING_SM90_M && config->blocks_per_sm > 1)
    return rule_broken(error, "blocks_per_sm", config->blocks_per_sm, "1 with rows 128");
  if ((config->rows > SERVING_SM90_M || is_narrow) && config->gathered)
    return rule_broken(error, "gathered", config->gathered, "0 with rows 128");
  if (config->keys < MIN_ONE_PART_KEYS) return rule_broken(error, "keys", config->keys, "64 or 128 with one_part 1");
  return check_places(config, error);
}

static kjit_status check_tile(const struct serving_sm90_config *config, kjit_error *error) {
  const int32_t most_rows = config->one_part && !serving_sm90_is_narrow(config) ? MAX_ONE_PART_ROWS : SERVING_SM90_M;
  if (!rule_is_between(config->rows, ROW_STEP, most_rows) || !rule_is_power_of_two(config->rows))
    return rule_broken(error, "rows", config->rows, "16, 32 or 64, with one_part 64 or 128");
  if (!rule_is_between(config->keys, ROW_STEP, MAX_KEYS) || !rule_is_power_of_two(config->keys))
    return rule_broken(error, "keys", config->keys, "16, 32, 64 or 128");
  if (!rule_is_between(config->stages, MIN_STAGES, MAX_STAGES))
    return rule_broken(error, "stages", config->stages, "2 to 16");
  if (!rule_is_between(config->blocks_per_sm, 1, MAX_BLOCKS_PER_SM))
    return rule_broken(error, "blocks_per_sm", config->blocks_per_sm, "1 or 2");
  if (serving_sm90_fits(config)) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "keys is %d: a thread needs %u registers for S, P, O and Q and a block %u bytes of shared memory; "
                   "must be at most %d and %u with blocks_per_sm %d",
                   (int)config->keys, serving_sm90_registers(config), serving_sm90_shared_bytes(config),
                   (int)most_registers(config), most_shared(config->blocks_per_sm), (int)config->blocks_per_sm);
}

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  const struct serving_sm90_config *config = serving_sm90_view(values);
  (void)family;
  if (config->dtype != KJIT_FP16 && config->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
  if (config->cache != config->dtype && !serving_sm90_is_narrow(config))
    return rule_broken(error, "cache", config->cache, "dtype, or FP8_E4M3 (24)");
  if (!rule_is_between(config->softcap, 0, 1)) return rule_broken(error, "softcap", config->softcap, "0 or 1");
  kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  if (status == KJIT_OK) status = rule_check_head("head_dim_v", config->head_dim_v, error);
  if (status == KJIT_OK) status = check_tile(config, error);
  if (status == KJIT_OK) status = check_narrow(config, error);
  if (status == KJIT_OK) status = check_one_part(config, error);
  if (status == KJIT_OK) status = check_grouped(config, error);
  return status == KJIT_OK ? check_apart(config, error) : status;
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const struct serving_sm90_config *config = serving_sm90_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {threads_of(config), 1, 1}, .shared_bytes = serving_sm90_shared_bytes(config)};
}

const kjit_family serving_sm90_family = {
    .table = {.family = "attention_serving_sm90",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(struct serving_sm90_config)},
    .entry = "attention_serving_sm90",
    .main_file = "attention_serving_sm90/attention_serving_sm90.cu",
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
