/* Which problems of attention_sm90 have memory of its own for O beside two tiles of Q, or beside one of wide heads:
 * those with few key blocks, those of few keys whose rows are no whole lines, and others of few keys that
 * attention_short_sm90 reads more slowly.
 *
 * O that is stored through Q holds its Q buffer until the tile's end, so that the Q after the next is asked for a step
 * later. With few key blocks a tile that is not in time. O of its own leaves room for two consumers, 128 keys and heads
 * of up to 128 columns.
 *
 * Pure; any thread. */
#include "attention/sm90/sm90_choose.h"
#include "base/integer.h"

enum {
  CONSUMERS = 2,
  ROWS = SM90_GROUP_ROWS * CONSUMERS, /* of a tile */
  KEYS = 128,                         /* of a step */
  MOST_COLUMNS = 128,
  FEW_SEEN = 576,   /* keys that a tile sees in the mean */
  SHORT_KEYS = 256, /* of heads that fill both chunks, without a mask */
  MANY_ROUNDS = 3,  /* tiles for each multiprocessor, from which on it does not matter how the last of them end */
  /* Few keys of heads whose rows are no whole lines. */
  LONG_QUERIES = 640, /* the fewest queries */
  MOST_V = 192,       /* the most columns of V, */
  MOST_KEYS = 96,     /* and the most keys, in two steps */
  LEAST_KEYS = 32,    /* the fewest keys of such a step, */
  STEP_KEYS = 16,     /* of which it has a multiple */
  NARROW_V = 80,      /* the most columns of heads that have one step, */
  NARROW_KEYS = 64,   /* and their most keys */
  MOST_BESIDE = 16    /* heads that lie side by side in a tile */
};

/* Is the last tile of so many rows, or the last step of so many keys, more than half full? If it is not, the smaller
 * tiles or steps that the planner has chosen leave less of them unused. */
static bool is_filled(int64_t length, int64_t size) {
  const int64_t last = length % size;
  return last == 0 || 2 * last > size;
}

/* Measured on an H200, 16,384 tokens, by how many per cent it is faster than the config of steps 1 to 3:
 *
 *   columns           64    80    96   128
 *   causal, 256     31.3  17.2  14.0  11.8
 *   causal, 512     16.8  24.6  23.8  10.6
 *   causal, 1,024    7.0  18.3  17.1   3.3
 *   causal, 2,048   -0.7   1.6   1.6   0.5
 *   full, 256       -3.2  12.6  11.1   9.0
 *   full, 512       -1.7   9.4   7.9  -0.8 */
static bool gains(const kjit_attention_problem *problem, bool is_triangle) {
  const int64_t columns = integer_max(problem->head_dim, problem->head_dim_v);
  const int64_t rows = integer_min(ROWS, problem->seq_q);
  const int64_t mean = problem->seq_kv - (is_triangle ? (problem->seq_q - rows) / 2 : 0);
  if (!is_filled(problem->seq_q, ROWS) || !is_filled(problem->seq_kv, KEYS)) return false;
  if (columns < SM90_CHUNK_COLUMNS || columns > MOST_COLUMNS || problem->seq_kv <= KEYS || mean > FEW_SEEN)
    return false;
  if (is_triangle) return true;
  if (columns == SM90_CHUNK_COLUMNS) return false;
  return columns < MOST_COLUMNS || problem->seq_kv <= SHORT_KEYS;
}

/* With slow memory two steps of half the keys each, which have less on their way than attention_short_sm90's whole
 * heads, and the order of neighbouring tiles, give 1 % more where a launch of heads of 128 columns is nothing but
 * reading and writing. On an H100, us, here and there: 128 tokens of 256 x 16 heads 183.4 and 186.0 (cuDNN 183.8),
 * 5,066 queries over 127 keys of 128/32 128.6 and 129.4, 21,970 over 71 of 9 x 4, steps of 48, 153.9 and 155.5, 8,738
 * over 37 of 14 x 8/2, of 32, 180.7 and 189.1 (182.9), 11,760 over 23 of 20 x 4/2, of 16, 179.9 and 184.1 (180.4),
 * 12,674 over 23 of 6 x 12/3 173.2 and 179.0 (186.8), 96 tokens of 101 x 40/20 107.7 and 110.6 (109.5), 100 of 200 x
 * 32/16, heads first, 172.9 and 175.9 (172.1). Heads of 64 columns are as fast there. */
