/* What the programs for compute-sanitizer share: the card, a runtime and the checking kernels around their problems, a
 * range of these, and lines that say of each problem what it is, which kernels computed it and whether they were right.
 *
 *   PROGRAM [FIRST [LAST]]
 *
 * runs the problems with these numbers, from 0 on; by default all. Each line is written at once, the problem's own
 * before it is run, so that what the tool reports stands among the lines of the problem that it is about. */
#ifndef KJIT_TESTS_GPU_SAMPLE_H
#define KJIT_TESTS_GPU_SAMPLE_H

#include <stdbool.h>

#include "support/check_kernels.h"
#include "support/problem.h"

#define SAMPLE_EXIT_USAGE  2
#define SAMPLE_EXIT_NO_GPU 3
#define SAMPLE_VERDICT_MAX 1024

struct sample {
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
  size_t first, last; /* the problems that are asked for */
};

/* The program's exit code: what `run` returns; SAMPLE_EXIT_USAGE for arguments other than those above;
 * SAMPLE_EXIT_NO_GPU without a card of `arch` (NULL: of any); 1 when the rest cannot be made. */
int sample_main(int argc, char **argv, const char *arch, int (*run)(const struct sample *sample));

/* What a problem's result was found to be: words for a line, and whether it is right. */
struct sample_verdict {
  char text[SAMPLE_VERDICT_MAX];
  bool passed;
};

/* Compute a problem with sample->runtime and judge the result. */
typedef kjit_status (*sample_run)(const struct sample *sample, const void *problem, struct sample_verdict *verdict,
                                  kjit_error *error);

/* If the problem is asked for: print `what` it is, run it with a runtime of its own, and print the kernels that it
 * took and what was found. False when it is not right. */
bool sample_try(const struct sample *sample, size_t index, const char *what, sample_run run, const void *problem);

/* The same for a problem of attention. */
typedef kjit_status (*sample_problem_run)(const struct sample *sample, const struct trial_problem *problem,
                                          struct sample_verdict *verdict, kjit_error *error);

/* Try each problem that is asked for, bf16 and fp16 in turns, with lse and its index as seed. 1 when one is not right,
 * else 0. */
int sample_run_problems(const struct sample *sample, const struct trial_problem *problems, size_t count,
                        sample_problem_run run);

#endif
