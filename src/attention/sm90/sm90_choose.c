/* attention_sm90's planner: rules over numbers. docs/attention.md states them with the measurements behind.
 *
 * 1. Consumers and keys of a step by head size and query length; query heads are packed into one tile's rows (pack_gqa)
 *    where that makes fewer tiles.
 * 2. Where tiles leave SMs idle: smaller tiles, or tiles whose keys are split (split-KV), by the model of sm90_tiles.h.
 * 3. The largest tile that fits registers and shared memory (sm90_steps.h); more stages where there is room.
 * 4. Where tiles have few key blocks, memory of its own for O beside two Q buffers (sm90_output.c).
 * 5. Steps by the bytes on their way for tiles that read keys alone (sm90_bytes.c).
 *
 * Pure; any thread. */
#include "attention/sm90/sm90_choose.h"

#include "attention/rule.h"
#include "attention/sm90/sm90_steps.h"
#include "attention/sm90/sm90_tiles.h"
#include "base/integer.h"

enum {
  MAX_PACKED = 64,
  MAX_STAGES = 4,
  RESCALE_SLACK = 15,       /* rescale threshold, log2: as high as fp16 allows, so that O is rescaled most rarely */
  MOST_V_OF_THREE = 128,    /* columns of V in parts of three consumers */
  NARROW_HEAD = 96,         /* columns up to which three consumers are tried for causal queries of any length */
  NARROW_STEP = 64,         /* and those up to which short steps cost more than they spare */
  LEAST_OF_TWO_STAGES = 48, /* keys of a step: with fewer, three stages */
  SHORT_KEYS = 256,         /* up to so many are best read in short steps, because all of them wait for the first one */
  SHORT_QUERIES = 512,      /* with so few tiles that those of the end and the diagonal count */
  LEAST_ROWS = 8,           /* rows of a tile: partial results are kept in groups of 8 rows (partials.cuh) */
};

/* Causal queries that see seven eighths of the keys or more in the mean are as good as full: a chunk of a prefill. */
enum { KEYS_OF_A_CHUNK = 4 };

static bool is_triangle(const kjit_attention_problem *problem) {
  return problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_kv < KEYS_OF_A_CHUNK * problem->seq_q;
}

static int64_t count_tiles(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config) {
  return sm90_tiles_of(problem, config).count;
}

/* Short queries may take three consumers all the same, by how their tiles end where the sequence does or on the
 * triangle of a causal mask. */
static bool may_take_three(const kjit_attention_problem *problem, const struct sm90_steps *steps) {
  if (steps->tile_n_of_three == 0 || problem->seq_kv <= SM90_FEW_KEYS) return false;
  if (is_triangle(problem) && problem->head_dim_v <= NARROW_HEAD) return problem->seq_q <= steps->rows_of_three;
  return problem->seq_q <= SHORT_QUERIES && problem->seq_kv < KEYS_OF_A_CHUNK * problem->seq_q;
}

/* At most `most` consumer warpgroups, and no more than the query rows fill. */
static int32_t fill_consumers(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                              int32_t most) {
  const int64_t needed = integer_divide_up(problem->seq_q, SM90_GROUP_ROWS / config->packed);
  return (int32_t)integer_min(needed, most);
}

/* Choose how many query heads that share a key head are packed into one tile (pack_gqa): more than one where that makes
 * at least a tenth fewer tiles, because short queries leave rows unused. Among equals the largest number is taken, so
 * that queries of all short lengths share a kernel. */
static int32_t choose_packed(const kjit_attention_problem *problem, int32_t consumers) {
  const int64_t group = problem->heads_q / problem->heads_kv;
  if (group == 1 || problem->seq_q > 10 * SM90_GROUP_ROWS * consumers) return 1;
  kjit_attention_sm90_config config = {.consumers = consumers, .tile_n = SM90_FEW_KEYS, .packed = 1};
  int64_t fewest = count_tiles(problem, &config);
  const int64_t unpacked = fewest;
  int32_t best = 1;
  for (int32_t packed = 2; packed <= MAX_PACKED && packed < 2 * group; packed *= 2) {
    config.packed = packed;
    const int64_t tiles = count_tiles(problem, &config);
    if (tiles > fewest || tiles * 10 > unpacked * 9) continue;
    fewest = tiles;
    best = packed;
  }
  return best;
}

