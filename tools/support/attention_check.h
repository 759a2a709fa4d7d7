/* Is a kernel's output right? The float64 reference of a problem, and the judgement of an output beside it. */
#ifndef KJIT_TOOLS_SUPPORT_ATTENTION_CHECK_H
#define KJIT_TOOLS_SUPPORT_ATTENTION_CHECK_H

#include <kjit/flash_forward.h>

#include "support/attention_data.h"

/* What is right for some inputs: shared by all outputs computed from them. */
struct attention_reference {
  struct card_buffer o64; /* (batch, seq_q, heads, head_dim_v) double   */
  struct card_buffer o16; /* the same in the 16-bit type, as eager PyTorch computes it */
  double *lse;            /* (batch, heads, seq_q), on the host; NULL when not asked for */
};

/* Computes it; waits. */
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
  _Bool passed;
  double error;                /* max|out - ref|                                             */
  double error16;              /* max|ref16 - ref|                                           */
  double largest;              /* max|ref|                                                   */
  double bound;                /* what `error` may be                                        */
  _Bool reference_is_sane;     /* error16 and largest are what inputs of variance 1 can give */
  uint64_t worst;              /* element of the largest error, or the first not finite      */
  uint64_t not_finite;         /* elements that are infinite or NaN                          */
  double lse_error, lse_bound; /* 0 without lse; NaN in lse gives infinity                   */
  struct attention_traces traces;
};

/* Judge what is in data's outputs. What wrote it must be over, or on the card's stream. */
kjit_status attention_judge(const struct attention_data *data, const struct attention_reference *reference,
                            struct attention_verdict *verdict, kjit_error *error);

/* Poison, run with the config on the card's stream, judge. */
kjit_status attention_run(const struct attention_data *data, const struct attention_reference *reference,
                          const kjit_flash_config *config, struct attention_verdict *verdict, kjit_error *error);

#define ATTENTION_VERDICT_TEXT_MAX 512

/* One line: the numbers, and what is wrong if anything is. */
void attention_verdict_print(const struct attention_verdict *verdict, const struct problem *problem,
                             char text[ATTENTION_VERDICT_TEXT_MAX]);

#endif
