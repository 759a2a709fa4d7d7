/* Steps of attention_sm90 by how many bytes are on their way at a time.
 *
 * Tiles of one consumer that read keys alone, as those of few query rows do, take as long as memory does. It gives most
 * with some 9 MB on their way to all multiprocessors of an H100 and 10 of an H200: with more of them less is found in
 * L2 of what neighbouring heads and the next rows share, with fewer it waits. So such tiles take the longest step with
 * which they ask for no more than that, in three stages of 128 keys or in two. Measured, us, rows, heads, keys and
 * columns, with steps of 128, 96 and 64 keys in two stages, and with three stages of 128, as before:
 *
 *   H100   1 row of 80 heads over 11,808 keys of 128      177, 173, 178
 *          16 of 72 over 8,000 of 128                     111, 109, 112
 *          4 of 96 over 5,000 of 128                      102, 95, 94
 *          32 of 112 over 3,000 of 128                    -, 70, 69, 72
 *          4 of 96 over 4,761 of 256                      steps of 64, 48 and 32: 174, 169, 172
 *   H200   16 of 80 over 5,871 of 128                     71, 70, 74, 77
 *          19 of 84 over 6,567 of 128                     82, 80, 84, 87
 *          4 of 96 over 5,000 of 128                      74, 72, 72, 78
 *          40 of 96 over 6,000 of 64                      51, 55, 63, 51
 *          19 of 84 over 9,000 of 64                      65, 72, 83, 62
 *
 * Rows that are no whole lines of 128 bytes ask for all lines that they touch: 20 rows of 96 heads over 6,000 keys of
 * 96 columns take 91 us on an H100 with steps of 64 keys and 100 with 96. Several rounds of tiles matter less: on an
 * H200 56 rows of 588 heads over 1,680 keys of 128 columns take 139 with steps of 64 keys (141 before), 59 of 144 over
 * 2,816 of 256 columns 141 with 64 and 144 with 48.
 *
 * Pure; any thread. */
#include <stdbool.h>

#include "attention/rule.h"
#include "attention/sm90/sm90_choose.h"
#include "base/integer.h"

enum {
  FLYING = 4400000,   /* bytes on their way with which memory gives most, and */
  FLYING_NS = 1400,   /* so many ns of what memory gives */
  LEAST_KEYS = 256,   /* with fewer keys a tile is mostly its beginning and its end */
  LEAST_STEP = 48,    /* keys of a step, and */
  LEAST_OF_MANY = 64, /* with several rounds; fewer pay with slow memory alone */
  LEAST_COLUMNS = 64, /* heads of fewer have a rule of their own, */
  LEAST_NARROW = 32,  /* from so many columns on */
  SHORT_KEYS = 512, /* with fewer keys one round of tiles takes short steps, because the first one is waited for: of */
  SHORT_STEP = 64,  /* so many keys */
  LEAST_SHARE = 6,  /* multiprocessors for each tile, with more of which bytes do not matter */
  STEPS = 6
};

static const struct { int32_t keys, stages; } steps[STEPS] = {{128, 3}, {128, 2}, {96, 2}, {64, 2}, {48, 2}, {32, 2}};

static bool set_step(kjit_attention_sm90_config *config, int32_t keys, int32_t stages) {
  kjit_attention_sm90_config with = *config;
  with.tile_n = keys;
  with.stages = stages;
  with.o_chunks = 0;
  for (with.q_buffers = 2; with.q_buffers > 0; with.q_buffers--) {
    if (!sm90_fits(&with)) continue;
    *config = with;
    return true;
  }
  return false;
}

static bool is_bound_by_memory(const kjit_attention_problem *problem, const struct sm90_tiles *tiles,
                               const struct sm90_card *card, const kjit_attention_sm90_config *config) {
  return integer_min(config->head_dim, config->head_dim_v) >= LEAST_COLUMNS && config->consumers == 1 &&
         !config->split && !config->causal && problem->seq_kv >= LEAST_KEYS && sm90_tiles_read_alone(tiles) &&
         tiles->count * LEAST_SHARE >= (int64_t)card->multiprocessors;
}

/* With slow memory and few bytes on their way whole lines are fetched for rows that are none. On an H100, us, with
 * lines and without, two stages: 20 rows of 96 heads over 6,000 keys of 96 columns, steps of 64 keys, 86.7 and 89.5; 32
 * of 120 over 5,000 of 112, 48 keys, 100.8 and 104.1; 60 of 96 over 6,000 of 80, 96 keys, 75.2 and 79.9; 2 of 384 over
 * 3,358 of 96, 64 keys, 176 and 188; 2 of 220 over 3,311 of 176, 32 keys, 189 and 194. With three stages of 128 keys,
 * 16 MB on their way, it is 5 % slower.
 *
 * So they are for two steps of few keys: 104 columns, 117 x 40 x 75 117 and 124, 120 columns, 80 x 40 x 80 98.0 and
 * 102.3, 72 columns, 128 x 40 x 110 140 and 153. */
bool sm90_shares_lines(const kjit_attention_problem *problem, const struct sm90_card *card,
                       const kjit_attention_sm90_config *config) {
  enum { LEAST_BYTES = 32 << 20 }; /* of K and V: 6 MB took 10.9 us with lines and 10.4 without */
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  if (!sm90_has_slow_memory(card) || tiles.key_bytes < LEAST_BYTES) return false;
  if (sm90_has_two_steps(problem, card)) return config->consumers == 2 && 2 * config->tile_n >= problem->seq_kv;
  return is_bound_by_memory(problem, &tiles, card, config);
}