/* The modelled time of all tiles, unsplit. */
static int64_t whole_time(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                          const struct sm90_card *card) {
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  return sm90_tiles_time(&tiles, config, 1, card);
}

/* Take these consumers and keys if the model says that tiles of them are done sooner, by so many per cent at least. */
static void consider_whole(const kjit_attention_problem *problem, const struct sm90_card *card, int32_t consumers,
                           int32_t tile_n, int64_t percent, kjit_attention_sm90_config *best) {
  kjit_attention_sm90_config candidate = *best;
  candidate.consumers = consumers;
  candidate.tile_n = tile_n;
  const int64_t now = whole_time(problem, best, card);
  const int64_t then = whole_time(problem, &candidate, card);
  if (integer_product(then, 100) < integer_product(now, 100 - percent)) *best = candidate;
}

/* By how many per cent other steps than those that were measured best have to be better by the model, which finds short
 * steps of few columns, and three consumers' masked steps of many, better than they are. */
static int64_t margin_of(const kjit_attention_problem *problem) {
  if (!is_triangle(problem)) return 5;
  if (problem->head_dim_v > MOST_V_OF_THREE) return 26;
  return problem->head_dim_v > NARROW_STEP ? 2 : 6;
}

/* Without a mask a tile of two consumers begins sooner, and leaves less of its last step empty, with steps of 64 keys:
 * 199 queries and keys of 31 x 96 heads of 128 columns take 220 us on an H100, and 243 with steps of 128; 248 of 112 x
 * 8 87 and 90; 119 of 115 x 64/32 253 and 269; 128 of 512 x 16 of 64 columns 213 and 226. */
static bool wants_short_steps(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config) {
  return config->consumers == 2 && config->packed == 1 && !config->split && config->tile_n > SM90_FEW_KEYS &&
         problem->seq_kv <= SHORT_KEYS && !(problem->flags & KJIT_ATTENTION_CAUSAL);
}

/* Take shorter steps of wide heads, if those of 64 keys make a fifth more keys of them: 32/2 packed heads of 232
 * columns, 114 x 137, take 263 us on an H200 with 64 keys, 214 with 48 and 219 with 32, 15 x 32 x 845/156 of 256
 * columns 202, 195 and 186 on an H100. */
static void shorten_steps(const kjit_attention_problem *problem, kjit_attention_sm90_config *config) {
  enum { LEAST_COLUMNS = 193, STEPS = 2 };
  static const int32_t steps[STEPS] = {48, 32};
  if (problem->head_dim_v < LEAST_COLUMNS || config->tile_n != SM90_FEW_KEYS || config->split) return;
  if (problem->seq_kv <= SM90_FEW_KEYS || problem->seq_kv > SHORT_KEYS || problem->flags & KJIT_ATTENTION_CAUSAL)
    return;
  const int64_t usual = integer_round_up(problem->seq_kv, SM90_FEW_KEYS);
  for (size_t i = 0; i < STEPS; i++) {
    if (integer_round_up(problem->seq_kv, steps[i]) * 6 > usual * 5) continue;
    config->tile_n = steps[i];
    return;
  }
}

/* Choose between two and three consumers. Three cost least for each row, but fewer tiles may fill the last wave of SMs
 * less. On the triangle of a causal mask shorter steps leave fewer scores beyond it, which is much of short queries. */
