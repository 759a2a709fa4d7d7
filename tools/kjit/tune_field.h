/* The candidates of one problem, from the library's list to those that are worth running. */
#ifndef KJIT_TOOLS_TUNE_FIELD_H
#define KJIT_TOOLS_TUNE_FIELD_H

#include "request_list.h"
#include "tune_problems.h"
#include "warm_pool.h"

#define ENTRANT_REASON_MAX 256

struct entrant {
  kjit_config config;               /* canonical */
  uint32_t changes;                 /* fields that differ from the rules' choice */
  size_t index;                     /* in the library's list */
  uint32_t registers, spill_bytes;  /* figures of its cubin */
  char refused[ENTRANT_REASON_MAX]; /* why it does not run; "" for one that does */
};

struct field_of_entrants {
  const struct tune_problem *problem;
  kjit_tune_candidates *list;
  struct entrant *items; /* [0] is the rules' choice */
  size_t count;          /* candidates worth compiling */
  size_t refused;        /* candidates of the list that break a rule */
  size_t left_out;       /* candidates beyond the number that was asked for */
};

/* The card that is tuned for, as far as it is known. */
struct tune_card {
  kjit_device_info device; /* name "": an architecture without a card */
  char arch[ARCH_BYTES];   /* what is compiled for */
};

/* Make the field of the `most` nearest candidates, those of a user's family from its `set` (NULL: around the choice).
 * KJIT_ERR_UNSUPPORTED when no family computes the problem there. Finish it in every case, before the runtime. */
kjit_status field_make(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                       const struct tune_problem *problem, const char *set, size_t most, kjit_error *error);
void field_finish(struct field_of_entrants *field);

/* Append everything that must be compiled to the list. */
kjit_status field_add_requests(const struct field_of_entrants *field, const struct tune_card *card,
                               struct request_list *list, kjit_error *error);

/* Refuse candidates by the compiler's report: those that did not compile, that spill more than the rules' choice, that
 * do not fit an SM, or that leave an SM with fewer warps than schedulers. `results` belong to `list`, which is
 * distinct. KJIT_ERR_COMPILE and others when the rules' choice itself did not compile. */
kjit_status field_judge(struct field_of_entrants *field, kjit_runtime *runtime, const struct request_list *list,
                        const struct warm_result *results, kjit_error *error);

#endif
