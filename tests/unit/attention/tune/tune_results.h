/* Results of tuning over a runtime's fakes. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_TUNE_RESULTS_H
#define KJIT_TESTS_UNIT_ATTENTION_TUNE_RESULTS_H

#include <kjit/tune.h>

#include "unit/attention/attention_fixture.h"

#define TUNED_FOLDER "tuned"

static inline kjit_device_info device_of(struct fixture *f) {
  kjit_device_info device = {.struct_size = sizeof device};
  assert_status(KJIT_OK, kjit_device_get_info(f->runtime, 0, &device, &f->error), &f->error);
  return device;
}

/* The problem of causal_args(). */
static inline kjit_attention_problem causal_problem(void) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  problem.batch = 2;
  problem.heads_q = 6;
  problem.heads_kv = 2;
  problem.seq_q = 1000;
  problem.seq_kv = 700;
  problem.head_dim = 192;
  problem.head_dim_v = 128;
  return problem;
}

/* A candidate other than the rules' choice: the first that one field changes. */
static inline void other_config(struct fixture *f, const kjit_attention_problem *problem, kjit_config *config) {
  const kjit_device_info device = device_of(f);
  const kjit_tune_problem asked = {.attention = *problem};
  kjit_tune_candidates *list = NULL;
  assert_status(KJIT_OK, kjit_tune_candidates_create(&list, f->runtime, &asked, NULL, &device, NULL, &f->error),
                &f->error);
  size_t i = 1;
  while (kjit_tune_candidates_get(list, i)->refused[0])
    i++;
  *config = kjit_tune_candidates_get(list, i)->config;
  kjit_tune_candidates_destroy(list);
}

static inline kjit_tune_result result_of(const kjit_attention_problem *problem, const kjit_config *config) {
  kjit_tune_result result = kjit_tune_result_default();
  result.problem.attention = *problem;
  result.config = config;
  result.microseconds = 90.25;
  result.rules_microseconds = 100;
  return result;
}

/* For causal_problem(), with other_config(), which lies in `config`. */
static inline kjit_tune_result causal_result(struct fixture *f, kjit_config *config) {
  const kjit_attention_problem problem = causal_problem();
  other_config(f, &problem, config);
  return result_of(&problem, config);
}

static inline void publish(struct fixture *f, const kjit_tune_result *result) {
  const kjit_device_info device = device_of(f);
  assert_status(KJIT_OK, kjit_tune_publish(f->runtime, &device, result, &f->error), &f->error);
}

static inline kjit_tune_info info_of(struct fixture *f) {
  const kjit_device_info device = device_of(f);
  kjit_tune_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, kjit_tune_get_info(f->runtime, NULL, &device, NULL, &info, &f->error), &f->error);
  return info;
}

static inline kjit_config choose(struct fixture *f, const kjit_attention_problem *problem, uint32_t *by) {
  kjit_config config;
  assert_status(KJIT_OK, kjit_attention_choose(f->runtime, problem, NULL, &config, by, &f->error), &f->error);
  return config;
}

static inline uint32_t decided_by(struct fixture *f, const kjit_attention_problem *problem) {
  uint32_t by;
  (void)choose(f, problem, &by);
  return by;
}

static inline void open_again(struct fixture *f) {
  static struct driver_api driver;
  driver = fake_driver_api;
  driver.PointerGetAttributes = any_pointer;
  fixture_close(f);
  assert_status(KJIT_OK, fixture_open_over(f, &driver), &f->error);
}

/* The user's file, as it is; free() it. */
static inline char *read_file(struct fixture *f) {
  const kjit_tune_info info = info_of(f);
  FILE *file = fopen(info.path, "rb");
  assert_non_null(file);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
  fclose(file);
  return text;
}

static inline void write_file(struct fixture *f, const char *text) {
  const kjit_tune_info info = info_of(f);
  FILE *file = fopen(info.path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
  assert_int_equal(fclose(file), 0);
}

#endif
