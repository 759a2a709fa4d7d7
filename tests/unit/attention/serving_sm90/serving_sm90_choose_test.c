/* Which serving problems attention_serving_sm90 takes, and that its configs are legal for every head size. No GPU. */
#include "attention/prefill/prefill_serving.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"
#include "support/test.h"
#include "unit/attention/serving_sm90/serving_problem.h"

static bool takes(const struct serving_problem *problem) {
  return choose(problem, KJIT_SERVING_ATTEND).family == &serving_sm90_serving_family;
}

/* A tile of a cache of 8 bits, or of heads of more than 128 columns, has as many rows as the call may need; all others
 * have 64, so that one kernel is for all numbers of rows. */
static void test_serving_sm90_choose__few_rows_are_its_own(void **state) {
  static const int64_t packed[] = {1, 16, 17, 32, 33, 64}, rows[] = {16, 16, 32, 32, 64, 64};
  static const struct {
    int64_t head_dim, head_dim_v;
    bool is_narrow, has_64;
  } kinds[] = {{128, 128, false, true}, {8, 72, false, true},    {256, 256, false, false},
               {136, 64, false, false}, {64, 136, false, false}, {128, 128, true, false}};
  struct serving_problem problem = decoding();
  (void)state;
  for (size_t i = 0; i < sizeof packed / sizeof *packed * (sizeof kinds / sizeof *kinds); i++) {
    const size_t kind = i % (sizeof kinds / sizeof *kinds), count = i / (sizeof kinds / sizeof *kinds);
    problem.head_dim = kinds[kind].head_dim;
    problem.head_dim_v = kinds[kind].head_dim_v;
    problem.is_narrow = kinds[kind].is_narrow;
    problem.packed_rows = packed[count];
    const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
    assert_ptr_equal(choice.family, &serving_sm90_serving_family);
    assert_int_equal(kinds[kind].has_64 ? 64 : rows[count], serving_sm90_view(choice.values)->rows);
  }
}

static void test_serving_sm90_choose__other_passes_are_another_familys(void **state) {
  const struct serving_problem problem = decoding();
  (void)state;
  assert_true(choose(&problem, KJIT_SERVING_PLAN).family != &serving_sm90_serving_family);
  assert_true(choose(&problem, KJIT_SERVING_APPEND).family != &serving_sm90_serving_family);
}

/* One kernel of attention_serving makes the schedules for tiles of all sizes: it is told how many rows they have. */
static void test_serving_sm90_choose__one_plan_pass_is_for_the_tiles_of_all_kernels(void **state) {
  struct serving_problem problem = decoding();
  (void)state;
  const struct serving_choice first = choose(&problem, KJIT_SERVING_PLAN);
  assert_string_equal("attention_serving", first.family->family->table.family);
  for (int64_t head = 8; head <= 256; head += 8) {
    for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows += 7) {
      problem.head_dim = problem.head_dim_v = head;
      const struct serving_choice attend = choose(&problem, KJIT_SERVING_ATTEND);
      const struct serving_choice plan = choose(&problem, KJIT_SERVING_PLAN);
      assert_memory_equal(first.values, plan.values, sizeof plan.values);
      assert_ptr_equal(attend.family, &serving_sm90_serving_family);
      assert_int_equal(serving_sm90_view(attend.values)->rows, attend.family->tile_rows(attend.values));
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

/* 64 tiles. */
static struct serving_problem few_tiles(void) {
  struct serving_problem problem = decoding();
  problem.batch = problem.rows = 8;
  problem.is_simple = true;
  return problem;
}

static bool has_one_part(const struct serving_problem *problem) {
  const struct serving_choice choice = choose(problem, KJIT_SERVING_ATTEND);
  const struct serving_sm90_config *config = serving_sm90_view(choice.values);
  return choice.family == &serving_sm90_serving_family && config->one_part && !config->runs;
}

static void test_serving_sm90_choose__simple_calls_of_few_tiles_have_one_part(void **state) {
  struct serving_problem problem = few_tiles();
  (void)state;
  for (problem.packed_rows = 1; problem.packed_rows <= 64; problem.packed_rows++)
    assert_true(has_one_part(&problem));
  problem = few_tiles();
  problem.is_simple = false;
  assert_false(has_one_part(&problem));
}

/* Four blocks of threads a tile: 66 tiles on 132 multiprocessors, and half as many on half of those. */
static void test_serving_sm90_choose__one_part_is_for_a_quarter_of_the_blocks_of_threads(void **state) {
  struct serving_problem problem = few_tiles();
  struct family_place half = hopper;
  struct serving_choice choice = {0};
  kjit_error error;
  (void)state;
  problem.batch = 9; /* 72 tiles */
  assert_false(has_one_part(&problem));
  problem.heads_kv = 2;
  problem.batch = 32;
  assert_true(has_one_part(&problem));
  problem.heads_kv = 1;
  problem.batch = 64;
  assert_true(has_one_part(&problem));
  problem.batch = 65; /* more than two sequences for each lane of a warp */
  assert_false(has_one_part(&problem));
  problem = few_tiles();
  half.sm_count /= 2;
  assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &half, &choice, &error), &error);
  assert_int_equal(1, serving_sm90_view(choice.values)->runs);
}

