/* Which problems are attention_decode_sm90's own: rules over numbers, no GPU. Pure; any thread. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_OWN_H
#define KJIT_ATTENTION_DECODE_DECODE_OWN_H

#include <stdbool.h>

#include "attention/decode/decode_runs.h"

enum {
  DECODE_WARP_ROWS = 16,     /* rows that use all of a warp's products, which a tile makes in any case */
  DECODE_LONGEST_STEP = 208, /* keys of a step of up to 64 columns: of more a thread has too few registers */
  DECODE_LEAST_BYTES =
      32 << 20, /* of K and V, from which on a launch does not mostly wait for its first and last steps */
  DECODE_LEAST_OF_ROUNDS = 14 << 20, /* the same of more tiles than two for each multiprocessor */
  DECODE_FEW_BYTES_COLUMNS = 192     /* columns up to which slow memory is read by few bytes on their way */
};

/* KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the family does not compute, or that another family
 * computes faster. */
kjit_status decode_check_own(const kjit_attention_problem *problem, const struct decode_card *card, kjit_error *error);

/* Check that the kernel can index this problem, whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status decode_check_problem(const kjit_attention_problem *problem, kjit_error *error);

/* Are these few keys of so many key heads that attention_sm90 is faster, which begins and ends sooner? */
bool decode_is_short_round(const kjit_attention_problem *problem, const struct decode_card *card);

/* Is this one warp's rows of so many heads of 64 columns that few bytes on their way are faster than other families? */
bool decode_is_warp_of_narrow_heads(const kjit_attention_problem *problem, int64_t rows,
                                    const struct decode_card *card);

/* Is this one query of many heads of 64 columns over so few keys that short steps read them fastest? */
bool decode_reads_in_short_steps(const kjit_attention_problem *problem, const struct decode_card *card);

/* Bytes of K and V. */
int64_t decode_key_bytes(const kjit_attention_problem *problem);

/* Query rows of a key head. */
static inline int64_t decode_rows_of(const kjit_attention_problem *problem) {
  return problem->seq_q * (problem->heads_q / problem->heads_kv);
}

/* Are a head's rows no whole lines of 128 bytes? */
static inline bool decode_is_odd(int64_t columns) {
  return columns % DECODE_BAND_COLUMNS != 0;
}

#endif
