/* The planner of attention_short_sm90: which problems are its own, and the config for each.
 *
 * 1. The problem has few keys and enough tiles to fill the card, or another family takes it.
 * 2. Consumers and blocks on an SM: as many warpgroups as registers allow, because one computes while others wait.
 * 3. What shared memory is left holds more tiles of Q, or more heads' K and V, whichever a block reads more of.
 *
 * Threads: pure functions. */
#include "attention/short/short_choose.h"

#include <stdbool.h>

#include "attention/rule.h"
#include "attention/sm90/sm90_choose.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  MAX_KEYS = 256,
  KEY_STEP = 16,
  FEW_TILES = 4,      /* of a key head: with more, Q is most of what is read */
  MOST_HEADS = 4,     /* in shared memory; with more nothing was gained */
  MOST_QUERIES = 3,   /* tiles of a consumer, as heads */
  MANY_TILES = 32,    /* of a key head, where rows are no whole lines: with more tiles, and no more than */
  LEAST_KEYS = 64,    /* so many keys and */
  NARROW_V = 80,      /* columns of V, attention_sm90 is faster */
  PACKED_V = 192,     /* columns of V up to which grouped heads of so many */
  PACKED_ROUNDS = 8,  /* tiles for each multiprocessor are packed more rarely */
  WIDE_KEYS = 240,    /* with more, and more columns of V than */
  WIDE_V = 96,        /* these, three consumers' scores and products spill */
  LONG_TRIANGLE = 208 /* queries and keys under a causal mask */
};

int64_t short_tiles(const kjit_attention_problem *problem) {
  return integer_divide_up(problem->seq_q, SHORT_ROWS) * problem->heads_q * problem->batch;
}

kjit_status short_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  return sm90_check_problem(problem, error);
}

/* Where heads share keys and queries are few, attention_sm90 packs heads into the rows that a tile has left: a third
 * fewer tiles are worth that. Of many tiles of heads that several warpgroups compute here, only half as many are: with
 * five tiles for eight 78 queries and keys of 400 x 12/3 heads of 64 columns take 90 us on an H100, and 51 here, 35 of
 * 171 x 96/12 of 184 columns 237 on an H200, and 136 here. */
static bool wants_packing(const kjit_attention_problem *problem, uint32_t sm_count) {
  const int64_t group = problem->heads_q / problem->heads_kv;
  const int64_t packed = integer_divide_up(group * problem->seq_q, SHORT_ROWS);
  const int64_t whole = group * integer_divide_up(problem->seq_q, SHORT_ROWS);
  const bool has_many = problem->head_dim_v <= PACKED_V && short_tiles(problem) >= PACKED_ROUNDS * (int64_t)sm_count;
  return has_many ? 2 * packed <= whole : 3 * packed <= 2 * whole;
}

/* Tiles of a key head. */
static int64_t head_tiles_of(const kjit_attention_problem *problem) {
  return integer_divide_up(problem->seq_q, SHORT_ROWS) * (problem->heads_q / problem->heads_kv);
}

/* A tile of Q whose rows are no whole lines of 128 bytes shares lines with the tiles of other heads. attention_sm90's
 * tiles of 128 or 192 queries, neighbouring ones at the same time, take fewer of them (sm90_output.c): here and there,
 * us, on an H200: 120 columns, 1,539 queries, 41 keys 150 and 95 (on an H100 192 and 113); 176 columns, 1,884 queries,
 * 35 keys 96 and 81; 160 columns, 17,013 queries, 94 keys 183 and 166; heads that share keys, 88 columns, 1,372
 * queries, 99 keys 243 and 167. With more keys it is the other way round: 72 columns, 185 keys 184 and 196; 112
 * columns, 171 keys 171 and 214. */
static bool is_read_in_parts_of_lines(const kjit_attention_problem *problem, uint32_t sm_count) {
  const bool has_many = short_tiles(problem) >= PACKED_ROUNDS * (int64_t)sm_count;
  if (problem->head_dim % SHORT_BAND_COLUMNS == 0 || problem->flags & KJIT_ATTENTION_CAUSAL) return false;
  if (has_many && sm90_has_few_keys_of_parts(problem)) return true;
  return problem->head_dim_v <= NARROW_V && problem->seq_kv <= LEAST_KEYS && head_tiles_of(problem) > MANY_TILES;
}

/* A causal mask leaves a tile of 128 queries few steps of 128 keys, and O's memory of its own makes their change cheap
 * in attention_sm90: 256 tokens of 64 columns take 86 us on an H200 there and 113 here. */