static void choose_consumers(const kjit_attention_problem *problem, const struct sm90_steps *steps, int32_t best,
                             const struct sm90_card *card, kjit_attention_sm90_config *config) {
  const bool may_have_three = best == 3 || may_take_three(problem, steps);
  sm90_set_consumers(config, steps, problem->seq_kv, fill_consumers(problem, config, may_have_three ? 3 : 2));
  const bool has_three = config->consumers == 3;
  if (config->consumers < 2) return;
  sm90_set_consumers(config, steps, problem->seq_kv, 2);
  if (wants_short_steps(problem, config)) config->tile_n = SM90_FEW_KEYS;
  const int64_t margin = best == 3 ? 0 : margin_of(problem);
  const int32_t three = steps->tile_n_of_three;
  if (has_three) consider_whole(problem, card, 3, sm90_shorten(three, problem->seq_kv), margin, config);
  if (problem->seq_q > SHORT_QUERIES || problem->seq_kv <= SM90_FEW_KEYS) return;
  if (!is_triangle(problem) && best == 3) return;
  if (problem->head_dim_v > NARROW_STEP && is_triangle(problem))
    consider_whole(problem, card, 2, SM90_FEW_KEYS, margin, config);
  for (int32_t keys = has_three ? three : 0; keys >= SM90_FEW_KEYS; keys -= SM90_KEY_STEP)
    consider_whole(problem, card, 3, keys, margin, config);
}

struct choice {
  kjit_attention_sm90_config config;
  int64_t time;
};

/* Take tiles of this many consumers or fewer, whole or split, if the model says that they are done sooner. */
static void consider(const kjit_attention_problem *problem, const struct sm90_steps *steps,
                     const struct sm90_card *card, kjit_attention_sm90_config candidate, struct choice *best) {
  for (int32_t consumers = candidate.consumers; consumers >= 1; consumers--) {
    sm90_set_consumers(&candidate, steps, problem->seq_kv, consumers);
    const struct sm90_tiles tiles = sm90_tiles_of(problem, &candidate);
    const int64_t parts = sm90_tiles_parts(&tiles, &candidate, card);
    if (parts > 1 && consumers == 3 && problem->head_dim_v > MOST_V_OF_THREE) continue; /* a part takes registers too */
    const int64_t time = sm90_tiles_time(&tiles, &candidate, parts, card);
    if (time >= best->time) continue;
    *best = (struct choice){candidate, time};
    best->config.split = parts > 1;
  }
}

/* As consider(), for heads that share keys too, which may be spread over more tiles of fewer rows, whose splits are
 * merged at the same time. */
static void consider_packed(const kjit_attention_problem *problem, const struct sm90_steps *steps,
                            const struct sm90_card *card, int32_t most, const kjit_attention_sm90_config *config,
                            struct choice *best) {
  for (kjit_attention_sm90_config candidate = *config; candidate.packed >= 1; candidate.packed /= 2) {
    if (candidate.packed < config->packed && candidate.packed * problem->seq_q < LEAST_ROWS) break;
    candidate.consumers = fill_consumers(problem, &candidate, most);
    consider(problem, steps, card, candidate, best);
  }
}

/* Step 2: where tiles leave SMs idle, take smaller tiles, or tiles whose keys are split, whichever the model prefers.
 * Without a mask, parts of three consumers may be the best where whole tiles of two were better than whole ones of
 * three: us on an H100, 260 packed rows of 32 heads over 9,853 keys of 72 columns 138 by parts of tiles of 128 rows and
 * 90 by parts of tiles of 192, 187 of 36 over 9,274 of 64 columns 78 and 56. Under a mask parts of 192 are slower: 35,
 * and 28 with 128. */
static void use_idle(const kjit_attention_problem *problem, const struct sm90_steps *steps,
                     const struct sm90_card *card, bool may_have_three, kjit_attention_sm90_config *config) {
  struct choice best = {*config, INT64_MAX};
  if (count_tiles(problem, config) > 3 * (int64_t)card->multiprocessors) return;
  consider_packed(problem, steps, card, config->consumers, config, &best);
  if (may_have_three && config->consumers < 3 && best.config.split && !config->causal)
    consider_packed(problem, steps, card, 3, config, &best);
  *config = best.config;
}

/* Use the room that one consumer, or one Q buffer, leaves for more stages of K and V, because problems with few query
 * rows wait for memory. Not for tiles that share keys: they read them together only as long as they are at the same
 * block. */
