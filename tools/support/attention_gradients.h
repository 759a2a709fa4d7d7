/* The gradients of an attention problem on the GPU, and whether they are right: dO and dLSE at random, dq, dk and dv
 * filled with a NaN pattern, a float64 reference of each.
 *
 * Life cycle: attention_data_create() and a forward call, whose o and lse are read; gradients_create(); for each kernel
 * to check gradients_poison(), the kernel, gradients_judge(); gradients_destroy(); attention_data_destroy(). */
#ifndef KJIT_TOOLS_SUPPORT_ATTENTION_GRADIENTS_H
#define KJIT_TOOLS_SUPPORT_ATTENTION_GRADIENTS_H

#include <stdbool.h>

#include <kjit/attention_backward.h>

#include "support/attention_data.h"

enum gradient { GRADIENT_Q, GRADIENT_K, GRADIENT_V, GRADIENT_COUNT };

/* What of a backward call is beyond its problem. */
struct gradient_choices {
  uint32_t wanted; /* KJIT_GRADIENT_*; 0: all                     */
  bool dlse;       /* the loss reads lse too                      */
  bool expanded;   /* dout is one row for all: its strides are 0  */
  uint64_t seed;   /* of dout and dlse                            */
};

struct gradients {
  const struct attention_data *data;
  struct gradient_choices choices;
  struct card_buffer dout, dlse, delta;
  struct card_buffer memory[GRADIENT_COUNT];      /* those of dk and dv: none when packed with dq, or not wanted */
  struct card_buffer reference64[GRADIENT_COUNT]; /* contiguous (batch, seq, heads, columns), double             */
  struct card_buffer reference16[GRADIENT_COUNT]; /* the same in the 16-bit type                                 */
  kjit_attention_backward_args args;              /* ready for a backward call                                   */
  bool has_reference;
};

/* Allocate and fill; waits. The forward call with `data`, which must have lse, may still be running on the card's
 * stream. */
kjit_status gradients_create(struct gradients *gradients, const struct attention_data *data,
                             const struct gradient_choices *choices, kjit_error *error);
void gradients_destroy(struct gradients *gradients); /* accepts a zeroed one; nothing may be running */

/* Compute the references. KJIT_ERR_UNSUPPORTED when the pairs of queries and keys are too many to be kept. */
kjit_status gradients_reference(struct gradients *gradients, kjit_error *error);

/* Fill the gradients and delta with the pattern again, in the stream's order. */
kjit_status gradients_poison(const struct gradients *gradients, CUstream stream, kjit_error *error);

/* The judgement of one gradient: FlashAttention's own rule,
 *   max|g - ref| <= 2 * max|ref16 - ref| + a rounding to the 16-bit type at max|ref|, or at 0.3 if that is more,
 * all elements finite, and nothing written anywhere else. */
struct gradient_verdict {
  bool passed;
  bool reference_is_sane; /* error16 is small beside the largest gradient */
  double error, error16, largest, bound;
  uint64_t not_finite;
  int64_t stray; /* words written outside; negative: elements not written */
};

struct gradients_verdict {
  bool passed;
  bool inputs_changed;
  struct gradient_verdict each[GRADIENT_COUNT]; /* those that are not wanted: passed, all else 0 */
};

/* Compare with the references, which must be there. The kernels must have ended, or run on the card's stream. */
kjit_status gradients_judge(const struct gradients *gradients, struct gradients_verdict *verdict, kjit_error *error);

#define GRADIENTS_VERDICT_TEXT_MAX 640

/* Print the verdict as one line. */
void gradients_verdict_print(const struct gradients_verdict *verdict, char text[GRADIENTS_VERDICT_TEXT_MAX]);

/* A digest of everything that the call wrote, with what is around it: equal bits, equal digests. */
kjit_status gradients_digest(const struct gradients *gradients, uint64_t *digest, kjit_error *error);

#endif
