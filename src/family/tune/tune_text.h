/* Tuned tables as text. One line each:
 *
 *   kjit-tuned 1
 *   device NVIDIA H200
 *   arch sm_90a
 *   multiprocessors 132
 *   driver 13000
 *   library 0.1.0
 *   compiler 13.0
 *   date 2026-11-21
 *   kernels attention_sm90 <64 hex digits>
 *   kernels flash_forward <64 hex digits>
 *   row dtype=bf16,causal=0,…,pairs=64 409.312 421.120 attention_sm90 dtype=bf16,…
 *   row dtype=bf16,causal=1,…,pairs=64 300.128 300.128 rules
 *   end 2
 *
 * A row: class, microseconds of what was chosen, of what the rules choose, then family and config, or "rules" where
 * these were not beaten. There is one way to write a table; rows are in the order of classes. */
#ifndef KJIT_FAMILY_TUNE_TUNE_TEXT_H
#define KJIT_FAMILY_TUNE_TUNE_TEXT_H

#include "base/text.h"
#include "family/tune/tune_table.h"

/* Longest line: a class, and a config of a user's family, each of which has a bound of its own. */
#define TUNE_LINE_MAX 8192

/* Longest text: TUNE_ROWS_MAX rows of usual length. */
#define TUNE_TEXT_MAX ((size_t)8 << 20)

/* Read the header alone. KJIT_ERR_PARSE: "line 3: column 6: …". */
kjit_status tune_text_read_header(const struct tune_subject *subject, const char *text, size_t bytes,
                                  struct tune_header *header, kjit_error *error);

/* Read everything into an empty table. A row measured on kernels other than `kernels` is counted as stale, and its
 * config is not read; one that breaks a rule, or cannot run on the place, is counted as broken. KJIT_ERR_PARSE,
 * KJIT_ERR_UNSUPPORTED for too many rows, KJIT_ERR_NO_MEMORY. */
kjit_status tune_text_read(struct tune_table *table, const char *text, size_t bytes,
                           const struct digest kernels[TUNE_FAMILIES_MAX], const struct family_place *place,
                           enum tune_origin origin, kjit_error *error);

/* Write the table; sorts its rows first. */
void tune_text_write(struct tune_table *table, struct text *out);

#endif