/* More than 64 rows: tiles of 128 rows with a block of threads on each multiprocessor, two or more of them a tile, as
 * long as attention_prefill_sm90 does not take them. */
static void test_serving_sm90_choose__many_rows_of_few_tiles_have_one_part_of_128(void **state) {
  struct serving_problem problem = few_tiles();
  (void)state;
  problem.batch = 1;
  for (problem.packed_rows = 65; problem.packed_rows <= 6 * 128; problem.packed_rows += 41) {
    problem.rows = problem.packed_rows / problem.group;
    const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
    assert_ptr_equal(choice.family, &serving_sm90_serving_family);
    assert_int_equal(1, serving_sm90_view(choice.values)->one_part);
    assert_int_equal(128, serving_sm90_view(choice.values)->rows);
    assert_int_equal(132, choice.family->runs(choice.values, 132));
  }
  problem.is_simple = false;
  assert_int_equal(64, serving_sm90_view(choose(&problem, KJIT_SERVING_ATTEND).values)->rows);
  problem.is_simple = true;
  problem.page_size = 1; /* rows that are gathered take all warps of a tile of 64 rows */
  assert_false(choose(&problem, KJIT_SERVING_ATTEND).family == &serving_sm90_serving_family);
}

static void test_serving_sm90_choose__one_part_is_not_for_what_it_has_no_code_for(void **state) {
  static const int64_t pages[] = {3, 12, 24, 48, 200};
  struct serving_problem problem = few_tiles();
  (void)state;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    problem.page_size = pages[i];
    assert_false(has_one_part(&problem));
  }
  problem = few_tiles();
  problem.softcap = true;
  assert_false(has_one_part(&problem));
  problem = few_tiles();
  problem.head_dim = 136;
  assert_false(has_one_part(&problem));
  problem = few_tiles();
  problem.head_dim_v = 136;
  assert_false(has_one_part(&problem));
}

static bool appends(const struct serving_problem *problem) {
  const struct serving_choice choice = choose(problem, KJIT_SERVING_ATTEND);
  return choice.family->appends && choice.family->appends(choice.values);
}

/* Of tiles of 64 rows and caches of 16 bits, in pages of every size; all others keep the append pass. */
static void test_serving_sm90_choose__few_tiles_append_new_keys(void **state) {
  static const int64_t pages[] = {0, 1, 2, 4, 8, 16, 256};
  struct serving_problem problem = few_tiles();
  (void)state;
  problem.meets_new_keys = true;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    problem.page_size = pages[i];
    assert_true(appends(&problem));
  }
  problem.batch = 100;
  assert_false(appends(&problem));
  problem = few_tiles();
  problem.is_narrow = true;
  assert_true(takes(&problem));
  assert_false(appends(&problem));
  problem = few_tiles();
  problem.batch = 1;
  problem.packed_rows = 65;
  assert_true(has_one_part(&problem));
  assert_false(appends(&problem));
}