/* Slow memory and tiles of less than 64 columns, up to two rounds of them: two stages of 128 keys. Of steps of 96 keys
 * and of three and four stages of 128 an H100 takes, us: 40 columns, 128 tiles over 19,404 keys 216 (211, -, 251), 100
 * over 12,000 112 (110, 121, 125), heads first, 120 over 9,000 95.3 (94.8, 97.3, 97.4); 48 columns, 220 over 7,151 125
 * (129, 145, -); 56 columns, heads first, 112 over 6,060 71.0 (69.5, 72.9, 73.4). More rounds are as fast with more
 * stages: 32 columns, 1,236 over 2,493 172 (185, 163, 164). */
static bool is_narrow_with_slow_memory(const kjit_attention_problem *problem, const struct sm90_tiles *tiles,
                                       const struct sm90_card *card, const kjit_attention_sm90_config *config) {
  const int64_t columns = integer_min(config->head_dim, config->head_dim_v);
  return columns >= LEAST_NARROW && columns < LEAST_COLUMNS && sm90_has_slow_memory(card) && config->consumers == 1 &&
         !config->split && !config->causal && problem->seq_kv >= LEAST_KEYS && sm90_tiles_read_alone(tiles) &&
         tiles->count * LEAST_SHARE >= (int64_t)card->multiprocessors &&
         tiles->count <= 2 * (int64_t)card->multiprocessors;
}

/* Slow memory, whole tiles of two consumers that read keys alone, and a few multiprocessors that have a second one: as
 * twice as many tiles of one consumer, neighbouring ones of which read the same keys, multiprocessors end more nearly
 * together. They take three stages of 128 keys, or two where three are too many bytes of pairs of tiles. On an H100,
 * us, with two consumers, in parts where that is faster, and so: 64 columns, 78 rows of 168 heads over 6,991 keys 163
 * and 136 (two stages 142), 102 of 160 over 6,462 155 and 128 (134); 128 columns, 108 of 160 over 5,477 194 and 181
 * (three stages 184), 90 of 180 over 4,500 166 and 157 (158). But 94 of 96 heads 166 and 197, 86 of 228 of 160 columns
 * 146 and 155. */
static bool halve_tiles(const kjit_attention_problem *problem, const struct sm90_card *card, int64_t most,
                        kjit_attention_sm90_config *config) {
  enum { PAIR = 2, MOST_COLUMNS = 128, LEAST_BYTES = 32 << 20, MOST_TENTHS = 14, HALVED_STEPS = 2 };
  const int64_t all = card->multiprocessors, row = 2 * ((int64_t)config->head_dim + config->head_dim_v);
  kjit_attention_sm90_config half = *config, pair = *config;
  pair.consumers = PAIR;
  half.consumers = 1;
  half.ping_pong = half.split = pair.split = 0;
  const struct sm90_tiles pairs = sm90_tiles_of(problem, &pair), halves = sm90_tiles_of(problem, &half);
  if (!sm90_has_slow_memory(card) || config->consumers > PAIR || config->causal || problem->seen_keys) return false;
  if (config->head_dim % LEAST_COLUMNS || config->head_dim_v % LEAST_COLUMNS) return false;
  if (integer_max(config->head_dim, config->head_dim_v) > MOST_COLUMNS || pairs.key_bytes < LEAST_BYTES) return false;
  if (!sm90_tiles_read_alone(&pairs) || halves.query_tiles != PAIR) return false;
  if (pairs.count <= all || pairs.count * 10 > all * MOST_TENTHS) return false;
  for (size_t i = 0; i < HALVED_STEPS; i++) {
    if (steps[i].keys * steps[i].stages * row * all / PAIR > most || !set_step(&half, steps[i].keys, steps[i].stages))
      continue;
    *config = half;
    return true;
  }
  return false;
}

void sm90_limit_bytes(const kjit_attention_problem *problem, const struct sm90_card *card,
                      kjit_attention_sm90_config *config) {
  const int64_t most = FLYING + FLYING_NS * card->memory_bytes_a_ns;
  if (halve_tiles(problem, card, most, config)) return;
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  const int64_t row = rule_line_bytes(config->head_dim) + rule_line_bytes(config->head_dim_v);
  const int64_t row_bytes = row * integer_min(tiles.count, card->multiprocessors);
  const bool has_rounds = tiles.count > card->multiprocessors;
  const int32_t least = sm90_has_slow_memory(card) ? 0 : has_rounds ? LEAST_OF_MANY : LEAST_STEP;
  if (is_narrow_with_slow_memory(problem, &tiles, card, config)) {
    set_step(config, steps[1].keys, steps[1].stages);
    return;
  }
  if (!is_bound_by_memory(problem, &tiles, card, config)) return;
  for (size_t i = 0; i < STEPS; i++) {
    const bool is_last = i + 1 == STEPS || steps[i].keys <= least;
    const int64_t bytes = steps[i].keys * steps[i].stages * row_bytes;
    const bool is_long = steps[i].keys > SHORT_STEP && problem->seq_kv < SHORT_KEYS && !has_rounds;
    if (!is_last && (bytes > most || is_long)) continue;
    if (set_step(config, steps[i].keys, steps[i].stages)) return;
  }
}
