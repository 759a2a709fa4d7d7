/* The choice of a serving kernel: the first family that computes the problem; and attention_serving's own rules.
 *
 * Rules: 16 or 32 rows where a sequence's packed rows fit, which is decoding, else 64; then the largest tile of keys
 * whose shared memory leaves room for as many blocks on a multiprocessor as registers allow. Pure; any thread. */
#include "attention/serving/serving_family.h"

#include <string.h>

#include "attention/prefill/prefill_serving.h"
#include "attention/rule.h"
#include "attention/serving/serving_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"

/* Shared memory of a multiprocessor beyond what one block may have; and what the system takes of it for each block. */
#define RESERVED_BYTES 1024u

/* Tile and blocks on a multiprocessor: as many as registers allow, by what ptxas takes without spilling more than
 * tests/jit/serving_codegen_test.c has. Measured on an H200: with heads of more than 128 columns and few rows, three
 * blocks with two warps each are faster than one with four. */
static void shape(kjit_attention_serving_config *config) {
  const int32_t dv = config->head_dim_v, widest = dv > config->head_dim ? dv : config->head_dim;
  const bool is_wide = widest > 128;
  config->warps = 4;
  config->keys = 64;
  config->stages = widest <= 64 ? 3 : 2;
  if (config->rows <= 32) {
    config->blocks_per_sm = dv <= 64 ? 4 : 3;
    if (config->rows == 32 && dv > 64) config->blocks_per_sm = 2;
    if (is_wide && config->rows == 16) config->warps = 2;
  } else {
    config->blocks_per_sm = widest <= 64 ? 3 : 2;
  }
  if (is_wide) config->keys = 32;
  if (config->cache == KJIT_FP8_E4M3 && config->blocks_per_sm > 2) config->blocks_per_sm = 2;
}

static bool fits(const kjit_attention_serving_config *config, uint32_t available) {
  const uint32_t needed = serving_shared_bytes(config) + RESERVED_BYTES;
  return needed * (uint32_t)config->blocks_per_sm <= available;
}

/* Halve the keys, and the warps along them where each would have less than 16. */
static bool halve(kjit_attention_serving_config *config) {
  const int32_t row_warps = config->rows / 16, step = 16 * (config->warps / row_warps);
  if (config->keys % (2 * step) == 0) {
    config->keys /= 2;
    return true;
  }
  if (config->warps == row_warps || config->warps == 1) return false;
  config->warps /= 2;
  config->keys /= 2;
  return true;
}

/* Give up blocks on a multiprocessor, then stages, then keys, until shared memory is enough. */
static bool fit(kjit_attention_serving_config *config, uint32_t shared_per_block) {
  const uint32_t available = shared_per_block + RESERVED_BYTES;
  while (!fits(config, available)) {
    if (config->blocks_per_sm > 1)
      config->blocks_per_sm--;
    else if (config->stages > 2)
      config->stages--;
    else if (!halve(config))
      return false;
  }
  return true;
}

static kjit_status check_head(const char *name, int64_t columns, int64_t multiple, kjit_error *error) {
  if (rule_is_head(columns) && columns % multiple == 0) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "%s is %lld: attention_serving takes multiples of %lld up to 256", name,
                   (long long)columns, (long long)multiple);
}

static int32_t rows_of(int64_t packed_rows) {
  return packed_rows <= 16 ? 16 : packed_rows <= 32 ? 32 : 64;
}

static kjit_status choose(const struct serving_problem *problem, kjit_serving_pass pass,
                          const struct family_place *place, int32_t *values, kjit_error *error) {
  const int64_t multiple = problem->is_narrow ? 16 : 8;
  kjit_status status = check_head("head_dim", problem->head_dim, multiple, error);
  if (status == KJIT_OK) status = check_head("head_dim_v", problem->head_dim_v, multiple, error);
  if (status != KJIT_OK) return status;
  kjit_attention_serving_config config = {.pass = KJIT_SERVING_ATTEND,
                                          .dtype = problem->dtype,
                                          .cache = problem->is_narrow ? KJIT_FP8_E4M3 : problem->dtype,
                                          .head_dim = (int32_t)problem->head_dim,
                                          .head_dim_v = (int32_t)problem->head_dim_v,
                                          .rows = rows_of(problem->packed_rows),
                                          .paged = problem->page_size > 0,
                                          .softcap = problem->softcap};
  shape(&config);
  if (!fit(&config, place->shared_per_block)) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_serving needs more shared memory than %s has (%u bytes)",
                     place->arch, place->shared_per_block);
  }
  config.pass = (int32_t)pass;
  memcpy(values, &config, sizeof config);
  serving_kernel_family.canonicalize(&serving_kernel_family, values);
  return KJIT_OK;
}

static int32_t tile_rows(const int32_t *values) {
  return serving_config_view(values)->rows;
}

static uint32_t runs(const int32_t *values, uint32_t multiprocessors) {
  return multiprocessors * (uint32_t)serving_config_view(values)->blocks_per_sm;
}

/* A run ends the tile of another, and begins one that another ends: two slots. */
static size_t partial_bytes(const int32_t *values, uint32_t run_count, const struct serving_problem *problem) {
  (void)problem;
  return 2 * (size_t)run_count * serving_partial_bytes(serving_config_view(values));
}

static const struct serving_family mma_family = {.family = &serving_kernel_family,
                                                 .waits = true,
                                                 .choose = choose,
                                                 .tile_rows = tile_rows,
                                                 .runs = runs,
                                                 .partial_bytes = partial_bytes};

const struct serving_family *const serving_families[SERVING_FAMILY_COUNT] = {&prefill_serving_family,
                                                                             &serving_sm90_serving_family, &mma_family};

kjit_status serving_choose(const struct serving_problem *problem, kjit_serving_pass pass,
                           const struct family_place *place, struct serving_choice *out, kjit_error *error) {
  kjit_error why_not;
  error_clear(&why_not);
  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < SERVING_FAMILY_COUNT; i++) {
    out->family = serving_families[i];
    if (out->family->arch && strcmp(out->family->arch, place->arch) != 0) continue;
    /* Only the last one's reason is told, because it takes most problems. The others need not write theirs down, which
     * would take longer than choosing. */
    kjit_error *const reason = i + 1 == SERVING_FAMILY_COUNT ? &why_not : NULL;
    if (out->family->choose(problem, pass, place, out->values, reason) == KJIT_OK) return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_UNSUPPORTED, "no serving kernel for this problem on %s: %.400s", place->arch,
                   why_not.message);
}

int serving_tile_shift(const struct serving_choice *attend) {
  const int32_t rows = attend->family->tile_rows ? attend->family->tile_rows(attend->values) : 64;
  int shift = 0;
  while (rows >> shift > 1)
    shift++;
  return shift;
}