static bool is_long_triangle(const kjit_attention_problem *problem) {
  return problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_kv > LONG_TRIANGLE && problem->seq_q > LONG_TRIANGLE &&
         problem->head_dim_v >= SHORT_BAND_COLUMNS;
}

static kjit_status check_own(const kjit_attention_problem *problem, const struct sm90_card *card, kjit_error *error) {
  const uint32_t sm_count = card->multiprocessors;
  if (!rule_is_head(problem->head_dim) || !rule_is_head(problem->head_dim_v))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_short_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  if (is_read_in_parts_of_lines(problem, sm_count))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld: many queries over at most 64 keys, or 96 of more than 80 columns, are for "
                     "attention_short_sm90 with multiples of 64 or more than 192 columns",
                     (long long)problem->head_dim);
  if (sm90_takes_few_keys(problem, card))
    return error_set(
        error, KJIT_ERR_UNSUPPORTED,
        "seq_kv is %lld: with slow memory many tiles of so few keys with %lld columns are attention_sm90's",
        (long long)problem->seq_kv, (long long)problem->head_dim);
  if (sm90_takes_long_heads(problem, card))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "seq_kv is %lld: attention_short_sm90 has room for one tile of Q alone, of many with %lld columns",
                     (long long)problem->seq_kv, (long long)problem->head_dim);
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

/* One head for each block of threads, of which the card starts one wherever another ends (short_call.c). */
static const struct shape shapes_beside[SHAPES] = {{1, 2, 1, 2}};
static const struct shape shapes_alone[SHAPES] = {{1, 4, 1, 2}};

/* One head's keys for all warpgroups, of many tiles (keeps_one_head()). */
static const struct shape shapes_of_one_head[SHAPES] = {{3, 1, 1, 2}};

/* ptxas gives a thread of three consumers and their producer 128 registers, as many as its scores of 256 keys take
 * alone: 384 bytes spill, and 252 keys of 128 columns take 341 us on an H100 where two consumers take 262. */
static bool spills(const kjit_attention_short_sm90_config *config) {
  return config->consumers == SHORT_CONSUMERS_WITH_GROUP && config->tile_n > WIDE_KEYS && config->head_dim_v > WIDE_V;
}

/* Where nothing else fits than one tile of Q for each of two warpgroups, a triangle of many tiles waits for every one
 * of them: 187 causal queries and keys of 13 x 48 heads of 72 columns 46 us on an H200 and 36 by attention_sm90 (52 and
 * 41 on an H100), 180 of 64 x 16 of 128 columns 71 and 58. With few tiles it is as fast here. */
static bool is_starved_triangle(const kjit_attention_problem *problem, uint32_t sm_count,
                                const kjit_attention_short_sm90_config *config) {
  return config->causal && config->q_buffers == 1 && config->head_dim_v >= SHORT_BAND_COLUMNS &&
         problem->seq_q > 2 * SHORT_ROWS && short_tiles(problem) >= PACKED_ROUNDS * (int64_t)sm_count;
}

/* Slow memory, and so many queries of heads whose rows are no whole lines that two heads' keys in shared memory are in
 * the way of what L2 keeps: 72 columns, heads first, 13 x 128 x 1,108/85 take 250 us on an H100 with one head's and
 * more than 352 with two, 60 x 32 x 500/80 154 and more than 175. What is less than 96 rounds of tiles is
 * attention_sm90's, from eight on (sm90_output.c). */
