/* Which serving problems attention_serving_sm90 takes, and that its configs are legal for every head size. No GPU. */
#include "attention/prefill/prefill_serving.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"
#include "support/test.h"

static const struct family_place hopper = {.arch = "sm_90a", .sm_count = 132, .shared_per_block = 232448};

/* Sixteen sequences that decode. */
static struct serving_problem decoding(void) {
  return (struct serving_problem){.dtype = KJIT_BF16,
                                  .head_dim = 128,
                                  .head_dim_v = 128,
                                  .heads_kv = 8,
                                  .group = 4,
                                  .packed_rows = 4,
                                  .batch = 16,
                                  .rows = 16,
                                  .page_size = 16,
                                  .is_plain = true};
}

static struct serving_choice choose(const struct serving_problem *problem, kjit_serving_pass pass) {
  struct serving_choice choice = {0};
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, serving_choose(problem, pass, &hopper, &choice, &error), &error);
  return choice;
}

static bool takes(const struct serving_problem *problem) {
  return choose(problem, KJIT_SERVING_ATTEND).family == &serving_sm90_serving_family;
}

static void test_serving_sm90_choose__few_rows_are_its_own(void **state) {
  static const int64_t packed[] = {1, 16, 17, 32, 33, 64}, rows[] = {16, 16, 32, 32, 64, 64};
  struct serving_problem problem = decoding();
  (void)state;
  for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
    problem.packed_rows = packed[i];
    const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
    assert_ptr_equal(choice.family, &serving_sm90_serving_family);
    assert_int_equal(rows[i], serving_sm90_view(choice.values)->rows);
  }
}

static void test_serving_sm90_choose__other_passes_are_another_familys(void **state) {
  const struct serving_problem problem = decoding();
  (void)state;
  assert_true(choose(&problem, KJIT_SERVING_PLAN).family != &serving_sm90_serving_family);
  assert_true(choose(&problem, KJIT_SERVING_APPEND).family != &serving_sm90_serving_family);
}

/* The plan pass of attention_serving is for this family's runs too, so both must have the same rows of a tile. */
static void test_serving_sm90_choose__rows_of_a_tile_are_those_of_the_plan_pass(void **state) {
  struct serving_problem problem = decoding();
  (void)state;
  for (int64_t head = 8; head <= 256; head += 8) {
    for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows += 7) {
      problem.head_dim = problem.head_dim_v = head;
      const struct serving_choice attend = choose(&problem, KJIT_SERVING_ATTEND);
      const struct serving_choice plan = choose(&problem, KJIT_SERVING_PLAN);
      assert_string_equal("attention_serving", plan.family->family->table.family);
      assert_ptr_equal(attend.family, &serving_sm90_serving_family);
      assert_int_equal(serving_sm90_view(attend.values)->rows,
                       ((const kjit_attention_serving_config *)plan.values)->rows);
    }
  }
}

static void test_serving_sm90_choose__many_rows_are_its_own_where_tiles_are_few(void **state) {
  struct serving_problem problem = decoding();
  (void)state;
  problem.packed_rows = 4096;
  problem.rows = 16384;
  assert_ptr_equal(choose(&problem, KJIT_SERVING_ATTEND).family, &prefill_serving_family);
  problem.heads_kv = problem.batch = 1;
  problem.rows = 512;
  assert_true(takes(&problem));
}

static void test_serving_sm90_choose__pages_are_of_a_multiple_of_8_positions(void **state) {
  static const int64_t fitting[] = {0, 8, 16, 24, 48, 64, 200, 256, 1024}, others[] = {1, 4, 12, 100};
  struct serving_problem problem = decoding();
  (void)state;
  for (size_t i = 0; i < sizeof fitting / sizeof *fitting; i++) {
    problem.page_size = fitting[i];
    assert_true(takes(&problem));
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    problem.page_size = others[i];
    assert_false(takes(&problem));
  }
}

static void test_serving_sm90_choose__what_tma_cannot_load_is_another_familys(void **state) {
  struct serving_problem problem = decoding();
  (void)state;
  problem.is_plain = false;
  assert_false(takes(&problem));
}

static void test_serving_sm90_choose__configs_of_every_head_size_are_legal(void **state) {
  struct serving_problem problem = decoding();
  (void)state;
  for (problem.head_dim = 8; problem.head_dim <= 256; problem.head_dim += 8) {
    for (problem.head_dim_v = 8; problem.head_dim_v <= 256; problem.head_dim_v += 8) {
      for (problem.packed_rows = 16; problem.packed_rows <= 64; problem.packed_rows *= 2) {
        const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
        kjit_error error;
        error_clear(&error);
        assert_ptr_equal(choice.family, &serving_sm90_serving_family);
        assert_status(KJIT_OK, serving_sm90_family.check(&serving_sm90_family, choice.values, &error), &error);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_sm90_choose__few_rows_are_its_own),
      cmocka_unit_test(test_serving_sm90_choose__other_passes_are_another_familys),
      cmocka_unit_test(test_serving_sm90_choose__rows_of_a_tile_are_those_of_the_plan_pass),
      cmocka_unit_test(test_serving_sm90_choose__many_rows_are_its_own_where_tiles_are_few),
      cmocka_unit_test(test_serving_sm90_choose__pages_are_of_a_multiple_of_8_positions),
      cmocka_unit_test(test_serving_sm90_choose__what_tma_cannot_load_is_another_familys),
      cmocka_unit_test(test_serving_sm90_choose__configs_of_every_head_size_are_legal),
  };
  return cmocka_run_group_tests_name("serving_sm90_choose", tests, NULL, NULL);
}
