/* The planner of attention_decode_sm90: which problems are its own, and the config for each.
 *
 * 1. The problem is one of few rows over many keys, or another family takes it.
 * 2. Tile and blocks of threads on an SM are those of which a launch takes least by the model of decode_runs.h; as many
 *    stages as shared memory holds.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_choose.h"

#include <stdbool.h>

#include "base/error.h"
#include "base/integer.h"

enum {
  MAX_HEAD = 256,
  FEW_ROWS = DECODE_M, /* more query rows of a key head are bound by products, not by memory */
  LEAST_KEYS = 256,    /* fewer keys are a matter of the launch alone, */
  LEAST_OF_MANY = 129, /* but where more heads than SMs share keys */
  ROWS_OF_A_WARP = 16  /* so many rows use the products that a tile makes in any case        */
};

#define MAX_SEQ    (INT64_C(1) << 30)
#define MAX_BLOCKS (INT64_C(1) << 30)

kjit_status decode_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  const int64_t heads = problem->batch * problem->heads_q;
  if (problem->seq_q <= MAX_SEQ && problem->seq_kv <= MAX_SEQ &&
      integer_divide_up(problem->seq_kv, 16) <= MAX_BLOCKS / integer_max(heads, 1) / problem->seq_q)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_kv is %lld: attention_decode_sm90 takes at most 2^34 keys over all rows of all heads",
                   (long long)problem->seq_kv);
}

/* Where heads alone fill the card and a tile's rows are used, attention_sm90 needs no splits and is faster. Of more
 * than half of a tile's rows the softmax takes so long that fewer heads are enough, because attention_sm90's keys are
 * loaded meanwhile: 44 rows of 96 heads over 11,055 keys of 112 columns take 195 us on an H100 there, 213 here. */
static bool is_many_rows_of_many_heads(const kjit_attention_problem *problem, int64_t rows, int64_t sm_count) {
  const int64_t heads = problem->batch * problem->heads_kv;
  return (rows >= ROWS_OF_A_WARP && heads * 5 >= sm_count * 4) || (rows > FEW_ROWS / 2 && heads * 3 >= sm_count * 2);
}

static kjit_status check_own(const kjit_attention_problem *problem, int64_t sm_count, kjit_error *error) {
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  if (problem->head_dim % 8 != 0 || problem->head_dim > MAX_HEAD || problem->head_dim_v % 8 != 0 ||
      problem->head_dim_v > MAX_HEAD)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_decode_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  const bool has_many = problem->batch * problem->heads_kv > sm_count && problem->heads_q > problem->heads_kv;
  const int64_t least = has_many && rows < ROWS_OF_A_WARP ? LEAST_OF_MANY : LEAST_KEYS;
  if (rows <= FEW_ROWS && problem->seq_kv >= least && !is_many_rows_of_many_heads(problem, rows, sm_count))
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

/* Keys of a block and blocks of threads on an SM: two or three of these where registers and shared memory allow,
 * because one computes while others wait. Of those that hold the columns and rows, the one is taken of which a launch
 * takes least, by the model, each with a handicap in per cent by which it was slower on an H200 than the model says. */
static void choose_tile(const kjit_attention_problem *problem, int64_t rows, const struct decode_card *card,
                        kjit_attention_decode_sm90_config *config) {
  static const struct {
    int32_t least_columns, columns, least_rows, rows, tile_n, blocks_per_sm, percent;
  } tiles[] = {{1, 64, 1, 64, 128, 3, 100},   {1, 64, 1, 64, 128, 2, 100},    {1, 64, 1, 16, 64, 4, 105},
               {65, 128, 1, 16, 64, 3, 96},   {65, 128, 1, 16, 64, 2, 100},   {65, 128, 1, 64, 128, 1, 103},
               {129, 160, 1, 16, 48, 1, 100}, {129, 192, 17, 64, 96, 1, 100}, {129, 256, 1, 64, 64, 1, 104}};
  const int32_t columns = config->head_dim > config->head_dim_v ? config->head_dim : config->head_dim_v;
  kjit_attention_decode_sm90_config candidate = *config;
  int64_t least = INT64_MAX;
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    if (columns < tiles[i].least_columns || columns > tiles[i].columns) continue;
    if (rows < tiles[i].least_rows || rows > tiles[i].rows) continue;
    candidate.tile_n = tiles[i].tile_n;
    candidate.blocks_per_sm = tiles[i].blocks_per_sm;
    if (!fill_stages(&candidate)) continue;
    const struct decode_tiles divided = decode_tiles_of(problem, &candidate);
    const int64_t time = decode_plan_of(&divided, &candidate, card).time * tiles[i].percent / 100;
    if (time >= least) continue;
    *config = candidate;
    least = time;
  }
}

kjit_status decode_choose(const kjit_attention_problem *problem, const struct decode_card *card,
                          kjit_attention_decode_sm90_config *out, kjit_error *error) {
  kjit_status status = check_own(problem, card->multiprocessors, error);
  if (status != KJIT_OK) return status;
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  kjit_attention_decode_sm90_config config = {.dtype = problem->dtype,
                                              .head_dim = (int32_t)problem->head_dim,
                                              .head_dim_v = (int32_t)problem->head_dim_v,
                                              .causal = problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_q > 1,
                                              .rows = (int32_t)integer_round_up(rows, 16)};
  choose_tile(problem, rows, card, &config);
  status = decode_check(&config, error);
  if (status == KJIT_OK) *out = config;
  return status;
}
