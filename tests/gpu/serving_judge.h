/* What the parts of a serving trial tell one another: where things lie. */
#ifndef KJIT_TESTS_GPU_SERVING_JUDGE_H
#define KJIT_TESTS_GPU_SERVING_JUDGE_H

#include "serving_trial.h"

/* Element of the cache at which a position of a sequence begins, of head 0 of k; v lies v_base further. */
size_t serving_slot(const struct serving_trial *trial, int b, int position);

/* One row of q of one query head, rotated. */
void serving_query(const struct serving_trial *trial, int b, int row, int head, double *out);

/* The position by which the first row of a sequence is rotated. */
int serving_rotary_position(const struct serving_trial *trial, int b);

#endif
