/* Gradients of an attention variant on one problem, beside float64: inputs made on the host, the forward and the
 * backward call, and a reference that evaluates the variant's text on the host. */
#ifndef KJIT_TESTS_GPU_VARIANT_GRADIENTS_H
#define KJIT_TESTS_GPU_VARIANT_GRADIENTS_H

#include <stdbool.h>

#include <kjit/kjit.h>

#include "support/card.h"

/* Texts may read: window (int32), cap (fp32), slope[heads] (fp32), doc[batch, keys] (int32), bias[heads, q, k] (fp32).
 */
struct variant_gradient_case {
  const char *name;
  const char *score, *mask;
  bool causal, sinks;
  bool members; /* the call says it by plain members: the window, cap, slope and bias that the texts name */
  bool tensors; /* the gradients of slope and bias are wanted, of elements slope[h], bias[h, q, k], [h, q, 0], [0, 0, k]
                 */
};

struct variant_gradient_shape {
  int batch, heads, heads_kv, seq_q, seq_kv, head_dim;
  const char *arch; /* "sm_90" or "sm_80": kernels of flash_backward for it; NULL: the library chooses */
};

/* dq, dk, dv, and those of slope and bias, which are zeros where nobody wants them. */
enum { VARIANT_GRADIENTS = 5 };

/* The largest errors of each, divided by the largest value of its reference; whether dq, dk and dv came out twice with
 * the same bits. */
struct variant_gradient_report {
  double error[VARIANT_GRADIENTS];
  bool passed, same_bits;
};

extern const struct variant_gradient_case variant_gradient_cases[];
extern const size_t variant_gradient_case_count;

const struct variant_gradient_case *variant_gradient_case_named(const char *name);

/* Run a case: forward once, backward twice. The status is that of the calls. */
kjit_status variant_gradients_run(const struct card *card, kjit_runtime *runtime,
                                  const struct variant_gradient_case *one, const struct variant_gradient_shape *shape,
                                  struct variant_gradient_report *report, kjit_error *error);

#endif
