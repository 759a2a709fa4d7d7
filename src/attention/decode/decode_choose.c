/* The planner of attention_decode_sm90: the config for each problem that is its own.
 *
 * 1. The problem is one of few rows over many keys, or another family takes it (decode_own.h).
 * 2. Tile and blocks of threads on an SM are those of which a launch takes least by the model of decode_runs.h; as many
 *    stages as shared memory holds.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_choose.h"

#include <stdbool.h>

#include "attention/decode/decode_own.h"
#include "attention/rule.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  LONG_KEYS = 512,    /* keys from which on many tiles take steps of 128 keys, with slow memory */
  NARROW_KEYS = 2048, /* keys from which on heads of less than 64 columns are as wider ones, with slow memory */
};

/* The largest number of stages that fits, if any. */
static bool fill_stages(kjit_attention_decode_sm90_config *config) {
  for (config->stages = 16; config->stages > 2 && !decode_fits(config); config->stages--)
    continue;
  return decode_fits(config);
}

static void set_blocks(kjit_attention_decode_sm90_config *config, int32_t tile_n, int32_t blocks_per_sm) {
  config->tile_n = tile_n;
  config->blocks_per_sm = blocks_per_sm;
}

/* Take longer steps, of two blocks of threads, until no run ends inside of a tile. Where heads of less than 64 columns
 * lie side by side such runs fetch lines twice, because the head beside is read at another place: 204 tiles over 13,076
 * keys of 32 columns in 396 runs took 290 us on an H100, 1.2 TB/s, where 144 tiles over 20,000 keys in 288 parts of
 * tiles read 2.5. */
static void keep_whole(const kjit_attention_problem *problem, const struct decode_card *card,
                       kjit_attention_decode_sm90_config *config) {
  enum { MORE_KEYS = 32, MOST_KEYS = 128, BLOCKS = 2 };
  while (config->tile_n < MOST_KEYS) {
    const struct decode_tiles tiles = decode_tiles_of(problem, config);
    if (decode_plan_of(&tiles, config, card).runs % tiles.count == 0) return;
    set_blocks(config, config->tile_n + MORE_KEYS, BLOCKS);
  }
}

/* How many of so many places tiles fill, each tile in as many equal parts as all of them have places for. */
static int64_t filled_by(int64_t tiles, int64_t places) {
  return places / integer_max(tiles, 1) * tiles;
}

/* Slow memory and heads whose rows are no whole lines, or of more than 128 columns: so few keys and stages that some
 * 5 MB are on their way at a time. More than that gains nothing, and heads that lie side by side no longer find in L2
 * what their neighbours fetched. Measured on an H100, of the best peer, and with as many stages as fit: 152 columns
 * 0.94 (0.79), 160 1.07 (0.89), 192 1.03 (0.94), 112 1.05 (0.86), 72 0.97 (0.88), 32 1.00 and 0.99 (0.82, 0.88); where
 * tiles fill several rounds, with one block of threads, 72 columns 1.03 (0.90), 80 1.00 (0.97).
 * docs/lab-notes/races.md.
 *
 * Tiles of 97 to 128 columns that one block of threads each go side by side with, and fill three quarters of the
 * multiprocessors, have steps of 64 keys, of more than 112 columns of 48: 104 columns, 112 tiles over 9,000 keys 158
 * us, 120 columns, 128 over 6,000 137, with 64 157. (Of 65 to 96 columns they are attention_sm90's, decode_own.c.) If
 * they fill less than that and at least seven tenths, as they are or in equal parts, three blocks and steps of 32 keys
 * are as fast as the best: 96 tiles over 11,615 keys of 104 columns 182, with one block 188. With three blocks the
 * tiles go side by side too that nearly fill them: 72 columns, 352 tiles over 1,553 keys 78 in place of 84; and so many
 * tiles that steps of 48 keys would be more than 9 MB of lines on their way, unless they fill two blocks: 104 columns,
 * 204 tiles over 5,000 keys 168 in place of 206, 72 columns, 204 over 8,000 204 in place of 222, where 144 over 4,000
 * of 104 columns take 113 with 48 keys and 116 with 32, 264 over 4,321 of 112 columns 186 and 191.
 *
 * Tiles of more than 128 columns for at most a third of the multiprocessors have one block: 144 columns, 32 over 9,000
 * 73 and with two 76, 160, 40 over 8,000 85 and 91, 176, 20 over 13,316 81 and 89, 192, 24 over 12,000 89 and 89; and
 * steps of 32 keys where those of 48 would be more than 10 MB of lines on their way: 168, 32 over 19,595 170 and 200,
 * 176, 16 over 20,000 95 and 104. Of less than 64 columns a multiprocessor has as many blocks as it holds, with steps
 * of 48 keys; us, with two blocks and 64 keys in brackets: 32 columns, 84 tiles over 38,544 keys, heads first, 191
 * (200; two and 128 keys 166), 248 over 11,320 146 (170), 128 over 16,000 117 (130), 120 over 10,000, heads first, 78
 * (89), 200 over 9,000 100 (180), 80 over 20,000 92 (110), 48 columns, 128 over 12,000 119 (131), 40 columns, 240 over
 * 9,000 177 (184). Several rounds of 40 columns and more have steps of 32 keys: 1,536 over 1,419 179, with 48 keys 185,
 * with three stages of 128 196. */
