/* Runs of attention_decode_sm90, and the model behind them. Its constants were measured on an H200; another card's
 * memory is put in for an H200's.
 *
 * 1. Blocks of threads share the memory, so a round of few of them is no slower than they can use it, and a run that is
 *    a whole tile, or a whole part of one, costs nothing but waiting: parts of tiles, and tiles of keys, by that.
 * 2. Multiprocessors that read one tile more than others are still reading when these are done, and cannot read as fast
 *    as the memory gives: then the tiles are cut into more parts, but for those that stay_whole(). The measurements are
 *    in docs/attention.md.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_runs.h"

#include "base/integer.h"
#include "runtime/card.h"

enum {
  ELEMENT_BYTES = 2,
  STEP = 600,            /* ns that a key block takes a block of threads that waits for nothing, and on top of that */
  STEP_KEY = 2,          /* ns for each key of the block */
  STEP_COLUMN = 2,       /* ns for each column of a head */
  MERGE = 2500,          /* ns that merging parts adds to a launch */
  MERGE_RUN = 5,         /* ns that merging adds for each run */
  FLYING = 16 << 20,     /* bytes on their way with which memory gives all it can */
  FEW_FLY_PERCENT = 103, /* what a step takes with fewer bytes on their way */
  CROSS = 6000,          /* ns that merging adds where runs cross tiles: a block's parts then lie in two tiles */
  CROSS_PERCENT = 110,   /* what a step takes there, because heads are not read side by side */
  MEMORY_PARTS = 5,      /* sixths of the data sheet's bandwidth that memory gives */
  MANY_ROUNDS = 3,       /* rounds of tiles over the card, from which on all tiles are left whole */
  SM_BYTES = 33,         /* bytes that a multiprocessor reads a ns, however many blocks of threads it runs */
  MOST_ROUNDS = 4,       /* rounds of parts over the card that even_out() makes at most */
  EVEN_PERCENT = 7,      /* what it must gain at least */
  EVEN_LEAST = 25000,    /* ns: it leaves shorter launches as they are */
  EVEN_RUN = 12,         /* ns that it reckons for merging each run */
  SLOW_MEMORY = 25000    /* bytes for each SM below which memory is slow */
};

struct decode_tiles decode_tiles_of(const kjit_attention_problem *problem,
                                    const kjit_attention_decode_sm90_config *config) {
  struct decode_tiles tiles;
  tiles.row_tiles = integer_divide_up(problem->seq_q * (problem->heads_q / problem->heads_kv), config->rows);
  tiles.count = problem->batch * problem->heads_kv * tiles.row_tiles;
  tiles.key_blocks = integer_divide_up(problem->seq_kv, config->tile_n);
  return tiles;
}

struct decode_card decode_card_of(const struct family_place *place) {
  const int64_t gb_s = place->figures.memory_gb_s ? place->figures.memory_gb_s : CARD_USUAL_MEMORY_GB_S;
  return (struct decode_card){.multiprocessors = place->sm_count, .memory_bytes_a_us = gb_s * 1000 * MEMORY_PARTS / 6};
}

bool decode_has_slow_memory(const struct decode_card *card) {
  return card->memory_bytes_a_us < SLOW_MEMORY * card->multiprocessors;
}

/* What a launch is reckoned from. */
struct launch {
  const struct decode_tiles *tiles;
  const struct decode_card *card;
  int64_t resident;    /* blocks of threads that the card runs at a time */
  int64_t block_bytes; /* of a key block */
  int64_t stages;      /* of them in shared memory */
  int64_t alone;       /* ns that a block of threads takes a key block when nothing is waited for */
};

/* The time in which each of `active` blocks of threads reads and multiplies a key block. */
static int64_t step_time(const struct launch *launch, int64_t active) {
  const int64_t bytes = active * launch->block_bytes;
  const int64_t percent = bytes * launch->stages < FLYING ? FEW_FLY_PERCENT : 100;
  return integer_max(launch->alone, bytes * 10 * percent / launch->card->memory_bytes_a_us);
}

