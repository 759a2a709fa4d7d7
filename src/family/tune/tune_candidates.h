/* Which configs are worth measuring for a problem: the rules' choice and its neighbours by the family's field table, or
 * the configs of one of the family's sets. Pure. */
#ifndef KJIT_FAMILY_TUNE_TUNE_CANDIDATES_H
#define KJIT_FAMILY_TUNE_TUNE_CANDIDATES_H

#include "base/mem.h"
#include "family/tune_subject.h"

/* Most configs that are compiled for one problem: 16 processors compile them in some seconds. */
#define TUNE_CANDIDATES_MAX 96

/* How many legal values a field is moved to either side. */
#define TUNE_STEPS 2

#define TUNE_REASON_MAX 256

struct tune_candidate {
  int32_t values[KJIT_FIELD_COUNT_MAX]; /* canonical, if it is legal */
  uint32_t changes;                     /* fields that differ from the rules' choice */
  uint32_t steps;                       /* steps along those fields, added up; 0 for a set's */
  uint32_t number;                      /* order in which they were made */
  char refused[TUNE_REASON_MAX];        /* why it is not worth compiling; "" for one that is */
};

struct tune_candidates {
  const struct mem *mem;
  const kjit_family *family;
  struct tune_candidate *items; /* [0] is the rules' choice; the nearest first, a set's in the set's order */
  size_t count, capacity;
};

/* What candidates are made for. Everything is borrowed for the call. */
struct tune_start {
  const struct tune_subject *subject;
  const kjit_family *family;
  const int32_t *values; /* the rules' choice */
  const int32_t *class;  /* of the problem */
  const struct family_place *place;
  /* Fit a config to the problem. KJIT_ERR_INVALID_CONFIG and KJIT_ERR_UNSUPPORTED say why it does not. */
  kjit_status (*fit)(const void *problem, int32_t *values, kjit_error *error);
  const void *problem;
};

/* Make the list: one or two fields changed at a time. Fields that the class decides stay; a field for which there is a
 * hint, and every BOOL, ENUM and DTYPE, takes each of its values; others the next TUNE_STEPS legal ones to either side.
 * A candidate that breaks a rule, does not fit the problem or the place, is the same kernel as another, or is beyond
 * the TUNE_CANDIDATES_MAX nearest, is in the list with the reason. KJIT_ERR_NO_MEMORY. Finish it in every case. */
kjit_status tune_candidates_make(struct tune_candidates *candidates, const struct mem *mem,
                                 const struct tune_start *start, kjit_error *error);

/* The same with the configs of a set, fitted to the problem, behind the rules' choice. No bound: the set is the
 * caller's. KJIT_ERR_NOT_FOUND when the family has no such set. */
kjit_status tune_candidates_make_set(struct tune_candidates *candidates, const struct mem *mem,
                                     const struct tune_start *start, const char *set, kjit_error *error);
void tune_candidates_finish(struct tune_candidates *candidates);

#endif