static bool choose_few_bytes(const kjit_attention_problem *problem, int64_t rows, int32_t columns,
                             const struct decode_card *card, kjit_attention_decode_sm90_config *config) {
  enum { STEP = 48, LONG_STEP = 128, SHORT_STEP = 32, ALONE_STEP = 64 };
  enum { MOST_OF_FOUR = 32 };       /* columns of which a multiprocessor has four blocks of threads, of others three */
  enum { MOST_OF_LONG_STEP = 112 }; /* columns, of which two blocks of 64 keys are as much as memory uses */
  enum { STEP_ROWS = 2 * STEP * 2, MOST_BYTES_UNDER_WAY = 9000000 }; /* rows of K and V, two stages */
  enum { MOST_BYTES_OF_WIDE = 10500000 };                            /* of lines that the rows touch */
  const int64_t tiles = problem->batch * problem->heads_kv, all = card->multiprocessors, places = 2 * all;
  const bool is_narrow = columns < DECODE_BAND_COLUMNS;
  const bool has_rounds = tiles > places;
  const int64_t under_way = tiles * STEP_ROWS * decode_line_bytes(columns);
  if (!decode_has_slow_memory(card) || rows > DECODE_WARP_ROWS) return false;
  if (columns > DECODE_FEW_BYTES_COLUMNS) return false;
  if (!decode_is_odd(columns) && columns <= DECODE_REGISTER_HEAD_DIM) return false;
  if (is_narrow && problem->seq_kv < (has_rounds ? LONG_KEYS : NARROW_KEYS)) return false;
  if (columns <= MOST_OF_FOUR && has_rounds) return false; /* not measured */
  const bool is_usual = !is_narrow && columns <= DECODE_REGISTER_HEAD_DIM;
  const bool is_wide_of_few = columns > DECODE_REGISTER_HEAD_DIM && tiles * 3 <= all;
  const int64_t filled = filled_by(tiles, all);
  const bool is_too_much_of_wide = filled * STEP_ROWS * rule_line_bytes(columns) > MOST_BYTES_OF_WIDE;
  const bool fills_two = filled_by(tiles, places) * 10 >= places * 9;
  const bool wants_three = has_rounds ? tiles <= 3 * all && tiles * 5 >= 3 * all * 4
                                      : !fills_two && tiles > all && under_way > MOST_BYTES_UNDER_WAY;
  config->stages = 2;
  set_blocks(config, STEP, 2);
  if (is_wide_of_few)
    set_blocks(config, is_too_much_of_wide ? SHORT_STEP : STEP, 1);
  else if (is_narrow && has_rounds)
    set_blocks(config, SHORT_STEP, 2);
  else if (is_usual && filled * 4 >= all * 3)
    set_blocks(config, columns > MOST_OF_LONG_STEP ? STEP : ALONE_STEP, 1);
  else if (is_usual && (wants_three || filled * 10 >= all * 7))
    set_blocks(config, SHORT_STEP, 3);
  else if (is_usual && has_rounds && problem->seq_kv >= LONG_KEYS)
    set_blocks(config, LONG_STEP, 1);
  else if (is_narrow) {
    set_blocks(config, STEP, columns <= MOST_OF_FOUR ? 4 : 3);
    keep_whole(problem, card, config);
  }
  return decode_fits(config);
}