/* The time with every tile in `parts` runs. */
static int64_t parts_time(const struct launch *launch, int64_t parts) {
  const int64_t runs = launch->tiles->count * parts, blocks = integer_divide_up(launch->tiles->key_blocks, parts);
  const int64_t rounds = runs / launch->resident, rest = runs % launch->resident;
  const int64_t steps = rounds * step_time(launch, launch->resident) + (rest ? step_time(launch, rest) : 0);
  return blocks * steps + (parts > 1 ? MERGE + MERGE_RUN * runs : 0);
}

/* The time with equal runs, as many as the card runs at a time, that end inside of tiles. */
static int64_t crossing_time(const struct launch *launch) {
  const int64_t blocks = integer_divide_up(launch->tiles->count * launch->tiles->key_blocks, launch->resident);
  return blocks * step_time(launch, launch->resident) * CROSS_PERCENT / 100 + CROSS;
}

static void consider_parts(const struct launch *launch, int64_t parts, struct decode_plan *best) {
  if (parts < 2) return;
  parts = integer_min(parts, launch->tiles->key_blocks);
  const int64_t time = parts_time(launch, parts);
  if (time < best->time) *best = (struct decode_plan){(uint32_t)(launch->tiles->count * parts), time};
}

/* The time in which `some` multiprocessors read a key block each: few of them cannot use all of the memory. */
static int64_t read_time(const struct launch *launch, int64_t some) {
  const int64_t memory = some * launch->block_bytes * 1000 / launch->card->memory_bytes_a_us;
  return integer_max(memory, launch->block_bytes / SM_BYTES);
}

/* The time with every tile in `parts` runs, by what each multiprocessor reads: all get as much of the memory, so those
 * that run one block of threads less than others are done first. */
static int64_t even_time(const struct launch *launch, int64_t parts) {
  const int64_t all = launch->card->multiprocessors, runs = launch->tiles->count * parts;
  const int64_t blocks = integer_divide_up(launch->tiles->key_blocks, parts);
  const int64_t rest = runs % all ? read_time(launch, runs % all) : 0;
  return blocks * (runs / all * read_time(launch, all) + rest) + (parts > 1 ? MERGE + EVEN_RUN * runs : 0);
}

/* Heads of so few columns that several blocks of threads share a multiprocessor, whose rows are no whole lines: they
 * are read best by few blocks at a time that go side by side (72 columns on an H100: 176 runs 166 us, 528 runs 194). */
static bool shares_lines(const kjit_attention_decode_sm90_config *config) {
  enum { WIDE = 192 };
  return config->head_dim % DECODE_BAND_COLUMNS && config->head_dim <= WIDE;
}

/* Cut whole tiles, or their parts, into so many parts that multiprocessors end together. */
static void even_out(const struct launch *launch, struct decode_plan *plan) {
  const int64_t all = launch->card->multiprocessors, tiles = launch->tiles->count, parts = plan->runs / tiles;
  const int64_t most = integer_min(MOST_ROUNDS * launch->resident / tiles, launch->tiles->key_blocks);
  if (plan->runs % tiles) return; /* equal runs are even */
  const int64_t now = even_time(launch, parts);
  int64_t least = now < EVEN_LEAST ? 0 : now * (100 - EVEN_PERCENT) / 100;
  for (int64_t blocks = 1; blocks * all <= MOST_ROUNDS * launch->resident; blocks++) {
    const int64_t more = blocks * all / tiles, time = more > parts && more <= most ? even_time(launch, more) : least;
    if (time >= least) continue;
    least = time;
    plan->runs = (uint32_t)(tiles * more);
  }
}

int64_t decode_line_bytes(int64_t columns) {
  enum { LINE_BYTES = 128 };
  return integer_round_up(columns * ELEMENT_BYTES, LINE_BYTES);
}

/* Bytes that a row puts on their way: whole lines, but of heads of up to 64 columns, of which a line has the heads
 * beside. */
static int64_t row_bytes_of(int32_t columns) {
  return columns > DECODE_BAND_COLUMNS ? decode_line_bytes(columns) : (int64_t)columns * ELEMENT_BYTES;
}