static bool has_few_keys_of_whole_lines(const kjit_attention_problem *problem) {
  enum { COLUMNS = 128 };
  const bool is_even = integer_divide_up(problem->seq_q, SM90_GROUP_ROWS) % CONSUMERS == 0;
  return problem->head_dim == COLUMNS && problem->head_dim_v == COLUMNS && (is_even || problem->seq_q >= LONG_QUERIES);
}

/* Two such steps of rows that are no whole lines, with lines of 128 bytes fetched (sm90_bytes.c), find in L2 what the
 * heads beside share. On an H100, us, here, by attention_short_sm90 before, and by its best: 96 columns, 944 x 8 x 93
 * 189, 228 and 207; 80 columns, 200 x 32 x 100 150, 174 and 169; 72 columns, 480 x 32 x 70 258, 319 and 292, 128 x 40 x
 * 110 140, 190 and 138; 104 columns, 117 x 40 x 75 117, 148 and 127; 120 columns, 80 x 40 x 80 98, 118 and 99. More
 * keys of wide heads whose rows are no whole sectors are better there: 88 columns, 120 x 32 x 120 150, 183 and 131,
 * heads first, 98 x 128 x 115 450, 456 and 381. So are heads that share keys: 72 columns, heads first, 375 x 12/6 x 125
 * 120, 110 and 113. */
static bool has_few_keys_side_by_side(const kjit_attention_problem *problem) {
  enum { LEAST = 65, MOST_QUERIES = 128, LEAST_COLUMNS = 72, SECTOR_COLUMNS = 16, FEWER_KEYS = 80 };
  const bool is_whole = problem->head_dim % SECTOR_COLUMNS == 0;
  return problem->head_dim % SM90_CHUNK_COLUMNS != 0 && problem->head_dim_v == problem->head_dim &&
         problem->head_dim >= LEAST_COLUMNS && problem->head_dim <= MOST_COLUMNS &&
         (is_whole || problem->head_dim <= NARROW_V || problem->seq_kv <= FEWER_KEYS) &&
         problem->heads_q == problem->heads_kv && problem->seq_kv >= LEAST && problem->seq_q >= LEAST &&
         problem->seq_q <= MOST_QUERIES;
}

/* Under a causal mask heads of 64 and 128 columns are a little faster here too, in one step: on an H100, us, here, by
 * attention_short_sm90 and by cuDNN: 128 tokens of 512 x 12 heads of 64 columns 140.9, 143.7 and 141.1, of 512 x 16
 * 184.4, 186.8 and 184.8, heads first, of 256 x 16 96.3, 98.0 and 97.4, 120 of 313 x 48 306.7, 311.5 and 307.4, 115 of
 * 60 x 64/32 of 128 columns 119.0, 124.8 and 123.0. On an H200 those of 128 columns are: 121 tokens of 92 x 64 175.6,
 * 181.1 and 177.8. */
static bool has_triangles_of_whole_lines(const kjit_attention_problem *problem) {
  enum { LEAST_LENGTH = 113 };
  return problem->head_dim % SM90_CHUNK_COLUMNS == 0 && problem->head_dim_v == problem->head_dim &&
         problem->head_dim <= MOST_COLUMNS && problem->seq_kv >= LEAST_LENGTH && problem->seq_q >= LEAST_LENGTH &&
         problem->seq_q <= ROWS;
}

bool sm90_has_long_queries_of_parts(const kjit_attention_problem *problem) {
  enum { LEAST = 65, MOST = 128, LEAST_QUERIES = 257 };
  return problem->head_dim % SM90_CHUNK_COLUMNS != 0 && problem->head_dim > SM90_CHUNK_COLUMNS &&
         integer_max(problem->head_dim, problem->head_dim_v) <= MOST_COLUMNS && problem->heads_q == problem->heads_kv &&
         problem->seq_kv >= LEAST && problem->seq_kv <= MOST && problem->seq_q >= LEAST_QUERIES &&
         !(problem->flags & KJIT_ATTENTION_CAUSAL);
}

/* More queries than a tile's, and more keys than sm90_has_few_keys_of_parts() takes: two steps, by two or three
 * consumers, whichever leave fewer rows unused. us, so and by attention_short_sm90, on an H100 and an H200: 72 columns,
 * 12 x 20 x 1,200/110 55 and 76, 48 and 59; 96 columns, 16 x 24 x 900/120 62 and 75, 55 and 59; 104 columns, heads
 * first, 8 x 32 x 800/100 49 and 60, 42 and 47; 112 columns, heads first, 23 x 24 x 1,023/119 113 and 128, 94 and 100;
 * 120 columns, 10 x 40 x 500/90 53 and 73, 44 and 56. Larger launches are attention_short_sm90's: 72 columns, 60 x 32 x
 * 500/80 160 and 154 on an H100, heads first, 13 x 128 x 1,108/85 375 and 250. */