static bool keeps_one_head(const kjit_attention_problem *problem, const struct sm90_card *card) {
  return sm90_has_slow_memory(card) && sm90_has_long_queries_of_parts(problem);
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

/* Slow memory gives most to few bytes on their way: 128 queries and keys of 512 x 16 heads of 64 columns take 187.4 us
 * on an H100 with one block of two warpgroups for each multiprocessor and 190.2 with two, under a causal mask 187.9 and
 * 194.8. Smaller launches and tiles leave one block waiting: one query over 100 keys 37 with two. */
static bool wants_one_block(const kjit_attention_problem *problem, const struct sm90_card *card,
                            const kjit_attention_short_sm90_config *config) {
  enum { LEAST_TILES = 32, LEAST_LENGTH = 113 };
  return sm90_has_slow_memory(card) && config->consumers == 2 && config->blocks_per_sm == 2 &&
         problem->head_dim == SHORT_BAND_COLUMNS && problem->head_dim_v == SHORT_BAND_COLUMNS &&
         problem->seq_q >= LEAST_LENGTH && problem->seq_kv >= LEAST_LENGTH &&
         short_tiles(problem) >= LEAST_TILES * (int64_t)card->multiprocessors;
}

/* Heads of their own of up to 128 queries take four blocks of threads that have one head each, because the card starts
 * the next one wherever one ends, so that neighbouring heads are read and written at the same time all along. On an
 * H100, us, with them and with one block that goes on: 512 x 16 x 128 186 and 187 to 189, under a causal mask 188 and
 * 189, 250 x 32 x 120 172 and 172, heads first, 313 x 48 x 127 325 and 334. */
static bool wants_heads_alone(const kjit_attention_problem *problem) {
  return problem->heads_q == problem->heads_kv && problem->seq_q <= 2 * SHORT_ROWS;
}

/* Slow memory and heads whose rows are no whole sectors of 32 bytes or, of more than 128 columns, no whole lines: what
 * neighbouring heads share is found in L2 where two blocks at a time have one head each, and whole lines are fetched.
 * On an H100, us, with three consumers and two tiles each before, and with two consumers and one tile each in blocks
 * that go on: 88 columns, 120 x 32 x 120 131 (183 and 132), heads first, 98 x 128 x 115 381 (456 and 438), 104 columns,
 * heads first, 60 x 64 x 100 126 (131 and 133); with two consumers before, 184 columns, 53 x 64 x 77 142 (181). Heads
 * that share keys lose least by it: 72 columns, heads first, 375 x 12/6 x 125 113 (110 and 132). Up to 64 keys are
 * fewer bytes on their way. */
static bool is_read_beside(const kjit_attention_problem *problem, const struct sm90_card *card) {
  enum { LEAST = 65, MOST = 128, WIDE = 136, WIDEST = 192, SECTOR_COLUMNS = 16 };
  const int64_t columns = integer_max(problem->head_dim, problem->head_dim_v);
  if (short_tiles(problem) < PACKED_ROUNDS * (int64_t)card->multiprocessors) return false;
  const int64_t shared = problem->head_dim < WIDE ? SECTOR_COLUMNS : SHORT_BAND_COLUMNS;
  return sm90_has_slow_memory(card) && problem->head_dim % shared != 0 && columns <= WIDEST &&
         problem->head_dim > SHORT_BAND_COLUMNS && problem->seq_kv >= LEAST && problem->seq_kv <= MOST &&
         problem->seq_q >= LEAST && head_tiles_of(problem) <= FEW_TILES && !(problem->flags & KJIT_ATTENTION_CAUSAL);
}

bool short_shares_lines(const kjit_attention_problem *problem, const struct sm90_card *card,
                        const kjit_attention_short_sm90_config *config) {
  return config->consumers == 1 && config->stages == 1 && config->q_buffers == 2 && config->blocks_per_sm == 2 &&
         is_read_beside(problem, card);
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

kjit_status short_choose(const kjit_attention_problem *problem, const struct sm90_card *card,
                         kjit_attention_short_sm90_config *out, kjit_error *error) {
  const uint32_t sm_count = card->multiprocessors;
  kjit_status status = check_own(problem, card, error);
  if (status != KJIT_OK) return status;
  kjit_attention_short_sm90_config config = {.dtype = problem->dtype,
                                             .head_dim = (int32_t)problem->head_dim,
                                             .head_dim_v = (int32_t)problem->head_dim_v,
                                             .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                             .tile_n = (int32_t)integer_round_up(problem->seq_kv, KEY_STEP)};
  const bool has_many_tiles = head_tiles_of(problem) > FEW_TILES;
  const bool has_own_shape =
      (is_read_beside(problem, card) && choose_shape(shapes_beside, &config)) ||
      (has_many_tiles && keeps_one_head(problem, card) && choose_shape(shapes_of_one_head, &config));
  if (!has_own_shape && !choose_shape(has_many_tiles ? shapes_of_many_tiles : shapes_of_many_heads, &config))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "seq_kv is %lld: too many for attention_short_sm90 with head_dim %lld", (long long)problem->seq_kv,
                     (long long)problem->head_dim);
  if (is_starved_triangle(problem, sm_count, &config))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "seq_kv is %lld: attention_short_sm90 has room for one tile of Q alone, of many causal ones",
                     (long long)problem->seq_kv);
  if (wants_one_block(problem, card, &config)) {
    kjit_attention_short_sm90_config alone = config;
    config.blocks_per_sm = 1;
    if (wants_heads_alone(problem) && choose_shape(shapes_alone, &alone)) config = alone;
  } else if (!has_own_shape && has_many_tiles)
    use_room(&config.q_buffers, MOST_QUERIES, &config);
  else if (!has_own_shape)
    use_room(&config.stages, MOST_HEADS, &config);
  status = short_check(&config, error);
  if (status == KJIT_OK) *out = config;
  return status;
}
