/* Which problems attention_decode_sm90 computes faster than other families: those of few query rows of a key head over
 * many keys, but for what attention_sm90 is faster with, each by what was measured. docs/lab-notes/decode.md and
 * docs/lab-notes/races.md.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_own.h"

#include "base/error.h"
#include "base/integer.h"

enum {
  MAX_HEAD = 256,      /* most columns of a head */
  FEW_ROWS = DECODE_M, /* query rows of a key head: with more, products take longer than memory does */
  LEAST_KEYS = 256,    /* with fewer keys a launch is mostly its beginning and its end */
  LEAST_OF_MANY = 129, /* the same where there are more key heads than SMs and query heads share them */
  LEAST_OF_FEW = 65,   /* the same for one query of few columns with no more key heads than SMs */
  FEW_KEYS = 1024,     /* keys up to which one warp's rows of many heads were measured with memory that is not slow */
  WIDE_COLUMNS = 128   /* columns: of more, an SM's one block of threads is slow with over half a tile's rows */
};

#define MAX_SEQ    (INT64_C(1) << 30)
#define MAX_BLOCKS (INT64_C(1) << 30)

kjit_status decode_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  const int64_t heads = problem->batch * problem->heads_q;
  if (problem->seq_q <= MAX_SEQ && problem->seq_kv <= MAX_SEQ &&
      integer_divide_up(problem->seq_kv, 16) <= MAX_BLOCKS / integer_max(heads, 1) / problem->seq_q)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_kv is %lld: attention_decode_sm90 takes at most 2^34 keys over all rows of all heads",
                   (long long)problem->seq_kv);
}

/* Where heads alone fill the card and a tile's rows are used, attention_sm90 needs no splits and is faster. With slow
 * memory and heads whose rows are no whole lines it is not so for one warp's rows (16 rows of 2,780 heads over 300 keys
 * of 120 columns: 215 us on an H100 and 171 here), but for more than half of a tile's also where heads fill two thirds
 * of the card (44 rows of 96 heads over 11,055 keys of 112: 195 and 213), or so few that it splits keys (50 rows of 12
 * heads over 2,439 keys of 96: 21 and 26). */
static bool is_many_rows_of_many_heads(const kjit_attention_problem *problem, int64_t rows,
                                       const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  const bool fills = heads * 5 >= all * 4;
  if (!decode_has_slow_memory(card) || !decode_is_odd(problem->head_dim)) return rows >= DECODE_WARP_ROWS && fills;
  if (rows > FEW_ROWS / 2) return heads * 3 >= all * 2 || heads * 4 <= all;
  return rows > DECODE_WARP_ROWS && fills;
}

int64_t decode_key_bytes(const kjit_attention_problem *problem) {
  enum { ELEMENT_BYTES = 2 };
  return problem->batch * problem->heads_kv * problem->seq_kv * (problem->head_dim + problem->head_dim_v) *
         ELEMENT_BYTES;
}

/* One warp's rows of more heads of 64 columns than two for each multiprocessor: here by few bytes on their way and by
 * attention_sm90, us: 672 heads over 243 keys 22.8 and 25.9 on an H200, 26.9 and 30.4 on an H100; on an H200 400 over
 * 600 26.3 and 30.7, 960 over 1,000 72.5 and 76.5. Of 128 columns attention_sm90 is as fast or faster. Slow memory
 * gives as much to so few bytes whatever the heads and keys. */
bool decode_is_warp_of_narrow_heads(const kjit_attention_problem *problem, int64_t rows,
                                    const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  if (rows != DECODE_WARP_ROWS || decode_key_bytes(problem) < DECODE_LEAST_BYTES) return false;
  if (problem->head_dim != DECODE_BAND_COLUMNS || problem->head_dim_v != DECODE_BAND_COLUMNS) return false;
  return decode_has_slow_memory(card) ? heads >= all : heads > 2 * all && problem->seq_kv <= FEW_KEYS;
}

/* Four warps are all that an SM then holds, and each of them reads K and V of a step from shared memory for its own 16
 * rows. On an H200, here and by attention_sm90: 58 rows of 7 heads over 62,245 keys of 192 columns 171 and 126 us, 64
 * rows of 20 heads over 383 keys of 152 columns 31 and 12, and no shape tried was slower there. */
static bool is_wide_for_many_rows(const kjit_attention_problem *problem, int64_t rows) {
  return rows > FEW_ROWS / 2 && integer_max(problem->head_dim, problem->head_dim_v) > WIDE_COLUMNS;
}

/* Three batch entries of 8/4 heads of 64 columns over 84 keys: 6.8 us here on an H100, where attention_sm90 takes 7.9.
 */
static bool is_one_query_of_few_heads(const kjit_attention_problem *problem, const struct decode_card *card) {
  return problem->seq_q == 1 && problem->batch * problem->heads_kv <= card->multiprocessors &&
         problem->heads_q / problem->heads_kv <= DECODE_WARP_ROWS &&
         integer_max(problem->head_dim, problem->head_dim_v) <= DECODE_BAND_COLUMNS;
}

kjit_status decode_check_own(const kjit_attention_problem *problem, const struct decode_card *card, kjit_error *error) {
  const int64_t rows = decode_rows_of(problem);
  if (problem->head_dim % 8 != 0 || problem->head_dim > MAX_HEAD || problem->head_dim_v % 8 != 0 ||
      problem->head_dim_v > MAX_HEAD)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_decode_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  const bool has_many =
      problem->batch * problem->heads_kv > card->multiprocessors && problem->heads_q > problem->heads_kv;
  const bool is_warp = decode_is_warp_of_narrow_heads(problem, rows, card);
  const int64_t least = has_many && (rows < DECODE_WARP_ROWS || is_warp) ? LEAST_OF_MANY
                        : is_one_query_of_few_heads(problem, card)       ? LEAST_OF_FEW
                                                                         : LEAST_KEYS;
  if (rows <= FEW_ROWS && problem->seq_kv >= least && !is_wide_for_many_rows(problem, rows) &&
      (is_warp || !is_many_rows_of_many_heads(problem, rows, card)))
    return decode_check_problem(problem, error);
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_q is %lld and seq_kv %lld: attention_decode_sm90 is for at most 64 query rows of a key head "
                   "over at least 256 keys, at most 32 of more than 128 columns, and for fewer than 16 where key heads "
                   "fill the card",
                   (long long)problem->seq_q, (long long)problem->seq_kv);
}
