/* Which problems of heads of up to 64 columns two pairs of consumers compute, each with a tile of its own.
 *
 * A pair begins and ends its tile while the other one computes, and four warps a scheduler wait for each other less
 * than two. But a pair has registers for steps of 64 keys alone, which are more instructions for a key than steps of
 * 128: so tiles of few key blocks take pairs, if there are so many tiles that a multiprocessor has two at a time.
 * docs/lab-notes/variants.md has the measurements.
 *
 * Pure; any thread. */
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_steps.h"
#include "base/integer.h"

enum {
  CONSUMERS = 4,
  KEYS = 64,         /* of a step */
  MOST_COLUMNS = 64, /* of a head */
};

static bool has_columns(const kjit_attention_problem *problem, int64_t least) {
  return integer_min(problem->head_dim, problem->head_dim_v) >= least &&
         integer_max(problem->head_dim, problem->head_dim_v) <= MOST_COLUMNS;
}

/* Pairs that store O through Q and have four stages or, where tiles end so often that Q is waited for, O of its own and
 * three. */
static bool set_pairs(kjit_attention_sm90_config *config, bool has_own_output) {
  kjit_attention_sm90_config pairs = *config;
  pairs.consumers = CONSUMERS;
  pairs.tile_n = KEYS;
  pairs.stages = has_own_output ? 3 : 4;
  pairs.q_buffers = 2;
  pairs.o_chunks = has_own_output ? sm90_chunks(config->head_dim_v) : 0;
  pairs.ping_pong = 1;
  if (!sm90_fits(&pairs)) return false;
  *config = pairs;
  return true;
}

/* So many tiles of 128 rows that few multiprocessors end with one pair alone: twelve rounds of an H100's. Few lose:
 * four heads of 4,096 queries take 16.3 us with documents by bounds and 17.1 by pairs, with lists 25.6 and 27.3. */
static bool has_many_tiles(const kjit_attention_problem *problem) {
  enum { ROWS = 128, LEAST = 12 * 132 };
  return integer_divide_up(problem->seq_q, ROWS) * problem->heads_q * problem->batch >= LEAST;
}

/* Does a tile of this problem visit so few key blocks that pairs are faster? `rows` and `rows_of_pairs` are the groups
 * of 64 rows that a head's tiles have by the chosen config and by pairs, those behind the last query among them. Up to
 * SHORT_CAUSAL keys under a causal mask pairs may have a tenth more; beyond, and without a mask, they have to have
 * fewer or, up to SHORT_FULL keys without a mask, as many. */
static bool has_few_blocks(const kjit_attention_problem *problem, int64_t rows, int64_t rows_of_pairs) {
  enum { LEAST = 256, SHORT_CAUSAL = 2560, MOST_CAUSAL = 4096, SHORT_FULL = 320, MOST_FULL = 1024 };
  if (problem->seq_kv < LEAST) return false;
  if (problem->flags & KJIT_ATTENTION_CAUSAL) {
    if (problem->seq_q != problem->seq_kv || problem->seq_kv > MOST_CAUSAL) return false;
    return problem->seq_kv <= SHORT_CAUSAL ? rows_of_pairs * 10 <= rows * 11 : rows_of_pairs * 100 <= rows * 98;
  }
  if (problem->seq_kv > MOST_FULL) return false;
  return problem->seq_kv <= SHORT_FULL ? rows_of_pairs <= rows : rows_of_pairs * 10 <= rows * 9;
}

/* Of dense attention, us on an H200 by what was chosen before and by pairs, 16,384 tokens of 32 heads of 64 columns:
 * causal 256 88.1 and 85.3 (O of its own), 512 119 and 117, 1,024 177 and 171, 2,048 299 and 280, 4,096 513 and 500,
 * 8,192 906 and 950; full 512 151 and 143, 1,024 269 and 255, where three consumers compute 9 rows for 8, but 1,152
 * 229 and 244 (24 x 16 heads), where they do not, and 2,048 466 and 481; 300 (2,000 heads) 161 and 138. Heads of 48
 * columns, causal 1,024 230 and 204, 4,096 633 and 591, full 1,024 322 and 300. Heads of 40 lose: full 1,024 392 and
 * 461. So do few tiles: 20 heads of 813 queries 15.2 and 20.9, 14 of 1,352 22.9 and 27.9. */
void sm90_take_pairs(const kjit_attention_problem *problem, const struct sm90_card *card,
                     kjit_attention_sm90_config *config) {
  enum { LEAST_COLUMNS = 48, OWN_OUTPUT_KEYS = 256 };
  kjit_attention_sm90_config pairs = *config;
  if (config->split || config->packed > 1 || config->consumers == 1 || sm90_has_slow_memory(card)) return;
  if (!has_columns(problem, LEAST_COLUMNS) || !has_many_tiles(problem)) return;
  if (!set_pairs(&pairs, problem->seq_kv <= OWN_OUTPUT_KEYS)) return;
  const int64_t rows = sm90_tiles_of(problem, config).query_tiles * sm90_tile_consumers(config);
  const int64_t rows_of_pairs = sm90_tiles_of(problem, &pairs).query_tiles * sm90_tile_consumers(&pairs);
  if (has_few_blocks(problem, rows, rows_of_pairs)) *config = pairs;
}

/* Of variants without a score function, which would take registers that pairs do not have: those whose tiles have few
 * key blocks. us on an H200, before and by pairs, as above with 4,096 and with 16,384 tokens: chunks of 1,024 195 and
 * 181, 194 and 184, documents by bounds 138 and 123, 260 and 246, by lists 194 and 163, but 414 and 435: long lists are
 * better read by three consumers. A prefix, which is not narrow, 558 and 565, 1,929 and 2,076. Windows of 1,024 take
 * 298 and 283, of 4,096 1,007 and 892, but those of 256 135 and 139, 136 and 142, by the same kernel. */
bool sm90_take_pairs_of_variant(const kjit_attention_problem *problem, const struct sm90_variant_needs *needs,
                                kjit_attention_sm90_config *config) {
  enum { LEAST_COLUMNS = 40, LEAST_MAPPED = 4096, LEAST = 1024 };
  if (needs->is_scored || config->consumers == 1 || !has_many_tiles(problem)) return false;
  if (!has_columns(problem, needs->is_mapped ? 0 : LEAST_COLUMNS)) return false;
  if (needs->is_mapped) return problem->seq_kv >= LEAST_MAPPED && set_pairs(config, false);
  if (problem->seq_kv < LEAST) return false;
  if (needs->is_listed) return problem->seq_kv < SM90_LONG_LISTS && set_pairs(config, false);
  return needs->is_narrow && needs->is_stepped && set_pairs(config, true);
}
