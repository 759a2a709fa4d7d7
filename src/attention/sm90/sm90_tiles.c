/* How a problem is divided into tiles and splits, and how long a launch takes: a model in whole nanoseconds, by which
 * the planner compares configs. Its constants were measured on an H200; for another card they are scaled by its clock,
 * its memory, its L2 and its tensor cores. Its absolute times mean little; their order is what was checked. Pure; any
 * thread. */
#include "attention/sm90/sm90_tiles.h"

#include <stdbool.h>

#include "attention/sm90/sm90_config.h"
#include "attention_sm90/layout.h"
#include "base/integer.h"
#include "runtime/card.h"

/* Constants of the model, measured on an H200, in nanoseconds; docs/attention.md has the measurements. */
enum {
  BEGIN = 1000,             /* start of a tile that overlaps with nothing, beside its steps */
  MERGE = 700,              /* from a split's end to the result, beside the bytes */
  MERGE_OF_MANY = 12000,    /* what more tiles than SMs have to gain at least: their merging is not reckoned */
  MERGE_OF_WIDE = 12000,    /* what more than 128 columns of V have to gain: their kernels of parts begin slowly */
  MERGE_AGAIN = 3500,       /* what a second level of merges takes beside them */
  MERGE_BYTES_A_NS = 48,    /* bytes of partial results that one SM reads in a nanosecond */
  KEEP_BYTES_A_NS = 2000,   /* bytes of partial results that all SMs write, until others can read them */
  L2_BYTES_A_NS = 9000,     /* bytes of K and V that all SMs read from L2 */
  MEMORY_BYTES_A_NS = 4500, /* bytes that all SMs read from memory, when nothing is read twice */
  LEAST_L2 = 1 << 20,       /* bytes of L2 below which a driver's figure is not believed */
  ALONE = 110               /* ns of a lone consumer's products beside its softmax, in the units of product_ns */
};

/* Bytes of K and V that L2 keeps; of more, some is read again. */
#define L2_KEEPS INT64_C(40000000)

/* For one, two and three consumers: nanoseconds of the softmax of a step of 128 keys, and of the products of 64 rows,
 * 128 keys and 128 columns of Q and V together. */
static const int64_t softmax_ns[] = {780, 1100, 1370}, product_ns[] = {325, 325, 305};

/* Bytes for each SM in a nanosecond below which memory is slow, as the model reckons them: an H100 has 24, an H200 34.
 */
#define SLOW_BYTES_A_NS INT64_C(28)

/* What cycles and products are counted in: 1/1024 of an H200's. */
#define UNIT INT64_C(1024)

/* More than any time that is worth comparing, so that some of them can be added. */
#define LONGEST (INT64_MAX / 8)

static int64_t or_usual(uint32_t figure, int64_t usual) {
  return figure ? figure : usual;
}

struct sm90_card sm90_card_of(uint32_t multiprocessors, const struct family_figures *figures) {
  const int64_t clock = or_usual(figures->load_mhz, CARD_USUAL_LOAD_MHZ);
  const int64_t memory = or_usual(figures->memory_gb_s, CARD_USUAL_MEMORY_GB_S);
  const int64_t l2 = figures->l2_bytes >= LEAST_L2 ? figures->l2_bytes : CARD_USUAL_L2_BYTES;
  const int64_t tensor = or_usual(figures->tensor_flops, CARD_USUAL_TENSOR_FLOPS);
  return (struct sm90_card){
      .multiprocessors = multiprocessors,
      .l2_bytes_a_ns = integer_max(L2_BYTES_A_NS * clock / CARD_USUAL_LOAD_MHZ, 1),
      .memory_bytes_a_ns = integer_max(MEMORY_BYTES_A_NS * memory / CARD_USUAL_MEMORY_GB_S, 1),
      .l2_keeps = L2_KEEPS * l2 / CARD_USUAL_L2_BYTES,
      .cycle = UNIT * CARD_USUAL_LOAD_MHZ / clock,
      .product = UNIT * CARD_USUAL_LOAD_MHZ * CARD_USUAL_TENSOR_FLOPS / (clock * tensor),
  };
}