static bool has_few_keys_of_long_queries(const kjit_attention_problem *problem) {
  return problem->head_dim_v == problem->head_dim && sm90_has_long_queries_of_parts(problem) &&
         !sm90_has_few_keys_of_parts(problem);
}

/* Many queries of wide heads over up to 64 keys, rows no whole lines: one consumer and one step. us, so and by
 * attention_short_sm90, on an H100: 200 columns, 1 x 64 x 6,000/21 156 and 192, 232 columns, 1 x 64 x 6,145/21 175 and
 * 217, 240 columns, 1 x 32 x 12,000/30 163 and 166, 248 columns, 2 x 24 x 8,000/40 180 and 225; on an H200 132 and 146
 * of the first, 144 and 173 of the last. 256 columns, which are whole lines, 2 x 32 x 6,000/21 152 and 149 on an H100.
 */
static bool has_few_keys_of_wide_parts(const kjit_attention_problem *problem) {
  return problem->head_dim % SM90_CHUNK_COLUMNS != 0 && problem->head_dim_v == problem->head_dim &&
         problem->head_dim > MOST_V && problem->seq_kv <= NARROW_KEYS && problem->seq_q >= LONG_QUERIES;
}

/* Slow memory and one tile for each wide head: short steps beside O in memory of its own. An H100 takes, us, by two
 * consumers with steps of 48 keys, and before: 160 columns, 120 x 16 x 110 105.2 and 108.4, 224 columns, 100 x 40 x 100
 * 260 and 282, 240 columns, 30 x 128 x 97 262 and 287, 256 columns, 100 x 32 x 110 247.5 and 248.9; 208 columns, heads
 * first, 100 x 32 x 90 175.8 and 175.1, 192 columns, 109 x 32 x 122 229.9 and 229.7. */
static bool has_one_tile_of_wide_head(const kjit_attention_problem *problem) {
  enum { LEAST = 81 };
  return problem->head_dim > MOST_COLUMNS && problem->head_dim_v == problem->head_dim &&
         problem->heads_q == problem->heads_kv && problem->seq_kv >= LEAST && problem->seq_q >= LEAST &&
         problem->seq_q <= ROWS;
}

/* How few keys are computed here: under a causal mask in one step, without a mask in two steps of half the keys by two
 * consumers, or for many queries by two or three, in one step by one consumer, or in steps of 48 keys. */
enum few_keys { NOT_HERE, TRIANGLES, TWO_STEPS, LONG_TWO_STEPS, ONE_WIDE_STEP, WIDE_SHORT_STEPS };

static enum few_keys few_keys_of(const kjit_attention_problem *problem, const struct sm90_card *card) {
  enum { MOST = 128, ROUNDS = 32, ROUNDS_OF_WHOLE = 24, ROUNDS_OF_LONG = 8, MOST_ROUNDS_OF_LONG = 96 };
  const int64_t groups = integer_divide_up(problem->seq_q, SM90_GROUP_ROWS) * problem->heads_q * problem->batch;
  const int64_t rounds = groups / (int64_t)card->multiprocessors;
  const bool is_slow = sm90_has_slow_memory(card);
  if (problem->seq_kv > MOST || rounds < ROUNDS_OF_LONG) return NOT_HERE;
  if (problem->flags & KJIT_ATTENTION_CAUSAL) {
    const bool is_faster = (is_slow || problem->head_dim == MOST_COLUMNS) && has_triangles_of_whole_lines(problem);
    return rounds >= ROUNDS && is_faster ? TRIANGLES : NOT_HERE;
  }
  if (rounds <= MOST_ROUNDS_OF_LONG && has_few_keys_of_long_queries(problem)) return LONG_TWO_STEPS;
  if (has_few_keys_of_wide_parts(problem)) return ONE_WIDE_STEP;
  if (!is_slow || rounds < ROUNDS_OF_WHOLE) return NOT_HERE;
  if (has_one_tile_of_wide_head(problem)) return WIDE_SHORT_STEPS;
  if (has_few_keys_of_whole_lines(problem)) return TWO_STEPS;
  return rounds >= ROUNDS && has_few_keys_side_by_side(problem) ? TWO_STEPS : NOT_HERE;
}

bool sm90_takes_few_keys(const kjit_attention_problem *problem, const struct sm90_card *card) {
  return few_keys_of(problem, card) != NOT_HERE;
}

bool sm90_has_two_steps(const kjit_attention_problem *problem, const struct sm90_card *card) {
  return few_keys_of(problem, card) == TWO_STEPS;
}