static void add_stages(const kjit_attention_problem *problem, kjit_attention_sm90_config *config) {
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  if (tiles.query_tiles * tiles.heads_per_kv > 1) return;
  while (config->stages < MAX_STAGES) {
    config->stages++;
    if (sm90_fits(config)) continue;
    config->stages--;
    return;
  }
}

/* Short steps wait for memory more often than long ones. */
static void add_third_stage(kjit_attention_sm90_config *config) {
  kjit_attention_sm90_config more = *config;
  more.stages = 3;
  if (sm90_fits(&more)) *config = more;
}

/* Consumers of long queries. Causal ones of heads whose rows are no whole lines take three at any length where two are
 * usual up to some thousands, because tiles of 192 rows read each key less often: us, by two and by three, on an H100
 * and an H200, 104 columns, 11 x 40 x 529/2,117 576 and 371, 500 and 342, 4 x 40 x 1,000/4,000 577 and 472, 515 and
 * 438, 120 columns, 4 x 32 x 2,048 268 and 232, 234 and 227; 104 columns, 16 x 40 x 600 201.5 and 199.4 on an H100. Few
 * tiles end sooner by two. */
static int32_t consumers_of_long_queries(const kjit_attention_problem *problem, const struct sm90_steps *steps,
                                         const struct sm90_card *card) {
  enum { ROWS_OF_THREE = 3 * SM90_GROUP_ROWS, ROUNDS = 4 };
  const int64_t tiles = integer_divide_up(problem->seq_q, ROWS_OF_THREE) * problem->heads_q * problem->batch;
  const bool is_odd = problem->head_dim % SM90_CHUNK_COLUMNS != 0 && problem->head_dim_v % SM90_CHUNK_COLUMNS != 0;
  const bool is_usual = problem->head_dim_v > NARROW_HEAD && problem->head_dim_v <= MOST_V_OF_THREE;
  const bool is_causal = problem->flags & KJIT_ATTENTION_CAUSAL;
  if (is_causal && is_odd && is_usual && problem->seq_q >= SHORT_QUERIES &&
      tiles >= ROUNDS * (int64_t)card->multiprocessors)
    return 3;
  return sm90_best_consumers(problem, steps);
}

kjit_status sm90_choose(const kjit_attention_problem *problem, const struct sm90_card *card,
                        kjit_attention_sm90_config *out, kjit_error *error) {
  kjit_status status = rule_check_heads(problem, "attention_sm90", error);
  if (status == KJIT_OK) status = sm90_check_problem(problem, error);
  if (status != KJIT_OK) return status;
  const struct sm90_steps *steps = sm90_steps_of(problem->head_dim_v, is_triangle(problem));
  kjit_attention_sm90_config config = {.dtype = problem->dtype,
                                       .head_dim = (int32_t)problem->head_dim,
                                       .head_dim_v = (int32_t)problem->head_dim_v,
                                       .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                       .stages = 2,
                                       .ping_pong = 1,
                                       .rescale_slack = RESCALE_SLACK,
                                       .packed = 1};
  const int32_t consumers = consumers_of_long_queries(problem, steps, card);
  config.packed = choose_packed(problem, consumers);
  choose_consumers(problem, steps, consumers, card, &config);
  use_idle(problem, steps, card, consumers == 3, &config);
  const bool has_short_steps = wants_short_steps(problem, &config);
  if (has_short_steps) config.tile_n = SM90_FEW_KEYS;
  shorten_steps(problem, &config);
  const bool is_shortest = config.tile_n < LEAST_OF_TWO_STAGES;
  sm90_choose_tile(&config);
  if (config.consumers == 1 || config.split) add_stages(problem, &config);
  const bool is_masked = config.consumers == 2 && config.tile_n == SM90_FEW_KEYS && is_triangle(problem);
  if (is_masked || has_short_steps || is_shortest) add_third_stage(&config);
  sm90_keep_output(problem, card, is_triangle(problem), &config);
  sm90_limit_bytes(problem, card, &config);
  status = sm90_check(&config, error);
  if (status == KJIT_OK) *out = sm90_canonical(&config);
  return status;
}
