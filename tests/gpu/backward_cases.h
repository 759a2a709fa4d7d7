/* Running kjit_attention_backward() on many problems. */
#ifndef KJIT_TESTS_GPU_BACKWARD_CASES_H
#define KJIT_TESTS_GPU_BACKWARD_CASES_H

#include "gpu_fixture.h"
#include "support/attention_gradients.h"

struct backward_case {
  struct trial_problem problem;
  struct gradient_choices choices;
  const char *arch;  /* "sm_90" or "sm_80": kernels of flash_backward for it; NULL: the library chooses */
  int32_t sums;      /* 64 or 128: the kernels of attention_backward_sm90 that sum dq, with steps of so many queries */
  bool direct;       /* with sums: dq is added from registers */
  bool staggered;    /* with sums: consumers half a step apart */
  bool persistent;   /* with sums: blocks that stay for tile after tile */
  bool stores;       /* with sums: the first part of each is stored */
  bool serial;       /* with sums: a step's scores are not issued in the step before */
  bool in_any_order; /* without KJIT_ATTENTION_DETERMINISTIC, so that the second run's bits may differ */
};

/* Compile what the cases need in parallel; then for each run the forward call, the backward call twice, and judge:
 * right by gradients_judge()'s rule, and the same bits both times. Every case that is not right is printed with what is
 * needed to make it again; any of them fails the test. */
void backward_run_cases(struct gpu_fixture *fixture, const struct backward_case *cases, size_t count);

/* Run one case's backward call; `gradients` holds the result. */
kjit_status backward_run(struct gpu_fixture *fixture, const struct backward_case *one,
                         const struct gradients *gradients, kjit_error *error);

/* The case's tensors and references, after a forward call. Fails the test when they cannot be made. */
void backward_case_create(struct gpu_fixture *fixture, const struct backward_case *one, struct attention_data *data,
                          struct gradients *gradients);

#endif