/* Do so many blocks of threads, each with all stages full of K and V, have no more on their way than slow memory uses,
 * counted in whole lines? */
static bool is_little_under_way(const kjit_attention_decode_sm90_config *config, int32_t columns, int64_t readers) {
  enum { MOST_BYTES = 10000000 };
  return readers * config->tile_n * config->stages * 2 * decode_line_bytes(columns) <= MOST_BYTES;
}

/* Slow memory and heads of more than 192 columns, of which shared memory holds two steps of 64 keys: the longest steps
 * that keep what is on their way below 10 MB of lines. For tiles that are an eighth to two fifths of the
 * multiprocessors: an H100 takes, us, with 64 keys and so, 48 tiles of 216 columns over 11,792 keys 266 and 203, 32
 * over 11,489 157 and 146, 24 of 232 over 14,674 158 and 141, 24 of 256 over 11,209 109 and 106, heads first, over
 * 13,061 125 and 127, 20 of 240 over 17,944 135 and 132. More and fewer tiles are slower so: 11 of 208 over 37,606 131
 * and 134, 64 of 216 over 5,538 122 and 125, 168 over 3,377 209 and 233. */
static bool choose_few_bytes_of_wide(const kjit_attention_problem *problem, int64_t rows, int32_t columns,
                                     const struct decode_card *card, kjit_attention_decode_sm90_config *config) {
  enum { STEPS = 3 };
  static const int32_t steps[STEPS] = {64, 48, 32};
  const int64_t count = problem->batch * problem->heads_kv, all = card->multiprocessors;
  if (!decode_has_slow_memory(card) || rows > DECODE_WARP_ROWS || columns <= DECODE_FEW_BYTES_COLUMNS) return false;
  if (count * 8 < all || count * 5 > all * 2 || decode_key_bytes(problem) < DECODE_LEAST_BYTES) return false;
  config->stages = 2;
  for (size_t i = 0; i < STEPS; i++) {
    set_blocks(config, steps[i], 1);
    const struct decode_tiles tiles = decode_tiles_of(problem, config);
    const int64_t runs = integer_min(decode_plan_of(&tiles, config, card).runs, card->multiprocessors);
    if (is_little_under_way(config, columns, runs) && decode_fits(config)) return true;
  }
  return decode_fits(config);
}

/* Slow memory, more rows than a warp's, heads of 64 to 128 columns, and more of them than multiprocessors: two blocks
 * of threads, which take all of them at once, with the longest steps that keep what is on their way below 10 MB of
 * lines. 40 rows of 240 heads over 2,000 keys of 96 columns take 76.5 us on an H100 with steps of 32 keys, 79.6 with 48
 * and 85.2 with 64; 44 rows of 144 heads over 5,702 keys 126 with 64 (L2 fetches whole lines) and 141 with 48; 4 rows
 * of 168 heads over 9,825 keys of 64 columns 157 with 64 and 154 with 96; 32 rows of 140 over 11,341 153 with 128 and
 * 163 with 96, 56 of 144 over 12,907 184 and 188, but 32 of 155 over 11,321 180 and 175. */
