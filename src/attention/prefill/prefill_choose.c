/* When attention_prefill_sm90 computes a serving problem, and with which config.
 *
 * 1. The problem must be one that TMA can load: no keys padded on the left, no rotary, pages that fit a step of keys.
 * 2. There must be more rows than the smaller tiles of attention_serving hold, and tiles for two fifths of the card: a
 *    tile is never divided among multiprocessors here, and attention_serving, which divides, is 2.5 times as slow on a
 *    multiprocessor. attention_serving_sm90's kernel of few tiles, which divides too, is not slower on one.
 * 3. Three consumers for heads of up to 64 columns, else two, beside warps that widen e4m3 two, and beside the
 * warpgroup that gathers rows two or one; the largest step of keys; two Q buffers and memory of its own for O, or,
 * where there is no room for both, one of them. With both, a tile's Q is loaded while the tile before it is computed,
 * even if that one is a single step, because the buffer is free once its last scores are there.
 *
 * Pure; any thread. */
#include <string.h>

#include "attention/prefill/prefill_config.h"
#include "attention/prefill/prefill_serving.h"
#include "attention/rule.h"
#include "attention/serving/serving_box.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  FEW_ROWS = 64,      /* packed rows of a sequence up to which attention_serving has one tile */
  LEAST_BOX = 8,      /* rows of a box: the swizzle's pattern repeats after as many */
  MOST_PACKED = 64,   /* rows of a consumer */
  MOST_KEYS = 128,    /* of a step; attention_sm90's planner has it for causal problems of most head sizes */
  RESCALE_SLACK = 15, /* as attention_sm90's planner has it */
};

/* The counters that a call has hold the scheduler's and, of tiles whose keys are divided, two for each slot. */
_Static_assert(2 * PREFILL_SLOTS_PER_BLOCK <= SERVING_MOST_BLOCKS_PER_SM, "slots have counters");
_Static_assert(PREFILL_COUNTERS + 2 * PREFILL_MORE_SLOTS <= SERVING_MORE_COUNTERS, "and so have further ones");

/* Tiles are counted in 32 bits. */
#define MAX_TILES (INT64_C(1) << 30)

/* Step 1. A problem that is refused is attention_serving's. */
static const char *why_not_loaded(const struct serving_problem *problem) {
  if (!problem->is_plain) return "keys padded on the left, or strides that TMA does not take";
  if (problem->rotates) return "rotary tables";
  if (!rule_is_head(problem->head_dim) || !rule_is_head(problem->head_dim_v))
    return "head sizes other than multiples of 8 up to 256";
  if (problem->heads_kv * problem->group > PREFILL_MOST_HEADS) return "that many heads";
  if (problem->is_narrow && (problem->head_dim % 16 || problem->head_dim_v % 16))
    return "head sizes other than multiples of 16 with keys of 8 bits";
  return problem->batch <= PREFILL_MOST_BATCH ? NULL : "that many sequences";
}

static bool pages_fit(int64_t page, int32_t tile_n) {
  return page == 0 || (page % LEAST_BOX == 0 && (page % tile_n == 0 || tile_n % page == 0));
}

static int64_t count_tiles(const struct serving_problem *problem, int32_t consumers) {
  const int64_t full = integer_divide_up(problem->rows * problem->group, (int64_t)consumers * SM90_GROUP_ROWS);
  return problem->heads_kv * integer_max(full, integer_min(problem->batch, problem->rows));
}

/* Step 2. */
static const char *why_not_worth_it(const struct serving_problem *problem, int32_t consumers, uint32_t sm_count) {
  const int64_t tiles = count_tiles(problem, consumers);
  if (problem->packed_rows <= FEW_ROWS) return "few rows";
  if (tiles > MAX_TILES - problem->batch * problem->heads_kv * problem->group) return "that many tiles";
  /* Without splits the choice must not depend on what else is in the batch, because a row's sums would. */
  if (serving_sm90_is_for_one_part(problem, sm_count) || serving_sm90_is_for_runs(problem, sm_count))
    return "tiles that several multiprocessors can share";
  if (problem->is_unsplit || tiles * 5 >= (int64_t)sm_count * 2) return NULL;
  return "few tiles";
}

/* The largest power of two that divides the query heads of a key head. */
static int32_t packed_of(int64_t group) {
  int32_t packed = 1;
  while (packed < MOST_PACKED && group % (2 * packed) == 0)
    packed *= 2;
  return packed;
}

