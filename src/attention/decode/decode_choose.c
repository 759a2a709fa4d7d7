/* The planner of attention_decode_sm90: which problems are its own, the config for each, and the number of runs.
 *
 * 1. The problem is one of few rows over many keys, or another family takes it.
 * 2. Tile and blocks of threads on an SM follow from rows and head sizes, as measured on an H200; as many stages as
 *    shared memory holds.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_choose.h"

#include <stdbool.h>

#include "base/error.h"
#include "base/integer.h"

enum {
  MAX_HEAD = 256,
  FEW_ROWS = DECODE_M, /* more query rows of a key head are bound by products, not by memory */
  LEAST_KEYS = 256,    /* fewer keys are a matter of the launch alone                        */
  MANY_ROUNDS = 3,     /* of tiles over the card: the last one is a small part of the time   */
  ROWS_OF_A_WARP = 16, /* so many rows use the products that a tile makes in any case        */
  SHORT_CACHE = 1024,  /* keys of which a head takes so long that a last round of few heads is noticed */
  ELEMENT_BYTES = 2,
  MERGE_NS = 6000,         /* what merging adds to a launch, about, on an H200 */
  MEMORY_BYTES_A_NS = 4200 /* that an H200 reads                               */
};

#define MAX_SEQ    (INT64_C(1) << 30)
#define MAX_BLOCKS (INT64_C(1) << 30)

struct decode_tiles decode_tiles_of(const kjit_attention_problem *problem,
                                    const kjit_attention_decode_sm90_config *config) {
  struct decode_tiles tiles;
  tiles.row_tiles = integer_divide_up(problem->seq_q * (problem->heads_q / problem->heads_kv), config->rows);
  tiles.count = problem->batch * problem->heads_kv * tiles.row_tiles;
  tiles.key_blocks = integer_divide_up(problem->seq_kv, config->tile_n);
  return tiles;
}

/* Would equal runs save less time than merging takes, where whole tiles already keep most of the card busy? */
static bool is_better_whole(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                            int64_t resident) {
  if (2 * tiles->count < resident) return false;
  const int64_t rounds = integer_divide_up(tiles->count, resident);
  const int64_t saved = rounds * tiles->key_blocks - integer_divide_up(tiles->count * tiles->key_blocks, resident);
  const int64_t block_bytes = (int64_t)config->tile_n * (config->head_dim + config->head_dim_v) * ELEMENT_BYTES;
  return saved * block_bytes * resident < (int64_t)MERGE_NS * MEMORY_BYTES_A_NS;
}

/* As many runs as the card runs blocks of threads at a time. Where nearly as many are a multiple of the tiles, every
 * run lies in one tile, so that fewer partial results are written and merged. Where the tiles are many rounds of
 * blocks, or have few keys, each is a run of its own, and nothing is merged. */
uint32_t decode_runs(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                     uint32_t sm_count) {
  const int64_t resident = (int64_t)sm_count * config->blocks_per_sm, blocks = tiles->count * tiles->key_blocks;
  if (tiles->count >= MANY_ROUNDS * resident || is_better_whole(tiles, config, resident)) return (uint32_t)tiles->count;
  const int64_t even = tiles->count <= resident ? resident / tiles->count * tiles->count : 0;
  const int64_t runs = even * 16 >= resident * 15 ? even : resident;
  return (uint32_t)integer_min(runs, blocks);
}

/* ---- Choosing ---- */

kjit_status decode_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  const int64_t heads = problem->batch * problem->heads_q;
  if (problem->seq_q <= MAX_SEQ && problem->seq_kv <= MAX_SEQ &&
      integer_divide_up(problem->seq_kv, 16) <= MAX_BLOCKS / integer_max(heads, 1) / problem->seq_q)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_kv is %lld: attention_decode_sm90 takes at most 2^34 keys over all rows of all heads",
                   (long long)problem->seq_kv);
}

/* Where heads alone fill the card and a tile's rows are used, attention_sm90 needs no splits and is faster. */
static bool is_many_rows_of_many_heads(const kjit_attention_problem *problem, int64_t rows, uint32_t sm_count) {
  return rows >= ROWS_OF_A_WARP && problem->batch * problem->heads_kv * 5 >= (int64_t)sm_count * 4;
}

static kjit_status check_own(const kjit_attention_problem *problem, uint32_t sm_count, kjit_error *error) {
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  if (problem->head_dim % 8 != 0 || problem->head_dim > MAX_HEAD || problem->head_dim_v % 8 != 0 ||
      problem->head_dim_v > MAX_HEAD)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_decode_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  if (rows <= FEW_ROWS && problem->seq_kv >= LEAST_KEYS && !is_many_rows_of_many_heads(problem, rows, sm_count))
    return decode_check_problem(problem, error);
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_q is %lld and seq_kv %lld: attention_decode_sm90 is for at most 64 query rows of a key head "
                   "over at least 256 keys, and for fewer than 16 where key heads fill the card",
                   (long long)problem->seq_q, (long long)problem->seq_kv);
}

/* The largest number of stages that fits, if any. */
static bool fill_stages(kjit_attention_decode_sm90_config *config) {
  for (config->stages = 16; config->stages > 2 && !decode_fits(config); config->stages--)
    continue;
  return decode_fits(config);
}

/* Heads of few keys that are more than two blocks an SM take at once, but not more than four. */
static bool has_one_round_of_four(const kjit_attention_problem *problem, uint32_t sm_count) {
  const int64_t heads = problem->batch * problem->heads_kv;
  return problem->seq_kv <= SHORT_CACHE && heads > 2 * (int64_t)sm_count && heads <= 4 * (int64_t)sm_count;
}

/* Keys of a block and blocks of threads on an SM, as measured on an H200: two or three of them where registers and
 * shared memory allow, because one computes while others wait. Of wide rows one, since so many partial results of
 * more than 16 rows are slow to merge. */
static void choose_tile(const kjit_attention_problem *problem, int64_t rows, uint32_t sm_count,
                        kjit_attention_decode_sm90_config *config) {
  static const struct {
    int32_t columns, rows, tile_n, blocks_per_sm;
  } tiles[] = {{64, 16, 64, 4},  {64, 64, 128, 3},  {64, 64, 128, 2}, {128, 16, 64, 3},
               {128, 16, 64, 2}, {128, 64, 128, 1}, {256, 64, 64, 1}};
  const int32_t columns = config->head_dim > config->head_dim_v ? config->head_dim : config->head_dim_v;
  for (size_t i = has_one_round_of_four(problem, sm_count) ? 0 : 1; i < sizeof tiles / sizeof *tiles; i++) {
    if (columns > tiles[i].columns || rows > tiles[i].rows) continue;
    config->tile_n = tiles[i].tile_n;
    config->blocks_per_sm = tiles[i].blocks_per_sm;
    if (fill_stages(config)) return;
  }
}

kjit_status decode_choose(const kjit_attention_problem *problem, uint32_t sm_count,
                          kjit_attention_decode_sm90_config *out, kjit_error *error) {
  kjit_status status = check_own(problem, sm_count, error);
  if (status != KJIT_OK) return status;
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  kjit_attention_decode_sm90_config config = {.dtype = problem->dtype,
                                              .head_dim = (int32_t)problem->head_dim,
                                              .head_dim_v = (int32_t)problem->head_dim_v,
                                              .causal = problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_q > 1,
                                              .rows = (int32_t)integer_round_up(rows, 16)};
  choose_tile(problem, rows, sm_count, &config);
  status = decode_check(&config, error);
  if (status == KJIT_OK) *out = config;
  return status;
}
