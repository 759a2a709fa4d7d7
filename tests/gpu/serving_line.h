/* A schedule of sequences of one row each, beside a plain walk along the line of all work. */
#ifndef KJIT_TESTS_GPU_SERVING_LINE_H
#define KJIT_TESTS_GPU_SERVING_LINE_H

#include "gpu_fixture.h"

/* Fail the test unless kjit_attention_schedule() finds the same runs. `batch`: sequences, up to 5,000. */
void serving_expect_line(struct gpu_fixture *fixture, int batch);

/* Likewise, of lengths with which sums of 32 bits overflow, keys padded on the left and new ones among them. */
void serving_expect_cut_lengths(struct gpu_fixture *fixture);

#endif