/* Without new keys a warpgroup of its own loads boxes. Rows are loaded so by one kernel for both. */
static void test_serving_sm90_choose__boxes_of_few_tiles_are_loaded_apart_from_products(void **state) {
  static const int64_t pages[] = {0, 1, 2, 4, 8, 16, 256};
  struct serving_problem problem = few_tiles();
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    problem.meets_new_keys = kind == 1;
    problem.rotates = kind == 2;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
      problem.page_size = pages[i];
      const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
      assert_int_equal(kind == 0 && pages[i] % 8 == 0, serving_sm90_view(choice.values)->apart);
      assert_int_equal(!serving_sm90_view(choice.values)->apart, appends(&problem));
    }
  }
  problem = few_tiles();
  problem.batch = 100;
  assert_int_equal(0, serving_sm90_view(choose(&problem, KJIT_SERVING_ATTEND).values)->apart);
  problem = few_tiles();
  problem.batch = 1;
  problem.packed_rows = 65;
  assert_int_equal(0, serving_sm90_view(choose(&problem, KJIT_SERVING_ATTEND).values)->apart);
}

/* Those that append also rotate; with rotary tables calls that the others would take are the ordinary kernels'. */
static void test_serving_sm90_choose__few_tiles_that_append_take_rotary_tables(void **state) {
  static const int64_t pages[] = {0, 1, 2, 4, 8, 16, 256};
  struct serving_problem problem = few_tiles();
  (void)state;
  problem.rotates = true;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    problem.page_size = pages[i];
    assert_true(has_one_part(&problem));
  }
  problem = few_tiles();
  problem.rotates = problem.is_narrow = true;
  assert_true(takes(&problem));
  assert_false(has_one_part(&problem));
  problem.is_narrow = false;
  problem.batch = 1;
  problem.packed_rows = 65;
  assert_true(takes(&problem));
  assert_false(has_one_part(&problem));
}

/* What no box of TMA fits is loaded row by row, where tiles are not too many; otherwise it is another family's. */
static void test_serving_sm90_choose__small_pages_are_gathered(void **state) {
  static const int64_t pages[] = {0, 1, 2, 4, 8, 16, 256};
  struct serving_problem few = few_tiles(), many = few_tiles();
  (void)state;
  many.batch = 500;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    const bool is_small = pages[i] % 8 != 0;
    few.page_size = many.page_size = pages[i];
    const struct serving_choice choice = choose(&few, KJIT_SERVING_ATTEND);
    assert_ptr_equal(choice.family, &serving_sm90_serving_family);
    assert_int_equal(is_small, serving_sm90_view(choice.values)->gathered);
    assert_int_equal(is_small ? 3 : 2, serving_sm90_view(choice.values)->stages);
    assert_int_equal(!is_small, takes(&many));
  }
}

static size_t partial_bytes(const struct serving_problem *problem) {
  const struct serving_choice choice = choose(problem, KJIT_SERVING_ATTEND);
  return choice.family->partial_bytes(choice.values, choice.family->runs(choice.values, 132), problem);
}

/* A caller makes one workspace for all batches, whichever kernels compute them. */
static void test_serving_sm90_choose__memory_does_not_depend_on_the_batch(void **state) {
  static const int64_t sizes[][2] = {{64, 64}, {128, 128}, {72, 40}, {128, 64}};
  struct serving_problem few = few_tiles(), many = few_tiles();
  (void)state;
  many.batch = 100;
  for (size_t i = 0; i < 4; i++) {
    few.head_dim = many.head_dim = sizes[i][0];
    few.head_dim_v = many.head_dim_v = sizes[i][1];
    for (few.packed_rows = 1; few.packed_rows <= 64; few.packed_rows++) {
      many.packed_rows = few.packed_rows;
      for (few.page_size = many.page_size = 1; few.page_size <= 16; few.page_size = many.page_size *= 2) {
        assert_true(has_one_part(&few));
        assert_false(has_one_part(&many));
        assert_int_equal(partial_bytes(&few), partial_bytes(&many));
      }
    }
  }
  few = few_tiles();
  few.batch = few.rows = 1;
  few.packed_rows = 128;
  many = few;
  many.is_simple = false;
  assert_true(has_one_part(&few));
  assert_false(has_one_part(&many));
  assert_int_equal(partial_bytes(&few), partial_bytes(&many));
}