bool sm90_has_slow_memory(const struct sm90_card *card) {
  return card->memory_bytes_a_ns < SLOW_BYTES_A_NS * (int64_t)card->multiprocessors;
}

int64_t sm90_card_cycles(const struct sm90_card *card, int64_t time) {
  return time * card->cycle / UNIT;
}

enum {
  ELEMENT_BYTES = 2,
  FLOAT_BYTES = 4,
  ROW_STEP = 8,
  STEP_KEYS = 128,      /* keys of the step that the times above are for */
  STEP_COLUMNS = 128,   /* columns that the times above are for */
  LEAST_KEY_BLOCKS = 5, /* fewer key blocks are not worth splitting */
  MOST_ROUNDS = 4,      /* most waves of SMs that splits may take */
  FEW_TILES = 8,        /* of a head: their sections are bound, to so many */
  SECTION_ROUNDS = 2,   /* rounds of tiles; but */
  FEWEST_TILES = 4,     /* of a head: to four thirds of a round, with fewer tiles to half of one, in launches of so */
  MANY_TILES = 8,       /* many rounds, or, of tiles that are alike because there are so many times as many keys as */
  CHUNK_KEYS = 4,       /* queries, */
  CHUNK_TILES = 2,      /* of so many */
  LAST_PART = 4,        /* a last section may lack a quarter of the others' size; otherwise */
  MOST_SIZES = 32,      /* so many other sizes are tried */
  MANY_SECTIONS = 16,   /* with more, the last one is little of the whole */
  EXACT_TILES = 64,     /* of a head: of more the key blocks are not counted tile by tile */
  MANY_HEADS = 1 << 20  /* more heads count as this many, so that products fit 64 bits */
};

/* The keys that a tile visits: all, or what its rows see together where a mask leaves keys out. */
static int64_t seen_keys(const kjit_attention_problem *problem, int64_t tile_queries) {
  if (problem->seen_keys == 0) return problem->seq_kv;
  return integer_min(problem->seq_kv, problem->seen_keys + integer_min(problem->seq_q, tile_queries));
}

struct sm90_tiles sm90_tiles_of(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config) {
  const int64_t group = problem->heads_q / problem->heads_kv, positions = SM90_GROUP_ROWS / config->packed;
  const int64_t rows = integer_min(problem->seq_q, positions) * config->packed;
  struct sm90_tiles tiles;
  tiles.query_tiles = integer_divide_up(problem->seq_q, positions * sm90_tile_consumers(config));
  tiles.heads_per_kv = integer_divide_up(group, config->packed);
  if (config->packed == 1) tiles.heads_per_kv = group;
  tiles.heads = problem->heads_kv * tiles.heads_per_kv;
  tiles.count = tiles.query_tiles * tiles.heads * problem->batch;
  tiles.key_blocks = integer_divide_up(seen_keys(problem, positions * sm90_tile_consumers(config)), config->tile_n);
  tiles.rows = integer_round_up(rows, ROW_STEP);
  tiles.seq_kv = problem->seq_kv;
  tiles.keys_before = problem->seq_kv - problem->seq_q;
  const int64_t row_bytes = (problem->head_dim + problem->head_dim_v) * ELEMENT_BYTES;
  tiles.key_bytes = integer_min(problem->batch * problem->heads_kv, MANY_HEADS) * problem->seq_kv * row_bytes;
  return tiles;
}

/* The time of merging: every split is written; the last of each consumer to arrive reads all of them, in two levels
 * when there are many. */
static int64_t merge_time(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts,
                          const struct sm90_card *card) {
  if (parts == 1) return 0;
  const int64_t groups = integer_divide_up(parts, SM90_MERGED_AT_ONCE);
  const int64_t read = integer_min(parts, SM90_MERGED_AT_ONCE) + (groups > 1 ? groups : 0);
  const int64_t part_bytes = tiles->rows * config->head_dim_v * FLOAT_BYTES * sm90_tile_consumers(config);
  const int64_t written = integer_min(tiles->count * parts, card->multiprocessors) * part_bytes;
  const int64_t moved = read * part_bytes / MERGE_BYTES_A_NS + written / KEEP_BYTES_A_NS;
  return sm90_card_cycles(card, MERGE + (groups > 1 ? MERGE_AGAIN : 0) + moved);
}