static bool choose_side_by_side(const kjit_attention_problem *problem, int64_t rows, int32_t columns,
                                const struct decode_card *card, kjit_attention_decode_sm90_config *config) {
  enum { STEPS = 5 };
  static const int32_t steps[STEPS] = {128, 96, 64, 48, 32};
  const int64_t tiles = problem->batch * problem->heads_kv, all = card->multiprocessors;
  if (!decode_has_slow_memory(card) || rows <= DECODE_WARP_ROWS || tiles <= all || tiles > 2 * all) return false;
  if (columns < DECODE_BAND_COLUMNS || columns > DECODE_REGISTER_HEAD_DIM) return false;
  config->stages = 2;
  for (size_t i = 0; i < STEPS; i++) {
    set_blocks(config, steps[i], 2);
    if (is_little_under_way(config, columns, tiles) && decode_fits(config)) return true;
  }
  return decode_fits(config);
}

/* More tiles than two blocks of threads on each multiprocessor take: three or four blocks, of which the rounds hold
 * fewer tiles in all. A multiprocessor holds three blocks with steps of 64 keys and four with 48, whatever the field
 * says, so steps follow from that where there are two rounds; but the last step is not to be emptier. 300 tiles
 * over 5,502 keys of 64 columns take 156 us on an H100 with three blocks (159 with two), 304 over 1,694 61.0 (67.1);
 * 400 tiles over 600 26.3 on an H200 with four blocks and 34.8 with three, which leave four tiles for a second round;
 * 600 over 1,000 79 on an H100 with 48 keys, of which 72 tiles are a second round, and 69 with 64; 468 over 203 18.9
 * with 48 and 20.8 with 64. */
static void choose_rounds(int64_t tiles, int64_t keys, const struct decode_card *card,
                          kjit_attention_decode_sm90_config *config) {
  enum { STEP = 64, SHORT_STEP = 48, THREE = 3, FOUR = 4, TWO_ROUNDS = 6, MORE_PERCENT = 101 };
  const int64_t all = card->multiprocessors;
  const int64_t of_three = integer_divide_up(tiles, THREE * all) * THREE;
  const int64_t of_four = integer_divide_up(tiles, FOUR * all) * FOUR;
  const int64_t most = integer_round_up(keys, STEP) * MORE_PERCENT;
  const bool is_emptier = integer_round_up(keys, SHORT_STEP) * 100 > most;
  const bool wants_four = of_four < of_three;
  const bool is_slow = decode_has_slow_memory(card), is_at_once = tiles <= THREE * all;
  const bool wants_long = !wants_four && tiles <= TWO_ROUNDS * all && !(is_slow && is_at_once);
  set_blocks(config, is_emptier || wants_long ? STEP : SHORT_STEP, wants_four ? FOUR : THREE);
}

/* Few keys of many heads that query heads share: two short steps, in as many blocks of threads as registers allow,
 * because each of them waits once. 64 columns, one query of 1,056 heads over 74 keys 15.8 us on an H200 and 16.2 on an
 * H100 (18.4 with two blocks and steps of 128 keys), 512 over 128 11.6 and 12.1 (13.5), 11,018 over 111 96.8 (110 with
 * two blocks). Of more columns two blocks, with steps of 32 keys where 64 would leave the last one emptier: 96 columns,
 * 800 over 60 16.0 with 64 on an H100 (17.2 with 32); 112 columns, 1,626 over 94 33.8 with 32 on an H200 (38.6 with
 * 64); 128 columns, 1,916 over 71 36.8 (42.8), 960 over 90 23.3 and 27.2 (27.0 and 28.9). */
static bool choose_few_keys(const kjit_attention_problem *problem, int64_t rows, int32_t columns,
                            const struct decode_card *card, kjit_attention_decode_sm90_config *config) {
  enum { MOST_KEYS = 128, STEP = 64, SHORT_STEP = 32, BLOCKS = 2, BLOCKS_OF_NARROW = 4 };
  const int64_t tiles = problem->batch * problem->heads_kv, keys = problem->seq_kv;
  const bool is_emptier = integer_round_up(keys, STEP) > integer_round_up(keys, SHORT_STEP);
  if (keys > MOST_KEYS || rows > DECODE_WARP_ROWS || columns > DECODE_REGISTER_HEAD_DIM) return false;
  if (problem->heads_q == problem->heads_kv || tiles <= card->multiprocessors) return false;
  config->stages = 2;
  if (columns <= DECODE_BAND_COLUMNS)
    set_blocks(config, STEP, BLOCKS_OF_NARROW);
  else
    set_blocks(config, is_emptier ? SHORT_STEP : STEP, BLOCKS);
  return decode_fits(config);
}

