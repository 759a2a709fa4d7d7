#include "gpu_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/prebuild.h"
#include "support/test.h"

#define MOST_FAILURES_PRINTED 20

static int complain(const kjit_error *error) {
  print_error("GPU tests cannot start: %s\n", error->message);
  return -1;
}

int gpu_setup(void **state) {
  kjit_error error = {0};
  struct gpu_fixture *fixture = calloc(1, sizeof *fixture);
  *state = fixture;
  if (!fixture) return -1;
  if (!card_present(&error)) {
    print_message("no GPU, every test is skipped: %s\n", error.message);
    return 0;
  }
  fixture->present = 1;
  fixture->random.state = random_fresh_seed();
  if (card_open(&fixture->card, 0, &error) != KJIT_OK) return complain(&error);
  if (kjit_runtime_create(&fixture->runtime, NULL, &error) != KJIT_OK) return complain(&error);
  if (check_kernels_create(&fixture->kernels, fixture->runtime, &fixture->card, &error) != KJIT_OK)
    return complain(&error);
  print_message("%s (%s); repeat with KJIT_SEED=0x%" PRIx64 "\n", fixture->card.name, fixture->card.arch,
                fixture->random.state);
  return 0;
}

int gpu_teardown(void **state) {
  struct gpu_fixture *fixture = *state;
  if (fixture && fixture->cases_run)
    print_message("%zu cases; the nearest to its bound, at %.2f of it: %s\n", fixture->cases_run, fixture->worst_share,
                  fixture->worst_case);
  if (fixture && fixture->present) {
    check_kernels_destroy(&fixture->kernels);
    kjit_runtime_destroy(fixture->runtime);
    card_close(&fixture->card);
  }
  free(fixture);
  *state = NULL;
  return 0;
}

struct gpu_fixture *gpu_require(void **state) {
  struct gpu_fixture *fixture = *state;
  if (!fixture->present) skip();
  return fixture;
}

static void describe_case(const struct gpu_case *gpu_case, char *text, size_t capacity) {
  char config[KJIT_FLASH_CONFIG_TEXT_MAX], problem[PROBLEM_TEXT_MAX];
  if (kjit_flash_config_print(&gpu_case->config, 0, config, sizeof config, NULL) != KJIT_OK) config[0] = '\0';
  problem_print(&gpu_case->problem, problem);
  snprintf(text, capacity, "%s | %s", config, problem);
}

static void prebuild_cases(struct gpu_fixture *fixture, const struct gpu_case *cases, size_t count) {
  kjit_error error = {0};
  kjit_config *kernels = calloc(count, sizeof *kernels);
  kjit_status status = kernels ? KJIT_OK : KJIT_ERR_NO_MEMORY;
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    status = kjit_config_of_flash(&cases[i].config, &cases[i].problem.asked, &kernels[i], &error);
  }
  if (status == KJIT_OK) status = prebuild(fixture->runtime, kernels, count, fixture->card.arch, 0, &error);
  free(kernels);
  assert_status(KJIT_OK, status, &error);
}

void gpu_record_share(struct gpu_fixture *fixture, const struct attention_verdict *verdict, const char *what) {
  const double share = verdict->bound > 0 ? verdict->error / verdict->bound : 0;
  fixture->cases_run++;
  if (share < fixture->worst_share) return;
  fixture->worst_share = share;
  snprintf(fixture->worst_case, sizeof fixture->worst_case, "%s", what);
}

/* True when the case is right. */
static bool run_case(struct gpu_fixture *fixture, const struct gpu_trial *trial, const struct gpu_case *gpu_case,
                     bool print) {
  char what[KJIT_FLASH_CONFIG_TEXT_MAX + PROBLEM_TEXT_MAX], numbers[ATTENTION_VERDICT_TEXT_MAX];
  kjit_error error = {0};
  struct attention_verdict verdict;
  const kjit_config config = kjit_flash_config_plain(&gpu_case->config);
  const kjit_status status = attention_run(&trial->data, &trial->reference, &config, &verdict, &error);
  describe_case(gpu_case, what, sizeof what);
  gpu_record_share(fixture, &verdict, what);
  if (status == KJIT_OK && verdict.passed) return true;
  if (!print) return false;
  attention_verdict_print(&verdict, &gpu_case->problem, numbers);
  print_error("%s\n  %s\n", what, status == KJIT_OK ? numbers : error.message);
  return false;
}

