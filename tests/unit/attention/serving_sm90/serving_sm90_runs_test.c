/* Which serving problems attention_serving_sm90 computes in runs of several tiles. No GPU. */
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"
#include "support/test.h"
#include "unit/attention/serving_sm90/serving_problem.h"

/* Sixteen sequences of eight key heads that decode: 128 tiles. */
static struct serving_problem many_tiles(void) {
  struct serving_problem problem = decoding();
  problem.page_size = 64;
  problem.is_simple = true;
  return problem;
}

static bool has_runs(const struct serving_problem *problem) {
  const struct serving_choice choice = choose(problem, KJIT_SERVING_ATTEND);
  return choice.family == &serving_sm90_serving_family && serving_sm90_view(choice.values)->runs;
}

/* More tiles have runs, up to seven tiles for each multiprocessor and eight sequences for each lane of a warp. */
static void test_serving_sm90_runs__are_for_more_tiles(void **state) {
  struct serving_problem problem = many_tiles();
  (void)state;
  problem.batch = 115; /* 920 tiles on 132 multiprocessors */
  for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows++)
    assert_true(has_runs(&problem));
  problem.packed_rows = problem.group;
  problem.page_size = 32; /* a block of keys is several boxes of TMA */
  assert_false(has_runs(&problem));
  problem.packed_rows = 16;
  assert_true(has_runs(&problem));
  problem.page_size = 0;
  problem.packed_rows = problem.group;
  assert_false(serving_sm90_appends(serving_sm90_view(choose(&problem, KJIT_SERVING_ATTEND).values)));
  problem.batch = 116;
  assert_false(has_runs(&problem));
  problem.heads_kv = 1;
  problem.batch = 256;
  assert_true(has_runs(&problem));
  problem.batch = 257;
  assert_false(has_runs(&problem));
  problem.batch = 256;
  problem.rotates = true;
  assert_false(has_runs(&problem));
  problem.rotates = false;
  problem.page_size = 4;
  assert_false(has_runs(&problem));
  problem.page_size = 64;
  problem.is_simple = false;
  assert_false(has_runs(&problem));
}

/* A cache of 8 bits has them for few tiles too, with pages of every size that a box of TMA fits, and with all head
 * sizes: four sequences for each lane. Two blocks of threads on a multiprocessor have 168 registers a thread. */
static void test_serving_sm90_runs__are_for_all_narrow_caches(void **state) {
  static const int64_t heads[] = {16, 64, 128, 144, 256}, pages[] = {0, 8, 16, 256};
  struct serving_problem problem = many_tiles();
  kjit_error error;
  (void)state;
  problem.is_narrow = true;
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    problem.head_dim = problem.head_dim_v = heads[i];
    for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows++) {
      const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
      const struct serving_sm90_config *config = serving_sm90_view(choice.values);
      error_clear(&error);
      assert_ptr_equal(choice.family, &serving_sm90_serving_family);
      assert_status(KJIT_OK, serving_sm90_family.check(&serving_sm90_family, choice.values, &error), &error);
      assert_int_equal(1, config->runs);
      assert_int_equal(heads[i] > 128 ? 1 : 2, config->blocks_per_sm);
      assert_int_equal(problem.packed_rows <= 16 ? 16 : problem.packed_rows <= 32 ? 32 : 64, config->rows);
      assert_int_equal(heads[i] > 128 || (heads[i] == 128 && config->rows == 64) ? 64 : 128, config->keys);
    }
  }
  problem.packed_rows = problem.group;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    problem.page_size = pages[i];
    for (problem.batch = 1; problem.batch <= 115; problem.batch += 57)
      assert_true(has_runs(&problem));
  }
}

static void test_serving_sm90_runs__are_not_for_every_narrow_cache(void **state) {
  struct serving_problem problem = many_tiles();
  (void)state;
  problem.is_narrow = true;
  problem.batch = 116; /* 928 tiles on 132 multiprocessors */
  assert_false(has_runs(&problem));
  problem.heads_kv = 1;
  problem.batch = 128;
  assert_true(has_runs(&problem));
  problem.batch = 129;
  assert_false(has_runs(&problem));
  problem.batch = 16;
  problem.packed_rows = 65;
  assert_false(has_runs(&problem));
  problem.packed_rows = 64;
  problem.rotates = true;
  assert_false(has_runs(&problem));
  problem.rotates = false;
  problem.softcap = true;
  assert_false(has_runs(&problem));
  problem.softcap = false;
  problem.page_size = 24;
  assert_false(has_runs(&problem));
  problem.page_size = 16;
  problem.is_simple = false;
  assert_false(has_runs(&problem));
}

/* Tiles of 128 rows have them where attention_prefill_sm90 would leave multiprocessors without work. */
static void test_serving_sm90_runs__are_for_some_tiles_of_128_rows(void **state) {
  struct serving_problem problem = many_tiles();
  (void)state;
  problem.packed_rows = 128;
  for (problem.batch = 9; problem.batch <= 18; problem.batch++) { /* 72 to 144 tiles */
    problem.rows = problem.batch * problem.packed_rows / problem.group;
    assert_true(has_runs(&problem));
  }
  problem.batch = 19;
  assert_false(has_runs(&problem));
  problem.batch = 1;
  problem.packed_rows = 13 * 128; /* 104 tiles */
  assert_true(has_runs(&problem));
  problem.packed_rows = 14 * 128;
  assert_false(has_runs(&problem));
}

static void test_serving_sm90_runs__configs_are_legal_or_named(void **state) {
  struct serving_problem problem = many_tiles();
  struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
  struct serving_sm90_config config = *serving_sm90_view(choice.values);
  const struct kjit_family *family = &serving_sm90_family;
  kjit_error error;
  (void)state;
  error_clear(&error);
  assert_status(KJIT_OK, family->check(family, (const int32_t *)&config, &error), &error);
  config.runs = 2;
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, family->check(family, (const int32_t *)&config, &error));
  assert_non_null(strstr(error.message, "runs is 2: must be 0 or 1"));
  config.runs = config.gathered = 1;
  error_clear(&error);
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, family->check(family, (const int32_t *)&config, &error));
  assert_non_null(strstr(error.message, "runs is 1: must be 0 with one_part 0, with gathered 1"));
  problem.is_narrow = true;
  choice = choose(&problem, KJIT_SERVING_ATTEND);
  config = *serving_sm90_view(choice.values);
  config.runs = 0;
  error_clear(&error);
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, family->check(family, (const int32_t *)&config, &error));
  assert_non_null(strstr(error.message, "runs is 0: must be 1 with one_part 1 and cache FP8_E4M3"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_sm90_runs__are_for_more_tiles),
      cmocka_unit_test(test_serving_sm90_runs__are_for_some_tiles_of_128_rows),
      cmocka_unit_test(test_serving_sm90_runs__are_for_all_narrow_caches),
      cmocka_unit_test(test_serving_sm90_runs__are_not_for_every_narrow_cache),
      cmocka_unit_test(test_serving_sm90_runs__configs_are_legal_or_named),
  };
  return cmocka_run_group_tests_name("runs of attention_serving_sm90", tests, NULL, NULL);
}