/* The time of a step: the products, or the softmax that runs beside them, whichever is longer. */
int64_t sm90_tiles_step_time(const kjit_attention_sm90_config *config, const struct sm90_card *card) {
  const int64_t columns = config->head_dim + config->head_dim_v, consumers = sm90_tile_consumers(config);
  const int64_t alone = consumers == 1 ? ALONE * columns / STEP_COLUMNS * card->product / UNIT : 0;
  const int64_t softmax = sm90_card_cycles(card, softmax_ns[consumers - 1]) + alone;
  const int64_t products = product_ns[consumers - 1] * consumers * columns / STEP_COLUMNS;
  return integer_max(softmax, products * card->product / UNIT) * config->tile_n / STEP_KEYS;
}

/* Are rows whole lines of L2? Otherwise a row of a box lies in two, which takes L2 as long as two rows. */
static bool has_whole_lines(const kjit_attention_sm90_config *config) {
  enum { LINE_BYTES = 128 };
  return (config->head_dim | config->head_dim_v) * ELEMENT_BYTES % LINE_BYTES == 0;
}

/* The time of a step of `parts` tiles at the same time, whose keys are in L2: the computing, or the reading of L2 by
 * all together, whichever is longer. */
static int64_t near_step_time(const kjit_attention_sm90_config *config, int64_t parts, const struct sm90_card *card) {
  const int64_t bytes = parts * config->tile_n * (config->head_dim + config->head_dim_v) * ELEMENT_BYTES;
  const int64_t lines = has_whole_lines(config) ? bytes : 2 * bytes;
  return integer_max(sm90_tiles_step_time(config, card), lines / card->l2_bytes_a_ns);
}

/* The time of one wave of `parts` splits, each on an SM of its own, of `steps` steps, or what memory takes for them,
 * whichever is longer. Tiles that share keys read them at about the same time; of what L2 cannot keep, a third is read
 * twice. */
static int64_t round_time(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts,
                          int64_t steps, const struct sm90_card *card) {
  const int64_t bytes = parts * config->tile_n * (config->head_dim + config->head_dim_v) * ELEMENT_BYTES;
  const int64_t sharing = tiles->query_tiles * tiles->heads_per_kv, once = bytes / sharing;
  const int64_t again = sharing > 1 && tiles->key_bytes > card->l2_keeps ? once / 3 : 0;
  const int64_t step = integer_max(near_step_time(config, parts, card), (once + again) / card->memory_bytes_a_ns);
  return parts == 0 ? 0 : sm90_card_cycles(card, BEGIN) + steps * step;
}

/* The key blocks of all query tiles of a head, under a causal mask. */
static int64_t causal_blocks(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config) {
  const int64_t tile = (int64_t)SM90_GROUP_ROWS * sm90_tile_consumers(config) / config->packed;
  if (tiles->query_tiles > EXACT_TILES) {
    const int64_t shorter = integer_min(tiles->query_tiles * tile / config->tile_n, tiles->key_blocks - 1);
    return tiles->query_tiles * (2 * tiles->key_blocks - shorter) / 2;
  }
  int64_t blocks = 0;
  for (int64_t i = 1; i <= tiles->query_tiles; i++)
    blocks += sm90_tiles_blocks(tiles, config, i);
  return blocks;
}

/* Are a causal problem's tiles about equally long, so that a last round of few tiles is not filled by shorter ones? */
static bool are_alike(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config) {
  const int64_t rows = tiles->query_tiles * SM90_GROUP_ROWS * sm90_tile_consumers(config) / config->packed;
  return 4 * rows <= tiles->seq_kv;
}

/* The time of causal tiles, longest first: that of the longest tile, that of the multiprocessor that ends last, or each
 * one's share of all tiles, whichever is longest. Of the one that ends last, what memory takes is not counted, because
 * few are left then and have all of it. */
