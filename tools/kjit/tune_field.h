/* The candidates of one problem, from the library's list to those that are worth running. */
#ifndef KJIT_TOOLS_TUNE_FIELD_H
#define KJIT_TOOLS_TUNE_FIELD_H

#include "request_list.h"
#include "tune_problems.h"
#include "warm_pool.h"

#define ENTRANT_REASON_MAX 256

struct entrant {
  kjit_config config;                      /* canonical */
  uint32_t changes;                        /* from the rules' choice */
  uint32_t registers, spill_bytes, blocks; /* of its cubin; blocks that a multiprocessor holds at once */
  char refused[ENTRANT_REASON_MAX];        /* why it does not run; "" for one that does */
};

struct field_of_entrants {
  const struct tune_problem *problem;
  kjit_tune_candidates *list;
  struct entrant *items; /* [0] is the rules' choice */
  size_t count;          /* worth compiling */
  size_t refused;        /* of the list, by rules */
  size_t left_out;       /* beyond as many as were wanted */
};

/* What the card is, as far as it is known. */
struct tune_card {
  kjit_device_info device; /* name "": an architecture without a card */
  char arch[ARCH_BYTES];   /* what is compiled for */
};

/* The nearest `most`. KJIT_ERR_UNSUPPORTED: no family computes the problem there. Finish it in every case, before the
 * runtime. */
kjit_status field_make(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                       const struct tune_problem *problem, size_t most, kjit_error *error);
void field_finish(struct field_of_entrants *field);

/* Everything that must be compiled, into the list. */
kjit_status field_add_requests(const struct field_of_entrants *field, const struct tune_card *card,
                               struct request_list *list, kjit_error *error);

/* Refuse what the compiler's report speaks against: what did not compile, spills where the rules' choice does not (or
 * more), what no multiprocessor can hold, fewer warps there than it has schedulers. `results` are the list's, which is
 * distinct. KJIT_ERR_COMPILE and others when it is the rules' choice itself. */
kjit_status field_judge(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                        const struct request_list *list, const struct warm_result *results, kjit_error *error);

#endif
