/* Which dense problems attention_serving_sm90's kernel with one_part takes, and how it divides their tiles. No GPU. */
#include "attention/serving_sm90/one_part_choose.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"
#include "support/test.h"

static const struct family_place h200 = {.arch = "sm_90a", .sm_count = 132, .shared_per_block = 232448};
static const struct family_place h100 = {
    .arch = "sm_90a", .sm_count = 132, .shared_per_block = 232448, .figures = {.memory_gb_s = 3350}};

static kjit_attention_problem decoding(int64_t batch, int64_t heads_kv, int64_t group, int64_t seq_q) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.batch = batch;
  problem.heads_q = heads_kv * group;
  problem.heads_kv = heads_kv;
  problem.seq_q = seq_q;
  problem.seq_kv = 8192;
  problem.head_dim = problem.head_dim_v = 128;
  return problem;
}

static bool takes(const kjit_attention_problem *problem, const struct family_place *place) {
  struct serving_sm90_config config;
  kjit_error error;
  error_clear(&error);
  const kjit_status status = one_part_choose(problem, place, &config, &error);
  assert_true(status == KJIT_OK || status == KJIT_ERR_UNSUPPORTED);
  return status == KJIT_OK;
}

/* A quarter of the blocks of threads that run at a time. */
static void test_one_part_choose__few_tiles_are_its_own(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(1, 1, 32, 1);
  assert_true(takes(&problem, &h200));
  problem = decoding(8, 8, 4, 1);
  assert_true(takes(&problem, &h200));
  problem = decoding(33, 2, 8, 8);
  assert_true(takes(&problem, &h200));
  problem = decoding(9, 8, 4, 1);
  assert_false(takes(&problem, &h200));
  problem = decoding(65, 1, 4, 1);
  assert_false(takes(&problem, &h200));
}

static void test_one_part_choose__few_keys_and_wide_heads_are_others(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(1, 8, 4, 1);
  problem.seq_kv = 511;
  assert_false(takes(&problem, &h200));
  problem.seq_kv = 512;
  assert_true(takes(&problem, &h200));
  problem.head_dim_v = 136;
  assert_false(takes(&problem, &h200));
  problem.head_dim_v = 64;
  problem.head_dim = 136;
  assert_false(takes(&problem, &h200));
  problem.head_dim = 100;
  assert_false(takes(&problem, &h200));
}

/* Heads of less than 64 columns, as long as parts are short: 4 blocks of 128 keys in each of 33 parts. */
static void test_one_part_choose__narrow_heads_are_its_own_in_short_parts(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(1, 8, 4, 1);
  problem.head_dim = problem.head_dim_v = 48;
  problem.seq_kv = 4 * 128 * 33;
  assert_true(takes(&problem, &h200));
  problem.seq_kv++;
  assert_false(takes(&problem, &h200));
  problem.head_dim_v = 64;
  assert_true(takes(&problem, &h200));
}

/* With slow memory up to 16 rows of heads whose rows are no whole lines are another family's. */
static void test_one_part_choose__an_h100_takes_whole_lines(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(1, 8, 4, 1);
  assert_true(takes(&problem, &h100));
  problem.head_dim_v = 72;
  assert_false(takes(&problem, &h100));
  assert_true(takes(&problem, &h200));
  problem = decoding(1, 8, 4, 5);
  problem.head_dim_v = 72;
  assert_true(takes(&problem, &h100));
}

static struct serving_sm90_config chosen(const kjit_attention_problem *problem) {
  struct serving_sm90_config config;
  kjit_error error;
  assert_status(KJIT_OK, one_part_choose(problem, &h200, &config, &error), &error);
  return config;
}

/* Tiles of 128 rows, but for parts of a single block of keys; of more tiles only where parts are short. */
static void test_one_part_choose__many_rows_are_few_tiles(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(1, 1, 32, 16);
  assert_int_equal(chosen(&problem).rows, 128);
  problem = decoding(1, 1, 32, 4);
  assert_int_equal(chosen(&problem).rows, 64);
  problem = decoding(1, 8, 8, 16);
  problem.seq_kv = 200000;
  assert_int_equal(chosen(&problem).rows, 128);
  problem.seq_kv = 767;
  assert_false(takes(&problem, &h200));
  problem = decoding(1, 16, 8, 16);
  assert_true(takes(&problem, &h200));
  problem.seq_kv = 16384;
  assert_false(takes(&problem, &h200));
  problem.seq_kv = 895;
  assert_false(takes(&problem, &h200));
  problem.seq_kv = 896;
  assert_true(takes(&problem, &h200));
  problem = decoding(1, 17, 8, 16);
  problem.seq_kv = 2000;
  assert_false(takes(&problem, &h200));
}

/* Bytes of a block of keys do not fall with the columns of a head, down to 64, where boxes of TMA load them. */
static void test_one_part_choose__small_heads_have_longer_blocks(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(1, 8, 8, 1);
  assert_int_equal(chosen(&problem).keys, 64);
  problem.head_dim = 64;
  assert_int_equal(chosen(&problem).keys, 64);
  problem.head_dim_v = 64;
  assert_int_equal(chosen(&problem).keys, 128);
}