/* Of 161 to 192 keys of 72 to 128 columns attention_short_sm90 has room for one tile of Q for each of two consumers.
 * Here, where as many queries are one tile of three consumers, or one and a half of two: us, here and there, on an
 * H200: 128 columns, 97 x 6 x 189 37.4 and 43.8, heads first, 188 x 12 x 174 117 and 132; 112 columns, 132 x 32 x 185
 * 194 and 227; 72 columns, 273 x 12 x 188 141 and 174; 88 columns, heads first, 396 x 1 x 174 24.6 and 29.3; on an
 * H100 46.6 and 52.7 of the first, heads first, 189 x 12 x 178 147 and 161, 96 columns, 68 x 40 x 164 129 and 145, but
 * 112 columns, 132 x 32 x 185 299 and 273. With 136 keys of 128 columns it is the other way round on an H200: 178 and
 * 159. */
bool sm90_takes_long_heads(const kjit_attention_problem *problem, const struct sm90_card *card) {
  enum { LEAST = 161, MOST = 192, LEAST_QUERIES = 129, LEAST_COLUMNS = 72, ROUNDS = 8 };
  enum { SLOW_FIRST = 104, SLOW_LAST = 112 }; /* columns that slow memory does not bring fast enough for this form */
  const int64_t columns = integer_max(problem->head_dim, problem->head_dim_v);
  if (sm90_has_slow_memory(card) && columns >= SLOW_FIRST && columns <= SLOW_LAST) return false;
  const int64_t groups = integer_divide_up(problem->seq_q, SM90_GROUP_ROWS) * problem->heads_q * problem->batch;
  return !(problem->flags & KJIT_ATTENTION_CAUSAL) && problem->heads_q == problem->heads_kv &&
         problem->seq_kv >= LEAST && problem->seq_kv <= MOST && problem->seq_q >= LEAST_QUERIES &&
         problem->seq_q <= MOST && columns >= LEAST_COLUMNS && columns <= MOST_COLUMNS &&
         groups >= ROUNDS * (int64_t)card->multiprocessors;
}

/* Heads that share keys in one tile each, if as many fill it: their rows of a query follow each other in memory where
 * tokens come before heads, so that a tile reads and writes whole lines. On an H200 and an H100, us, before, by two
 * consumers with one head a tile, and so by three: 88 columns, 6 x 128/32 x 1,372/99 243, 206 and 167; 80 columns, 1 x
 * 40/10 x 26,655/71 164, 143 and 136, 215, 184 and 173; 112 columns, 1 x 128/32 x 6,018/63 122, 122 and 109, 148, 148
 * and 144; heads first, 96 columns, 1 x 20/10 x 45,287/83 128, 128 and 116. */
static int32_t heads_beside(const kjit_attention_problem *problem) {
  const int64_t group = problem->heads_q / problem->heads_kv;
  return group <= MOST_BESIDE && (group & (group - 1)) == 0 ? (int32_t)group : 1;
}

/* Up to 128 keys of heads that lie side by side were timed, fewer of others. */
bool sm90_has_few_keys_of_parts(const kjit_attention_problem *problem) {
  if (problem->head_dim % SM90_CHUNK_COLUMNS == 0 || problem->flags & KJIT_ATTENTION_CAUSAL) return false;
  const bool is_packed = problem->head_dim_v <= MOST_COLUMNS && heads_beside(problem) > 1;
  const int64_t most = is_packed ? KEYS : problem->head_dim_v <= NARROW_V ? NARROW_KEYS : MOST_KEYS;
  return problem->seq_kv <= most && problem->head_dim_v <= MOST_V && problem->seq_q >= LONG_QUERIES;
}

/* Three consumers, if the rows that they leave unused are no more than a tenth of those that two compute. */
static int32_t consumers_of(int64_t rows) {
  const int64_t three = integer_round_up(rows, SM90_GROUP_ROWS * (CONSUMERS + 1));
  return three * 10 <= integer_round_up(rows, ROWS) * 11 ? CONSUMERS + 1 : CONSUMERS;
}

