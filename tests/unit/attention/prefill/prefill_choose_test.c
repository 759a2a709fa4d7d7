/* Which serving problems attention_prefill_sm90 takes, and that its configs are legal for every head size. No GPU. */
#include "attention/prefill/prefill_config.h"
#include "attention/prefill/prefill_serving.h"
#include "base/error.h"
#include "support/test.h"

static const struct family_place hopper = {.arch = "sm_90a", .sm_count = 132, .shared_per_block = 232448};

/* Sixteen sequences of up to 2,048 rows. */
static struct serving_problem large(void) {
  return (struct serving_problem){.dtype = KJIT_BF16,
                                  .head_dim = 128,
                                  .head_dim_v = 128,
                                  .heads_kv = 8,
                                  .group = 4,
                                  .packed_rows = 8192,
                                  .batch = 16,
                                  .rows = 16384,
                                  .is_plain = true};
}

static bool takes_pass(const struct serving_problem *problem, kjit_serving_pass pass) {
  struct serving_choice choice = {0};
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, serving_choose(problem, pass, &hopper, &choice, &error), &error);
  return choice.family == &prefill_serving_family;
}

static bool takes(const struct serving_problem *problem) {
  return takes_pass(problem, KJIT_SERVING_ATTEND);
}

static void test_prefill_choose__many_rows_are_its_own(void **state) {
  struct serving_problem problem = large();
  (void)state;
  assert_true(takes(&problem));
  problem.packed_rows = 64;
  assert_false(takes(&problem));
}

static void test_prefill_choose__other_passes_are_another_familys(void **state) {
  const struct serving_problem problem = large();
  (void)state;
  assert_false(takes_pass(&problem, KJIT_SERVING_PLAN));
  assert_false(takes_pass(&problem, KJIT_SERVING_APPEND));
}

static void test_prefill_choose__what_tma_cannot_load_is_another_familys(void **state) {
  struct serving_problem problem = large();
  (void)state;
  problem.is_plain = false;
  assert_false(takes(&problem));
}

static void test_prefill_choose__more_heads_than_a_tile_can_name_are_another_familys(void **state) {
  struct serving_problem problem = large();
  (void)state;
  problem.batch = 1;
  problem.heads_kv = 1 << 14;
  assert_true(takes(&problem));
  problem.heads_kv++;
  assert_false(takes(&problem));
}

static int32_t loads_of(const struct serving_problem *problem) {
  struct serving_choice choice = {0};
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, serving_choose(problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
  assert_ptr_equal(choice.family, &prefill_serving_family);
  return prefill_config_view(choice.values)->loads;
}

static void test_prefill_choose__pages_that_no_box_fits_are_loaded_by_rows(void **state) {
  static const int64_t fitting[] = {8, 16, 32, 64, 128, 256, 1024}, others[] = {1, 4, 12, 24, 48, 96, 192, 200};
  struct serving_problem problem = large();
  (void)state;
  problem.is_banded = true;
  assert_int_equal(PREFILL_LOADS_BANDS, loads_of(&problem));
  for (size_t i = 0; i < sizeof fitting / sizeof *fitting; i++) {
    problem.page_size = fitting[i];
    assert_int_equal(PREFILL_LOADS_GROUPS, loads_of(&problem));
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    problem.page_size = others[i];
    assert_int_equal(PREFILL_LOADS_ROWS, loads_of(&problem));
  }
}

static void test_prefill_choose__a_box_has_all_bands_where_heads_are_whole_bands_apart(void **state) {
  struct serving_problem problem = large();
  (void)state;
  problem.page_size = 16;
  assert_int_equal(PREFILL_LOADS_BANDS, loads_of(&problem));
  problem.is_banded = true;
  problem.head_dim = 80;
  assert_int_equal(PREFILL_LOADS_BANDS, loads_of(&problem));
  problem.head_dim = problem.head_dim_v = 64; /* there is one band */
  assert_int_equal(PREFILL_LOADS_BANDS, loads_of(&problem));
}

static void test_prefill_choose__few_rows_need_a_launch_where_heads_of_a_group_lie_in_two_tiles(void **state) {
  struct serving_problem problem = large();
  struct serving_choice choice = {0};
  kjit_error error;
  (void)state;
  error_clear(&error);
  problem.is_mixed = true;
  for (problem.group = 3; problem.group <= 4; problem.group++) {
    assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
    assert_int_equal(problem.group == 4 ? 0 : 64, prefill_serving_family.undivided_rows(choice.values));
  }
}

static void test_prefill_choose__few_tiles_go_to_the_family_that_divides_them(void **state) {
  struct serving_problem problem = large();
  (void)state;
  problem.batch = 1;
  problem.rows = 96; /* 3 tiles of 128 packed rows for each of 8 key heads */
  assert_false(takes(&problem));
  problem.rows = 256;
  assert_true(takes(&problem));
  problem.is_simple = true; /* of 8 tiles for each key head a multiprocessor computes half a tile's keys */
  problem.packed_rows = 1024;
  assert_false(takes(&problem));
  problem.rows = 448;
  problem.packed_rows = 1792; /* 112 tiles on 132 multiprocessors */
  assert_true(takes(&problem));
}

static void test_prefill_choose__without_splits_the_batch_does_not_matter(void **state) {
  struct serving_problem problem = large();
  struct serving_choice one = {0}, other = {0};
  kjit_error error;
  (void)state;
  error_clear(&error);
  problem.is_unsplit = true;
  assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &one, &error), &error);
  problem.batch = 1;
  problem.rows = 17;
  assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &other, &error), &error);
  assert_ptr_equal(one.family, &prefill_serving_family);
  assert_ptr_equal(other.family, &prefill_serving_family);
  assert_memory_equal(one.values, other.values, sizeof one.values);
}