static void test_serving_sm90_choose__configs_of_one_part_are_legal_or_named(void **state) {
  struct serving_problem problem = few_tiles();
  kjit_error error;
  (void)state;
  for (problem.head_dim = 8; problem.head_dim <= 128; problem.head_dim += 8) {
    for (problem.head_dim_v = 8; problem.head_dim_v <= 128; problem.head_dim_v += 8) {
      problem.page_size = problem.head_dim_v % 16 ? 1 : 16;
      const struct serving_choice choice = choose(&problem, KJIT_SERVING_ATTEND);
      error_clear(&error);
      assert_int_equal(1, serving_sm90_view(choice.values)->one_part);
      assert_status(KJIT_OK, serving_sm90_family.check(&serving_sm90_family, choice.values, &error), &error);
    }
  }
  static const struct {
    int32_t rows, keys, stages, softcap, one_part, gathered, apart;
    const char *named;
  } wrong[] = {{16, 64, 2, 0, 1, 0, 0, "rows"},
               {64, 32, 2, 0, 1, 0, 0, "keys"},
               {64, 64, 2, 1, 1, 0, 0, "softcap"},
               {64, 64, 2, 0, 2, 0, 0, "one_part"},
               {64, 64, 2, 0, 1, 2, 0, "gathered"},
               {64, 64, 2, 0, 0, 1, 0, "gathered"},
               {64, 64, 2, 0, 1, 1, 0, "stages"},
               {128, 64, 2, 0, 1, 0, 0, "blocks_per_sm"},
               {64, 64, 2, 0, 1, 0, 2, "apart is 2"},
               {64, 64, 2, 0, 0, 0, 1, "apart is 1: must be 0 without"},
               {64, 64, 3, 0, 1, 1, 1, "apart is 1: must be 0 without one_part, with runs 1, with gathered 1"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const struct serving_sm90_config config = {.dtype = KJIT_BF16,
                                               .cache = KJIT_BF16,
                                               .head_dim = 64,
                                               .head_dim_v = 64,
                                               .rows = wrong[i].rows,
                                               .keys = wrong[i].keys,
                                               .stages = wrong[i].stages,
                                               .blocks_per_sm = 2,
                                               .softcap = wrong[i].softcap,
                                               .one_part = wrong[i].one_part,
                                               .gathered = wrong[i].gathered,
                                               .apart = wrong[i].apart};
    error_clear(&error);
    assert_status(KJIT_ERR_INVALID_CONFIG,
                  serving_sm90_family.check(&serving_sm90_family, (const int32_t *)&config, &error), &error);
    assert_contains(error.message, wrong[i].named);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_sm90_choose__few_rows_are_its_own),
      cmocka_unit_test(test_serving_sm90_choose__other_passes_are_another_familys),
      cmocka_unit_test(test_serving_sm90_choose__one_plan_pass_is_for_the_tiles_of_all_kernels),
      cmocka_unit_test(test_serving_sm90_choose__many_rows_are_its_own_where_tiles_are_few),
      cmocka_unit_test(test_serving_sm90_choose__pages_are_of_a_multiple_of_8_positions),
      cmocka_unit_test(test_serving_sm90_choose__what_tma_cannot_load_is_another_familys),
      cmocka_unit_test(test_serving_sm90_choose__configs_of_every_head_size_are_legal),
      cmocka_unit_test(test_serving_sm90_choose__simple_calls_of_few_tiles_have_one_part),
      cmocka_unit_test(test_serving_sm90_choose__one_part_is_for_a_quarter_of_the_blocks_of_threads),
      cmocka_unit_test(test_serving_sm90_choose__many_rows_of_few_tiles_have_one_part_of_128),
      cmocka_unit_test(test_serving_sm90_choose__one_part_is_not_for_what_it_has_no_code_for),
      cmocka_unit_test(test_serving_sm90_choose__few_tiles_append_new_keys),
      cmocka_unit_test(test_serving_sm90_choose__boxes_of_few_tiles_are_loaded_apart_from_products),
      cmocka_unit_test(test_serving_sm90_choose__few_tiles_that_append_take_rotary_tables),
      cmocka_unit_test(test_serving_sm90_choose__small_pages_are_gathered),
      cmocka_unit_test(test_serving_sm90_choose__memory_does_not_depend_on_the_batch),
      cmocka_unit_test(test_serving_sm90_choose__configs_of_one_part_are_legal_or_named),
  };
  return cmocka_run_group_tests_name("serving_sm90_choose", tests, NULL, NULL);
}
