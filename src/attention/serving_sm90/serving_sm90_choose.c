/* When attention_serving_sm90 computes a serving problem, and with which config.
 *
 * 1. The problem must be one that TMA can load: no keys padded on the left, pages of a multiple of 8 positions. Only
 *    the kernels of steps 3 (pages of 1, 2 and 4) and 4 (pages of 1) take smaller ones.
 * 2. 64 rows of a tile, however few there are, because a warp without rows computes no softmax: measured on an H200,
 *    16 or 32 rows were no faster (0.999 in the mean of 8 problems) and needed two more kernels of a model. With a
 *    cache of 8 bits, where rows decide how warps divide the keys, and with heads of more than 128 columns, where Q
 *    takes more of the shared memory, 16, 32 or 64: the fewest that hold a sequence's packed rows. Measured on an
 *    H200: two blocks of threads on a multiprocessor with 64 keys, of which with head sizes above 64 two stages are 1
 *    to 3 % faster than three; with heads of more than 128 columns one block, and as many stages as shared memory
 *    holds.
 * 3. The kernel with little code (one_part) for a simple decoding call with so few tiles that each gets at least four
 *    blocks of threads. One kernel is for all numbers of rows up to 64. Measured on an H200, beside the other: 1.06 to
 *    2 times as fast with up to 64 tiles, 0.98 with 128 tiles, 0.93 with 192 tiles. Another one, of 128 rows, is for
 *    more rows, with so few tiles that each gets two blocks of threads: 1.6 to 2.4 times as fast. With heads of up to
 *    64 columns blocks of 128 keys are as many bytes as 64 keys of 128 columns: 1.09 and 1.13 times as fast with
 *    lengths of 200 to 16,000, 1.00 in the mean of 24 problems of equal lengths. Calls without new keys have a kernel
 *    whose boxes are loaded by a warpgroup of its own: 1.03 times as fast in 16 problems (1.01 at least), but with new
 *    keys 0.94 to 1.10.
 * 4. The same with more tiles, several of which a block of threads computes one after the other (runs). Measured on an
 *    H200: 0.99 to 1.24 times as fast with up to 64 rows, 1.04 in the mean of 25 problems; with more 0.97 to 1.52
 *    times, 1.22 in the mean of 18. With up to 64 rows one box of TMA has all bands of a head where pages hold it.
 *    In pages of one position, with heads of more than 64 columns, 1.12 times as fast in the mean of 13 problems (1.01
 *    to 1.41).
 * 5. With a cache of 8 bits one kernel of each tile of step 2 is for few tiles and for runs of more, with heads of all
 *    sizes. Measured on an H200, beside the kernels before: 1.04 to 2.2 times as fast in 11 problems of heads of 128 to
 *    256 columns, 0.98 with heads of 64 columns; few tiles of up to 128 columns 0.94 to 1.05, before these were found
 *    with less code.
 *
 * Pure; any thread. */
#include <string.h>

#include "attention/rule.h"
#include "attention/serving/serving_box.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  LEAST_BOX = 8, /* rows of a box: the swizzle's pattern repeats after as many */
  MAX_STAGES = 16,
  ONE_PART_BOXES = 32,                              /* of all stages: a lane of a warp has each */
  ONE_PART_MAX_HEAD = 128,                          /* columns of K or V */
  ONE_PART_MAX_BATCH = 64,                          /* a lane of a warp has two sequences */
  ONE_PART_BLOCKS_PER_SM = 2,                       /* blocks of threads */
  ONE_PART_BLOCKS_OF_TILE = SERVING_SM90_FEW_TILES, /* blocks of threads for a tile; and the same */
  RUNS_MAX_BATCH = 256,                             /* a lane has eight sequences */
  NARROW_RUNS_MAX_BATCH = 128,                      /* a lane has four sequences */
  GATHERED_STAGES = 3,                              /* two lose up to 6 % with runs */
  RUNS_TILES_PER_SM = 7,                            /* at most, so that their blocks of keys are fewer than 2^30 */
  RUNS_ABREAST = 8,                                 /* key heads abreast, which have a line each, */
  RUNS_TILES_PER_SM_ABREAST = 16,                   /* and so the same of these */
  MANY_ROWS = 128,                                  /* of two warpgroups */
  MANY_ROWS_BLOCKS_PER_SM = 1,                      /* with more than 64 rows of a sequence */
  MANY_ROWS_BLOCKS_OF_TILE = 2,
  MANY_ROWS_LEAST_BOX = 16, /* positions of the smallest page */
};

