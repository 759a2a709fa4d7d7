/* attention_sm90 as a family: field table, canonical form, geometry, rules, and the instance of struct kjit_family.
 *
 * Threads: constant data and pure functions. */
#include "attention/sm90/sm90_config.h"

#include <string.h>

#include "attention/rule.h"
#include "attention_variant/params.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"

enum {
  MAX_CONSUMERS = 4,              /* with the producer 640 threads; four have 112 registers each */
  KEY_STEP = 16,                  /* wgmma's K: keys of one product with V */
  MAX_KEYS = 256,                 /* wgmma's N, and rows of a tensor map's box */
  MIN_STAGES = 2,                 /* a tile is loaded while another is used */
  MAX_STAGES = 4,                 /* more does not fit with any tile worth having */
  MAX_SLACK = 15,                 /* a sum of 2^15 has no term that fp16 cannot hold */
  MAX_PACKED = 64,                /* rows of a consumer */
  SHARED_BYTES = SM90_SHARED_MOST /* of sm_90, per block after opting in: target.c */
};

/* Longest sequence and most heads: the kernel counts keys, rows and tiles of all heads in 32 bits, and adds up to a
 * card's worth. */
#define MAX_SEQ   ((INT64_C(1) << 30) - 1024)
#define MAX_TILES (INT64_C(1) << 30)

/* ---- Fields ---- */

#define COUNT(name, kind, text) +1

#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(kjit_attention_sm90_config, name), NULL, 0, NULL},

