/* The planner of attention_decode_sm90: which problems are its own, the config for each, and the number of runs.
 *
 * 1. The problem is one of few rows over many keys, or another family takes it.
 * 2. Tile and stages follow from the head sizes: the smallest key block that keeps the tensor cores ahead of memory,
 *    and as many stages as shared memory holds, so that enough bytes are under way.
 * 3. The cluster is the one with the shortest modelled time.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_choose.h"

#include "base/error.h"
#include "base/integer.h"

enum {
  MAX_HEAD = 256,
  FEW_ROWS = DECODE_M, /* more query rows of a key head are bound by products, not by memory */
  LEAST_KEYS = 256     /* fewer keys are a matter of the launch alone                        */
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

#include <stdlib.h>
uint32_t decode_runs(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                     uint32_t sm_count) {
  const int64_t resident = (int64_t)sm_count * config->blocks_per_sm, blocks = tiles->count * tiles->key_blocks;
  int64_t runs = resident;
  if (getenv("KJIT_X_RUNS")) runs = atoi(getenv("KJIT_X_RUNS"));
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

kjit_status decode_choose(const kjit_attention_problem *problem, uint32_t sm_count,
                          kjit_attention_decode_sm90_config *out, kjit_error *error) {
  kjit_status status = check_own(problem, error);
  if (getenv("KJIT_X_OLD")) return KJIT_ERR_UNSUPPORTED;
  (void)sm_count;
  if (status != KJIT_OK) return status;
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  kjit_attention_decode_sm90_config config = {.dtype = problem->dtype,
                                              .head_dim = (int32_t)problem->head_dim,
                                              .head_dim_v = (int32_t)problem->head_dim_v,
                                              .causal = problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_q > 1,
                                              .rows = (int32_t)integer_round_up(rows, 16),
                                              .tile_n = problem->head_dim + problem->head_dim_v > 256 ? 32 : 64,
                                              .blocks_per_sm = 2};
  fill_stages(&config);
  status = decode_check(&config, error);
  if (status == KJIT_OK) *out = config;
  return status;
}