static int64_t causal_time(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                           const struct sm90_card *card) {
  const int64_t busy = integer_min(tiles->count, card->multiprocessors), heads = tiles->count / tiles->query_tiles;
  const int64_t begin = sm90_card_cycles(card, BEGIN), one = round_time(tiles, config, busy, 1, card) - begin;
  const int64_t blocks = causal_blocks(tiles, config) * heads;
  const int64_t share = integer_min(integer_product(blocks, one) / busy, LONGEST) + tiles->count * begin / busy;
  const int64_t last =
      begin + sm90_tiles_longest(tiles, config, card->multiprocessors) * near_step_time(config, busy, card);
  const int64_t longest = round_time(tiles, config, busy, tiles->key_blocks, card);
  return integer_max(integer_max(longest, last), share);
}

int64_t sm90_tiles_time(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts,
                        const struct sm90_card *card) {
  const uint32_t multiprocessors = card->multiprocessors;
  if (config->causal && parts == 1 && !are_alike(tiles, config)) return causal_time(tiles, config, card);
  const int64_t all = tiles->count * parts, steps = integer_divide_up(tiles->key_blocks, parts);
  const int64_t rounds =
      integer_product(all / multiprocessors, round_time(tiles, config, multiprocessors, steps, card));
  return integer_min(rounds, LONGEST) + round_time(tiles, config, all % multiprocessors, steps, card) +
         merge_time(tiles, config, parts, card);
}

int64_t sm90_tiles_steps(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config) {
  const int64_t longest = tiles->key_blocks * config->tile_n;
  if (!config->causal || longest < tiles->seq_kv) return tiles->key_blocks * tiles->count; /* or a narrow mask */
  return causal_blocks(tiles, config) * (tiles->count / tiles->query_tiles);
}

bool sm90_tiles_read_alone(const struct sm90_tiles *tiles) {
  return tiles->query_tiles * tiles->heads_per_kv == 1;
}

/* Tiles of one consumer that read keys alone read 45 bytes a ns and more each, so that little more than half of an
 * H200's SMs, and a third of an H100's, are faster than parts of tiles, which have to be merged: with up to 66 of what
 * memory gives for each. Few keys take less time than merging them (docs/lab-notes/races.md). */
static bool fill_the_memory(const struct sm90_tiles *tiles, const struct sm90_card *card) {
  enum { FEW_KEYS = 850, WHOLE_BYTES_A_NS = 66 };
  const int64_t all = card->multiprocessors;
  if (!sm90_tiles_read_alone(tiles) || tiles->count > all) return false;
  return tiles->count * WHOLE_BYTES_A_NS >= card->memory_bytes_a_ns ||
         (tiles->seq_kv < FEW_KEYS && tiles->count * 6 >= all);
}

static bool fill_the_card(const struct sm90_tiles *tiles, uint32_t multiprocessors) {
  const int64_t rounds = integer_divide_up(tiles->count, multiprocessors);
  /* The tiles of long queries differ in length or end at different times, which evens out over several waves. */
  if (rounds > 1 && tiles->query_tiles > 1) return true;
  return tiles->count * 5 >= rounds * multiprocessors * 4;
}

/* What parts have to gain, in the units of the model. With slow memory tiles that read keys alone, one for every
 * second SM and more, wait for memory in parts as they do whole: parts take 1.3 to 1.6 times what is reckoned, whole
 * tiles 1.1 to 1.2. On an H100, us, whole and in parts, and what is reckoned of both: 144 tiles of 44 rows and 96
 * columns 159 and 165 to 187 (136 and 113), heads first 150 and 155 to 161, 144 of 92 rows and 208 columns 231 and 266
 * to 306 (203 and 181), heads first 218 and 251 to 280, 160 of 100 rows and 144 columns 167 and 196 (146 and 132). 160
 * of 108 rows over 5,477 keys of 128 columns took 212 in parts (176 and 161). */
