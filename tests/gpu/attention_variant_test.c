/* Attention variants on a GPU beside float64: masks that are row intervals and masks that are judged, score functions,
 * sinks, given blocks, plain members, and gradients; on the kernel that the library chooses and on flash_forward's. */
#include <stdlib.h>

#include "gpu_fixture.h"
#include "support/test.h"
#include "variant_gradients.h"
#include "variant_trial.h"

static const struct variant_shape shapes[] = {
    {1, 2, 2, 200, 333, 64, true},   {2, 4, 1, 65, 130, 64, false}, {1, 8, 2, 1, 1500, 64, true},
    {1, 4, 2, 333, 777, 128, false}, {1, 8, 1, 3, 2100, 128, true}, {1, 2, 1, 190, 450, 256, true},
    {1, 2, 2, 130, 300, 40, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* What flash_forward would run on a card of sm_80. */
static kjit_config flash_config(const struct gpu_fixture *fixture, const struct variant_shape *shape) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_config config;
  kjit_error error = {0};
  problem.dtype = shape->bf16 ? KJIT_BF16 : KJIT_FP16;
  problem.heads_q = shape->heads;
  problem.heads_kv = shape->heads_kv;
  problem.seq_q = shape->seq_q;
  problem.seq_kv = shape->seq_kv;
  problem.head_dim = shape->head_dim;
  assert_status(KJIT_OK, kjit_attention_choose(fixture->runtime, &problem, "sm_80", &config, NULL, &error), &error);
  return config;
}

static size_t run(const struct gpu_fixture *fixture, const struct variant_case *one, const struct variant_shape *shape,
                  const kjit_config *config) {
  struct variant_report report;
  kjit_error error = {0};
  const kjit_status status =
      variant_trial_run(&fixture->card, fixture->runtime, one, shape, config, 7, &report, &error);
  if (status == KJIT_OK && report.passed) return 0;
  print_error("%s B%d H%d/%d Sq%d Skv%d D%d%s: %s\n", one->name, shape->batch, shape->heads, shape->heads_kv,
              shape->seq_q, shape->seq_kv, shape->head_dim, config ? " flash_forward" : "",
              status == KJIT_OK ? report.why : error.message);
  return 1;
}

/* The cases `first` to `end` - 1 of the table, each on two shapes and every other one on flash_forward's kernel too;
 * with KJIT_TEST_ALL_CONFIGS=1 on all shapes and both. */
static void run_cases(void **state, size_t first, size_t end) {
  const struct gpu_fixture *fixture = gpu_require(state);
  const bool all = getenv("KJIT_TEST_ALL_CONFIGS") != NULL;
  size_t failures = 0;
  for (size_t i = first; i < end && i < variant_case_count; i++) {
    for (size_t j = 0; j < SHAPES; j++) {
      if (!all && j != i % SHAPES && j != (i + 3) % SHAPES) continue;
      const kjit_config config = flash_config(fixture, &shapes[j]);
      failures += run(fixture, &variant_cases[i], &shapes[j], NULL);
      if (all || (i % 2 == 0 && j == i % SHAPES)) failures += run(fixture, &variant_cases[i], &shapes[j], &config);
    }
  }
  assert_int_equal(0, failures);
}

enum { FIRST_SCORE = 13, FIRST_OTHER = 22 }; /* of the table: masks, then scores, then sinks, members and blocks */

static void test_attention_variant__masks_are_right(void **state) {
  run_cases(state, 0, FIRST_SCORE);
}

static void test_attention_variant__scores_are_right(void **state) {
  run_cases(state, FIRST_SCORE, FIRST_OTHER);
}

static void test_attention_variant__sinks_members_and_blocks_are_right(void **state) {
  run_cases(state, FIRST_OTHER, variant_case_count);
}

/* Each case with what the library chooses, on two shapes of six, and with flash_backward's kernels on one; with
 * KJIT_TEST_ALL_CONFIGS=1 on all shapes. */
static void test_attention_variant__gradients_are_right_and_the_same_bits(void **state) {
  const struct gpu_fixture *fixture = gpu_require(state);
  static const struct variant_gradient_shape sizes[] = {{1, 2, 1, 40, 70, 32, NULL},     {2, 2, 2, 150, 130, 64, NULL},
                                                        {1, 2, 1, 130, 200, 128, NULL},  {1, 1, 1, 100, 190, 256, NULL},
                                                        {1, 3, 1, 200, 100, 72, NULL},   {1, 2, 2, 90, 150, 192, NULL},
                                                        {2, 2, 1, 100, 130, 64, "sm_80"}};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  const bool all = getenv("KJIT_TEST_ALL_CONFIGS") != NULL;
  size_t failures = 0;
  for (size_t i = 0; i < variant_gradient_case_count * SIZES; i++) {
    const struct variant_gradient_case *one = &variant_gradient_cases[i / SIZES];
    const struct variant_gradient_shape *size = &sizes[i % SIZES];
    struct variant_gradient_report report;
    kjit_error error = {0};
    if (!all && !size->arch && i % SIZES % 3 != i / SIZES % 3) continue;
    const kjit_status status = variant_gradients_run(&fixture->card, fixture->runtime, one, size, &report, &error);
    if (status == KJIT_OK && report.passed) continue;
    print_error("%s D%d Sq%d Skv%d %s: errors %.2g %.2g %.2g of the largest value; %s bits %s\n", one->name,
                size->head_dim, size->seq_q, size->seq_kv, size->arch ? size->arch : "", report.error[0],
                report.error[1], report.error[2], report.same_bits ? "the same" : "other",
                status == KJIT_OK ? "" : error.message);
    failures++;
  }
  assert_int_equal(0, failures);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_variant__masks_are_right),
      cmocka_unit_test(test_attention_variant__scores_are_right),
      cmocka_unit_test(test_attention_variant__sinks_members_and_blocks_are_right),
      cmocka_unit_test(test_attention_variant__gradients_are_right_and_the_same_bits),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("attention variants on a GPU", tests, gpu_setup, gpu_teardown);
}
