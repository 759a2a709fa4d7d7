#include "attention_cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

#define MOST_FAILURES_PRINTED 20
#define MOST_THREADS          32

struct gpu_fixture *attention_require(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  if (strcmp(fixture->card.arch, "sm_90") != 0) {
    print_message("%s is not sm_90: attention_sm90 cannot run here\n", fixture->card.arch);
    skip();
  }
  return fixture;
}

struct builds {
  kjit_runtime *runtime;
  const struct trial_problem *problems;
  size_t count;
  atomic_size_t next;
};

/* A build that fails is met again by the run, which says so. */
static void *build_some(void *user) {
  struct builds *builds = user;
  size_t i;
  while ((i = atomic_fetch_add(&builds->next, 1)) < builds->count) {
    kjit_artifact *artifact = NULL;
    kjit_config config;
    if (kjit_attention_choose(builds->runtime, &builds->problems[i].asked, "sm_90a", &config, NULL, NULL) != KJIT_OK)
      continue;
    if (kjit_config_build(builds->runtime, &config, "sm_90a", 0, &artifact, NULL) != KJIT_OK) artifact = NULL;
    kjit_artifact_release(artifact);
  }
  return NULL;
}

static void build_all(struct gpu_fixture *fixture, const struct trial_problem *problems, size_t count) {
  struct builds builds = {.runtime = fixture->runtime, .problems = problems, .count = count};
  pthread_t helpers[MOST_THREADS];
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  size_t started = 0;
  while (started + 1 < MOST_THREADS && (long)started + 1 < processors &&
         pthread_create(&helpers[started], NULL, build_some, &builds) == 0)
    started++;
  build_some(&builds);
  for (size_t i = 0; i < started; i++)
    pthread_join(helpers[i], NULL);
}

/* `config` is NULL where the planner chooses, here and below. */
static kjit_status run(struct gpu_fixture *fixture, const kjit_config *config, const struct gpu_trial *trial,
                       kjit_error *error) {
  CUstream stream = fixture->card.stream;
  kjit_status status = attention_data_poison(&trial->data, stream, error);
  if (status == KJIT_OK) status = kjit_attention_forward(fixture->runtime, config, &trial->data.args, stream, error);
  return status == KJIT_OK ? card_synchronize(&fixture->card, stream, error) : status;
}

static void describe(const struct gpu_fixture *fixture, const kjit_config *config, const struct trial_problem *problem,
                     char *text, size_t capacity) {
  char kernel[KJIT_CONFIG_TEXT_MAX], what[PROBLEM_TEXT_MAX];
  kjit_config chosen;
  if ((!config && kjit_attention_choose(fixture->runtime, &problem->asked, NULL, &chosen, NULL, NULL) != KJIT_OK) ||
      kjit_config_print(config ? config : &chosen, 0, kernel, sizeof kernel, NULL) != KJIT_OK)
    *kernel = '\0';
  problem_print(problem, what);
  snprintf(text, capacity, "%.500s | %s", kernel, what);
}

/* Right, and the second run's bits are the first one's. */
static bool run_case(struct gpu_fixture *fixture, const kjit_config *config, const struct trial_problem *problem,
                     bool print) {
  struct gpu_trial trial;
  struct attention_verdict verdict = {0};
  kjit_error error = {0};
  char what[512 + PROBLEM_TEXT_MAX], numbers[ATTENTION_VERDICT_TEXT_MAX];
  gpu_trial_create(&trial, &fixture->kernels, problem);
  kjit_status status = run(fixture, config, &trial, &error);
  if (status == KJIT_OK) status = attention_judge(&trial.data, &trial.reference, &verdict, &error);
  const uint64_t first = status == KJIT_OK ? gpu_output_digest(&trial) : 0;
  if (status == KJIT_OK) status = run(fixture, config, &trial, &error);
  const bool repeats = status == KJIT_OK && gpu_output_digest(&trial) == first;
  gpu_trial_destroy(&trial);
  describe(fixture, config, problem, what, sizeof what);
  gpu_record_share(fixture, &verdict, what);
  if (verdict.passed && repeats) return true;
  if (!print) return false;
  attention_verdict_print(&verdict, problem, numbers);
  print_error("%s\n  %s\n", what, status != KJIT_OK ? error.message : verdict.passed ? "two runs differ" : numbers);
  return false;
}

void attention_run_problems(struct gpu_fixture *fixture, const struct trial_problem *problems, size_t count) {
  size_t failures = 0;
  build_all(fixture, problems, count);
  for (size_t i = 0; i < count; i++)
    failures += !run_case(fixture, NULL, &problems[i], failures < MOST_FAILURES_PRINTED);
  if (failures) print_error("%zu of %zu problems are not right\n", failures, count);
  assert_int_equal(0, failures);
}

void attention_run_config(struct gpu_fixture *fixture, const char *family, const char *text,
                          const struct trial_problem *problem) {
  kjit_config config;
  kjit_error error = {0};
  assert_status(KJIT_OK, kjit_config_parse(kjit_family_find(family), text, &config, &error), &error);
  assert_true(run_case(fixture, &config, problem, true));
}
