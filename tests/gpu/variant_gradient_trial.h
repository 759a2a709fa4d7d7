/* One problem of variant_gradients.h, between what makes and runs it and what judges it. */
#ifndef KJIT_TESTS_GPU_VARIANT_GRADIENT_TRIAL_H
#define KJIT_TESTS_GPU_VARIANT_GRADIENT_TRIAL_H

#include "support/random.h"
#include "variant_gradients.h"

enum { Q, K, V, O, DOUT, DQ, DK, DV, WIDE };                          /* 16-bit tensors */
enum { LSE, DLSE, DELTA, SINKS, SLOPE, BIAS, DSLOPE, DBIAS, NARROW }; /* fp32 tensors   */
enum { TOLERANCE_PERCENT = 2, WINDOW = 19, TENSORS = 3 };             /* of the largest value */
struct variant_gradient_trial {
  const struct card *card;
  kjit_runtime *runtime;
  const struct variant_gradient_case *one;
  const struct variant_gradient_shape *shape;
  struct random random;
  uint16_t *wide[WIDE];
  float *narrow[NARROW];
  int32_t *doc;
  size_t wide_count[WIDE], narrow_count[NARROW];
  struct card_buffer wide_memory[WIDE], narrow_memory[NARROW], doc_memory;
  kjit_attention_variant *variant;
  kjit_tensor host[TENSORS], device[TENSORS]; /* what the texts read */
  int32_t scalars[2];
};

/* Compute the gradients in double precision, by the variant's texts, and compare those that were read. */
void variant_gradients_judge(const struct variant_gradient_trial *trial, struct variant_gradient_report *report);

#endif
