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

/* More tiles have runs, up to seven tiles for each multiprocessor, or sixteen where eight key heads are abreast, and
 * eight sequences for each lane of a warp. */
static void test_serving_sm90_runs__are_for_more_tiles(void **state) {
  struct serving_problem problem = many_tiles();
  (void)state;
  problem.batch = 115; /* 920 tiles on 132 multiprocessors */
  for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows++)
    assert_true(has_runs(&problem));
  problem.packed_rows = problem.group;
  for (problem.page_size = 1; problem.page_size <= 256; problem.page_size *= 2)
    assert_int_equal(has_runs(&problem), problem.page_size == 1 || problem.page_size >= 8);
  problem.head_dim = problem.head_dim_v = 64;
  for (problem.page_size = 1; problem.page_size <= 256; problem.page_size *= 2)
    assert_int_equal(has_runs(&problem), problem.page_size >= 8);
  problem.head_dim = problem.head_dim_v = 128;
  problem.page_size = 0;
  assert_true(has_runs(&problem));
  assert_false(serving_sm90_appends(serving_sm90_view(choose(&problem, KJIT_SERVING_ATTEND).values)));
  problem.batch = 116;
  problem.page_size = 1;
  assert_false(has_runs(&problem));
  problem.page_size = 0;
  assert_true(has_runs(&problem)); /* eight key heads are abreast */
  problem.heads_kv = 4;
  problem.batch = 231;
  assert_true(has_runs(&problem));
  problem.batch = 232;
  assert_false(has_runs(&problem));
  problem.heads_kv = 16;
  problem.batch = 132; /* 2,112 tiles */
  assert_true(has_runs(&problem));
  problem.batch = 133;
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
  problem.page_size = 24;
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
      if (heads[i] <= 128) assert_int_equal(config->keys == 64 ? 4 : 2, config->stages);
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

static struct serving_sm90_config config_of(const struct serving_problem *problem) {
  const struct serving_choice choice = choose(problem, KJIT_SERVING_ATTEND);
  assert_ptr_equal(choice.family, &serving_sm90_serving_family);
  return *serving_sm90_view(choice.values);
}

/* A box has all bands of a head where pages hold it and heads are several whole bands; small pages are loaded row by
 * row. */
static void test_serving_sm90_runs__load_pages_by_whole_heads(void **state) {
  static const int64_t sizes[][3] = {{128, 128, 1}, {64, 128, 1}, {64, 64, 0}, {72, 128, 0}, {40, 40, 0}};
  struct serving_problem problem = many_tiles();
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    problem.head_dim = sizes[i][0];
    problem.head_dim_v = sizes[i][1];
    for (problem.page_size = sizes[i][1] > 64 ? 1 : 8; problem.page_size <= 256;
         problem.page_size *= problem.page_size == 1 ? 8 : 2) {
      const bool is_small = problem.page_size == 1;
      problem.is_banded = true;
      assert_int_equal(config_of(&problem).gathered, is_small);
      assert_int_equal(config_of(&problem).stages, is_small ? 3 : 2);
      assert_int_equal(config_of(&problem).grouped, !is_small && sizes[i][2]);
      problem.is_banded = false;
      assert_int_equal(config_of(&problem).grouped, 0);
    }
  }
  problem = many_tiles();
  problem.is_banded = true;
  problem.page_size = 0;
  assert_int_equal(config_of(&problem).grouped, 0);
  problem.page_size = 16;
  problem.packed_rows = 128;
  problem.batch = 9;
  problem.rows = 9 * 128 / problem.group;
  assert_int_equal(config_of(&problem).runs, 1);
  assert_int_equal(config_of(&problem).grouped, 0);
}

/* What a call with small pages keeps for all batches holds two partial results, of the rows that exist, of each block
 * of threads. */
static void test_serving_sm90_runs__small_pages_have_room_for_partial_results(void **state) {
  static const int64_t sizes[][2] = {{128, 64}, {128, 128}, {72, 40}, {8, 128}};
  struct serving_problem problem = many_tiles();
  (void)state;
  problem.page_size = 1;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    problem.head_dim = sizes[i][0];
    problem.head_dim_v = sizes[i][1];
    for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows++) {
      const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
      const uint32_t runs = choice.family->runs(choice.values, 132);
      const size_t rows = (size_t)problem.packed_rows;
      const size_t floats = rows * (size_t)problem.head_dim_v + (rows + 1) / 2 * 4;
      assert_int_equal(runs, 264);
      assert_true(choice.family->partial_bytes(choice.values, runs, &problem) >= 2 * runs * floats * sizeof(float));
    }
  }
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
  config.runs = 1;
  config.one_part = 0;
  error_clear(&error);
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, family->check(family, (const int32_t *)&config, &error));
  assert_non_null(strstr(error.message, "runs is 1: must be 0 with one_part 0"));
  static const struct {
    int32_t head_dim_v, runs, gathered, grouped;
    const char *message;
  } wrong[] = {{128, 1, 0, 2, "grouped is 2: must be 0 or 1"},
               {128, 0, 0, 1, "grouped is 1: must be 0 without runs"},
               {128, 1, 1, 1, "grouped is 1: must be 0 without runs, with gathered 1"},
               {72, 1, 0, 1, "heads of other than 64 or 128 columns"}};
  config.one_part = 1;
  config.stages = 2; /* which fit without runs, too */
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    config.head_dim_v = wrong[i].head_dim_v;
    config.runs = wrong[i].runs;
    config.gathered = wrong[i].gathered;
    config.grouped = wrong[i].grouped;
    error_clear(&error);
    assert_int_equal(KJIT_ERR_INVALID_CONFIG, family->check(family, (const int32_t *)&config, &error));
    assert_non_null(strstr(error.message, wrong[i].message));
  }
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
      cmocka_unit_test(test_serving_sm90_runs__load_pages_by_whole_heads),
      cmocka_unit_test(test_serving_sm90_runs__small_pages_have_room_for_partial_results),
      cmocka_unit_test(test_serving_sm90_runs__are_for_some_tiles_of_128_rows),
      cmocka_unit_test(test_serving_sm90_runs__are_for_all_narrow_caches),
      cmocka_unit_test(test_serving_sm90_runs__are_not_for_every_narrow_cache),
      cmocka_unit_test(test_serving_sm90_runs__configs_are_legal_or_named),
  };
  return cmocka_run_group_tests_name("runs of attention_serving_sm90", tests, NULL, NULL);
}
