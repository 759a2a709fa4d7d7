/* The card, a problem and the planner's call that tests of attention_serving_sm90's choice share. Pure; any thread. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_SERVING_SM90_SERVING_PROBLEM_H
#define KJIT_TESTS_UNIT_ATTENTION_SERVING_SM90_SERVING_PROBLEM_H

#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"
#include "support/test.h"

static const struct family_place hopper = {.arch = "sm_90a", .sm_count = 132, .shared_per_block = 232448};

/* Sixteen sequences that decode. */
static inline struct serving_problem decoding(void) {
  return (struct serving_problem){.dtype = KJIT_BF16,
                                  .head_dim = 128,
                                  .head_dim_v = 128,
                                  .heads_kv = 8,
                                  .group = 4,
                                  .packed_rows = 4,
                                  .batch = 16,
                                  .rows = 16,
                                  .page_size = 16,
                                  .is_plain = true};
}

/* What the planner takes for a pass on an H200. */
static inline struct serving_choice choose(const struct serving_problem *problem, kjit_serving_pass pass) {
  struct serving_choice choice = {0};
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, serving_choose(problem, pass, &hopper, &choice, &error), &error);
  return choice;
}

#endif
