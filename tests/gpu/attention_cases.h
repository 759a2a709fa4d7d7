/* Running kjit_attention_forward() on many problems. */
#ifndef KJIT_TESTS_GPU_ATTENTION_CASES_H
#define KJIT_TESTS_GPU_ATTENTION_CASES_H

#include "gpu_fixture.h"

/* The fixture; skips the calling test, visibly, where the GPU is not of Hopper's architecture. */
struct gpu_fixture *attention_require(void **state);

/* Compile what the problems need in parallel, then run each twice and judge it: right by attention_judge()'s rule, and
 * the same bits both times. Every problem that is not right is printed with what is needed to make it again; any of
 * them fails the test. */
void attention_run_problems(struct gpu_fixture *fixture, const struct trial_problem *problems, size_t count);

/* Run one problem with a config, given as text, in the same way. */
void attention_run_config(struct gpu_fixture *fixture, const char *family, const char *text,
                          const struct trial_problem *problem);

#endif