static int64_t least_gain(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t whole,
                          const struct sm90_card *card) {
  enum { DOUBT_PERCENT = 17 };
  const bool is_many = tiles->count >= card->multiprocessors;
  const int64_t gain = (is_many ? MERGE_OF_MANY : 0) + (config->head_dim_v > STEP_COLUMNS ? MERGE_OF_WIDE : 0);
  const bool is_half = 2 * tiles->count >= card->multiprocessors;
  const bool waits = is_half && sm90_has_slow_memory(card) && sm90_tiles_read_alone(tiles);
  return integer_max(sm90_card_cycles(card, gain), waits ? integer_product(whole, DOUBT_PERCENT) / 100 : 0);
}

/* Parts of causal tiles are reckoned as if all were as long as the longest tile's, and take a quarter to a half longer
 * than that: us on an H200, 1,574 queries over 3,148 keys of 6 heads of 64 columns, 78 tiles in five parts each 42.0,
 * 150 whole tiles of 64 rows 29.7; 722 over 2,890 of 12 heads, 72 tiles in three parts each 36.2, 144 whole ones 34.1.
 */
static bool fill_half_with_triangles(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                                     uint32_t multiprocessors) {
  return config->causal && !are_alike(tiles, config) && 2 * tiles->count > multiprocessors;
}

/* The fewest splits of which the longest is no longer than with `parts`. */
static int64_t even_out(int64_t key_blocks, int64_t parts) {
  return integer_divide_up(key_blocks, integer_divide_up(key_blocks, parts));
}

struct best {
  int64_t parts, time;
};

static void consider(struct best *best, int64_t parts, const struct sm90_tiles *tiles,
                     const kjit_attention_sm90_config *config, const struct sm90_card *card) {
  parts = integer_min(parts, integer_min(SM90_MOST_PARTS, tiles->key_blocks));
  if (parts <= 1) return;
  parts = even_out(tiles->key_blocks, parts);
  if (sm90_tiles_partial_bytes(tiles, config, parts) > SM90_PARTIALS_MAX) return;
  const int64_t time = sm90_tiles_time(tiles, config, parts, card);
  if (time < best->time) *best = (struct best){parts, time};
}

/* Split counts to try: those that fill the SMs for 1, 2, 3 or 4 waves, and the one-wave count halved again and again,
 * since merging many splits is slow. */
int64_t sm90_tiles_parts(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                         const struct sm90_card *card) {
  const uint32_t multiprocessors = card->multiprocessors;
  if (tiles->key_blocks < LEAST_KEY_BLOCKS || fill_the_card(tiles, multiprocessors)) return 1;
  if (config->consumers == 1 && fill_the_memory(tiles, card)) return 1;
  if (fill_half_with_triangles(tiles, config, multiprocessors)) return 1;
  const int64_t whole = sm90_tiles_time(tiles, config, 1, card);
  struct best best = {1, whole - least_gain(tiles, config, whole, card)};
  const int64_t one_round = multiprocessors / tiles->count;
  for (int64_t rounds = 1; rounds <= MOST_ROUNDS; rounds++)
    consider(&best, rounds * multiprocessors / tiles->count, tiles, config, card);
  for (int64_t parts = one_round / 2; parts > 1; parts /= 2)
    consider(&best, parts, tiles, config, card);
  return best.parts;
}

size_t sm90_tiles_arrivals(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts) {
  return (size_t)(tiles->count * sm90_tile_consumers(config) * parts);
}

size_t sm90_tiles_partial_bytes(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                                int64_t parts) {
  const size_t columns = (size_t)integer_round_up(config->head_dim_v, SM90_PIECE_COLUMNS);
  const size_t floats = (size_t)tiles->rows * (columns + SM90_STATISTICS);
  return sm90_tiles_arrivals(tiles, config, parts) * floats * FLOAT_BYTES;
}

/* Of so many pairs in sections of this size, how many the last section lacks of its size. */
static int64_t lack_of_last(int64_t pairs, int64_t size) {
  const int64_t last = pairs % size;
  return last ? size - last : 0;
}