/* The end of a tile overlaps with the start of the next when there are two Q buffers, or memory for O. */
static bool fit_buffers(struct prefill_config *config) {
  config->q_buffers = 2;
  config->o_chunks = sm90_chunks(config->head_dim_v);
  if (prefill_fits(config)) return true;
  config->o_chunks = 0;
  if (prefill_fits(config)) return true;
  config->q_buffers = 1;
  config->o_chunks = sm90_chunks(config->head_dim_v);
  while (config->o_chunks > 0 && !prefill_fits(config))
    config->o_chunks--;
  return config->o_chunks > 0;
}

/* Step 3. A step of keys is a power of two, so that pages of most sizes fit it. */
static void choose_tile(struct prefill_config *config) {
  config->tile_n = config->head_dim_v <= 128 ? MOST_KEYS : MOST_KEYS / 2;
  while (!fit_buffers(config))
    config->tile_n /= 2;
}

/* A cache may be read by sequences of few rows too, which have a list of their own where the query heads of a key head
 * are in one tile. With pages always, so that a model needs one kernel. */
static bool has_few(const struct serving_problem *problem, int32_t packed) {
  return packed == problem->group && (problem->page_size > 0 || problem->is_mixed);
}

/* How K and V are loaded where boxes of TMA fit pages: with one box for all bands of a head, where that is less than a
 * box for each. A cache of 8 bits has bands of twice as many columns. */
static int32_t loads_of(const struct serving_problem *problem) {
  if (problem->is_narrow) return PREFILL_LOADS_WIDENED;
  return serving_box_has_all_bands(problem) ? PREFILL_LOADS_GROUPS : PREFILL_LOADS_BANDS;
}

static void load_row_by_row(struct prefill_config *config) {
  config->loads = config->loads == PREFILL_LOADS_WIDENED ? PREFILL_LOADS_WIDENED_ROWS : PREFILL_LOADS_ROWS;
  config->consumers = prefill_gathering_consumers(config->head_dim_v);
  choose_tile(config);
}

static kjit_status choose(const struct serving_problem *problem, kjit_serving_pass pass,
                          const struct family_place *place, int32_t *values, kjit_error *error) {
  const int64_t widest = integer_max(problem->head_dim, problem->head_dim_v);
  struct prefill_config config = {.dtype = problem->dtype,
                                  .head_dim = (int32_t)problem->head_dim,
                                  .head_dim_v = (int32_t)problem->head_dim_v,
                                  .consumers = widest <= 64 && !problem->is_narrow ? 3 : 2,
                                  .stages = 2,
                                  .ping_pong = 1,
                                  .rescale_slack = RESCALE_SLACK,
                                  .packed = packed_of(problem->group),
                                  .softcap = problem->softcap};
  if (pass != KJIT_SERVING_ATTEND) return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_prefill_sm90 has one pass");
  const char *why_not = why_not_worth_it(problem, config.consumers, place->sm_count);
  if (!why_not) why_not = why_not_loaded(problem);
  if (!why_not) {
    config.loads = loads_of(problem);
    config.few = has_few(problem, config.packed);
    choose_tile(&config);
    if (!pages_fit(problem->page_size, config.tile_n)) load_row_by_row(&config);
  }
  if (why_not) return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_prefill_sm90 does not take %s", why_not);
  memcpy(values, &config, sizeof config);
  prefill_family.canonicalize(&prefill_family, values);
  return KJIT_OK;
}

static uint32_t runs(const int32_t *values, uint32_t multiprocessors) {
  (void)values;
  return multiprocessors;
}

/* The order of the sequences, for each block of threads; in whole units of 16 bytes. */
size_t prefill_order_bytes(uint32_t run_count, int64_t batch) {
  return (size_t)integer_round_up((int64_t)run_count * batch, 4) * sizeof(int);
}

/* The order, and behind it the parts of divided tiles: O of a consumer's rows, and each row's maximum and sum. */
static size_t partial_bytes(const int32_t *values, uint32_t run_count, const struct serving_problem *problem) {
  const size_t part = SM90_GROUP_ROWS * (size_t)(prefill_config_view(values)->head_dim_v + 2) * sizeof(float);
  const size_t slots = (size_t)run_count * PREFILL_SLOTS_PER_BLOCK + PREFILL_MORE_SLOTS;
  if (!prefill_config_view(values)->few) return prefill_order_bytes(run_count, problem->batch);
  return prefill_order_bytes(run_count, problem->batch) + slots * part;
}

static int32_t undivided_rows(const int32_t *values) {
  return prefill_config_view(values)->few ? 0 : FEW_ROWS;
}

const struct serving_family prefill_serving_family = {.family = &prefill_family,
                                                      .arch = HOPPER_ARCH,
                                                      .undivided_rows = undivided_rows,
                                                      .waits = true,
                                                      .choose = choose,
                                                      .runs = runs,
                                                      .partial_bytes = partial_bytes,
                                                      .argument = prefill_argument};
