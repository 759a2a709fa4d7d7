/* The planner of attention_short_sm90: which problems are its own, and the config for each.
 *
 * 1. The problem has few keys and enough tiles to fill the card, or another family takes it.
 * 2. Consumers and blocks on an SM: as many warpgroups as registers allow, because one computes while others wait.
 * 3. What shared memory is left holds more tiles of Q, or more heads' K and V, whichever a block reads more of.
 *
 * Threads: pure functions. */
#include "attention/short/short_choose.h"

#include <stdbool.h>

#include "attention/sm90/sm90_choose.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  MAX_HEAD = 256,
  MAX_KEYS = 256,
  KEY_STEP = 16,
  FEW_TILES = 4,      /* of a key head: with more, Q is most of what is read */
  MOST_HEADS = 4,     /* in shared memory; with more nothing was gained */
  MOST_QUERIES = 3,   /* tiles of a consumer, as heads */
  MANY_TILES = 32,    /* of a key head, where rows are no whole lines: with more tiles, and no more than */
  LEAST_KEYS = 64,    /* so many keys and */
  NARROW_V = 96,      /* columns of V, attention_sm90 is faster */
  PACKED_V = 128,     /* columns of V up to which grouped heads of so many */
  PACKED_ROUNDS = 8,  /* tiles for each multiprocessor are packed more rarely */
  WIDE_KEYS = 240,    /* with more, and more columns of V than */
  WIDE_V = 96,        /* these, three consumers' scores and products spill */
  LONG_TRIANGLE = 224 /* queries and keys under a causal mask */
};

int64_t short_tiles(const kjit_attention_problem *problem) {
  return integer_divide_up(problem->seq_q, SHORT_ROWS) * problem->heads_q * problem->batch;
}

kjit_status short_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  return sm90_check_problem(problem, error);
}

/* Where heads share keys and queries are few, attention_sm90 packs heads into the rows that a tile has left: a third
 * fewer tiles are worth that. Of many tiles of heads that several warpgroups compute here, only half as many are: with
 * five tiles for eight 78 queries and keys of 400 x 12/3 heads of 64 columns take 90 us on an H100, and 51 here. */
static bool wants_packing(const kjit_attention_problem *problem, uint32_t sm_count) {
  const int64_t group = problem->heads_q / problem->heads_kv;
  const int64_t packed = integer_divide_up(group * problem->seq_q, SHORT_ROWS);
  const int64_t whole = group * integer_divide_up(problem->seq_q, SHORT_ROWS);
  const bool has_many = problem->head_dim_v <= PACKED_V && short_tiles(problem) >= PACKED_ROUNDS * (int64_t)sm_count;
  return has_many ? 2 * packed <= whole : 3 * packed <= 2 * whole;
}

/* A tile of Q whose rows are no whole lines of 128 bytes shares lines with the tiles of other heads. attention_sm90's
 * tiles of 192 queries take fewer of them: 80 columns, 885 queries, 28 keys 204 us on an H100 and 228 here; 40 columns,
 * 4,096 queries, 43 keys 292 us on an H200 and 345. */
static bool is_read_in_parts_of_lines(const kjit_attention_problem *problem) {
  const int64_t head_tiles = integer_divide_up(problem->seq_q, SHORT_ROWS) * (problem->heads_q / problem->heads_kv);
  return problem->head_dim % SHORT_BAND_COLUMNS && problem->head_dim_v <= NARROW_V && problem->seq_kv <= LEAST_KEYS &&
         head_tiles > MANY_TILES && !(problem->flags & KJIT_ATTENTION_CAUSAL);
}

/* A causal mask leaves a tile of 128 queries few steps of 128 keys, and O's memory of its own makes their change cheap
 * in attention_sm90: 256 tokens of 64 columns take 86 us on an H200 there and 113 here. */
static bool is_long_triangle(const kjit_attention_problem *problem) {
  return problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_kv > LONG_TRIANGLE && problem->seq_q > LONG_TRIANGLE &&
         problem->head_dim_v >= SHORT_BAND_COLUMNS;
}

