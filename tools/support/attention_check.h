/* Is a kernel's output right? The float64 reference of a problem, and how an output compares with it. */
#ifndef KJIT_TOOLS_SUPPORT_ATTENTION_CHECK_H
#define KJIT_TOOLS_SUPPORT_ATTENTION_CHECK_H

#include <stdbool.h>

#include <kjit/flash_forward.h>

#include "support/attention_data.h"

/* The right results for a problem's inputs. All outputs that are computed from these inputs are compared with it. */
struct attention_reference {
  struct card_buffer o64; /* (batch, seq_q, heads, head_dim_v) double   */
  struct card_buffer o16; /* the same in the 16-bit type, as eager PyTorch computes it */
  double *lse;            /* (batch, heads, seq_q), on the host; NULL when the problem does not ask for it */
};

/* Compute the reference, and wait for it. */
kjit_status attention_reference_create(struct attention_reference *reference, const struct attention_data *data,
                                       kjit_error *error);
void attention_reference_destroy(struct attention_reference *reference, const struct card *card);

/*
 * The judgement. An output passes if
 *   max|out - ref| <= 2 * max|ref16 - ref| + one rounding to the 16-bit type at max|ref|
 * over all elements, all of them finite, nothing is written anywhere else and the inputs are as they were; and a
 * log-sum-exp if it is within problem_lse_bound(). This is FlashAttention's own rule, with half of its allowance for
 * rounding.
 */
struct attention_verdict {
  bool passed;
  double error;                /* max|out - ref|                                             */
  double error16;              /* max|ref16 - ref|                                           */
  double largest;              /* max|ref|                                                   */
  double bound;                /* what `error` may be                                        */
  bool reference_is_sane;      /* error16 and largest are what inputs of variance 1 can give */
  uint64_t worst;              /* element of the largest error, or the first not finite      */
  uint64_t not_finite;         /* elements that are infinite or NaN                          */
  double lse_error, lse_bound; /* 0 without lse; NaN in lse gives infinity                   */
  struct attention_traces traces;
};

/* Compare what is in the outputs of `data` with the reference. The kernel that wrote them must have ended, or run on
 * the card's stream. */
kjit_status attention_judge(const struct attention_data *data, const struct attention_reference *reference,
                            struct attention_verdict *verdict, kjit_error *error);

/* Fill the outputs with the NaN pattern, run the config on the card's stream, then compare. */
kjit_status attention_run(const struct attention_data *data, const struct attention_reference *reference,
                          const kjit_config *config, struct attention_verdict *verdict, kjit_error *error);

#define ATTENTION_VERDICT_TEXT_MAX 512

/* Print the verdict as one line: the numbers, and what is wrong if anything is. */
void attention_verdict_print(const struct attention_verdict *verdict, const struct trial_problem *problem,
                             char text[ATTENTION_VERDICT_TEXT_MAX]);

#endif
