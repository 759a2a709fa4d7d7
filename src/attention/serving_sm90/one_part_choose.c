/* The planner of dense attention for attention_serving_sm90's kernel with one_part.
 *
 * A dense problem is a serving problem whose sequences all have the same number of keys and no page table, so the rules
 * of serving say for which problems the kernel is at all, by their tiles (serving_sm90_choose.c). Here is left which of
 * these it computes faster than other families, and with which tile: 64 rows, and 128 for more rows of a key head. It
 * begins and ends faster than they do, and where a launch is more than that they are ahead in some cases:
 *
 * 1. few keys, of many tiles more of them;
 * 2. heads of less than 64 columns, unless parts are short, because attention_decode_sm90 has more blocks of threads on
 *    a multiprocessor;
 * 3. with slow memory, up to 16 rows of heads whose rows are no whole lines, of which attention_decode_sm90 has few
 *    bytes on their way at a time;
 * 4. with slow memory, up to 16 rows of heads of 64 columns and more than 300 MB of keys and values, for the same
 *    reason;
 * 5. more than 64 rows in many tiles, because attention_sm90 multiplies faster.
 *
 * docs/lab-notes/decode.md has the measurements. Threads: pure functions. */
#include "attention/serving_sm90/one_part_choose.h"

#include "attention/decode/decode_own.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  LEAST_KEYS = 512,
  LEAST_KEYS_OF_MANY_ROWS = 768,
  LEAST_KEYS_OF_SOME_TILES = 896,
  NARROW_BLOCKS = 4,           /* blocks of keys in a part of heads of less than 64 columns, at most */
  FEW_TILES_SHARE = 16,        /* multiprocessors for each tile of 128 rows, with which products do not decide */
  SOME_TILES_SHARE = 8,        /* the same, with which short parts gain */
  MOST_SLOW_BYTES = 300000000, /* of K and V of 64 columns with slow memory, which two steps of attention_decode_sm90
                                  use more of: 45 tiles over 41,810 keys 190 us here on an H100 and 182 there, 48 over
                                  42,738 199 and 189 */
  MOST_BATCH = 64,             /* a lane of a warp has two sequences */
  LEAST_PART_KEYS = 128        /* part.cuh */
};

#define MOST_KEYS (INT64_C(1) << 26) /* counted by sums of fp32 */
#define MOST_ROWS (INT64_C(1) << 21) /* packed rows of a key head, divided by fp32 */

/* Packed rows of a key head. */
static int64_t rows_of(const kjit_attention_problem *problem) {
  return problem->seq_q * (problem->heads_q / problem->heads_kv);
}

kjit_status one_part_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  const int64_t rows = rows_of(problem);
  if (problem->batch <= MOST_BATCH && problem->seq_kv < MOST_KEYS && rows < MOST_ROWS &&
      problem->heads_kv * integer_divide_up(rows, SERVING_SM90_M) < MOST_ROWS / MOST_BATCH)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "batch is %lld, seq_q %lld and seq_kv %lld: attention_serving_sm90 takes a batch of at most 64, "
                   "fewer than 2^26 keys, and fewer than 2^21 query rows of a key head",
                   (long long)problem->batch, (long long)problem->seq_q, (long long)problem->seq_kv);
}

static struct serving_problem serving_problem_of(const kjit_attention_problem *problem) {
  return (struct serving_problem){.dtype = problem->dtype,
                                  .head_dim = problem->head_dim,
                                  .head_dim_v = problem->head_dim_v,
                                  .heads_kv = problem->heads_kv,
                                  .group = problem->heads_q / problem->heads_kv,
                                  .packed_rows = rows_of(problem),
                                  .batch = problem->batch,
                                  .rows = problem->batch * problem->seq_q,
                                  .is_plain = true,
                                  .is_simple = true};
}

/* As part.cuh divides them where all sequences are alike: the shortest parts of equal length with which all fit. */
struct one_part_tiles one_part_tiles_of(const kjit_attention_problem *problem, const struct serving_sm90_config *config,
                                        int64_t multiprocessors) {
  const int64_t row_tiles = integer_divide_up(rows_of(problem), config->rows);
  const int64_t count = problem->batch * problem->heads_kv * row_tiles;
  const int64_t blocks = integer_divide_up(problem->seq_kv, config->keys);
  const int64_t most = integer_max(multiprocessors * config->blocks_per_sm / count, 1);
  const int64_t least = integer_divide_up(LEAST_PART_KEYS, config->keys);
  const int64_t part_blocks = integer_max(integer_divide_up(blocks, most), least);
  return (struct one_part_tiles){count, integer_divide_up(blocks, part_blocks), integer_min(part_blocks, blocks)};
}

static bool is_fast_for_few_rows(const kjit_attention_problem *problem, const struct family_place *place,
                                 const struct serving_sm90_config *config) {
  const int64_t band = SERVING_SM90_BAND_COLUMNS;
  const struct decode_card card = decode_card_of(place);
  const bool is_odd = problem->head_dim % band != 0 || problem->head_dim_v % band != 0;
  const struct one_part_tiles tiles = one_part_tiles_of(problem, config, place->sm_count);
  if (problem->seq_kv < LEAST_KEYS || decode_is_short_round(problem, &card)) return false;
  const bool has_much =
      integer_max(problem->head_dim, problem->head_dim_v) == band && decode_key_bytes(problem) > MOST_SLOW_BYTES;
  if ((is_odd || has_much) && rows_of(problem) <= DECODE_WARP_ROWS && decode_has_slow_memory(&card)) return false;
  if (integer_max(problem->head_dim, problem->head_dim_v) >= band) return true;
  return tiles.part_blocks <= NARROW_BLOCKS;
}

/* Tiles of 64 rows are ahead by 4 % where parts of those of 128 rows would be a single block of keys. */
static bool is_fast_for_many_rows(const kjit_attention_problem *problem, const struct family_place *place,
                                  struct serving_sm90_config *config) {
  const struct one_part_tiles tiles = one_part_tiles_of(problem, config, place->sm_count);
  if (problem->seq_kv < LEAST_KEYS_OF_MANY_ROWS) return false;
  if (tiles.part_blocks == 1) serving_sm90_set_few_rows(config);
  if (tiles.count * FEW_TILES_SHARE <= place->sm_count) return true;
  return problem->seq_kv >= LEAST_KEYS_OF_SOME_TILES && tiles.count * SOME_TILES_SHARE <= place->sm_count &&
         tiles.count * tiles.part_blocks <= place->sm_count;
}

kjit_status one_part_choose(const kjit_attention_problem *problem, const struct family_place *place,
                            struct serving_sm90_config *out, kjit_error *error) {
  const struct serving_problem serving = serving_problem_of(problem);
  const kjit_status status = one_part_check_problem(problem, error);
  if (status != KJIT_OK) return status;
  const bool has_few_rows = rows_of(problem) <= SERVING_SM90_M;
  if (serving_sm90_choose_one_part(&serving, place->sm_count, out) &&
      (has_few_rows ? is_fast_for_few_rows(problem, place, out) : is_fast_for_many_rows(problem, place, out)))
    return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_q is %lld and seq_kv %lld: attention_serving_sm90 is for so few tiles of query rows that each "
                   "gets several blocks of threads, over at least 512 keys",
                   (long long)problem->seq_q, (long long)problem->seq_kv);
}