static kjit_status check_own(const kjit_attention_problem *problem, uint32_t sm_count, kjit_error *error) {
  if (problem->head_dim % 8 != 0 || problem->head_dim > MAX_HEAD || problem->head_dim_v % 8 != 0 ||
      problem->head_dim_v > MAX_HEAD)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_short_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  if (is_read_in_parts_of_lines(problem))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld: many queries over at most 64 keys are for attention_short_sm90 with multiples "
                     "of 64 or more than 96 columns",
                     (long long)problem->head_dim);
  if (is_long_triangle(problem))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "seq_kv is %lld: attention_short_sm90 takes up to %d keys of causal queries with 64 columns and "
                     "more",
                     (long long)problem->seq_kv, LONG_TRIANGLE);
  if (problem->seq_kv <= MAX_KEYS && short_tiles(problem) >= (int64_t)sm_count && !wants_packing(problem, sm_count))
    return short_check_problem(problem, error);
  return error_set(
      error, KJIT_ERR_UNSUPPORTED,
      "seq_q is %lld and seq_kv %lld: attention_short_sm90 is for up to 256 keys, at least one tile of "
      "64 queries for each of %u multiprocessors, and tiles that are more than half full where heads share keys",
      (long long)problem->seq_q, (long long)problem->seq_kv, sm_count);
}

/* Warpgroups, blocks on an SM, heads in shared memory, and tiles of Q of a warpgroup, the better ones first, as
 * measured on an H200; docs/lab-notes/dense.md. A head of many tiles is read long before the next one is needed, so one
 * of them is enough where two would leave room for few warpgroups. With few tiles of a head two warpgroups with one
 * tile of Q each are better than one with two: 178 causal queries and keys of 64 heads of 128 columns 11.7 us on an
 * H100, and 13.5. */
struct shape {
  int32_t consumers, blocks_per_sm, stages, q_buffers;
};
enum { SHAPES = 7 };
static const struct shape shapes_of_many_heads[SHAPES] = {{2, 2, 2, 2}, {4, 1, 2, 2}, {3, 1, 2, 2},
                                                          {2, 1, 2, 2}, {2, 1, 2, 1}, {1, 1, 2, 2}};
static const struct shape shapes_of_many_tiles[SHAPES] = {{4, 1, 2, 2}, {2, 2, 2, 2}, {3, 1, 2, 2}, {3, 1, 1, 2},
                                                          {2, 1, 2, 2}, {2, 1, 1, 2}, {1, 1, 2, 2}};

/* ptxas gives a thread of three consumers and their producer 128 registers, as many as its scores of 256 keys take
 * alone: 384 bytes spill, and 252 keys of 128 columns take 341 us on an H100 where two consumers take 262. */
static bool spills(const kjit_attention_short_sm90_config *config) {
  return config->consumers == SHORT_CONSUMERS_WITH_GROUP && config->tile_n > WIDE_KEYS && config->head_dim_v > WIDE_V;
}

/* Take the first shape whose registers and shared memory hold the problem. */
static bool choose_shape(const struct shape shapes[SHAPES], kjit_attention_short_sm90_config *config) {
  for (size_t i = 0; i < SHAPES && shapes[i].consumers; i++) {
    config->consumers = shapes[i].consumers;
    config->blocks_per_sm = shapes[i].blocks_per_sm;
    config->stages = shapes[i].stages;
    config->q_buffers = shapes[i].q_buffers;
    if (short_fits(config) && !spills(config)) return true;
  }
  return false;
}

/* More of what a block reads most of, up to `most`, as far as shared memory goes. */
static void use_room(int32_t *more, int32_t most, const kjit_attention_short_sm90_config *config) {
  while (*more < most) {
    ++*more;
    if (short_fits(config)) continue;
    --*more;
    return;
  }
}

kjit_status short_choose(const kjit_attention_problem *problem, uint32_t sm_count,
                         kjit_attention_short_sm90_config *out, kjit_error *error) {
  kjit_status status = check_own(problem, sm_count, error);
  if (status != KJIT_OK) return status;
  kjit_attention_short_sm90_config config = {.dtype = problem->dtype,
                                             .head_dim = (int32_t)problem->head_dim,
                                             .head_dim_v = (int32_t)problem->head_dim_v,
                                             .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                             .tile_n = (int32_t)integer_round_up(problem->seq_kv, KEY_STEP)};
  const int64_t head_tiles = integer_divide_up(problem->seq_q, SHORT_ROWS) * (problem->heads_q / problem->heads_kv);
  const bool has_many_tiles = head_tiles > FEW_TILES;
  if (!choose_shape(has_many_tiles ? shapes_of_many_tiles : shapes_of_many_heads, &config))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "seq_kv is %lld: too many for attention_short_sm90 with head_dim %lld", (long long)problem->seq_kv,
                     (long long)problem->head_dim);
  if (has_many_tiles)
    use_room(&config.q_buffers, MOST_QUERIES, &config);
  else
    use_room(&config.stages, MOST_HEADS, &config);
  status = short_check(&config, error);
  if (status == KJIT_OK) *out = config;
  return status;
}
