#include "attention/flash_rules.h"

#include <stdio.h>

#include "attention/flash_fields.h"
#include "base/error.h"

enum {
  MIN_CAPABILITY = 80, /* cp.async, and mma.m16n8k16 with bf16 */
  TILE = 16,           /* mma.m16n8k16: rows of A, and its depth */
  FRAGMENT = 8,        /* columns that a load count counts */
  MAX_EDGE = 256,      /* rows or columns of a tile */
  MIN_HEAD = 32,       /* columns; 16 would leave nothing to swizzle or stream */
  MAX_WARPS = 8,       /* 16 would leave each thread 128 registers: too few for any tile */
  LANES = 32,
  MAX_ACCUMULATORS = 256 /* fp32 registers per thread for O and S: no thread has more */
};

static kjit_status broken(kjit_error *error, const char *field, int32_t value, const char *rule) {
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be %s", field, (int)value, rule);
}

static _Bool is_power_of_two(int32_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

static kjit_status check_dtype(const kjit_flash_config *config, kjit_error *error) {
  if (config->dtype == KJIT_FP16 || config->dtype == KJIT_BF16) return KJIT_OK;
  return broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
}

static kjit_status check_head(const kjit_flash_config *config, kjit_error *error) {
  const int32_t d = config->d_head;
  if (d >= MIN_HEAD && d <= MAX_EDGE && d % TILE == 0) return KJIT_OK;
  return broken(error, "d_head", d, "a multiple of 16 from 32 to 256");
}

static kjit_status check_warps(const kjit_flash_config *config, kjit_error *error) {
  if (is_power_of_two(config->n_warps) && config->n_warps <= MAX_WARPS) return KJIT_OK;
  return broken(error, "n_warps", config->n_warps, "1, 2, 4 or 8");
}

static kjit_status check_query_rows(const kjit_flash_config *config, kjit_error *error) {
  const int32_t step = TILE * config->n_warps;
  char rule[96];
  if (config->B_r > 0 && config->B_r <= MAX_EDGE && config->B_r % step == 0) return KJIT_OK;
  snprintf(rule, sizeof rule, "a multiple of 16 * n_warps (%d) up to 256", (int)step);
  return broken(error, "B_r", config->B_r, rule);
}

static kjit_status check_key_rows(const kjit_flash_config *config, kjit_error *error) {
  if (config->B_c > 0 && config->B_c <= MAX_EDGE && config->B_c % TILE == 0) return KJIT_OK;
  return broken(error, "B_c", config->B_c, "a multiple of 16 up to 256");
}

static kjit_status check_booleans(const kjit_flash_config *config, kjit_error *error) {
  for (size_t i = 0; i < flash_fields.count; i++) {
    const struct field *field = &flash_fields.fields[i];
    const int32_t value = field_get(field, config);
    if (field->kind == FIELD_BOOL && value != 0 && value != 1) return broken(error, field->name, value, "0 or 1");
  }
  return KJIT_OK;
}

/* One load count against the axis that it walks along. */
static kjit_status check_load(const char *field, int32_t count, const char *axis, int32_t length, _Bool buffered,
                              kjit_error *error) {
  const int32_t fragments = length / FRAGMENT, most = buffered ? fragments / 2 : fragments;
  char rule[128];
  if (count == 0) return KJIT_OK;
  if (!is_power_of_two(count) || count == 1) return broken(error, field, count, "0 or a power of two from 2");
  if (count > most) {
    snprintf(rule, sizeof rule, "at most %d, the 8-wide fragments of %s%s (%d)", (int)most, buffered ? "half of " : "",
             axis, (int)length);
    return broken(error, field, count, rule);
  }
  if (fragments % count == 0) return KJIT_OK;
  snprintf(rule, sizeof rule, "a divisor of %d, the 8-wide fragments of %s (%d)", (int)fragments, axis, (int)length);
  return broken(error, field, count, rule);
}

static kjit_status check_query_load(const kjit_flash_config *config, kjit_error *error) {
  return check_load("Q_mma_load_K_tiles", config->Q_mma_load_K_tiles, "d_head", config->d_head,
                    config->mma_double_buffer_loads, error);
}

static kjit_status check_key_load(const kjit_flash_config *config, kjit_error *error) {
  return check_load("K_mma_load_K_tiles", config->K_mma_load_K_tiles, "d_head", config->d_head,
                    config->mma_double_buffer_loads, error);
}

static kjit_status check_value_load(const kjit_flash_config *config, kjit_error *error) {
  return check_load("V_mma_load_K_tiles", config->V_mma_load_K_tiles, "B_c", config->B_c,
                    config->mma_double_buffer_loads, error);
}

/* Q is streamed in step with K, or not at all. */
static kjit_status check_load_pair(const kjit_flash_config *config, kjit_error *error) {
  const int32_t q = config->Q_mma_load_K_tiles, k = config->K_mma_load_K_tiles;
  char rule[64];
  if (q == 0 || q == k) return KJIT_OK;
  snprintf(rule, sizeof rule, "0 or equal to K_mma_load_K_tiles (%d)", (int)k);
  return broken(error, "Q_mma_load_K_tiles", q, rule);
}

/* A warp holds its rows of O (d_head wide) and of S (B_c wide) in fp32 registers. */
static kjit_status check_accumulators(const kjit_flash_config *config, kjit_error *error) {
  const int32_t rows = config->B_r / config->n_warps;
  const int32_t registers = rows * (config->d_head + config->B_c) / LANES;
  if (registers <= MAX_ACCUMULATORS) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "B_r is %d: with n_warps %d, d_head %d and B_c %d a thread accumulates in "
                   "(B_r / n_warps) * (d_head + B_c) / 32 = %d registers; must be at most %d",
                   (int)config->B_r, (int)config->n_warps, (int)config->d_head, (int)config->B_c, (int)registers,
                   MAX_ACCUMULATORS);
}

