/* The tensors of a problem on the GPU: random inputs, outputs filled with a NaN pattern ("poison"), and a guard zone
 * around every allocation.
 *
 * Life cycle: attention_data_create(); for each kernel to check attention_data_poison(), the kernel,
 * attention_data_inspect(); attention_data_destroy(). */
#ifndef KJIT_TOOLS_SUPPORT_ATTENTION_DATA_H
#define KJIT_TOOLS_SUPPORT_ATTENTION_DATA_H

#include <stdbool.h>

#include "support/check_kernels.h"
#include "support/problem.h"

struct attention_data {
  const struct check_kernels *kernels;
  struct trial_problem problem;
  struct card_buffer memory[TENSOR_COUNT]; /* k and v: none when packed with q */
  struct card_buffer lse_memory;           /* none when not asked for          */
  kjit_attention_args args;                /* ready for a forward call         */
  uint64_t input_digest[TENSOR_COUNT];     /* of the inputs' allocations       */
};

/* Allocate, fill the inputs from the problem's seed, poison everything else; waits. Inputs are surrounded by NaN, so
 * that what a kernel reads outside of them shows. */
kjit_status attention_data_create(struct attention_data *data, const struct check_kernels *kernels,
                                  const struct trial_problem *problem, kjit_error *error);
void attention_data_destroy(struct attention_data *data); /* accepts a zeroed one; nothing may be running */

/* Fill the outputs with the pattern again, in the stream's order. */
kjit_status attention_data_poison(const struct attention_data *data, CUstream stream, kjit_error *error);

/* A tensor as the checking kernels take it. */
struct check_view attention_data_view(const struct attention_data *data, enum problem_tensor tensor);

/* Are all allocations as they should be after a run: inputs as they were, guards and gaps untouched, every element of
 * the outputs written? Waits for `card->stream` alone: what ran elsewhere must be over. */
struct attention_traces {
  bool inputs_changed;
  int64_t o_stray;   /* 16-bit words written outside of o's elements; negative: elements not written */
  int64_t lse_stray; /* 32-bit words written outside of lse's elements; negative: not written        */
};
kjit_status attention_data_inspect(const struct attention_data *data, struct attention_traces *traces,
                                   kjit_error *error);

#endif
