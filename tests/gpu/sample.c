#include "sample.h"

#include <kjit/kjit.h>
#include <stdio.h>
#include <string.h>

static int run_on_card(struct sample *sample, int (*run)(const struct sample *sample)) {
  kjit_error error = {0};
  int code = 1;
  kjit_status status = kjit_runtime_create(&sample->runtime, NULL, &error);
  if (status == KJIT_OK) status = check_kernels_create(&sample->kernels, sample->runtime, &sample->card, &error);
  if (status == KJIT_OK)
    code = run(sample);
  else
    printf("%s\n", error.message);
  check_kernels_destroy(&sample->kernels);
  kjit_runtime_destroy(sample->runtime);
  return code;
}

int sample_main(const char *arch, int (*run)(const struct sample *sample)) {
  struct sample sample = {0};
  kjit_error error = {0};
  int code = SAMPLE_EXIT_NO_GPU;
  if (card_open(&sample.card, 0, &error) != KJIT_OK)
    printf("skipped: %s\n", error.message);
  else if (arch && strcmp(sample.card.arch, arch) != 0)
    printf("skipped: this card is %s, not %s\n", sample.card.arch, arch);
  else
    code = run_on_card(&sample, run);
  card_close(&sample.card);
  return code;
}

int sample_run_problems(const struct sample *sample, const struct trial_problem *problems, size_t count,
                        sample_problem_run run) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) {
    char what[PROBLEM_TEXT_MAX];
    struct trial_problem problem = problems[i];
    struct sample_verdict verdict = {.passed = false};
    kjit_error error = {0};
    problem.asked.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16; /* which changes one word of the products */
    problem.lse = 1;
    problem.seed = i;
    const kjit_status status = run(sample, &problem, &verdict, &error);
    problem_print(&problem, what);
    printf("%s\n  %s\n", what, status == KJIT_OK ? verdict.text : error.message);
    failures += status != KJIT_OK || !verdict.passed;
  }
  printf("%d not right\n", failures);
  return failures ? 1 : 0;
}
