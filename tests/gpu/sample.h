/* What the programs for compute-sanitizer share: the card, a runtime and the checking kernels around their cases. */
#ifndef KJIT_TESTS_GPU_SAMPLE_H
#define KJIT_TESTS_GPU_SAMPLE_H

#include <stdbool.h>

#include "support/check_kernels.h"
#include "support/problem.h"

#define SAMPLE_EXIT_NO_GPU 3
#define SAMPLE_VERDICT_MAX 640

struct sample {
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
};

/* The program's exit code: what `run` returns; SAMPLE_EXIT_NO_GPU without a card of `arch` (NULL: of any); 1 when the
 * rest cannot be made. */
int sample_main(const char *arch, int (*run)(const struct sample *sample));

/* What a problem's result was found to be: words for a line, and whether it is right. */
struct sample_verdict {
  char text[SAMPLE_VERDICT_MAX];
  bool passed;
};

/* Compute a problem and judge the result. */
typedef kjit_status (*sample_problem_run)(const struct sample *sample, const struct trial_problem *problem,
                                          struct sample_verdict *verdict, kjit_error *error);

/* Run each problem, bf16 and fp16 in turns, with lse and its index as seed, and print what was found. 1 when one is not
 * right, else 0. */
int sample_run_problems(const struct sample *sample, const struct trial_problem *problems, size_t count,
                        sample_problem_run run);

#endif
