/* Attention as a subject of tuned tables: its families, and what a table says of a problem. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_ATTENTION_H
#define KJIT_ATTENTION_TUNE_TUNE_ATTENTION_H

#include "attention/attention_choose.h"
#include "attention/tune/tune_class.h"
#include "family/tune/tune_candidates.h"
#include "family/tune/tune_table.h"

extern const struct tune_subject tune_attention;

/* True when the table has a row for a problem whose defaults are filled in, and the row fits; `choice` is then set.
 * Thread-safe; it costs some tens of nanoseconds. */
bool tune_attention_choose(struct tune_table *table, const kjit_attention_problem *problem,
                           struct attention_choice *out);

/* The table in the form in which the planner asks it; `table` may be NULL. */
struct attention_measured tune_attention_measured(struct tune_table *table);

/* What candidates are made for, and what it points to. Must not be copied. */
struct tune_attention_start {
  struct tune_start start;
  struct attention_choice choice; /* the rules' */
  const kjit_attention_problem *problem;
  struct tune_class class;
};

/* Choose by rules for a problem whose defaults are filled in. `problem` and `place` must outlive it.
 * KJIT_ERR_UNSUPPORTED.
 */
kjit_status tune_attention_start_init(struct tune_attention_start *start, const kjit_attention_problem *problem,
                                      const struct family_place *place, kjit_error *error);

#endif