/* The size of sections, of whole key heads, from `least` to `most`, of which the last one lacks least; of equals the
 * largest. `usual` where its last section is nearly whole, or little of all. */
static int64_t even_section(int64_t pairs, int64_t heads_per_kv, int64_t least, int64_t usual, int64_t most) {
  int64_t best = usual, lack = lack_of_last(pairs, usual);
  if (LAST_PART * lack <= usual || pairs > MANY_SECTIONS * usual) return usual;
  for (int64_t size = most / heads_per_kv * heads_per_kv, tried = 0; size >= least && tried < MOST_SIZES; tried++) {
    const int64_t lacks = lack_of_last(pairs, size);
    if (lacks * best < lack * size) {
      best = size;
      lack = lacks;
    }
    size -= heads_per_kv;
  }
  return best;
}

/* The size of an L2 section: pairs of (batch, head) whose K and V fit a little more than half of L2, the rest being for
 * Q, O and other kernels. Query heads that share K and V count once. A section never leaves SMs without work. The
 * fraction was measured on an H200 (docs/performance.md).
 *
 * The last section ends the launch: one of few pairs leaves most of the card idle while its longest tiles are worked
 * on, so that sizes from half of this one to what fits two thirds of L2 are taken where they leave the last section
 * fuller (docs/lab-notes/dense.md).
 *
 * A section's longest tiles come first and read all of its keys, which its shorter tiles then find in L2. With few
 * tiles a head that is half of the work at the memory's speed and half at L2's, so sections of these are two rounds of
 * tiles, and other sections' long tiles read memory meanwhile. With at most four tiles a head, sections of whole rounds
 * begin with as many long tiles as there are multiprocessors, time and again. An H100 took, with sections of half a
 * round, one, four thirds and two, us: 512 tokens of 32 x 32 heads of 64 columns 138, 148, 135 and 145; of 32 x 16
 * heads of 128 107, 111, 106 and 115; 383 tokens of 135 x 8 heads of 192 225, 230, - and 236; 197 of 28 x 64 of 256
 * 250, 257, - and 265. A chunk's tiles are alike, so that few rounds of them are as many: 247 queries over 3,959 keys
 * of 93 x 2 heads of 128 columns 181 with sections of 62 heads, 171 with half a round, on an H200 164 and 155. */
int64_t sm90_tiles_section(const struct sm90_tiles *tiles, const kjit_attention_problem *problem, uint32_t sm_count,
                           uint64_t l2_bytes) {
  const int64_t pairs = tiles->heads * problem->batch;
  const int64_t bytes = problem->seq_kv * (problem->head_dim + problem->head_dim_v) * ELEMENT_BYTES;
  const int64_t fit = (int64_t)l2_bytes * 9 / 16 / bytes, fit_at_most = (int64_t)l2_bytes * 2 / 3 / bytes;
  const int64_t round = integer_divide_up(sm_count, tiles->query_tiles);
  int64_t wanted = integer_max(integer_max(fit, 1) * tiles->heads_per_kv, round);
  int64_t most = integer_max(fit_at_most * tiles->heads_per_kv, wanted);
  const bool is_chunk = problem->seq_kv >= CHUNK_KEYS * problem->seq_q && tiles->query_tiles == 2;
  const int64_t many = (is_chunk ? CHUNK_TILES : MANY_TILES) * (int64_t)sm_count;
  if (tiles->query_tiles <= FEWEST_TILES && tiles->count >= many) {
    const int64_t part = tiles->query_tiles == FEWEST_TILES ? round * 4 / 3 : round / 2;
    return integer_round_up(integer_max(part, 1), tiles->heads_per_kv);
  }
  if (tiles->query_tiles <= FEW_TILES) {
    wanted = integer_min(wanted, SECTION_ROUNDS * round);
    most = integer_min(most, SECTION_ROUNDS * round);
  }
  const int64_t usual = integer_divide_up(pairs, integer_divide_up(pairs, wanted));
  return even_section(pairs, tiles->heads_per_kv, integer_max(integer_divide_up(wanted, 2), round), usual,
                      integer_min(most, pairs));
}