static void test_prefill_choose__common_heads_have_two_q_buffers_and_memory_for_o(void **state) {
  struct serving_problem problem = large();
  struct serving_choice choice;
  kjit_error error;
  (void)state;
  error_clear(&error);
  for (problem.head_dim = 64; problem.head_dim <= 128; problem.head_dim += 64) {
    problem.head_dim_v = problem.head_dim;
    assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
    const struct prefill_config *config = prefill_config_view(choice.values);
    assert_int_equal(2, config->q_buffers);
    assert_int_equal(problem.head_dim / 64, config->o_chunks);
    assert_int_equal(128, config->tile_n);
  }
}

static void test_prefill_choose__another_architecture_has_another_family(void **state) {
  const struct serving_problem problem = large();
  struct family_place place = hopper;
  struct serving_choice choice;
  kjit_error error;
  (void)state;
  error_clear(&error);
  place.arch = "sm_100a";
  assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &place, &choice, &error), &error);
  assert_true(choice.family != &prefill_serving_family);
}

static void test_prefill_choose__what_no_family_computes_is_told_by_the_last(void **state) {
  struct serving_problem problem = large();
  struct serving_choice choice;
  kjit_error error;
  (void)state;
  error_clear(&error);
  problem.head_dim = 300;
  assert_status(KJIT_ERR_UNSUPPORTED, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
  assert_contains(error.message, "head_dim is 300: attention_serving takes");
}

/* Every pair of head sizes has a legal config with pages of so many keys, which loads them by `loads`; -1: any way. */
static void expect_legal_configs(int64_t page_size, int32_t loads) {
  struct serving_problem problem = large();
  struct serving_choice choice;
  kjit_error error;
  error_clear(&error);
  problem.page_size = page_size;
  for (problem.head_dim = 8; problem.head_dim <= 256; problem.head_dim += 8)
    for (problem.head_dim_v = 8; problem.head_dim_v <= 256; problem.head_dim_v += 8) {
      assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
      assert_true(choice.family == &prefill_serving_family);
      if (loads >= 0) assert_int_equal(loads, prefill_config_view(choice.values)->loads);
      assert_status(KJIT_OK, prefill_family.check(&prefill_family, choice.values, &error), &error);
    }
}

static void test_prefill_choose__configs_of_every_head_size_are_legal(void **state) {
  (void)state;
  expect_legal_configs(large().page_size, -1);
}

static void test_prefill_choose__configs_of_pages_of_one_key_are_legal(void **state) {
  (void)state;
  expect_legal_configs(1, PREFILL_LOADS_ROWS);
}

/* In boxes where pages fit them and without pages, else row by row, and for every pair of head sizes that has 16
 * columns for each load. */
static void test_prefill_choose__a_cache_of_8_bits_is_widened(void **state) {
  struct serving_problem problem = large();
  (void)state;
  problem.is_narrow = problem.is_banded = true;
  for (problem.page_size = 0; problem.page_size <= 130; problem.page_size++) {
    const int64_t page = problem.page_size;
    const bool fits = page % 8 == 0 && (page == 0 || 128 % page == 0);
    assert_int_equal(fits ? PREFILL_LOADS_WIDENED : PREFILL_LOADS_WIDENED_ROWS, loads_of(&problem));
  }
  for (problem.head_dim = 16; problem.head_dim <= 256; problem.head_dim += 16)
    for (problem.head_dim_v = 16; problem.head_dim_v <= 256; problem.head_dim_v += 16) {
      struct serving_choice choice = {0};
      kjit_error error;
      error_clear(&error);
      assert_int_equal(PREFILL_LOADS_WIDENED_ROWS, loads_of(&problem));
      assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
      assert_status(KJIT_OK, prefill_family.check(&prefill_family, choice.values, &error), &error);
      struct prefill_config config = *prefill_config_view(choice.values);
      assert_int_equal(problem.head_dim_v > 192 ? 1 : 2, config.consumers);
      config.head_dim -= 8;
      assert_int_equal(KJIT_ERR_INVALID_CONFIG,
                       prefill_family.check(&prefill_family, (const int32_t *)&config, &error));
      assert_contains(error.message, "loads is 3");
    }
}

static void test_prefill_choose__a_warpgroup_that_gathers_leaves_registers_for_fewer_consumers(void **state) {
  struct serving_problem problem = large();
  struct serving_choice choice;
  kjit_error error;
  (void)state;
  error_clear(&error);
  problem.page_size = 1;
  assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
  struct prefill_config config = *prefill_config_view(choice.values);
  assert_int_equal(2, config.consumers);
  config.consumers = 3;
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, prefill_family.check(&prefill_family, (const int32_t *)&config, &error));
  assert_contains(error.message, "loads is 2");
  config.consumers = 2;
  config.tile_n = 80;
  error_clear(&error);
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, prefill_family.check(&prefill_family, (const int32_t *)&config, &error));
  assert_contains(error.message, "multiple of 32");
  problem.head_dim_v = 200;
  assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
  assert_int_equal(1, prefill_config_view(choice.values)->consumers);
}

