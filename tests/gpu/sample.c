/* What the programs for compute-sanitizer share: sample.h.
 *
 * A problem is tried so:
 *
 * 1. Its own runtime is made, which records the kernels that it is asked for in a file (record.h).
 * 2. The problem is run, and the file's lines are printed.
 *
 * The programs have one thread. */
#include "sample.h"

#include <kjit/kjit.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/temp_folder.h"

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

static bool read_number(const char *text, size_t *number) {
  char *end;
  const unsigned long value = strtoul(text, &end, 10);
  *number = value;
  return *text >= '0' && *text <= '9' && !*end;
}

int sample_main(int argc, char **argv, const char *arch, int (*run)(const struct sample *sample)) {
  struct sample sample = {.last = SIZE_MAX};
  kjit_error error = {0};
  int code = SAMPLE_EXIT_NO_GPU;
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  if (argc > 3 || (argc > 1 && !read_number(argv[1], &sample.first)) ||
      (argc > 2 && !read_number(argv[2], &sample.last))) {
    fprintf(stderr, "usage: %s [FIRST [LAST]]\n", argv[0]);
    return SAMPLE_EXIT_USAGE;
  }
  if (card_open(&sample.card, 0, &error) != KJIT_OK)
    printf("skipped: %s\n", error.message);
  else if (arch && strcmp(sample.card.arch, arch) != 0)
    printf("skipped: this card is %s, not %s\n", sample.card.arch, arch);
  else
    code = run_on_card(&sample, run);
  card_close(&sample.card);
  return code;
}

/* Print what lies in a file of records, indented. */
static void print_kernels(const char *path) {
  char line[1024];
  FILE *const file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file))
    printf("  %s", line);
  if (file) fclose(file);
}

/* Steps 1 and 2. */
static kjit_status run_recorded(const struct sample *sample, const struct temp_folder *folder, sample_run run,
                                const void *problem, struct sample_verdict *verdict, kjit_error *error) {
  char path[TEMP_PATH_BYTES];
  struct sample own = *sample;
  kjit_runtime_options options = kjit_runtime_options_default();
  temp_folder_path(folder, "kernels", path);
  options.record_path = path;
  kjit_status status = kjit_runtime_create(&own.runtime, &options, error);
  if (status != KJIT_OK) return status;
  status = run(&own, problem, verdict, error);
  kjit_runtime_destroy(own.runtime);
  print_kernels(path);
  return status;
}

bool sample_try(const struct sample *sample, size_t index, const char *what, sample_run run, const void *problem) {
  struct temp_folder folder;
  struct sample_verdict verdict = {.passed = false};
  kjit_error error = {0};
  kjit_status status = KJIT_OK;
  if (index < sample->first || index > sample->last) return true;
  printf("%zu: %s\n", index, what);
  if (temp_folder_create(&folder) != 0) status = card_fail(&error, KJIT_ERR_IO, "no folder for the kernels' names");
  if (status == KJIT_OK) {
    status = run_recorded(sample, &folder, run, problem, &verdict, &error);
    temp_folder_remove(&folder);
  }
  const bool right = status == KJIT_OK && verdict.passed;
  printf("  %s %s %s\n", right ? "ok   " : "WRONG", verdict.text, error.message);
  return right;
}

/* A problem of attention, and what runs it. */
struct typed_problem {
  const struct trial_problem *problem;
  sample_problem_run run;
};

static kjit_status run_typed(const struct sample *sample, const void *problem, struct sample_verdict *verdict,
                             kjit_error *error) {
  const struct typed_problem *typed = problem;
  return typed->run(sample, typed->problem, verdict, error);
}

int sample_run_problems(const struct sample *sample, const struct trial_problem *problems, size_t count,
                        sample_problem_run run) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) {
    char what[PROBLEM_TEXT_MAX];
    struct trial_problem problem = problems[i];
    problem.asked.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16; /* which changes one word of the products */
    problem.lse = 1;
    problem.seed = i;
    problem_print(&problem, what);
    failures += !sample_try(sample, i, what, run_typed, &(struct typed_problem){&problem, run});
  }
  printf("%d not right\n", failures);
  return failures ? 1 : 0;
}
