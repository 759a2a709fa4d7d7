/* The planner of attention_decode_sm90: which problems are its own, the config for each, and the number of runs.
 *
 * 1. The problem is one of few rows over many keys, or another family takes it.
 * 2. Tile, blocks of threads on an SM and stages follow from rows and head sizes, as measured on an H200: two blocks
 * for up to 16 rows of head size 128, one block with a larger tile else; as many stages as shared memory holds.
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
  COLUMNS_128 = 256,   /* columns of K and V together with head sizes of 128                 */
  ROWS_OF_A_WARP = 16  /* more rows make partial results that are slow to merge              */
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

/* As many runs as the card runs blocks of threads at a time. Where nearly as many are a multiple of the tiles, every
 * run lies in one tile, so that fewer partial results are written and merged. Where the tiles are many rounds of
 * blocks, each is a run of its own, and nothing is merged. */
uint32_t decode_runs(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                     uint32_t sm_count) {
  const int64_t resident = (int64_t)sm_count * config->blocks_per_sm, blocks = tiles->count * tiles->key_blocks;
  if (tiles->count >= MANY_ROUNDS * resident) return (uint32_t)tiles->count;
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

static kjit_status check_own(const kjit_attention_problem *problem, kjit_error *error) {
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  if (problem->head_dim % 8 != 0 || problem->head_dim > MAX_HEAD || problem->head_dim_v % 8 != 0 ||
      problem->head_dim_v > MAX_HEAD)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_decode_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  if (rows <= FEW_ROWS && problem->seq_kv >= LEAST_KEYS) return decode_check_problem(problem, error);
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_q is %lld and seq_kv %lld: attention_decode_sm90 is for at most 64 query rows of a key head "
                   "over at least 256 keys",
                   (long long)problem->seq_q, (long long)problem->seq_kv);
}

/* The largest number of stages that fits. */
static void fill_stages(kjit_attention_decode_sm90_config *config) {
  for (config->stages = 16; config->stages > 2 && !decode_fits(config); config->stages--)
    continue;
}

kjit_status decode_choose(const kjit_attention_problem *problem, kjit_attention_decode_sm90_config *out,
                          kjit_error *error) {
  kjit_status status = check_own(problem, error);
  if (status != KJIT_OK) return status;
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  const int64_t columns = problem->head_dim + problem->head_dim_v;
  const bool alone = rows > ROWS_OF_A_WARP || columns != COLUMNS_128;
  kjit_attention_decode_sm90_config config = {.dtype = problem->dtype,
                                              .head_dim = (int32_t)problem->head_dim,
                                              .head_dim_v = (int32_t)problem->head_dim_v,
                                              .causal = problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_q > 1,
                                              .rows = (int32_t)integer_round_up(rows, 16),
                                              .tile_n = alone && columns <= COLUMNS_128 ? 128 : 64,
                                              .blocks_per_sm = alone ? 1 : 2};
  fill_stages(&config);
  status = decode_check(&config, error);
  if (status == KJIT_OK) *out = config;
  return status;
}