/* 306 heads over 236 keys of 64 columns take 10.5 us on an H200 with two steps of 48 keys and three blocks of threads,
 * 11.1 to 11.6 with steps of 64, and more with more stages. */
static bool choose_short_steps(const kjit_attention_problem *problem, const struct decode_card *card,
                               kjit_attention_decode_sm90_config *config) {
  enum { STEP = 48, BLOCKS = 3 };
  if (!decode_reads_in_short_steps(problem, card)) return false;
  config->stages = 2;
  set_blocks(config, STEP, BLOCKS);
  return decode_fits(config);
}

/* One query over hardly more keys than a step of 128: one longer step, because a launch of few tiles takes as long as
 * its steps, one after the other. 130 keys of 14 heads of 64 columns take 8.6 us on an H100 by two steps of 128. */
static bool choose_one_step(const kjit_attention_problem *problem, int32_t columns, const struct decode_card *card,
                            kjit_attention_decode_sm90_config *config) {
  enum { SHORT_STEP = 128, STEP = 160 };
  const int64_t tiles = problem->batch * problem->heads_kv, keys = problem->seq_kv;
  if (problem->seq_q != 1 || tiles > card->multiprocessors || columns > DECODE_BAND_COLUMNS) return false;
  if (keys <= SHORT_STEP || keys > DECODE_LONGEST_STEP) return false;
  config->stages = 2;
  set_blocks(config, keys <= STEP ? STEP : DECODE_LONGEST_STEP, 1);
  return decode_fits(config);
}

/* Slow memory and heads of 64 or 128 columns: two steps of 64 keys on their way to each of two blocks of threads, some
 * 9 MB in all, are as many as memory uses, and more of them are slower. On an H100, in place of steps of 128 keys and
 * three stages: 64 columns, 192 tiles over 6,030 keys 113 us (124), 48 over 36,294 163 (173), 80 over 23,560 178 (180),
 * 1,408 over 511 74.8 (75.9); in place of steps of 64 keys and three stages: 128 columns, 36 tiles over 7,771 keys 66.6
 * (68.5), 18 over 29,360 107.0 (109.8), 20 over 36,874 142.4 (144.9).
 *
 * More tiles of 128 columns than multiprocessors, all of them at once, take steps of 48 keys: 168 over 6,000 keys 183,
 * with 64 199, three stages of 64 206, three blocks and 32 keys 187; 240 over 5,000, heads first, 219.9, 219.9, 223.1
 * and 219.6. More tiles of 64 columns than multiprocessors, of which two steps of 64 keys would be less than 5 MB, take
 * steps of 96, because they stay whole then (decode_runs.c).
 *
 * Short launches wait for each step, so they take long steps: 14 tiles over 1,962 keys 13.0, and 14.6 with short ones;
 * 24 over 11,181 40.3 and 41.1. docs/lab-notes/races.md. */
