/* Configs of flash_forward: field tables, traits, canonical form, geometry and rules. flash_config.h says what they
 * are.
 *
 * Threads: everything here is pure. */
#include "attention/flash/flash_config.h"

#include <stdbool.h>
#include <stdio.h>

#include "attention/rule.h"
#include "base/error.h"
#include "base/target.h"

enum {
  MIN_CAPABILITY = 80, /* cp.async, and mma.m16n8k16 with bf16 */
  TILE = 16,           /* mma.m16n8k16: rows of A, and its depth; two tiles of O */
  FRAGMENT = 8,        /* columns of one fragment, which load counts are in */
  MAX_EDGE = 256,      /* rows or columns of a tile */
  MAX_WARPS = 8,       /* 16 would leave each thread 128 registers: too few for any tile */
  LANES = 32,
  MAX_ACCUMULATORS = 256 /* fp32 registers per thread for O and S: no thread has more */
};

/* ---- Fields ---- */

#define ROW(name, kind, token, text)                                                                                   \
  {#name, token, text, KJIT_FIELD_##kind, offsetof(kjit_flash_config, name), NULL, 0, NULL},
#define TRAIT_ROW(name, kind, text)                                                                                    \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(struct flash_traits, name), NULL, 0, NULL},
#define VARIANT_ROW(name, kind, token, text)                                                                           \
  {#name, token, text, KJIT_FIELD_##kind, offsetof(struct flash_variant, config.name), NULL, 0, NULL},
#define VARIANT_TRAIT_ROW(name, kind, text)                                                                            \
  {#name, "", text, KJIT_FIELD_##kind, offsetof(struct flash_variant, traits.name), NULL, 0, NULL},

_Static_assert(FLASH_VARIANT_FIELD_COUNT <= KJIT_FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_flash_config) == 4 * FLASH_CONFIG_FIELD_COUNT, "a config is its fields, without padding");
_Static_assert(sizeof(struct flash_traits) == 4 * FLASH_TRAIT_COUNT, "traits are their fields, without padding");
_Static_assert(sizeof(struct flash_variant) == 4 * FLASH_VARIANT_FIELD_COUNT, "a variant is its fields");

static const kjit_field_info config_rows[] = {KJIT_FLASH_FORWARD_FIELDS(ROW)};
static const kjit_field_info trait_rows[] = {KJIT_FLASH_FORWARD_TRAITS(TRAIT_ROW)};
const kjit_field_info flash_variant_rows[] = {KJIT_FLASH_FORWARD_FIELDS(VARIANT_ROW)
                                                  KJIT_FLASH_FORWARD_TRAITS(VARIANT_TRAIT_ROW)};

const struct field_table flash_config_fields = {
    .family = "flash_forward",
    .type = "FlashForwardKernelConfig",
    .fields = config_rows,
    .count = FLASH_CONFIG_FIELD_COUNT,
    .config_bytes = sizeof(kjit_flash_config),
};

const struct field_table flash_trait_fields = {
    .family = "the traits",
    .fields = trait_rows,
    .count = FLASH_TRAIT_COUNT,
    .config_bytes = sizeof(struct flash_traits),
};

const struct field_table flash_variant_fields = FLASH_VARIANT_TABLE;

/* ---- Traits ---- */

struct flash_variant flash_variant_plain(const kjit_flash_config *config) {
  return (struct flash_variant){*config, {.head_dim = config->d_head, .head_dim_v = config->d_head}};
}

static int32_t clamp(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

struct flash_traits flash_traits_of(const kjit_attention_problem *problem) {
  /* A single key head for all query heads is no group: its stride is 0, so that every query head finds it. */
  return (struct flash_traits){.causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                               .grouped = problem->heads_kv != problem->heads_q && problem->heads_kv != 1,
                               .head_dim = clamp(problem->head_dim),
                               .head_dim_v = clamp(problem->head_dim_v)};
}

int32_t flash_traits_columns(int32_t head_dim) {
  /* Unsigned arithmetic, because numbers that no rule has checked may come here and must not overflow. */
  return (int32_t)(((uint32_t)head_dim + TILE - 1) / TILE * TILE);
}

int32_t flash_traits_d_head(const struct flash_traits *traits) {
  const int32_t larger = traits->head_dim > traits->head_dim_v ? traits->head_dim : traits->head_dim_v;
  return larger <= FLASH_MIN_D_HEAD ? FLASH_MIN_D_HEAD
         : larger > FLASH_MAX_HEAD  ? larger
                                    : flash_traits_columns(larger);
}

/* ---- Geometry ---- */

uint32_t flash_threads(const struct flash_variant *variant) {
  return LANES * (uint32_t)variant->config.n_warps;
}

uint32_t flash_shared_bytes(const struct flash_variant *variant) {
  const uint32_t rows = (uint32_t)variant->config.B_r, keys = (uint32_t)variant->config.B_c;
  const uint32_t d = (uint32_t)flash_traits_columns(variant->traits.head_dim);
  const uint32_t dv = (uint32_t)flash_traits_columns(variant->traits.head_dim_v);
  /* O is stored through Q's memory, so the wider of the two counts. */
  return (rows * (d > dv ? d : dv) + keys * (d + dv)) * 2;
}

/* ---- Canonical form ---- */

/* True when an operand passes through registers in two or more slices. */
static bool is_sliced(int32_t load_count, int32_t axis_length) {
  return load_count != 0 && axis_length / FRAGMENT / load_count >= 2;
}

/* Set each field that cannot change the machine code to its plain value, 0. Each rule says why the code is the same. */
static void apply_rules(kjit_flash_config *config, int32_t head_columns) {
  /* One slice that is the whole of K is what 0 means. Q is 0 or equal to K, so the rule needs Q to be 0. */
  if (config->K_mma_load_K_tiles == head_columns / FRAGMENT && config->Q_mma_load_K_tiles == 0)
    config->K_mma_load_K_tiles = 0;

  /* One slice that is the whole of V is what 0 means. */
  if (config->V_mma_load_K_tiles == config->B_c / FRAGMENT) config->V_mma_load_K_tiles = 0;

  /* When no operand has a second slice, there is none to load early. */
  if (!is_sliced(config->Q_mma_load_K_tiles, head_columns) && !is_sliced(config->K_mma_load_K_tiles, head_columns) &&
      !is_sliced(config->V_mma_load_K_tiles, config->B_c))
    config->mma_double_buffer_loads = 0;
}

void flash_canonicalize(struct flash_variant *variant) {
  const int32_t columns = flash_traits_columns(variant->traits.head_dim);
  kjit_flash_config before;
  /* Repeat until nothing changes, because one rule may allow another. Each pass sets a field to 0 or is the last. */
  do {
    before = variant->config;
    apply_rules(&variant->config, columns);
  } while (field_table_compare(&flash_config_fields, &before, &variant->config) != 0);
}

/* ---- Rules ---- */

static kjit_status check_dtype(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  if (config->dtype == KJIT_FP16 || config->dtype == KJIT_BF16) return KJIT_OK;
  return rule_broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
}

static kjit_status check_d_head(const struct flash_variant *variant, kjit_error *error) {
  const int32_t d = variant->config.d_head;
  if (d >= FLASH_MIN_D_HEAD && d <= FLASH_MAX_HEAD && d % TILE == 0) return KJIT_OK;
  return rule_broken(error, "d_head", d, "a multiple of 16 from 32 to 256");
}

static kjit_status check_head_sizes(const struct flash_variant *variant, kjit_error *error) {
  const struct flash_traits *traits = &variant->traits;
  char rule[128];
  kjit_status status = rule_check_head("head_dim", traits->head_dim, error);
  if (status == KJIT_OK) status = rule_check_head("head_dim_v", traits->head_dim_v, error);
  if (status != KJIT_OK || variant->config.d_head == flash_traits_d_head(traits)) return status;
  snprintf(rule, sizeof rule, "%d, the larger of head_dim (%d) and head_dim_v (%d) in whole 16s, at least 32",
           (int)flash_traits_d_head(traits), (int)traits->head_dim, (int)traits->head_dim_v);
  return rule_broken(error, "d_head", variant->config.d_head, rule);
}

static kjit_status check_warps(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  if (rule_is_power_of_two(config->n_warps) && config->n_warps <= MAX_WARPS) return KJIT_OK;
  return rule_broken(error, "n_warps", config->n_warps, "1, 2, 4 or 8");
}

static kjit_status check_query_rows(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  const int32_t step = TILE * config->n_warps;
  char rule[96];
  if (config->B_r > 0 && config->B_r <= MAX_EDGE && config->B_r % step == 0) return KJIT_OK;
  snprintf(rule, sizeof rule, "a multiple of 16 * n_warps (%d) up to 256", (int)step);
  return rule_broken(error, "B_r", config->B_r, rule);
}

static kjit_status check_key_rows(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  if (config->B_c > 0 && config->B_c <= MAX_EDGE && config->B_c % TILE == 0) return KJIT_OK;
  return rule_broken(error, "B_c", config->B_c, "a multiple of 16 up to 256");
}

static kjit_status check_booleans(const struct flash_variant *variant, kjit_error *error) {
  for (size_t i = 0; i < flash_variant_fields.count; i++) {
    const kjit_field_info *field = &flash_variant_fields.fields[i];
    const int32_t value = field_get(field, variant);
    if (field->kind == KJIT_FIELD_BOOL && value != 0 && value != 1)
      return rule_broken(error, field->name, value, "0 or 1");
  }
  return KJIT_OK;
}

static kjit_status check_load(const char *field, int32_t count, const char *axis, int32_t length, bool buffered,
                              kjit_error *error) {
  const int32_t fragments = length / FRAGMENT, most = buffered ? fragments / 2 : fragments;
  char rule[128];
  if (count == 0) return KJIT_OK;
  if (!rule_is_power_of_two(count) || count == 1) return rule_broken(error, field, count, "0 or a power of two from 2");
  if (count > most) {
    snprintf(rule, sizeof rule, "at most %d, the 8-wide fragments of %s%s (%d)", (int)most, buffered ? "half of " : "",
             axis, (int)length);
    return rule_broken(error, field, count, rule);
  }
  if (fragments % count == 0) return KJIT_OK;
  snprintf(rule, sizeof rule, "a divisor of %d, the 8-wide fragments of %s (%d)", (int)fragments, axis, (int)length);
  return rule_broken(error, field, count, rule);
}

/* Check a load count along the columns of Q and K. */
static kjit_status check_head_load(const struct flash_variant *variant, const char *field, int32_t count,
                                   kjit_error *error) {
  const int32_t columns = flash_traits_columns(variant->traits.head_dim);
  const char *axis = columns == variant->config.d_head ? "d_head" : "head_dim in whole 16s";
  return check_load(field, count, axis, columns, variant->config.mma_double_buffer_loads, error);
}

static kjit_status check_query_load(const struct flash_variant *variant, kjit_error *error) {
  return check_head_load(variant, "Q_mma_load_K_tiles", variant->config.Q_mma_load_K_tiles, error);
}

static kjit_status check_key_load(const struct flash_variant *variant, kjit_error *error) {
  return check_head_load(variant, "K_mma_load_K_tiles", variant->config.K_mma_load_K_tiles, error);
}

static kjit_status check_value_load(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  return check_load("V_mma_load_K_tiles", config->V_mma_load_K_tiles, "B_c", config->B_c,
                    config->mma_double_buffer_loads, error);
}

/* Q is read in slices of the same width as K's, or kept as a whole. */
static kjit_status check_load_pair(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  const int32_t q = config->Q_mma_load_K_tiles, k = config->K_mma_load_K_tiles;
  char rule[64];
  if (q == 0 || q == k) return KJIT_OK;
  snprintf(rule, sizeof rule, "0 or equal to K_mma_load_K_tiles (%d)", (int)k);
  return rule_broken(error, "Q_mma_load_K_tiles", q, rule);
}

/* Check that the accumulators fit: a warp holds its rows of O (head_dim_v wide) and S (B_c wide) in fp32 registers. */
static kjit_status check_accumulators(const struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  const int32_t columns = variant->traits.head_dim_v;
  const char *name = columns == config->d_head ? "d_head" : "head_dim_v";
  const int32_t rows = config->B_r / config->n_warps;
  const int32_t registers = rows * (columns + config->B_c) / LANES;
  if (registers <= MAX_ACCUMULATORS) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "B_r is %d: with n_warps %d, %s %d and B_c %d a thread accumulates in "
                   "(B_r / n_warps) * (%s + B_c) / 32 = %d registers; must be at most %d",
                   (int)config->B_r, (int)config->n_warps, name, (int)columns, (int)config->B_c, name, (int)registers,
                   MAX_ACCUMULATORS);
}

kjit_status flash_check(const struct flash_variant *variant, kjit_error *error) {
  /* The rules in the order in which they are checked; each may rely on those before it. */
  static kjit_status (*const rules[])(const struct flash_variant *, kjit_error *) = {
      check_dtype,    check_d_head,     check_head_sizes, check_warps,      check_query_rows, check_key_rows,
      check_booleans, check_query_load, check_key_load,   check_value_load, check_load_pair,  check_accumulators};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof rules / sizeof *rules && status == KJIT_OK; i++)
    status = rules[i](variant, error);
  return status;
}

/* Append the sizes that shared memory follows from, and how, for the message. */
static void describe_shared(const struct flash_variant *variant, struct text *out) {
  const int32_t d = flash_traits_columns(variant->traits.head_dim);
  const int32_t dv = flash_traits_columns(variant->traits.head_dim_v);
  text_appendf(out, "with B_c %d and ", (int)variant->config.B_c);
  if (d == dv)
    text_appendf(out, "d_head %d a block needs (B_r + 2 * B_c) * d_head * 2", (int)d);
  else
    text_appendf(out, "heads of d = %d, dv = %d a block needs (B_r * max(d, dv) + B_c * (d + dv)) * 2", (int)d,
                 (int)dv);
}

/* Check architecture and shared memory. The message says which sizes the shared memory follows from. */
kjit_status flash_check_place(const struct flash_variant *variant, const struct family_place *place,
                              kjit_error *error) {
  struct target target;
  char sizes[128];
  struct text described;
  const kjit_status status = target_parse(&target, place->arch, error);
  if (status != KJIT_OK) return status;
  if (target.capability < MIN_CAPABILITY)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: flash_forward requires sm_80 or higher (current: %s)",
                     target.name);
  if (place->shared_per_block == 0)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: the limits of %s are not known to this version", target.name);
  const uint32_t needed = flash_shared_bytes(variant);
  if (needed <= place->shared_per_block) return KJIT_OK;
  text_init_fixed(&described, sizes, sizeof sizes);
  describe_shared(variant, &described);
  return error_set(error, KJIT_ERR_UNSUPPORTED, "B_r is %d: %s = %u bytes of shared memory; must be at most %u on %s",
                   (int)variant->config.B_r, sizes, needed, place->shared_per_block, target.name);
}