static const char *why_not(const struct serving_problem *problem) {
  if (!problem->is_plain) return "keys padded on the left, or strides that TMA does not take";
  if (!rule_is_head(problem->head_dim) || !rule_is_head(problem->head_dim_v))
    return "head sizes other than multiples of 8 up to 256";
  return NULL;
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

/* Rows of the smallest tile that holds so many packed rows, or of the largest tile. */
static int32_t rows_of(int64_t packed_rows) {
  return packed_rows <= 16 ? 16 : packed_rows <= 32 ? 32 : 64;
}

static int32_t widest_head(const struct serving_sm90_config *config) {
  return config->head_dim > config->head_dim_v ? config->head_dim : config->head_dim_v;
}

/* Rows of a tile of step 2. */
static int32_t rows_of_config(const struct serving_sm90_config *config, int64_t packed_rows) {
  return serving_sm90_is_narrow(config) || widest_head(config) > 128 ? rows_of(packed_rows) : SERVING_SM90_M;
}

/* Step 2. */
static void choose_tile(struct serving_sm90_config *config, int64_t packed_rows) {
  const int32_t widest = widest_head(config);
  config->rows = rows_of_config(config, packed_rows);
  config->blocks_per_sm = widest <= 128 ? 2 : 1;
  if (serving_sm90_is_narrow(config)) {
    choose_narrow_tile(config);
    return;
  }
  config->keys = 64;
  while (!fill_stages(config, widest > 64 && widest <= 128 ? 2 : MAX_STAGES))
    config->keys /= 2;
}

/* No box of TMA fits its pages. */
static bool is_gathered(const struct serving_problem *problem) {
  return problem->page_size % LEAST_BOX != 0;
}

/* Step 5, of which a sequence has one tile for each key head. */
static bool is_for_narrow_runs(const struct serving_problem *problem, uint32_t multiprocessors) {
  const int64_t page = problem->page_size, most = (int64_t)multiprocessors * RUNS_TILES_PER_SM;
  return problem->is_simple && !problem->rotates && !problem->softcap && problem->packed_rows <= SERVING_SM90_M &&
         problem->batch <= NARROW_RUNS_MAX_BATCH && (page & (page - 1)) == 0 && !is_gathered(problem) &&
         problem->batch * problem->heads_kv <= most;
}

/* Runs load row by row in pages of one position, with heads of more than 64 columns. Otherwise attention_serving is as
 * fast or faster: on an H200 it takes 0.98 of the time of runs in pages of 4 positions, 0.99 to 1.00 in pages of 2, and
 * 0.85 with heads of up to 64 columns. */
static bool gathers_runs(const struct serving_problem *problem) {
  return problem->page_size == 1 && integer_max(problem->head_dim, problem->head_dim_v) > SERVING_SM90_BAND_COLUMNS;
}

/* What steps 3 and 4 have in common. */
static bool is_simple_call(const struct serving_problem *problem, int64_t max_batch) {
  const int64_t page = problem->page_size;
  const bool has_many_rows = problem->packed_rows > SERVING_SM90_M;
  return problem->is_plain && problem->is_simple && !problem->softcap && !problem->is_narrow &&
         problem->head_dim <= ONE_PART_MAX_HEAD && problem->head_dim_v <= ONE_PART_MAX_HEAD &&
         problem->batch <= max_batch && (page & (page - 1)) == 0 &&
         (!has_many_rows || (page % MANY_ROWS_LEAST_BOX == 0 && !problem->rotates));
}

/* Tiles of the batch, or more than `most`. */
static int64_t count_tiles(const struct serving_problem *problem, int64_t most) {
  const int64_t rows = problem->packed_rows > SERVING_SM90_M ? MANY_ROWS : SERVING_SM90_M;
  const int64_t row_tiles = integer_divide_up(problem->packed_rows, rows);
  if (row_tiles > most || problem->heads_kv > most || problem->batch > most) return most + 1;
  return problem->batch * problem->heads_kv > most ? most + 1 : problem->batch * problem->heads_kv * row_tiles;
}

/* Step 3. */
bool serving_sm90_is_for_one_part(const struct serving_problem *problem, uint32_t multiprocessors) {
  const bool has_many_rows = problem->packed_rows > SERVING_SM90_M;
  const int64_t blocks = (int64_t)multiprocessors * (has_many_rows ? MANY_ROWS_BLOCKS_PER_SM : ONE_PART_BLOCKS_PER_SM);
  const int64_t most = blocks / (has_many_rows ? MANY_ROWS_BLOCKS_OF_TILE : ONE_PART_BLOCKS_OF_TILE);
  return is_simple_call(problem, ONE_PART_MAX_BATCH) && count_tiles(problem, most) <= most;
}

/* Of up to 64 rows, for each multiprocessor, in runs. */
static int64_t tiles_of_runs(const struct serving_problem *problem, int64_t multiprocessors) {
  const int64_t blocks = multiprocessors * ONE_PART_BLOCKS_PER_SM;
  const bool is_abreast = problem->heads_kv % RUNS_ABREAST == 0 && blocks % RUNS_ABREAST == 0;
  return is_abreast && !is_gathered(problem) ? RUNS_TILES_PER_SM_ABREAST : RUNS_TILES_PER_SM;
}

/* Step 4. */
bool serving_sm90_is_for_runs(const struct serving_problem *problem, uint32_t multiprocessors) {
  const int64_t all = multiprocessors;
  if (problem->is_narrow) return is_for_narrow_runs(problem, multiprocessors);
  if (serving_sm90_is_for_one_part(problem, multiprocessors) || problem->rotates) return false;
  if (is_gathered(problem) && !gathers_runs(problem)) return false;
  if (problem->packed_rows <= SERVING_SM90_M) {
    const int64_t most_of_few_rows = all * tiles_of_runs(problem, all);
    return is_simple_call(problem, RUNS_MAX_BATCH) && count_tiles(problem, most_of_few_rows) <= most_of_few_rows;
  }
  const int64_t most = problem->packed_rows <= MANY_ROWS ? all * 11 / 10 : all * 5 / 6;
  return is_simple_call(problem, ONE_PART_MAX_BATCH) && count_tiles(problem, most) <= most;
}

void serving_sm90_set_few_rows(struct serving_sm90_config *config) {
  config->rows = SERVING_SM90_M;
  config->keys = widest_head(config) <= SERVING_SM90_BAND_COLUMNS && !config->gathered ? 128 : 64;
  config->stages = 2;
  config->blocks_per_sm = ONE_PART_BLOCKS_PER_SM;
}

/* `loads`: the warpgroup that multiplies few tiles loads boxes too. */
static void choose_one_part(struct serving_sm90_config *config, const struct serving_problem *problem, bool has_runs,
                            bool loads) {
  if (problem->is_narrow) {
    const bool is_wide = widest_head(config) > ONE_PART_MAX_HEAD;
    config->one_part = 1;
    config->runs = has_runs;
    config->rows = rows_of(problem->packed_rows);
    config->blocks_per_sm = is_wide ? 1 : ONE_PART_BLOCKS_PER_SM;
    config->keys = is_wide ? 64 : 128;
    while (!fill_stages(config, ONE_PART_BOXES * LEAST_BOX / config->keys))
      config->keys /= 2;
    return;
  }
  config->one_part = 1;
  config->runs = has_runs;
  config->gathered = is_gathered(problem);
  config->grouped =
      has_runs && problem->packed_rows <= SERVING_SM90_M && !config->gathered && serving_box_has_all_bands(problem);
  if (problem->packed_rows <= SERVING_SM90_M) {
    serving_sm90_set_few_rows(config);
    config->apart = !has_runs && !config->gathered && !loads;
    if (config->gathered) fill_stages(config, GATHERED_STAGES);
    return;
  }
  config->rows = MANY_ROWS;
  config->keys = 128;
  config->stages = 3;
  config->blocks_per_sm = MANY_ROWS_BLOCKS_PER_SM;
}

/* What follows from the problem alone. */
static struct serving_sm90_config config_of(const struct serving_problem *problem) {
  return (struct serving_sm90_config){.dtype = problem->dtype,
                                      .cache = problem->is_narrow ? KJIT_FP8_E4M3 : problem->dtype,
                                      .head_dim = (int32_t)problem->head_dim,
                                      .head_dim_v = (int32_t)problem->head_dim_v,
                                      .softcap = problem->softcap};
}

bool serving_sm90_choose_one_part(const struct serving_problem *problem, uint32_t multiprocessors,
                                  struct serving_sm90_config *out) {
  if (why_not(problem) || !serving_sm90_is_for_one_part(problem, multiprocessors)) return false;
  *out = config_of(problem);
  choose_one_part(out, problem, false, true);
  return true;
}

/* The kernel appends new keys or rotates Q. */
static bool has_new_keys(const struct serving_problem *problem) {
  return problem->meets_new_keys || problem->rotates;
}

static kjit_status choose(const struct serving_problem *problem, kjit_serving_pass pass,
                          const struct family_place *place, int32_t *values, kjit_error *error) {
  if (pass != KJIT_SERVING_ATTEND) return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_serving_sm90 has one pass");
  const char *reason = why_not(problem);
  if (reason) return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_serving_sm90 does not take %s", reason);
  struct serving_sm90_config config = config_of(problem);
  const bool has_runs = serving_sm90_is_for_runs(problem, place->sm_count);
  if (has_runs || serving_sm90_is_for_one_part(problem, place->sm_count))
    choose_one_part(&config, problem, has_runs, has_new_keys(problem));
  else if (problem->page_size % LEAST_BOX == 0)
    choose_tile(&config, problem->packed_rows);
  else
    return error_set(
        error, KJIT_ERR_UNSUPPORTED,
        "attention_serving_sm90 does not take so many tiles in pages of other than a multiple of 8 positions");
  memcpy(values, &config, sizeof config);
  return KJIT_OK;
}

static int32_t tile_rows(const int32_t *values) {
  return serving_sm90_view(values)->rows;
}

static uint32_t runs(const int32_t *values, uint32_t multiprocessors) {
  return multiprocessors * (uint32_t)serving_sm90_view(values)->blocks_per_sm;
}

/* What attention_serving takes, which computes larger batches in the same pages. */
static size_t general_partial_bytes(uint32_t multiprocessors, const struct serving_problem *problem) {
  static const struct family_place hopper = {.arch = HOPPER_ARCH, .shared_per_block = SERVING_SM90_SHARED_BYTES};
  const struct serving_family *general = serving_families[SERVING_FAMILY_COUNT - 1];
  int32_t values[SERVING_FIELDS_MAX];
  if (general->choose(problem, KJIT_SERVING_ATTEND, &hopper, values, NULL) != KJIT_OK) return 0;
  return general->partial_bytes(values, general->runs(values, multiprocessors), problem);
}

/* A run ends the tile of another, and begins one that another ends: two slots. With one_part one slot, of the rows that
 * exist, is enough; it takes as much as what computes other batches, so that the bytes that a caller provides are right
 * for every batch. */
static size_t partial_bytes(const int32_t *values, uint32_t run_count, const struct serving_problem *problem) {
  struct serving_sm90_config config = *serving_sm90_view(values);
  if (config.gathered) return general_partial_bytes(run_count / (uint32_t)config.blocks_per_sm, problem);
  const int32_t of_others = config.one_part ? ONE_PART_BLOCKS_PER_SM / config.blocks_per_sm : 1;
  config.rows = rows_of_config(&config, problem->packed_rows);
  return 2 * (size_t)run_count * (size_t)of_others * serving_sm90_partial_bytes(&config);
}

/* Measured on an H200: the other kernels of this family took 2 % longer for calls without new keys when they had the
 * code for these, which costs registers and a comparison for each block of keys; and 0 to 2 % longer for those with. Of
 * those with one_part, that for 128 rows has no shared memory for it, and that for 8 bits keeps the append pass. */
static bool appends(const int32_t *values) {
  return serving_sm90_appends(serving_sm90_view(values));
}

const struct serving_family serving_sm90_serving_family = {.family = &serving_sm90_family,
                                                           .arch = HOPPER_ARCH,
                                                           .waits = true,
                                                           .appends = appends,
                                                           .choose = choose,
                                                           .tile_rows = tile_rows,
                                                           .runs = runs,
                                                           .partial_bytes = partial_bytes,
                                                           .argument = serving_sm90_argument};
