/* The judgement of one attention variant on one problem: what variant_trial.c made, beside a float64 reference. */
#ifndef KJIT_TESTS_GPU_VARIANT_JUDGE_H
#define KJIT_TESTS_GPU_VARIANT_JUDGE_H

#include "support/random.h"
#include "variant_trial.h"

enum { DOC, LENGTH, FLAG, SLOPE, BIAS, TABLE, LEVEL, WORLD_TENSORS };

struct variant_trial {
  const struct card *card;
  kjit_runtime *runtime;
  const struct variant_case *one;
  const struct variant_shape *shape;
  int32_t dtype;
  struct random random;
  struct variant_world world;
  uint16_t *q, *k, *v, *o;
  float *q32, *k32, *v32; /* the same values */
  float *lse;
  struct card_buffer dq, dk, dv, d_o, dlse, dsinks, dworld[WORLD_TENSORS], dblocks[4];
  uint8_t *states; /* of the blocks that were given: (heads, rows, columns) */
  int rows, columns;
};

/* Compare the outputs that were read back with the reference. */
void variant_judge(const struct variant_trial *t, struct variant_report *report);

#endif