static void test_prefill_choose__packed_heads_divide_a_group(void **state) {
  struct serving_problem problem = large();
  struct serving_choice choice;
  kjit_error error;
  (void)state;
  error_clear(&error);
  for (problem.group = 1; problem.group <= 130; problem.group++) {
    assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &hopper, &choice, &error), &error);
    assert_int_equal(0, problem.group % prefill_config_view(choice.values)->packed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prefill_choose__many_rows_are_its_own),
      cmocka_unit_test(test_prefill_choose__other_passes_are_another_familys),
      cmocka_unit_test(test_prefill_choose__what_tma_cannot_load_is_another_familys),
      cmocka_unit_test(test_prefill_choose__more_heads_than_a_tile_can_name_are_another_familys),
      cmocka_unit_test(test_prefill_choose__pages_that_no_box_fits_are_loaded_by_rows),
      cmocka_unit_test(test_prefill_choose__a_box_has_all_bands_where_heads_are_whole_bands_apart),
      cmocka_unit_test(test_prefill_choose__few_rows_need_a_launch_where_heads_of_a_group_lie_in_two_tiles),
      cmocka_unit_test(test_prefill_choose__few_tiles_go_to_the_family_that_divides_them),
      cmocka_unit_test(test_prefill_choose__without_splits_the_batch_does_not_matter),
      cmocka_unit_test(test_prefill_choose__common_heads_have_two_q_buffers_and_memory_for_o),
      cmocka_unit_test(test_prefill_choose__another_architecture_has_another_family),
      cmocka_unit_test(test_prefill_choose__what_no_family_computes_is_told_by_the_last),
      cmocka_unit_test(test_prefill_choose__configs_of_every_head_size_are_legal),
      cmocka_unit_test(test_prefill_choose__configs_of_pages_of_one_key_are_legal),
      cmocka_unit_test(test_prefill_choose__a_cache_of_8_bits_is_widened),
      cmocka_unit_test(test_prefill_choose__a_warpgroup_that_gathers_leaves_registers_for_fewer_consumers),
      cmocka_unit_test(test_prefill_choose__packed_heads_divide_a_group),
  };
  return cmocka_run_group_tests_name("prefill_choose", tests, NULL, NULL);
}
