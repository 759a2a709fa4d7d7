/* When attention_serving_sm90 computes a serving problem, and with which config.
 *
 * 1. The problem must be one that TMA can load: no keys padded on the left, pages of a multiple of 8 positions.
 * 2. 16, 32 or 64 rows of a tile, the fewest that hold a sequence's packed rows. Measured on an H200: two blocks of
 *    threads on a multiprocessor with 64 keys, of which with head sizes above 64 two stages are 1 to 3 % faster than
 *    three; with heads of more than 128 columns one block, and as many stages as shared memory holds.
 *
 * Pure; any thread. */
#include <string.h>

#include "attention/rule.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"

enum {
  LEAST_BOX = 8, /* rows of a box: the swizzle's pattern repeats after as many */
  MAX_HEAD = 256,
  MAX_STAGES = 16,
};

static const char *why_not(const struct serving_problem *problem) {
  if (!problem->is_plain) return "keys padded on the left, or strides that TMA does not take";
  if (problem->head_dim > MAX_HEAD || problem->head_dim_v > MAX_HEAD || problem->head_dim % 8 ||
      problem->head_dim_v % 8)
    return "head sizes other than multiples of 8 up to 256";
  return problem->page_size % LEAST_BOX == 0 ? NULL : "pages of other than a multiple of 8 positions";
}

/* The most stages that fit, up to `most`. */
static bool fill_stages(struct serving_sm90_config *config, int32_t most) {
  for (config->stages = most; config->stages >= 2; config->stages--)
    if (serving_sm90_fits(config)) return true;
  return false;
}

/* Measured on an H200: with heads of up to 64 columns two stages of 128 keys, otherwise three of 64, are 3 to 12 %
 * faster than other stages. */
static void choose_narrow_tile(struct serving_sm90_config *config) {
  config->keys = config->head_dim <= 64 && config->head_dim_v <= 64 ? 128 : 64;
  while (!fill_stages(config, config->keys == 128 ? 2 : config->blocks_per_sm == 1 ? MAX_STAGES : 3))
    config->keys /= 2;
}

/* Step 2. */
static void choose_tile(struct serving_sm90_config *config, int64_t packed_rows) {
  const int32_t widest = config->head_dim > config->head_dim_v ? config->head_dim : config->head_dim_v;
  config->rows = packed_rows <= 16 ? 16 : packed_rows <= 32 ? 32 : 64;
  config->blocks_per_sm = widest <= 128 ? 2 : 1;
  if (serving_sm90_is_narrow(config)) {
    choose_narrow_tile(config);
    return;
  }
  config->keys = 64;
  while (!fill_stages(config, widest > 64 && widest <= 128 ? 2 : MAX_STAGES))
    config->keys /= 2;
}

static kjit_status choose(const struct serving_problem *problem, kjit_serving_pass pass,
                          const struct family_place *place, int32_t *values, kjit_error *error) {
  (void)place; /* one architecture, whose multiprocessors are alike */
  if (pass != KJIT_SERVING_ATTEND) return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_serving_sm90 has one pass");
  const char *reason = why_not(problem);
  if (reason) return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_serving_sm90 does not take %s", reason);
  struct serving_sm90_config config = {.dtype = problem->dtype,
                                       .cache = problem->is_narrow ? KJIT_FP8_E4M3 : problem->dtype,
                                       .head_dim = (int32_t)problem->head_dim,
                                       .head_dim_v = (int32_t)problem->head_dim_v,
                                       .softcap = problem->softcap};
  choose_tile(&config, problem->packed_rows);
  memcpy(values, &config, sizeof config);
  return KJIT_OK;
}

static uint32_t runs(const int32_t *values, uint32_t multiprocessors) {
  return multiprocessors * (uint32_t)serving_sm90_view(values)->blocks_per_sm;
}

/* A run ends the tile of another, and begins one that another ends: two slots. */
static size_t partial_bytes(const int32_t *values, uint32_t run_count, int64_t batch) {
  (void)batch;
  return 2 * (size_t)run_count * serving_sm90_partial_bytes(serving_sm90_view(values));
}

const struct serving_family serving_sm90_serving_family = {.family = &serving_sm90_family,
                                                           .arch = HOPPER_ARCH,
                                                           .waits = true,
                                                           .choose = choose,
                                                           .runs = runs,
                                                           .partial_bytes = partial_bytes,
                                                           .argument = serving_sm90_argument};
