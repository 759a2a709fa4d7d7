/* Attention forward on the GPU beside float64: many configs, many shapes. */
#include "case_generator.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "support/configs.h"
#include "support/test.h"

#define PREBUILT_COUNT 85

/* The problem that the original project tests: batch 16, sequence 2048, 16 heads of 128. */
static struct trial_problem seeds_problem(int32_t dtype, uint64_t seed) {
  return (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = dtype, .batch = 16, .heads_q = 16, .seq_q = 2048, .seq_kv = 2048, .head_dim = 128),
      .lse = 1,
      .seed = seed};
}

static void test_flash_forward__every_prebuilt_config_at_the_seeds_shape_is_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_flash_config configs[PREBUILT_COUNT];
  size_t count = 0;
  kjit_error error = {0};
  const kjit_status status = kjit_flash_config_set("prebuilt", configs, PREBUILT_COUNT, &count, &error);
  assert_status(KJIT_OK, status, &error);
  assert_int_equal(PREBUILT_COUNT, count);
  struct gpu_case cases[PREBUILT_COUNT];
  const uint64_t seed = random_next(&fixture->random);
  for (size_t i = 0; i < count; i++)
    cases[i] = (struct gpu_case){configs[i], seeds_problem(configs[i].dtype, seed)};
  gpu_run_cases(fixture, cases, count); /* sorted by type: two references serve all */
}

struct lengths {
  int64_t seq_q, seq_kv;
};

/* The `turn`-th of a rotation over everything but lengths and head size. */
static struct trial_problem rotate_problem(struct lengths lengths, int64_t head_dim, size_t turn, uint64_t seed) {
  static const int64_t heads[] = {3, 48, 1};
  static const double factors[] = {0, 0.3, 0, 1.7};
  const bool is_long = lengths.seq_q > 1000 || lengths.seq_kv > 1000;
  struct trial_problem problem = {.asked =
                                      PROBLEM_OF(.dtype = turn % 2 ? KJIT_BF16 : KJIT_FP16, .batch = is_long ? 1 : 2,
                                                 .heads_q = is_long ? 3 : heads[turn % 3], .seq_q = lengths.seq_q,
                                                 .seq_kv = lengths.seq_kv, .head_dim = head_dim),
                                  .layout = (enum problem_layout)(turn % LAYOUT_COUNT),
                                  .lse = turn % 4 < 3,
                                  .seed = seed};
  if (problem.layout == LAYOUT_PACKED && lengths.seq_q != lengths.seq_kv) problem.layout = LAYOUT_BHSD;
  problem.scale = (double)(float)(factors[turn / 2 % 4] / sqrt((double)head_dim));
  return problem;
}

static void test_flash_forward__odd_shapes_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const int64_t head_dims[] = {32, 48, 64, 80, 96, 128, 160, 256};
  static const struct lengths lengths[] = {{1, 1},    {17, 17},   {127, 127}, {1000, 1000}, {4097, 4097},
                                           {1, 4097}, {4097, 17}, {17, 1},    {127, 1000},  {1000, 130}};
  enum { DIMS = sizeof head_dims / sizeof *head_dims, LENGTHS = sizeof lengths / sizeof *lengths, CONFIGS = 2 };
  struct gpu_case cases[DIMS * LENGTHS * CONFIGS];
  size_t count = 0;
  for (size_t d = 0; d < DIMS; d++)
    for (size_t l = 0; l < LENGTHS; l++) {
      const size_t turn = d * LENGTHS + l;
      const struct trial_problem problem =
          rotate_problem(lengths[l], head_dims[d], turn, random_next(&fixture->random));
      for (size_t i = 0; i < CONFIGS; i++, count++)
        cases[count] = (struct gpu_case){
            generator_rotate(problem.asked.dtype, problem.asked.head_dim, turn + i * 37, fixture->card.arch), problem};
    }
  gpu_run_cases(fixture, cases, count);
}

/* $KJIT_GPU_RANDOM_CASES, or 300. */
static size_t random_case_count(void) {
  const char *given = getenv("KJIT_GPU_RANDOM_CASES");
  const long count = given ? strtol(given, NULL, 10) : 300;
  return count > 0 && count <= 100000 ? (size_t)count : 300;
}