enum { FIELD_COUNT = 0 KJIT_ATTENTION_SM90_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_attention_sm90_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {KJIT_ATTENTION_SM90_FIELDS(ROW)};

/* ---- Canonical form and geometry ---- */

int32_t sm90_chunks(int32_t columns) {
  return (int32_t)integer_divide_up(columns, SM90_CHUNK_COLUMNS);
}

kjit_attention_sm90_config sm90_canonical(const kjit_attention_sm90_config *config) {
  kjit_attention_sm90_config canonical = *config;
  /* With one consumer there is no other to take turns with. */
  if (canonical.consumers == 1) canonical.ping_pong = 0;
  /* With split-KV O is stored through a Q buffer that is no longer read; with two Q buffers it is, unless all of O has
   * memory of its own. */
  const bool has_part = canonical.o_chunks < sm90_chunks(canonical.head_dim_v);
  if (canonical.split || (canonical.q_buffers == 2 && has_part)) canonical.o_chunks = 0;
  return canonical;
}

static uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/* Shared memory as pipeline.cuh lays it out: Q (O is stored through it unless it has memory of its own), K and V, O,
 * mbarriers, tile coordinates, and one word a consumer with split-KV. */
uint32_t sm90_own_bytes(const kjit_attention_sm90_config *config) {
  const uint32_t qk = (uint32_t)sm90_chunks(config->head_dim), v = (uint32_t)sm90_chunks(config->head_dim_v);
  const uint32_t q_buffers = (uint32_t)config->q_buffers, stages = (uint32_t)config->stages;
  const uint32_t consumers = (uint32_t)sm90_tile_consumers(config);
  const uint32_t chunk = consumers * SM90_GROUP_ROWS * SM90_ROW_BYTES;
  const uint32_t o_chunks = (uint32_t)sm90_canonical(config).o_chunks;
  const uint32_t q = q_buffers * chunk * (o_chunks ? qk : larger(qk, v));
  const uint32_t kv = stages * (uint32_t)config->tile_n * SM90_ROW_BYTES * (qk + v);
  const uint32_t tiles = q_buffers * (config->split ? 2 * SM90_TILE_BYTES : SM90_TILE_BYTES);
  const uint32_t words = config->split ? SM90_WORD_BYTES * consumers : 0;
  return q + kv + o_chunks * chunk + SM90_BARRIER_BYTES * (2 * q_buffers + 4 * stages) + tiles + words +
         SM90_ALIGNMENT - 1;
}

uint32_t sm90_room(const kjit_attention_sm90_config *config) {
  return SM90_PAIRS(config->consumers) == 1 ? SHARED_BYTES : SM90_PAIR_BYTES;
}

uint32_t sm90_shared_bytes(const kjit_attention_sm90_config *config) {
  return SM90_PAIRS(config->consumers) == 1 ? sm90_own_bytes(config) : SM90_PAIRS_BYTES;
}

/* For each K buffer the entry in which the producer says which key block it holds, and the plan of the next tile,
 * which is aligned to 16 bytes. */
uint32_t sm90_variant_bytes(const kjit_attention_sm90_config *config) {
  return SM90_WORD_BYTES * (uint32_t)config->stages + 15 + SM90_PLAN_BYTES;
}

uint32_t sm90_bounds_bytes(const kjit_attention_sm90_config *config) {
  const uint32_t tile = SM90_BOUND_BYTES * SM90_GROUP_ROWS * (uint32_t)sm90_tile_consumers(config);
  return tile * ((uint32_t)config->q_buffers + 1);
}

uint32_t sm90_keep_bytes(const kjit_attention_sm90_config *config) {
  const int32_t consumers = sm90_tile_consumers(config);
  if (!SM90_HAS_KEEP(config->split, config->packed, consumers, config->tile_n)) return 0;
  const uint32_t block = SM90_WORD_BYTES * VARIANT_WORDS_OF_PART((uint32_t)config->tile_n);
  return block * (uint32_t)consumers * (uint32_t)config->stages;
}

uint32_t sm90_terms_bytes(const kjit_attention_sm90_config *config) {
  return SM90_GROUP_ROWS * (uint32_t)sm90_tile_consumers(config) * (2 * (uint32_t)config->tile_n + SM90_TERM_PADDING);
}

int sm90_term_slots(const kjit_attention_sm90_config *config) {
  return SM90_TERM_SLOTS(sm90_shared_bytes(config), config->stages, config->consumers, config->packed, config->tile_n);
}

bool sm90_stages_terms(const kjit_attention_sm90_config *config) {
  return sm90_own_bytes(config) + sm90_variant_bytes(config) + sm90_terms_bytes(config) <= sm90_room(config);
}

uint32_t sm90_threads(const kjit_attention_sm90_config *config) {
  return SM90_GROUP_THREADS * ((uint32_t)config->consumers + 1);
}

uint32_t sm90_registers(const kjit_attention_sm90_config *config) {
  return (uint32_t)config->head_dim_v / 2 + (uint32_t)config->tile_n / 2 + (uint32_t)config->tile_n / 4;
}

/* ---- Rules ---- */

static kjit_status check_dtype(const kjit_attention_sm90_config *config, kjit_error *error) {
  if (config->dtype == KJIT_FP16 || config->dtype == KJIT_BF16) return KJIT_OK;
  return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
}

static kjit_status check_heads(const kjit_attention_sm90_config *config, kjit_error *error) {
  const kjit_status status = rule_check_head("head_dim", config->head_dim, error);
  return status == KJIT_OK ? rule_check_head("head_dim_v", config->head_dim_v, error) : status;
}

static kjit_status check_booleans(const kjit_attention_sm90_config *config, kjit_error *error) {
  for (size_t i = 0; i < FIELD_COUNT; i++) {
    const kjit_field_info *field = &rows[i];
    const int32_t value = field_get(field, config);
    if (field->kind == KJIT_FIELD_BOOL && value != 0 && value != 1)
      return rule_broken(error, field->name, value, "0 or 1");
  }
  return KJIT_OK;
}

static kjit_status check_counts(const kjit_attention_sm90_config *config, kjit_error *error) {
  if (!rule_is_between(config->consumers, 1, MAX_CONSUMERS))
    return rule_broken(error, "consumers", config->consumers, "1 to 4");
  if (!rule_is_between(config->tile_n, KEY_STEP, MAX_KEYS) || config->tile_n % KEY_STEP != 0)
    return rule_broken(error, "tile_n", config->tile_n, "a multiple of 16 from 16 to 256");
  if (!rule_is_between(config->stages, MIN_STAGES, MAX_STAGES))
    return rule_broken(error, "stages", config->stages, "2 to 4");
  if (!rule_is_between(config->q_buffers, 1, 2)) return rule_broken(error, "q_buffers", config->q_buffers, "1 or 2");
  if (!rule_is_between(config->o_chunks, 0, sm90_chunks(config->head_dim_v)))
    return rule_broken(error, "o_chunks", config->o_chunks, "from 0 to the 64-column chunks of head_dim_v");
  if (!rule_is_between(config->rescale_slack, 0, MAX_SLACK))
    return rule_broken(error, "rescale_slack", config->rescale_slack, "0 to 15");
  if (SM90_PAIRS(config->consumers) > 1 && config->split)
    return rule_broken(error, "split", config->split, "0 with consumers 4, which are two pairs");
  if (rule_is_between(config->packed, 1, MAX_PACKED) && (config->packed & (config->packed - 1)) == 0) return KJIT_OK;
  return rule_broken(error, "packed", config->packed, "a power of two from 1 to 64");
}

/* The registers that O, S and P may take of the 256, 232, 160 or 112 that setmaxnreg gives a consumer thread. The rest
 * is for addresses, row maxima and sums, and for what the compiler needs. Above these bounds ptxas always spills; what
 * the planner chooses is compiled by tests. */
static int32_t most_registers(int32_t consumers) {
  static const int32_t most[MAX_CONSUMERS] = {230, 216, 136, 80};
  return most[consumers - 1];
}

/* What has to fit the room that there is. A variant asks for memory of its own, but a pair's cannot grow, and so has
 * what every variant needs. */
static uint32_t least_bytes(const kjit_attention_sm90_config *config) {
  return sm90_own_bytes(config) + (SM90_PAIRS(config->consumers) == 1 ? 0 : sm90_variant_bytes(config));
}

bool sm90_fits(const kjit_attention_sm90_config *config) {
  return (int32_t)sm90_registers(config) <= most_registers(config->consumers) &&
         least_bytes(config) <= sm90_room(config);
}

static kjit_status check_registers(const kjit_attention_sm90_config *config, kjit_error *error) {
  const int32_t needed = (int32_t)sm90_registers(config);
  const int32_t most = most_registers(config->consumers);
  if (needed <= most) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "tile_n is %d: with head_dim_v %d a thread needs head_dim_v / 2 + tile_n / 2 + tile_n / 4 = %d "
                   "registers; must be at most %d with consumers %d",
                   (int)config->tile_n, (int)config->head_dim_v, (int)needed, (int)most, (int)config->consumers);
}

