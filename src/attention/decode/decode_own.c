/* Which problems attention_decode_sm90 computes faster than other families: those of few query rows of a key head over
 * many keys, but for what attention_sm90 is faster with, each by what was measured. docs/lab-notes/decode.md and
 * docs/lab-notes/races.md.
 *
 * Threads: pure functions. */
#include "attention/decode/decode_own.h"

#include "attention/rule.h"
#include "base/error.h"
#include "base/integer.h"

enum {
  FEW_ROWS = DECODE_M,         /* query rows of a key head: with more, products take longer than memory does */
  LEAST_KEYS = 256,            /* with fewer keys a launch is mostly its beginning and its end */
  LEAST_OF_MANY = 33,          /* the same where there are more key heads than SMs and query heads share them, */
  LEAST_OF_WIDE = 129,         /* also of more than 128 columns */
  LEAST_OF_BAND = 193,         /* the same of 64 columns and so many heads that steps read them, */
  LEAST_OF_FEW = 65,           /* the same for one query of few columns with no more key heads than SMs */
  LEAST_NARROW = 32,           /* columns of narrow heads that were measured */
  MOST_ODD_COLUMNS = 96,       /* columns of heads of no whole lines that one round of tiles reads without splits */
  WIDE_COLUMNS = 128,          /* columns: of more, an SM's one block of threads is slow with over half a tile's rows */
  WHOLE_BYTES_A_US = 59000,    /* with so much of memory's rate for each tile they need not be parted, */
  WIDE_BYTES_A_US = 36000,     /* of 72 to 96 and more than 192 columns that are no whole lines with so much */
  MOST_BYTES = 600000000,      /* of K and V of tiles that one round takes, up to which they were measured, and */
  MOST_USUAL_BYTES = 300000000 /* of 64 and 128 columns without slow memory, up to which that is faster */
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

static int64_t widest(const kjit_attention_problem *problem) {
  return integer_max(problem->head_dim, problem->head_dim_v);
}

/* With slow memory, heads of 64 or 128 columns of which a few multiprocessors have two tiles: attention_sm90 computes
 * one tile after the other, so that these few end alone, at 50 bytes a ns each, or cuts all tiles into parts. Here two
 * blocks of threads on a multiprocessor take all tiles at the same time. On an H100 attention_sm90 takes 128.5 us for
 * 35 rows of 160 heads over 5,654 keys of 64 columns in parts (1.80 TB/s), and 193 for 32 rows of 180 heads over 5,532
 * of 128 in whole tiles (2.65 TB/s), which are the two rounds as reckoned. 44 rows of 144 heads over 5,702 keys of 96
 * columns, heads first, are 127 here (2.49 TB/s), and 150 and 161 there in whole tiles and in parts; up to 8 rows of
 * 168 heads of 64 and 128 columns are read at 2.7 and 2.8 TB/s here. Of 64 columns so are up to half as many tiles
 * again as multiprocessors: 40 rows of 180 heads over 5,000 keys 91.6 and 99.4 us, 44 of 192 over 10,137 183 and 189;
 * of 128 columns 19 of 224 over 3,596 are 156 here and 148 there. */
static bool has_few_second_tiles(const kjit_attention_problem *problem, const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  const int64_t most = widest(problem) == DECODE_BAND_COLUMNS ? all * 15 : all * 13;
  return decode_has_slow_memory(card) && heads > all && heads * 10 <= most && widest(problem) <= WIDE_COLUMNS &&
         decode_key_bytes(problem) >= DECODE_LEAST_BYTES;
}

/* Where heads alone fill the card and a tile's rows are used, attention_sm90 needs no splits and is faster. With slow
 * memory and heads whose rows are no whole lines it is not so for one warp's rows (16 rows of 2,780 heads over 300 keys
 * of 120 columns: 215 us on an H100 and 171 here), nor where some multiprocessors have two tiles (44 rows of 144 heads
 * over 5,702 keys of 96 columns: 159 and 142; 40 of 240 over 2,000: 79 and 77). But more than half of a tile's rows of
 * so few heads that it splits keys are its own (50 rows of 12 heads over 2,439 keys of 96: 21 and 26). Two stages of
 * less than 64 columns are faster there from two thirds of a round of tiles on: 40 rows of 100 heads over 12,000 keys
 * of 40 columns 127 here and 112 there, 41 of 220 over 7,151 of 48 columns 204 and 125, 50 of 90 over 9,000 97 and 71,
 * 44 of 96 over 15,379 of 56 columns 171 and 139. */
static bool is_many_rows_of_many_heads(const kjit_attention_problem *problem, int64_t rows,
                                       const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  const bool fills = heads * 5 >= all * 4;
  if (!decode_has_slow_memory(card) || !decode_is_odd(problem->head_dim))
    return rows >= DECODE_WARP_ROWS && fills && !has_few_second_tiles(problem, card);
  if (rows <= DECODE_WARP_ROWS) return false;
  const bool is_narrow = widest(problem) < DECODE_BAND_COLUMNS && widest(problem) >= LEAST_NARROW;
  if (is_narrow && !(problem->flags & KJIT_ATTENTION_CAUSAL) && heads * 3 >= all * 2) return true;
  if (heads > all) return heads > 2 * all || widest(problem) > WIDE_COLUMNS;
  return fills || (rows > FEW_ROWS / 2 && heads * 4 <= all);
}

/* Does a tile of attention_sm90 hold all rows of a key head, packed? */
static bool is_one_tile(const kjit_attention_problem *problem) {
  const int64_t group = problem->heads_q / problem->heads_kv;
  int64_t packed = 1;
  while (packed < group)
    packed *= 2;
  return problem->seq_q * packed <= DECODE_M;
}

/* With slow memory one warp's rows of heads of 64 columns, and of heads whose rows are no whole lines, are read here by
 * few bytes on their way (decode_choose.c). */
static bool is_read_by_few_bytes(const kjit_attention_problem *problem, int64_t rows, const struct decode_card *card) {
  return decode_has_slow_memory(card) && rows <= DECODE_WARP_ROWS &&
         (decode_is_odd(problem->head_dim) || widest(problem) == DECODE_BAND_COLUMNS);
}

/* Three batch entries of 8/4 heads of 64 columns over 84 keys: 6.8 us here on an H100, where attention_sm90 takes 7.9.
 */
static bool is_one_query_of_few_heads(const kjit_attention_problem *problem, const struct decode_card *card) {
  return problem->seq_q == 1 && problem->batch * problem->heads_kv <= card->multiprocessors &&
         problem->heads_q / problem->heads_kv <= DECODE_WARP_ROWS && widest(problem) <= DECODE_BAND_COLUMNS;
}

/* So many tiles that each multiprocessor has one, or nearly: attention_sm90 computes a step while it loads the next
 * two, so that a multiprocessor reads 45 to 58 bytes a ns, and 60 to 90 of them all that memory gives. Here a block of
 * threads waits for each step, and parts that would make it up have to be merged. us, here and there, on an H200 and an
 * H100: 16 rows of 80 heads over 5,871 keys of 128 columns 85 and 70, 115 and 92; 19 rows of 84 over 6,567 95 and 80,
 * 129 and 106; 4 of 96 (8 heads a key head) over 5,000 95 and 72, 111 and 94; one of 100 over 4,000 68 and 61 on an
 * H200; 16 rows of 80 heads over 3,000 keys of 256 columns 91 and 71, 96 and 93; 40 rows of 96 heads over 6,000 keys of
 * 64 columns 67 and 51; 20 rows of 96 heads over 6,000 keys of 96 columns 81 and 68, 115 and 91.
 *
 * What slow memory reads here by few bytes is as fast (16 rows of 80 heads over 8,000 keys of 64 columns 71 and 69), as
 * are more than 300 MB of whole lines on an H200 (one of 80 heads over 11,808 keys of 128 columns 129 and 129, of 128
 * over 14,707 of 64 132 and 126), but not of other heads (one of 128 over 6,805 keys of 152 columns 203 and 162, over
 * 9,139 of 72 143 and 127). More than 600 MB were not measured.
 *
 * Heads of more than 192 columns that are no whole lines are not read by few bytes here. An H100 reads TB/s, here, 2.23
 * (one row of 84 heads over 5,596 keys of 240 columns) and 2.52 (16 of 105 over 5,515 of 224), and there 2.60 (32 of
 * 110 over 3,341 of 224), 2.66 (2 of 220 over 3,311 of 176) and 2.86 (8 of 104 over 4,682 of 256). But most rows of
 * their boxes lie in two lines, of which an SM gets one in 1.6 to 1.8 ns, so that it reads no more than 36 bytes a ns.
 * As few bytes a ns are reckoned with 72 to 96 columns, which an H100 reads by few bytes too, but faster there, us, one
 * row, here and there: 72 columns, 96 heads over 11,615 keys 178 and 143, 120 over 9,000 135 and 131; 80 columns, 80
 * over 12,000 139 and 117, 96 over 11,615 169 and 133, 100 over 9,000 209 and 112, heads first, 96 over 9,000 114 and
 * 110; 88 columns, 80 over 13,000 204 and 159, 96 over 11,615 214 and 163; 96 columns, 100 over 8,000 127 and 116, 128
 * over 7,000 125 and 125. But 104 columns, 112 over 9,000 158 and 167.
 *
 * One query of up to 208 keys of 64 columns is one step here, us, here and there, on an H200: 64 heads over 174 keys of
 * 2 batch entries 7.6 and 8.9, over 200 7.8 and 8.1, 96 over 71 6.6 and 7.2, 119 over 205 7.3 and 8.0. */
static bool is_round_of_tiles(const kjit_attention_problem *problem, int64_t rows, const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, columns = widest(problem);
  const bool is_usual = columns <= WIDE_COLUMNS && !decode_is_odd(problem->head_dim) && !decode_has_slow_memory(card);
  const bool has_few_bytes = is_read_by_few_bytes(problem, rows, card), is_wide = columns > DECODE_FEW_BYTES_COLUMNS;
  const bool is_faster_whole = decode_is_odd(problem->head_dim) && columns <= MOST_ODD_COLUMNS &&
                               decode_key_bytes(problem) >= DECODE_LEAST_BYTES;
  if (heads > card->multiprocessors || columns < DECODE_BAND_COLUMNS || !is_one_tile(problem)) return false;
  if (has_few_bytes && !is_wide && !is_faster_whole) return false;
  if (is_one_query_of_few_heads(problem, card) && problem->seq_kv <= DECODE_LONGEST_STEP) return false;
  if (decode_key_bytes(problem) > (is_usual ? MOST_USUAL_BYTES : MOST_BYTES)) return false;
  return heads * (has_few_bytes ? WIDE_BYTES_A_US : WHOLE_BYTES_A_US) >= card->memory_bytes_a_us;
}

/* The same of more than 128 columns in two rounds, of which the second has enough tiles too: 2 rows of 220 heads over
 * 3,311 keys of 176 columns take 163 us here on an H200 and 139 there, 222 and 193 on an H100. */
static bool is_two_rounds_of_wide_tiles(const kjit_attention_problem *problem, const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  return widest(problem) > WIDE_COLUMNS && is_one_tile(problem) && heads <= 2 * all && (heads - all) * 5 >= all * 3;
}

static bool has_band_columns(const kjit_attention_problem *problem) {
  return problem->head_dim == DECODE_BAND_COLUMNS && problem->head_dim_v == DECODE_BAND_COLUMNS;
}

/* Does one query have all rows of a warp, and heads of 64 columns? */
static bool is_packed_warp_of_narrow_heads(const kjit_attention_problem *problem) {
  return problem->seq_q == 1 && decode_rows_of(problem) == DECODE_WARP_ROWS && has_band_columns(problem);
}

/* Few keys of tiles that one round takes: attention_sm90 begins and ends sooner, us, here, by attention_serving_sm90
 * where that takes them, and there, on an H200: 16 query heads of 56 key heads over 350 keys of 128 columns 12.8 and
 * 10.8, over 700 15.7 and 14.7; 8 of 24 over 350 10.6 and 10.2; one of 96 over 300 12.4 and 11.2; on an H100 10.5 and
 * 9.7 of 24 over 350, 15.5 and 13.3 of 80 over 400. What slow memory reads here by few bytes is the other way round
 * there with more keys: one query of 96 heads over 662 keys of 64 columns 12.8 and 13.5, two of 112 over 500 of 96
 * columns 15.6 and 16.6, but of 42 over 390 11.9 and 10.5. Of 16 query heads a key head, 64 columns, also few: an H100
 * takes 9.4 and 8.3 for 6 heads over 319 keys, 10.3 and 8.7 for 16 over 400, 10.2 and 9.4 for 16 over 500, an H200 10.3
 * and 9.1 for 16 over 400. */
bool decode_is_short_round(const kjit_attention_problem *problem, const struct decode_card *card) {
  enum { MOST_KEYS = 512, MOST_OF_MANY = 850, MOST_OF_FEW_BYTES = 448, MOST_OF_PACKED = 513 };
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  const int64_t most = is_read_by_few_bytes(problem, decode_rows_of(problem), card) ? MOST_OF_FEW_BYTES
                       : heads * 5 >= all * 2                                       ? MOST_OF_MANY
                                                                                    : MOST_KEYS;
  if (problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_q > 1) return false; /* not measured */
  if (is_packed_warp_of_narrow_heads(problem) && heads <= all / 6)
    return problem->seq_kv >= LEAST_KEYS && problem->seq_kv < MOST_OF_PACKED;
  return heads <= all && heads * 6 >= all && problem->seq_kv >= LEAST_KEYS && problem->seq_kv < most &&
         widest(problem) >= DECODE_BAND_COLUMNS && is_one_tile(problem);
}

int64_t decode_key_bytes(const kjit_attention_problem *problem) {
  enum { ELEMENT_BYTES = 2 };
  const int64_t key_bytes = (problem->head_dim + problem->head_dim_v) * ELEMENT_BYTES;
  return integer_product(integer_product(problem->batch * problem->heads_kv, problem->seq_kv), key_bytes);
}

/* One warp's rows of more heads of 64 columns than two for each multiprocessor: here by few bytes on their way and by
 * attention_sm90, us: 672 heads over 243 keys 22.8 and 25.9 on an H200, 26.9 and 30.4 on an H100; on an H200 400 over
 * 600 26.3 and 30.7, 960 over 1,000 72.5 and 76.5, 280 over 2,000 48.8 and 57.4. Of 128 columns attention_sm90 is as
 * fast or faster. Slow memory gives as much to so few bytes whatever the heads and keys: 468 over 203 18.9 and 21.5 on
 * an H100, 15.4 and 19.1 on an H200. */
bool decode_is_warp_of_narrow_heads(const kjit_attention_problem *problem, int64_t rows,
                                    const struct decode_card *card) {
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  const bool has_rounds = heads > 2 * all;
  if (rows != DECODE_WARP_ROWS || !has_band_columns(problem)) return false;
  if (decode_key_bytes(problem) < (has_rounds ? DECODE_LEAST_OF_ROUNDS : DECODE_LEAST_BYTES)) return false;
  return has_rounds || (decode_has_slow_memory(card) && heads >= all);
}

/* Four warps are all that an SM then holds, and each of them reads K and V of a step from shared memory for its own 16
 * rows. On an H200, here and by attention_sm90: 58 rows of 7 heads over 62,245 keys of 192 columns 171 and 126 us, 64
 * rows of 20 heads over 383 keys of 152 columns 31 and 12, and no shape tried was slower there. */
static bool is_wide_for_many_rows(const kjit_attention_problem *problem, int64_t rows) {
  return rows > FEW_ROWS / 2 && widest(problem) > WIDE_COLUMNS;
}

bool decode_reads_in_short_steps(const kjit_attention_problem *problem, const struct decode_card *card) {
  enum { MOST_ROUNDS = 8 };
  const int64_t heads = problem->batch * problem->heads_kv, all = card->multiprocessors;
  return !decode_has_slow_memory(card) && problem->seq_q == 1 && problem->heads_q == problem->heads_kv &&
         has_band_columns(problem) && problem->seq_kv >= LEAST_OF_BAND && problem->seq_kv < LEAST_KEYS &&
         heads > 2 * all && heads < MOST_ROUNDS * all;
}

/* Up to 256 keys of so many heads that a launch mostly reads, with slow memory: attention_short_sm90 reads all keys of
 * a head at once, more bytes than memory gives most with. Here and there, us, on an H100: one query of 1,920 heads over
 * 246 keys of 64 columns 54.5 and 57.6, 4 of 5,376 over 128 of 104 columns, whose rows are no whole sectors of 32
 * bytes, 120 and 143. But of 64 columns one query of 3,200 heads over 100 keys 41.9 and 40.9. On an H200 one query of
 * 306 heads over 236 keys of 64 columns 10.5 and 13.3. */
static bool is_read_in_steps(const kjit_attention_problem *problem, int64_t rows, const struct decode_card *card) {
  enum { KEYS_OF_ODD = 113, ROUNDS = 8, WHOLE_COLUMNS = 16 };
  const int64_t columns = widest(problem);
  if (decode_reads_in_short_steps(problem, card)) return true;
  if (!decode_has_slow_memory(card) || rows >= DECODE_WARP_ROWS) return false;
  if (problem->batch * problem->heads_kv < ROUNDS * card->multiprocessors) return false;
  if (columns == DECODE_BAND_COLUMNS) return problem->seq_kv >= LEAST_OF_BAND;
  return columns > DECODE_BAND_COLUMNS && columns <= WIDE_COLUMNS && problem->head_dim % WHOLE_COLUMNS != 0 &&
         problem->seq_kv >= KEYS_OF_ODD;
}

/* The fewest keys with which a problem is the family's own. */
static int64_t least_keys(const kjit_attention_problem *problem, int64_t rows, bool is_warp,
                          const struct decode_card *card) {
  const bool has_many =
      problem->batch * problem->heads_kv > card->multiprocessors && problem->heads_q > problem->heads_kv;
  if (has_many && (rows < DECODE_WARP_ROWS || is_warp))
    return widest(problem) > WIDE_COLUMNS ? LEAST_OF_WIDE : LEAST_OF_MANY;
  if (is_read_in_steps(problem, rows, card)) return 1;
  return is_one_query_of_few_heads(problem, card) ? LEAST_OF_FEW : LEAST_KEYS;
}

kjit_status decode_check_own(const kjit_attention_problem *problem, const struct decode_card *card, kjit_error *error) {
  const int64_t rows = decode_rows_of(problem);
  if (!rule_is_head(problem->head_dim) || !rule_is_head(problem->head_dim_v))
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: attention_decode_sm90 takes multiples of 8 up to 256",
                     (long long)problem->head_dim, (long long)problem->head_dim_v);
  const bool is_warp = decode_is_warp_of_narrow_heads(problem, rows, card);
  const int64_t least = least_keys(problem, rows, is_warp, card);
  const bool is_others = is_wide_for_many_rows(problem, rows) || is_round_of_tiles(problem, rows, card) ||
                         is_two_rounds_of_wide_tiles(problem, card) || decode_is_short_round(problem, card) ||
                         (!is_warp && is_many_rows_of_many_heads(problem, rows, card));
  if (rows <= FEW_ROWS && problem->seq_kv >= least && !is_others) return decode_check_problem(problem, error);
  return error_set(error, KJIT_ERR_UNSUPPORTED,
                   "seq_q is %lld and seq_kv %lld: attention_decode_sm90 is for at most 64 query rows of a key head "
                   "over at least 256 keys, at most 32 of more than 128 columns, and for fewer than 16 where key heads "
                   "fill the card",
                   (long long)problem->seq_q, (long long)problem->seq_kv);
}