/* Consumers and keys of a step for few keys, of which a causal mask takes one step, as narrow heads do. */
static void set_few_keys(const kjit_attention_problem *problem, enum few_keys kind,
                         kjit_attention_sm90_config *config) {
  enum { SHORT_STEP = 48, WIDE_STEP = 32 };
  const bool is_packed = config->packed > 1 && problem->head_dim_v <= MOST_COLUMNS;
  const bool is_narrow = problem->head_dim_v <= NARROW_V && problem->seq_kv <= NARROW_KEYS;
  const int32_t half = (int32_t)integer_round_up((problem->seq_kv + 1) / 2, STEP_KEYS);
  config->q_buffers = kind == ONE_WIDE_STEP || kind == WIDE_SHORT_STEPS ? 1 : 2;
  if (kind == TRIANGLES) {
    config->consumers = CONSUMERS;
    config->tile_n = KEYS;
  } else if (kind == ONE_WIDE_STEP) {
    config->consumers = 1;
    config->ping_pong = 0;
    config->tile_n = (int32_t)integer_round_up(problem->seq_kv, WIDE_STEP);
  } else if (kind == WIDE_SHORT_STEPS) {
    config->consumers = CONSUMERS;
    config->tile_n = SHORT_STEP;
  } else if (!is_narrow || kind != NOT_HERE || is_packed) {
    config->consumers = is_packed ? CONSUMERS + 1 : kind == LONG_TWO_STEPS ? consumers_of(problem->seq_q) : CONSUMERS;
    config->tile_n = kind == NOT_HERE ? (int32_t)integer_max(half, LEAST_KEYS) : half;
  }
}

/* Few keys of heads whose rows are no whole lines: what counts is that neighbouring tiles are read and written at about
 * the same time. On an H200, us, with O in memory of its own and without, 120 columns, 1,539 queries, 41 keys: two
 * consumers and two steps of 32 keys 95 and 136, one of 48 91 and 133, three consumers and one of 64 105 and 125; on an
 * H100 113, 138 and 143 with. 80 columns, 1,135 queries, 19 keys: 93, 96, 88 and 162, 167, 143; 96 columns, 12,638
 * queries, 26 keys: 156, 156, 175 and 218, 228, 199; 40 columns, 4,096 queries, 43 keys: 55, 53, 49 and 80, 84, 75;
 * 160 columns, 17,013 queries, 94 keys, two steps of 48: 166 and 236. */
static bool keep_of_few_keys(const kjit_attention_problem *problem, const struct sm90_card *card,
                             kjit_attention_sm90_config *config) {
  const enum few_keys kind = few_keys_of(problem, card);
  const bool has_parts = sm90_has_few_keys_of_parts(problem);
  if (!has_parts && kind == NOT_HERE) return false;
  kjit_attention_sm90_config with = *config;
  with.packed = has_parts ? heads_beside(problem) : 1;
  set_few_keys(problem, kind, &with);
  with.stages = 2;
  with.o_chunks = sm90_chunks(config->head_dim_v);
  const bool has_many = sm90_tiles_of(problem, &with).count >= MANY_ROUNDS * (int64_t)card->multiprocessors;
  if (!has_many || !sm90_fits(&with)) return false;
  *config = with;
  return true;
}

/* Two steps of 96 keys: of wide heads by two consumers, with O in memory of its own, of others by three. */
static bool keep_of_long_heads(const kjit_attention_problem *problem, const struct sm90_card *card,
                               kjit_attention_sm90_config *config) {
  enum { STEP = 96, MOST_OF_THREE = 112 };
  if (!sm90_takes_long_heads(problem, card)) return false;
  kjit_attention_sm90_config with = *config;
  const bool has_three = integer_max(config->head_dim, config->head_dim_v) <= MOST_OF_THREE;
  with.packed = 1;
  with.consumers = has_three ? 3 : CONSUMERS;
  with.tile_n = STEP;
  with.stages = 2;
  with.q_buffers = 2;
  with.o_chunks = has_three ? 0 : sm90_chunks(config->head_dim_v);
  if (!sm90_fits(&with)) return false;
  *config = with;
  return true;
}

void sm90_keep_output(const kjit_attention_problem *problem, const struct sm90_card *card, bool is_triangle,
                      kjit_attention_sm90_config *config) {
  if (config->consumers == 1 || config->split || keep_of_few_keys(problem, card, config)) return;
  if (keep_of_long_heads(problem, card, config)) return;
  if (config->packed > 1 || !gains(problem, is_triangle)) return;
  kjit_attention_sm90_config with = *config;
  with.consumers = CONSUMERS;
  with.tile_n = KEYS;
  with.stages = 2;
  with.q_buffers = 2;
  with.o_chunks = sm90_chunks(config->head_dim_v);
  const bool has_same_tiles = config->consumers == CONSUMERS;
  const bool has_many = sm90_tiles_of(problem, &with).count >= MANY_ROUNDS * (int64_t)card->multiprocessors;
  if ((has_same_tiles || has_many) && sm90_fits(&with)) *config = with;
}