static void test_flash_forward__random_configs_on_random_problems_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const size_t count = random_case_count();
  struct gpu_case *cases = test_calloc(count, sizeof *cases);
  for (size_t i = 0; i < count; i++) {
    cases[i].config = generator_random_config(&fixture->random, fixture->card.arch);
    cases[i].problem = generator_random_problem(&fixture->random, &cases[i].config);
  }
  gpu_run_cases(fixture, cases, count);
  test_free(cases);
}

static void test_flash_forward__random_configs_on_masks_groups_and_odd_heads_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const size_t count = random_case_count();
  struct gpu_case *cases = test_calloc(count, sizeof *cases);
  for (size_t i = 0; i < count; i++)
    cases[i] = generator_random_traits(&fixture->random, fixture->card.arch);
  gpu_run_cases(fixture, cases, count);
  test_free(cases);
}

/* What the planner takes for every head size, causal and in groups, at lengths that differ. */
static void test_flash_forward__chosen_configs_are_right_for_every_head_size(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  enum { SIZES = 256 / 8, PAIRS = 4 };
  static const int64_t pairs[PAIRS][2] = {{192, 128}, {64, 128}, {256, 72}, {8, 256}};
  struct gpu_case cases[SIZES + PAIRS];
  for (size_t i = 0; i < SIZES + PAIRS; i++) {
    struct trial_problem *problem = &cases[i].problem;
    *problem = gpu_small_problem(fixture);
    problem->asked.head_dim = i < SIZES ? 8 * ((int64_t)i + 1) : pairs[i - SIZES][0];
    problem->asked.head_dim_v = i < SIZES ? problem->asked.head_dim : pairs[i - SIZES][1];
    problem->asked.heads_q = 6;
    problem->asked.heads_kv = i % 3 == 0 ? 6 : (int64_t)i % 3;
    problem_set_causal(problem, i % 5 > 0);
    kjit_config chosen;
    kjit_error error;
    assert_status(KJIT_OK, kjit_attention_choose(NULL, &problem->asked, fixture->card.arch, &chosen, NULL, &error),
                  &error);
    cases[i].config = flash_of(&chosen);
  }
  gpu_run_cases(fixture, cases, SIZES + PAIRS);
}

static void test_flash_forward__no_config_means_a_chosen_one(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  static const int64_t head_dims[] = {32, 128, 256};
  for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++) {
    struct trial_problem problem = gpu_small_problem(fixture);
    problem.asked.head_dim = head_dims[i];
    struct gpu_trial trial;
    gpu_trial_create(&trial, &fixture->kernels, &problem);
    const kjit_status status = plain_forward(fixture->runtime, NULL, &trial.data.args, fixture->card.stream, &error);
    assert_status(KJIT_OK, status, &error);
    gpu_assert_right(fixture, &trial, "the chosen config");
    gpu_trial_destroy(&trial);
  }
}

static void test_flash_forward__two_runs_are_equal_to_the_bit(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  struct gpu_trial trial;
  const struct trial_problem problem = gpu_small_problem(fixture);
  gpu_trial_create(&trial, &fixture->kernels, &problem);
  for (size_t row = 0; row < GENERATOR_FLAG_ROWS; row++) {
    kjit_flash_config flags = gpu_plain_config();
    generator_flags(&flags, row);
    const kjit_config config = kjit_flash_config_plain(&flags);
    uint64_t digests[2];
    for (int run = 0; run < 2; run++) {
      struct attention_verdict verdict;
      const kjit_status status = attention_run(&trial.data, &trial.reference, &config, &verdict, &error);
      assert_status(KJIT_OK, status, &error);
      digests[run] = gpu_output_digest(&trial);
    }
    assert_true(digests[0] == digests[1]);
  }
  gpu_trial_destroy(&trial);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_forward__two_runs_are_equal_to_the_bit),
      cmocka_unit_test(test_flash_forward__no_config_means_a_chosen_one),
      cmocka_unit_test(test_flash_forward__odd_shapes_are_right),
      cmocka_unit_test(test_flash_forward__every_prebuilt_config_at_the_seeds_shape_is_right),
      cmocka_unit_test(test_flash_forward__random_configs_on_random_problems_are_right),
      cmocka_unit_test(test_flash_forward__chosen_configs_are_right_for_every_head_size),
      cmocka_unit_test(test_flash_forward__random_configs_on_masks_groups_and_odd_heads_are_right),
  };
  return cmocka_run_group_tests_name("flash_forward on the GPU", tests, gpu_setup, gpu_teardown);
}
