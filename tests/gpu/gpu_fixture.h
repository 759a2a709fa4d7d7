/* What the GPU tests share: one probe of the machine, a runtime, the checking kernels, and running many cases. */
#ifndef KJIT_TESTS_GPU_FIXTURE_H
#define KJIT_TESTS_GPU_FIXTURE_H

#include <stdbool.h>

#include <kjit/kjit.h>

#include "support/attention_check.h"
#include "support/random.h"

struct gpu_fixture {
  bool present; /* a driver and a GPU are there */
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
  struct random random; /* from the seed that was printed */
  size_t cases_run;
  double worst_share; /* largest error / allowed error of the cases that passed */
  char worst_case[KJIT_FLASH_CONFIG_TEXT_MAX + PROBLEM_TEXT_MAX];
};

/* Group setup and teardown. Without a GPU the setup succeeds and each test skips. */
int gpu_setup(void **state);
int gpu_teardown(void **state);

/* The fixture; skips the calling test, visibly, where there is no GPU. */
struct gpu_fixture *gpu_require(void **state);

/* One config on one problem. */
struct gpu_case {
  kjit_flash_config config;
  struct trial_problem problem;
};

/* Compile all configs in parallel, then run and judge each case; neighbours with the same problem share its reference.
 * Every case that is not right is printed with what is needed to make it again; any of them fails the test. */
void gpu_run_cases(struct gpu_fixture *fixture, const struct gpu_case *cases, size_t count);

/* Count a case that was judged; the one nearest to its bound is printed in the end. */
void gpu_record_share(struct gpu_fixture *fixture, const struct attention_verdict *verdict, const char *what);

/* Inputs, outputs and the reference of one problem. */
struct gpu_trial {
  struct attention_data data;
  struct attention_reference reference;
};

/* Fails the test when it cannot be made. */
void gpu_trial_create(struct gpu_trial *trial, const struct check_kernels *kernels,
                      const struct trial_problem *problem);
void gpu_trial_destroy(struct gpu_trial *trial);

/* What is in the trial's outputs is right. `what` says where it came from. */
void gpu_assert_right(struct gpu_fixture *fixture, const struct gpu_trial *trial, const char *what);

/* A digest of the trial's output with everything around it. */
uint64_t gpu_output_digest(const struct gpu_trial *trial);

/* A small problem, and a config that fits it: for tests in which they do not matter. */
struct trial_problem gpu_small_problem(struct gpu_fixture *fixture);
kjit_flash_config gpu_plain_config(void);

#endif