static bool same_problem(const struct trial_problem *a, const struct trial_problem *b) {
  /* The public struct has no padding, so a member that it gets one day is compared as well. */
  return memcmp(&a->asked, &b->asked, sizeof a->asked) == 0 && a->layout == b->layout &&
         !(a->scale < b->scale || a->scale > b->scale) && a->lse == b->lse && a->seed == b->seed;
}

void gpu_run_cases(struct gpu_fixture *fixture, const struct gpu_case *cases, size_t count) {
  struct gpu_trial trial = {0};
  size_t failures = 0;
  prebuild_cases(fixture, cases, count);
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || !same_problem(&cases[i].problem, &cases[i - 1].problem)) {
      gpu_trial_destroy(&trial);
      gpu_trial_create(&trial, &fixture->kernels, &cases[i].problem);
    }
    failures += !run_case(fixture, &trial, &cases[i], failures < MOST_FAILURES_PRINTED);
  }
  gpu_trial_destroy(&trial);
  if (failures) print_error("%zu of %zu cases are not right\n", failures, count);
  assert_int_equal(0, failures);
}

void gpu_trial_create(struct gpu_trial *trial, const struct check_kernels *kernels,
                      const struct trial_problem *problem) {
  kjit_error error = {0};
  *trial = (struct gpu_trial){0};
  kjit_status status = attention_data_create(&trial->data, kernels, problem, &error);
  assert_status(KJIT_OK, status, &error);
  status = attention_reference_create(&trial->reference, &trial->data, &error);
  assert_status(KJIT_OK, status, &error);
}

void gpu_trial_destroy(struct gpu_trial *trial) {
  if (trial->data.kernels) attention_reference_destroy(&trial->reference, trial->data.kernels->card);
  attention_data_destroy(&trial->data);
}

void gpu_assert_right(struct gpu_fixture *fixture, const struct gpu_trial *trial, const char *what) {
  char numbers[ATTENTION_VERDICT_TEXT_MAX], problem[PROBLEM_TEXT_MAX], text[PROBLEM_TEXT_MAX + 64];
  kjit_error error = {0};
  struct attention_verdict verdict;
  const kjit_status status = attention_judge(&trial->data, &trial->reference, &verdict, &error);
  assert_status(KJIT_OK, status, &error);
  problem_print(&trial->data.problem, problem);
  snprintf(text, sizeof text, "%.60s | %s", what, problem);
  gpu_record_share(fixture, &verdict, text);
  if (verdict.passed) return;
  attention_verdict_print(&verdict, &trial->data.problem, numbers);
  fail_msg("%s\n  %s", text, numbers);
}

uint64_t gpu_output_digest(const struct gpu_trial *trial) {
  kjit_error error = {0};
  struct census_result census = {0};
  const kjit_status status = check_census(trial->data.kernels, trial->data.memory[TENSOR_O], 2, &census, &error);
  assert_status(KJIT_OK, status, &error);
  return census.digest;
}

struct trial_problem gpu_small_problem(struct gpu_fixture *fixture) {
  return (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = KJIT_FP16, .batch = 2, .heads_q = 3, .seq_q = 200, .seq_kv = 333, .head_dim = 128),
      .lse = 1,
      .seed = random_next(&fixture->random)};
}

kjit_flash_config gpu_plain_config(void) {
  kjit_flash_config config;
  kjit_error error = {0};
  const kjit_status status = kjit_flash_config_parse(
      "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax", &config, &error);
  assert_status(KJIT_OK, status, &error);
  return config;
}