/* As a serving call has it. */
static void test_one_part_choose__pages_decide_on_longer_blocks(void **state) {
  static const struct {
    int64_t head_dim, head_dim_v, page_size;
    int32_t keys;
  } cases[] = {{64, 64, 16, 128}, {40, 64, 8, 128}, {64, 72, 16, 64}, {128, 64, 16, 64}, {64, 64, 4, 64}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct serving_problem problem = {.dtype = KJIT_BF16,
                                            .head_dim = cases[i].head_dim,
                                            .head_dim_v = cases[i].head_dim_v,
                                            .heads_kv = 8,
                                            .group = 4,
                                            .packed_rows = 4,
                                            .batch = 8,
                                            .rows = 8,
                                            .page_size = cases[i].page_size,
                                            .is_plain = true,
                                            .is_simple = true};
    kjit_config config = {.family = &serving_sm90_family};
    struct serving_sm90_config *const values = (struct serving_sm90_config *)config.values;
    kjit_error error;
    assert_true(serving_sm90_choose_one_part(&problem, 132, values));
    assert_int_equal(cases[i].keys, values->keys);
    assert_status(KJIT_OK, kjit_config_check(&config, "sm_90a", &error), &error);
  }
}

static void test_one_part_choose__configs_are_legal_and_fit(void **state) {
  (void)state;
  for (int64_t columns = 8; columns <= 128; columns += 8)
    for (int64_t rows = 1; rows <= 128; rows += rows) {
      kjit_config config = {.family = &serving_sm90_family};
      kjit_error error;
      kjit_attention_problem problem = decoding(2, 2, 1, rows);
      problem.seq_kv = 2000;
      problem.head_dim = columns;
      problem.head_dim_v = 136 - columns;
      problem.dtype = columns % 16 ? KJIT_FP16 : KJIT_BF16;
      struct serving_sm90_config *const values = (struct serving_sm90_config *)config.values;
      assert_status(KJIT_OK, one_part_choose(&problem, &h200, values, &error), &error);
      assert_status(KJIT_OK, kjit_config_check(&config, "sm_90a", &error), &error);
    }
}

/* Parts cover a tile's blocks of keys, none is empty, and the kernel, which divides again by the number of parts, comes
 * to the same. */
static void test_one_part_choose__parts_are_those_of_the_kernel(void **state) {
  (void)state;
  for (int64_t tiles = 1; tiles <= 300; tiles += 7)
    for (int64_t keys = 1; keys < 200000; keys += keys / 3 + 1) {
      const struct serving_sm90_config config = {.rows = 64, .keys = 64, .blocks_per_sm = 2, .one_part = 1};
      kjit_attention_problem problem = decoding(1, tiles, 1, 1);
      problem.seq_kv = keys;
      const struct one_part_tiles found = one_part_tiles_of(&problem, &config, 132);
      const int64_t blocks = integer_divide_up(keys, 64);
      const int64_t length = integer_max(integer_divide_up(blocks, found.parts), 2);
      assert_int_equal(found.count, tiles);
      assert_true(found.parts >= 1 && (found.parts == 1 || found.parts * tiles <= 264));
      assert_int_equal(found.parts, integer_divide_up(blocks, length));
    }
}

/* Few keys of more than two fifths as many tiles as multiprocessors, and long caches of 64 columns on an H100. */
static void test_one_part_choose__what_others_begin_or_read_faster_is_theirs(void **state) {
  (void)state;
  kjit_attention_problem problem = decoding(7, 8, 16, 1);
  problem.seq_kv = 849;
  assert_false(takes(&problem, &h200));
  problem.seq_kv = 850;
  assert_true(takes(&problem, &h200));
  problem = decoding(6, 8, 16, 1);
  problem.seq_kv = 849;
  assert_true(takes(&problem, &h200));
  problem = decoding(15, 3, 4, 1);
  problem.head_dim = problem.head_dim_v = 64;
  problem.seq_kv = 41810;
  assert_true(takes(&problem, &h200));
  assert_false(takes(&problem, &h100));
  problem.seq_kv = 20000;
  assert_true(takes(&problem, &h100));
  problem.seq_kv = 41810;
  problem.seq_q = 5; /* twenty rows */
  assert_true(takes(&problem, &h100));
}

/* What the kernel's sums do not reach is refused whatever the config. */
static void test_one_part_choose__what_cannot_be_counted_is_refused(void **state) {
  (void)state;
  kjit_error error;
  kjit_attention_problem problem = decoding(64, 8, 4, 1);
  assert_status(KJIT_OK, one_part_check_problem(&problem, &error), &error);
  problem.batch = 65;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, one_part_check_problem(&problem, &error));
  problem = decoding(1, 1, 4, 1);
  problem.seq_kv = INT64_C(1) << 26;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, one_part_check_problem(&problem, &error));
  problem = decoding(1, 1, 4, INT64_C(1) << 19);
  assert_int_equal(KJIT_ERR_UNSUPPORTED, one_part_check_problem(&problem, &error));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_part_choose__few_tiles_are_its_own),
      cmocka_unit_test(test_one_part_choose__few_keys_and_wide_heads_are_others),
      cmocka_unit_test(test_one_part_choose__narrow_heads_are_its_own_in_short_parts),
      cmocka_unit_test(test_one_part_choose__an_h100_takes_whole_lines),
      cmocka_unit_test(test_one_part_choose__many_rows_are_few_tiles),
      cmocka_unit_test(test_one_part_choose__small_heads_have_longer_blocks),
      cmocka_unit_test(test_one_part_choose__pages_decide_on_longer_blocks),
      cmocka_unit_test(test_one_part_choose__configs_are_legal_and_fit),
      cmocka_unit_test(test_one_part_choose__parts_are_those_of_the_kernel),
      cmocka_unit_test(test_one_part_choose__what_others_begin_or_read_faster_is_theirs),
      cmocka_unit_test(test_one_part_choose__what_cannot_be_counted_is_refused),
  };
  return cmocka_run_group_tests_name("one_part_choose", tests, NULL, NULL);
}