static kjit_status check_shared(const kjit_attention_sm90_config *config, kjit_error *error) {
  const uint32_t needed = least_bytes(config);
  if (needed <= sm90_room(config)) return KJIT_OK;
  return error_set(
      error, KJIT_ERR_INVALID_CONFIG,
      "tile_n is %d: with head_dim %d, head_dim_v %d, consumers %d, stages %d, q_buffers %d and o_chunks %d "
      "a %s needs %u bytes of shared memory; must be at most %u",
      (int)config->tile_n, (int)config->head_dim, (int)config->head_dim_v, (int)config->consumers, (int)config->stages,
      (int)config->q_buffers, (int)config->o_chunks, SM90_PAIRS(config->consumers) == 1 ? "block" : "pair of consumers",
      needed, sm90_room(config));
}

kjit_status sm90_check(const kjit_attention_sm90_config *config, kjit_error *error) {
  /* The rules in the order in which they are checked; each may rely on those before it. */
  static kjit_status (*const rules[])(const kjit_attention_sm90_config *, kjit_error *) = {
      check_dtype, check_heads, check_booleans, check_counts, check_registers, check_shared};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof rules / sizeof *rules && status == KJIT_OK; i++)
    status = rules[i](config, error);
  return status;
}

kjit_status sm90_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  if (problem->seq_q > MAX_SEQ || problem->seq_kv > MAX_SEQ) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "seq_q is %lld and seq_kv %lld: attention_sm90 takes at most %lld of each",
                     (long long)problem->seq_q, (long long)problem->seq_kv, (long long)MAX_SEQ);
  }
  if (integer_divide_up(problem->seq_q, SM90_GROUP_ROWS) * problem->heads_q * problem->batch <= MAX_TILES)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_q is %lld: attention_sm90 takes at most %lld tiles of 64 rows over all %lld heads and %lld "
                   "batch entries",
                   (long long)problem->seq_q, (long long)MAX_TILES, (long long)problem->heads_q,
                   (long long)problem->batch);
}

/* ---- The family ---- */

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family;
  return sm90_check(sm90_config_view(values), error);
}

static void canonicalize(const kjit_family *family, int32_t *values) {
  const kjit_attention_sm90_config canonical = sm90_canonical(sm90_config_view(values));
  (void)family;
  memcpy(values, &canonical, sizeof canonical);
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const kjit_attention_sm90_config *config = sm90_config_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {sm90_threads(config), 1, 1}, .shared_bytes = sm90_shared_bytes(config)};
}

/* Tuning tries no rescale threshold between 0 (rescale whenever the maximum rises) and 15 (as high as fp16 allows). */
static const struct field_hint hints[] = {{"rescale_slack", {0, 15}, 2}, {NULL, {0}, 0}};

const kjit_family sm90_family = {
    .table = {.family = "attention_sm90",
              .fields = rows,
              .count = FIELD_COUNT,
              .config_bytes = sizeof(kjit_attention_sm90_config)},
    .entry = "attention_sm90",
    .main_file = "attention_sm90/attention_sm90.cu",
    .hints = hints,
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .canonicalize = canonicalize,
    .geometry = geometry,
    .derive = config_derive_geometry,
};