/* Slow memory gives all it can to a few MB on their way, however they are spread over the multiprocessors. So tiles
 * stay whole where there are more of them than multiprocessors and the card runs all at the same time. On an H100, us,
 * whole, in two and in three parts each, and in equal runs that end inside of tiles: 168 tiles over 9,825 keys of 64
 * columns 157, 166, 179 and 168, 192 over 6,030 112, 119, 142 and 124, 144 over 4,000 of 104 columns 113, 135, 145 and
 * 146, 224 of 32 rows over 3,000 of 128 columns 72, 91, 97 and 135. With 4.1 MB on their way 168 tiles of 64 columns
 * took 167 whole and 157 in two. Of 176 columns it does not matter: 220 tiles over 3,311 keys 221, 220 and 212. Heads
 * of more than 64 columns have all lines on their way that their rows touch: 204 tiles over 8,000 keys of 72 columns,
 * 32 keys a step, 204. */
static bool stay_whole(const struct launch *launch, const kjit_attention_decode_sm90_config *config) {
  const int64_t count = launch->tiles->count;
  const int64_t row_bytes = row_bytes_of(config->head_dim) + row_bytes_of(config->head_dim_v);
  return decode_has_slow_memory(launch->card) && config->head_dim_v <= 2 * DECODE_BAND_COLUMNS &&
         count > launch->card->multiprocessors && count <= launch->resident &&
         count * config->tile_n * row_bytes * launch->stages >= DECODE_WHOLE_BYTES;
}

struct decode_plan decode_plan_of(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                                  const struct decode_card *card) {
  const int32_t columns = config->head_dim + config->head_dim_v;
  const struct launch launch = {.tiles = tiles,
                                .card = card,
                                .resident = card->multiprocessors * config->blocks_per_sm,
                                .block_bytes = (int64_t)config->tile_n * columns * ELEMENT_BYTES,
                                .stages = config->stages,
                                .alone = STEP + STEP_KEY * config->tile_n + STEP_COLUMN * columns / 2};
  struct decode_plan best = {(uint32_t)tiles->count, parts_time(&launch, 1)};
  if (tiles->count >= MANY_ROUNDS * launch.resident || stay_whole(&launch, config)) return best;
  for (int64_t blocks = 1; blocks <= config->blocks_per_sm; blocks++)
    consider_parts(&launch, blocks * card->multiprocessors / tiles->count, &best);
  const int64_t crossing = crossing_time(&launch);
  if (crossing < best.time && launch.resident < tiles->count * tiles->key_blocks)
    best = (struct decode_plan){(uint32_t)launch.resident, crossing};
  if (!shares_lines(config)) even_out(&launch, &best);
  return best;
}

/* L2 has them where few bytes are on their way to a multiprocessor, and heads that lie side by side are read at the
 * same places: all whole tiles or parts of them at once, or so many rounds of them that each is short. Runs that end
 * inside of tiles, and tiles of a second round, are elsewhere in their keys than their neighbours. Measured on an H100,
 * with lines of 128 bytes and without, us: all at once, 72 columns 150 and 166, 88 columns 133 and 144, 112 columns 119
 * and 135, 160 columns 69 and 72, with 98,000 bytes 96 columns 126 and 142; many rounds, 80 columns 168 and 172, 120
 * columns 164 and 171; runs that end inside of tiles, 88 columns 238 and 215, 72 columns 276 and 250; one to four
 * rounds, 72 columns 184 and 173, 192 and 178. */
bool decode_shares_lines(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                         int64_t runs, int64_t multiprocessors) {
  enum { SHARED_BYTES = 93000, AT_ONCE_BYTES = 99000, SHORT_ROUNDS = 4 }; /* with 110,000 lines are fetched twice */
  const int64_t keys = (int64_t)config->blocks_per_sm * config->stages * config->tile_n;
  const int64_t resident = multiprocessors * config->blocks_per_sm;
  const int64_t most = runs <= resident ? AT_ONCE_BYTES : SHARED_BYTES;
  if (keys * (config->head_dim + config->head_dim_v) * ELEMENT_BYTES >= most) return false;
  return runs % tiles->count == 0 && (runs <= resident || runs >= SHORT_ROUNDS * resident);
}