kjit_status flash_rules_check(const kjit_flash_config *config, kjit_error *error) {
  /* Each may rely on those before it. */
  static kjit_status (*const rules[])(const kjit_flash_config *, kjit_error *) = {
      check_dtype,      check_head,     check_warps,      check_query_rows, check_key_rows,    check_booleans,
      check_query_load, check_key_load, check_value_load, check_load_pair,  check_accumulators};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof rules / sizeof *rules && status == KJIT_OK; i++)
    status = rules[i](config, error);
  return status;
}

static kjit_status parse_arch(const char *arch, struct target *target, kjit_error *error) {
  const kjit_status status = target_parse(target, arch, error);
  if (status != KJIT_OK || target->capability >= MIN_CAPABILITY) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: flash_forward requires sm_80 or higher (current: %s)",
                   target->name);
}

kjit_status flash_rules_check_place(const kjit_flash_config *config, const char *arch, uint32_t shared_per_block,
                                    kjit_error *error) {
  struct target target;
  const kjit_status status = parse_arch(arch, &target, error);
  const uint32_t needed = kjit_flash_config_geometry(config).shared_bytes;
  if (status != KJIT_OK || needed <= shared_per_block) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "B_r is %d: with B_c %d and d_head %d a block needs (B_r + 2 * B_c) * d_head * 2 = %u bytes of "
                   "shared memory; must be at most %u on %s",
                   (int)config->B_r, (int)config->B_c, (int)config->d_head, needed, shared_per_block, target.name);
}

kjit_status flash_rules_limits(const char *arch, const struct target_limits **limits, kjit_error *error) {
  struct target target;
  const kjit_status status = parse_arch(arch, &target, error);
  *limits = status == KJIT_OK ? target_get_limits(&target) : NULL;
  if (*limits || status != KJIT_OK) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: the limits of %s are not known to this version", target.name);
}

kjit_status kjit_flash_config_check(const kjit_flash_config *config, const char *arch, kjit_error *error) {
  const struct target_limits *limits = NULL;
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  kjit_status status = flash_rules_check(config, error);
  if (status != KJIT_OK || !arch) return status;
  status = flash_rules_limits(arch, &limits, error);
  return status == KJIT_OK ? flash_rules_check_place(config, arch, limits->shared_per_block, error) : status;
}