static bool choose_two_steps(const kjit_attention_problem *problem, int64_t rows, int32_t columns,
                             const struct decode_card *card, kjit_attention_decode_sm90_config *config) {
  enum { STEP = 64, LONG_STEP = 96, SHORT_STEP = 48 };
  enum { STEP_BYTES = 2 * STEP * 2 * 2 }; /* of a column: K and V, two stages, two bytes */
  enum { LEAST_OF_PARTS = 96 << 20 };
  const int64_t tiles = problem->batch * problem->heads_kv, all = card->multiprocessors;
  const int64_t bytes = decode_key_bytes(problem);
  const bool is_narrow = columns == DECODE_BAND_COLUMNS, is_whole = tiles >= all;
  const bool is_slow = decode_has_slow_memory(card) && rows <= DECODE_WARP_ROWS;
  if (!is_slow && !decode_is_warp_of_narrow_heads(problem, rows, card)) return false;
  if (decode_is_odd(problem->head_dim) || decode_is_odd(problem->head_dim_v)) return false;
  const bool is_at_once = is_slow && tiles > all && tiles <= 2 * all;
  if (columns > DECODE_REGISTER_HEAD_DIM || (!is_narrow && is_whole && !is_at_once)) return false;
  const int64_t least_of_whole = tiles > 2 * all ? DECODE_LEAST_OF_ROUNDS : DECODE_LEAST_BYTES;
  if (bytes < (is_narrow && !is_whole ? LEAST_OF_PARTS : least_of_whole)) return false;
  config->stages = 2;
  if (is_narrow && tiles > 2 * all)
    choose_rounds(tiles, problem->seq_kv, card, config);
  else if (!is_narrow && is_whole)
    set_blocks(config, SHORT_STEP, 2);
  else
    set_blocks(config, tiles > all && tiles * columns * STEP_BYTES < DECODE_WHOLE_BYTES ? LONG_STEP : STEP, 2);
  return decode_fits(config);
}

/* The time of a launch, with a handicap for parts of heads of 64 columns that read slower than the model says: more
 * parts than the card runs at a time, because its multiprocessors end with one block of threads each, and steps of 128
 * keys by three blocks. Measured on an H200, 56 tiles over 27,075 keys, seven parts each, us: steps of 128 keys by two
 * blocks 117.5 and by three 115; steps of 48 to 96 keys, all parts at once, 105 to 107. */
static int64_t plan_time(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                         const struct decode_card *card) {
  enum { SLOW_PERCENT = 108, LONG_STEP = 128, MANY_BLOCKS = 3 };
  const struct decode_plan plan = decode_plan_of(tiles, config, card);
  const int64_t resident = (int64_t)card->multiprocessors * config->blocks_per_sm;
  if ((int64_t)plan.runs == tiles->count) return plan.time;
  if (config->head_dim != DECODE_BAND_COLUMNS || config->head_dim_v != DECODE_BAND_COLUMNS) return plan.time;
  const bool is_slow = plan.runs > resident || (config->tile_n == LONG_STEP && config->blocks_per_sm == MANY_BLOCKS);
  return is_slow ? plan.time * SLOW_PERCENT / 100 : plan.time;
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
               {129, 160, 1, 16, 48, 1, 100}, {129, 192, 17, 32, 96, 1, 100}, {129, 256, 1, 32, 64, 1, 104}};
  const int32_t columns = config->head_dim > config->head_dim_v ? config->head_dim : config->head_dim_v;
  kjit_attention_decode_sm90_config candidate = *config;
  int64_t least = INT64_MAX;
  if (choose_one_step(problem, columns, card, config)) return;
  if (choose_few_keys(problem, rows, columns, card, config)) return;
  if (choose_short_steps(problem, card, config)) return;
  if (choose_few_bytes(problem, rows, columns, card, config)) return;
  if (choose_few_bytes_of_wide(problem, rows, columns, card, config)) return;
  if (choose_side_by_side(problem, rows, columns, card, config)) return;
  if (choose_two_steps(problem, rows, columns, card, config)) return;
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    if (columns < tiles[i].least_columns || columns > tiles[i].columns) continue;
    if (rows < tiles[i].least_rows || rows > tiles[i].rows) continue;
    candidate.tile_n = tiles[i].tile_n;
    candidate.blocks_per_sm = tiles[i].blocks_per_sm;
    if (!fill_stages(&candidate)) continue;
    const struct decode_tiles divided = decode_tiles_of(problem, &candidate);
    const int64_t time = plan_time(&divided, &candidate, card) * tiles[i].percent / 100;
    if (time >= least) continue;
    *config = candidate;
    least = time;
  }
}

kjit_status decode_choose(const kjit_attention_problem *problem, const struct decode_card *card,
                          kjit_attention_decode_sm90_config *out, kjit_error *error) {
  kjit_status status = decode_check_own(problem, card, error);
  if (status != KJIT_OK) return status;
  const int64_t rows = decode_rows_of(problem);
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
