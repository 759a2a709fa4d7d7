/* attention_prefill_sm90 as a family: field table, canonical form, geometry, rules, and the instance of struct
 * kjit_family. What it shares with attention_sm90, whose headers its kernel includes, is asked of that family.
 *
 * Threads: constant data and pure functions. */
#include "attention/prefill/prefill_config.h"

#include "attention/rule.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/text.h"

/* Shared memory of sm_90, per block after opting in: target.c. */
#define SHARED_BYTES 232448u

/* Each of the four warps that gather rows begins with a swizzle's pattern. */
#define GATHERED_ROWS (4 * PREFILL_PATTERN_ROWS)

/* Columns of e4m3 that a lane loads at once. */
#define WIDENED_COLUMNS 16

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1

#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(struct prefill_config, name), NULL, 0, NULL},

enum { FIELD_COUNT = 0 PREFILL_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(struct prefill_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {PREFILL_FIELDS(ROW)};

/* ---- Canonical form and geometry ---- */

/* The config as attention_sm90's headers see it: tiles of a ragged problem differ in length, as causal ones do. */
static kjit_attention_sm90_config as_sm90(const struct prefill_config *config) {
  return (kjit_attention_sm90_config){.dtype = config->dtype,
                                      .head_dim = config->head_dim,
                                      .head_dim_v = config->head_dim_v,
                                      .causal = 1,
                                      .consumers = config->consumers,
                                      .tile_n = config->tile_n,
                                      .stages = config->stages,
                                      .q_buffers = config->q_buffers,
                                      .o_chunks = config->o_chunks,
                                      .ping_pong = config->ping_pong,
                                      .rescale_slack = config->rescale_slack,
                                      .packed = config->packed,
                                      .split = 0};
}

/* As attention_sm90's headers lay it out. */
static uint32_t tile_bytes(const struct prefill_config *config) {
  const kjit_attention_sm90_config base = as_sm90(config);
  return sm90_shared_bytes(&base);
}

bool prefill_gathers(const struct prefill_config *config) {
  return config->loads == PREFILL_LOADS_ROWS || config->loads == PREFILL_LOADS_WIDENED_ROWS;
}

static bool is_narrow(const struct prefill_config *config) {
  return config->loads >= PREFILL_LOADS_WIDENED_ROWS;
}

/* Behind attention_sm90's memory the tiles' coordinates, and an mbarrier for each buffer of Q and of V, or two
 * mbarriers: tile.cuh. */
uint32_t prefill_shared_bytes(const struct prefill_config *config) {
  const uint32_t q_buffers = (uint32_t)config->q_buffers, stages = (uint32_t)config->stages;
  const uint32_t barriers = q_buffers * (prefill_gathers(config) ? 2 : 1) + stages * (is_narrow(config) ? 2 : 1);
  const uint32_t known = PREFILL_TILE_BYTES * q_buffers + SM90_BARRIER_BYTES * barriers;
  if (!is_narrow(config) || config->dtype != KJIT_BF16) return tile_bytes(config) + known;
  return tile_bytes(config) + (uint32_t)integer_round_up(known, 16) +
         q_buffers * (SM90_GROUP_ROWS * (uint32_t)config->consumers * (uint32_t)sizeof(float) + PREFILL_FLAG_BYTES);
}

bool prefill_fits(const struct prefill_config *config) {
  const kjit_attention_sm90_config base = as_sm90(config);
  return sm90_fits(&base) && prefill_shared_bytes(config) <= SHARED_BYTES;
}

static void canonicalize(const kjit_family *family, int32_t *values) {
  struct prefill_config *config = (struct prefill_config *)values;
  const kjit_attention_sm90_config base = as_sm90(config), canonical = sm90_canonical(&base);
  (void)family;
  config->ping_pong = canonical.ping_pong;
  config->o_chunks = canonical.o_chunks;
}

/* ptxas has 128 registers a thread for an instruction of a kernel of four warpgroups, and a product with V takes half
 * of its columns and 30. */
int32_t prefill_gathering_consumers(int64_t head_dim_v) {
  return head_dim_v > PREFILL_GATHERED_COLUMNS ? 1 : 2;
}

static uint32_t launch_threads(const struct prefill_config *config) {
  const kjit_attention_sm90_config base = as_sm90(config);
  return sm90_threads(&base) + (prefill_gathers(config) ? SM90_GROUP_THREADS : 0);
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const struct prefill_config *config = prefill_config_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {launch_threads(config), 1, 1}, .shared_bytes = prefill_shared_bytes(config)};
}

/* KJIT_shared_bytes is what attention_sm90's headers lay out; the launch's memory has a name of its own. */
static void derive(const kjit_family *family, const int32_t *values, struct text *out) {
  const struct prefill_config *config = prefill_config_view(values);
  const kjit_attention_sm90_config base = as_sm90(config);
  (void)family;
  text_appendf(out,
               "#define KJIT_launch_bytes %u\n#define KJIT_launch_threads %u\n#define KJIT_shared_bytes %u\n"
               "#define KJIT_threads %u\n",
               prefill_shared_bytes(config), launch_threads(config), tile_bytes(config), sm90_threads(&base));
}

/* ---- Rules ---- */

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  const struct prefill_config *config = prefill_config_view(values);
  const kjit_attention_sm90_config base = as_sm90(config);
  (void)family;
  if (!rule_is_between(config->softcap, 0, 1)) return rule_broken(error, "softcap", config->softcap, "0 or 1");
  if (!rule_is_between(config->loads, PREFILL_LOADS_BANDS, PREFILL_LOADS_WIDENED))
    return rule_broken(error, "loads", config->loads, "0 to 4");
  if (is_narrow(config) && config->consumers > 2)
    return rule_broken(error, "loads", config->loads, "0 to 2 with 3 consumers");
  if (prefill_gathers(config) && config->consumers > prefill_gathering_consumers(config->head_dim_v))
    return rule_broken(error, "loads", config->loads,
                       "other than 2 and 3 with 3 consumers, or 2 and head_dim_v above 192");
  if (prefill_gathers(config) && config->tile_n % GATHERED_ROWS)
    return rule_broken(error, "loads", config->loads, "other than 2 and 3 with a tile_n that is no multiple of 32");
  if (is_narrow(config) && (config->head_dim % WIDENED_COLUMNS || config->head_dim_v % WIDENED_COLUMNS))
    return rule_broken(error, "loads", config->loads, "0 to 2 with head sizes that are not multiples of 16");
  if (config->loads == PREFILL_LOADS_GROUPS &&
      (config->head_dim % SM90_CHUNK_COLUMNS || config->head_dim_v % SM90_CHUNK_COLUMNS))
    return rule_broken(error, "loads", config->loads, "other than 1 with head sizes other than multiples of 64");
  if (!rule_is_between(config->few, 0, 1)) return rule_broken(error, "few", config->few, "0 or 1");
  const kjit_status status = sm90_check(&base, error);
  if (status != KJIT_OK || prefill_fits(config)) return status;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "tile_n is %d: a block needs %u bytes of shared memory; must be at most %u", (int)config->tile_n,
                   prefill_shared_bytes(config), SHARED_BYTES);
}

const kjit_family prefill_family = {
    .table = {.family = "attention_prefill_sm90",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(struct prefill_config)},
    .entry = "attention_prefill_sm90",
    .main_file = "attention_prefill_sm90/attention_prefill_sm90.cu",
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .canonicalize = canonicalize,
    .geometry = geometry,
    .derive = derive,
};
