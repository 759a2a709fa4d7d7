/* Which configs are worth measuring for a problem: the rules' choice and its neighbours, by the family's field table.
 * Pure. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_CANDIDATES_H
#define KJIT_ATTENTION_TUNE_TUNE_CANDIDATES_H

#include "attention/attention_choose.h"
#include "attention/tune/tune_class.h"
#include "base/mem.h"

/* Most configs that are compiled for one problem: 16 processors compile them in some seconds. */
#define TUNE_CANDIDATES_MAX 96

/* How many legal values a field is moved to either side. */
#define TUNE_STEPS 2

#define TUNE_REASON_MAX 256

struct tune_candidate {
  int32_t values[ATTENTION_FIELDS_MAX]; /* canonical, if it is legal */
  uint32_t changes;                     /* fields that differ from the rules' choice: 0, 1 or 2 */
  uint32_t steps;                       /* steps along those fields, added up */
  uint32_t number;                      /* order in which they were made */
  char refused[TUNE_REASON_MAX];        /* why it is not worth compiling; "" for one that is */
};

struct tune_candidates {
  const struct mem *mem;
  const struct attention_family *family;
  struct tune_candidate *items; /* [0] is the rules' choice; the nearest first */
  size_t count, capacity;
};

/* Make the list: one or two fields changed at a time. Fields that the problem decides stay; a field for which there is
 * a hint, and every BOOL, takes each of its values; others the next TUNE_STEPS legal ones to either side. A candidate
 * that breaks a rule, does not fit the problem or the place, is the same kernel as another, or is beyond the
 * TUNE_CANDIDATES_MAX nearest, is in the list with the reason. KJIT_ERR_UNSUPPORTED, KJIT_ERR_NO_MEMORY. Finish it in
 * every case. */
kjit_status tune_candidates_make(struct tune_candidates *candidates, const struct mem *mem,
                                 const kjit_attention_problem *problem, const struct family_place *place,
                                 kjit_error *error);
void tune_candidates_finish(struct tune_candidates *candidates);

#endif
