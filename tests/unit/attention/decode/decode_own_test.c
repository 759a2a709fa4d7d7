/* Which problems of few rows attention_decode_sm90 leaves to attention_sm90, and takes from it, on an H200 and an H100,
 * and the configs of those that it takes. */
#include "attention/decode/decode_choose.h"
#include "attention/decode/decode_own.h"
#include "support/test.h"
#include "unit/attention/decode/decode_problem.h"

static bool is_own(const kjit_attention_problem *problem, const struct decode_card *card) {
  kjit_error error = {0};
  const kjit_status status = decode_check_own(problem, card, &error);
  assert_true(status == KJIT_OK || status == KJIT_ERR_UNSUPPORTED);
  return status == KJIT_OK;
}

struct row {
  int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim;
  bool on_h100, on_h200; /* its own? */
};

static void expect_rows(const struct row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const kjit_attention_problem problem =
        problem_of(rows[i].batch, rows[i].heads_q, rows[i].heads_kv, rows[i].seq_q, rows[i].seq_kv, rows[i].head_dim);
    if (is_own(&problem, &h100) != rows[i].on_h100 || is_own(&problem, &h200) != rows[i].on_h200)
      fail_msg("row %zu is another family's, or not", i);
  }
}

static void test_decode_own__a_round_of_whole_tiles_is_another_familys(void **state) {
  static const struct row rows[] = {
      {4, 20, 20, 16, 5871, 128, false, false}, {14, 6, 6, 19, 6567, 128, false, false},
      {10, 10, 10, 1, 4000, 128, false, false}, {12, 64, 8, 4, 5000, 128, false, false},
      {6, 8, 8, 16, 6000, 128, false, true},  /* 48 tiles */
      {4, 20, 20, 16, 8000, 64, true, false}, /* one warp's rows of 64 columns */
      {14, 6, 6, 19, 9000, 64, false, false},   {8, 8, 8, 19, 9000, 64, false, true}, /* 64 tiles */
      {1, 48, 48, 1, 7613, 256, false, true},   {4, 20, 20, 16, 3000, 256, false, false},
      {2, 48, 48, 20, 6000, 96, false, false},  {1, 128, 128, 1, 3311, 80, false, false},
      {20, 4, 4, 1, 11808, 128, false, true}, /* more than 300 MB */
      {80, 20, 1, 3, 6000, 128, true, true},  /* its rows are two tiles of packed heads */
      {1, 128, 128, 1, 3311, 104, true, false}, {1, 60, 60, 1, 9000, 80, true, true},
      {1, 84, 84, 16, 6000, 32, true, true},    {3, 28, 28, 1, 5596, 240, false, false},
      {35, 24, 3, 2, 5515, 224, false, false}, /* no whole lines */
      {1, 76, 76, 1, 5596, 240, true, false},   {1, 78, 78, 1, 5596, 240, false, false},
      {3, 28, 28, 1, 5596, 192, false, false},  {3, 28, 28, 1, 5596, 184, true, false},
      {1, 48, 48, 17, 5000, 216, false, true}, /* more rows than a warp's */
  };
  (void)state;
  expect_rows(rows, sizeof rows / sizeof *rows);
}

static void test_decode_own__two_rounds_of_wide_tiles_are_another_familys(void **state) {
  static const struct row rows[] = {
      {11, 20, 20, 2, 3311, 176, false, false}, /* 220 tiles */
      {10, 20, 20, 2, 3311, 176, true, true},   /* 200: of the second round 68 */
      {11, 20, 20, 2, 3311, 128, true, true},
      {14, 20, 20, 2, 3311, 176, true, true}, /* a third round */
  };
  (void)state;
  expect_rows(rows, sizeof rows / sizeof *rows);
}

static void test_decode_own__a_short_round_is_another_familys(void **state) {
  static const struct row rows[] = {
      {7, 128, 8, 1, 350, 128, false, false}, {7, 128, 8, 1, 700, 128, false, false},
      {7, 128, 8, 1, 850, 128, false, true},  {3, 64, 8, 1, 350, 128, false, false},
      {3, 64, 8, 1, 512, 128, true, true},    {2, 64, 8, 1, 350, 128, true, true}, /* 16 tiles: parts */
      {12, 8, 8, 1, 662, 64, true, false},    {12, 8, 8, 1, 300, 64, false, false},
      {6, 8, 8, 1, 300, 40, true, true},      {8, 28, 14, 1, 500, 96, true, false},
      {3, 28, 14, 1, 390, 96, false, false},  {8, 32, 2, 1, 400, 64, false, false}, /* 16 rows of 16 heads */
      {8, 16, 2, 1, 400, 64, true, true},
  };
  (void)state;
  expect_rows(rows, sizeof rows / sizeof *rows);
}

/* With slow memory, where some multiprocessors have two tiles of heads whose rows are no whole lines, or a few have two
 * of 64 and 128 columns: all of them whole, at the same time. */
static void test_decode_own__rows_side_by_side_are_its_own_with_slow_memory(void **state) {
  static const struct {
    int64_t batch, heads, rows, keys, columns;
    int32_t tile_n;
  } expected[] = {{3, 48, 44, 5702, 96, 64},   {6, 40, 40, 2000, 96, 32},  {5, 40, 20, 3000, 96, 48},
                  {4, 40, 35, 5654, 64, 96},   {19, 7, 64, 3000, 64, 128}, {5, 28, 17, 4000, 128, 64},
                  {17, 10, 48, 2500, 128, 48}, {17, 10, 16, 2500, 128, 48}};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem = problem_of(expected[i].batch, expected[i].heads, expected[i].heads,
                                                      expected[i].rows, expected[i].keys, expected[i].columns);
    kjit_attention_decode_sm90_config config;
    kjit_error error = {0};
    assert_false(is_own(&problem, &h200));
    assert_status(KJIT_OK, decode_choose(&problem, &h100, &config, &error), &error);
    assert_int_equal(expected[i].tile_n, config.tile_n);
    assert_int_equal(2, config.stages);
    assert_int_equal(2, config.blocks_per_sm);
    const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
    if (config.head_dim != 96) assert_int_equal(tiles.count, decode_plan_of(&tiles, &config, &h100).runs);
  }
  static const struct row others[] = {
      {7, 40, 40, 40, 2000, 96, false, false},  /* three rounds */
      {10, 20, 20, 35, 5654, 64, false, false}, /* 200 tiles */
      {4, 33, 33, 35, 5654, 64, false, false},  /* one round */
      {4, 40, 40, 35, 700, 64, false, false},   /* 29 MB */
      {4, 40, 40, 17, 2000, 192, false, false},
  };
  expect_rows(others, sizeof others / sizeof *others);
}

/* Lines of what lies beside a row are found again where all tiles go side by side, with up to 99,000 bytes an SM. */
static void test_decode_own__tiles_side_by_side_share_lines(void **state) {
  const struct decode_tiles tiles = {1, 144, 90};
  const kjit_attention_decode_sm90_config config = {
      .dtype = KJIT_BF16, .head_dim = 96, .head_dim_v = 96, .rows = 48, .tile_n = 64, .stages = 2, .blocks_per_sm = 2};
  (void)state;
  assert_true(decode_shares_lines(&tiles, &config, 144, 132));
  assert_false(decode_shares_lines(&tiles, &config, 144 * 8, 132));
}

/* One query and few more of heads that share keys, over no more keys than a step or two. */
static void test_decode_own__few_keys_of_many_shared_heads_are_its_own(void **state) {
  static const struct {
    int64_t batch, heads_q, heads_kv, seq_q, keys, head_dim;
    int32_t blocks_per_sm;
  } expected[] = {{22, 96, 48, 1, 74, 64, 4},  {64, 64, 8, 1, 128, 64, 4}, {60, 96, 24, 4, 110, 64, 4},
                  {200, 16, 4, 1, 40, 64, 4},  {40, 40, 20, 1, 60, 96, 2}, {30, 64, 32, 1, 127, 128, 2},
                  {20, 96, 24, 2, 120, 128, 2}};
  const struct decode_card *const cards[] = {&h100, &h200};
  (void)state;
  for (size_t i = 0; i < 2 * sizeof expected / sizeof *expected; i++) {
    const size_t row = i / 2;
    const kjit_attention_problem problem =
        problem_of(expected[row].batch, expected[row].heads_q, expected[row].heads_kv, expected[row].seq_q,
                   expected[row].keys, expected[row].head_dim);
    kjit_attention_decode_sm90_config config;
    kjit_error error = {0};
    assert_status(KJIT_OK, decode_choose(&problem, cards[i % 2], &config, &error), &error);
    assert_int_equal(64, config.tile_n);
    assert_int_equal(2, config.stages);
    assert_int_equal(expected[row].blocks_per_sm, config.blocks_per_sm);
  }
  kjit_attention_decode_sm90_config emptier;
  kjit_error error = {0};
  const kjit_attention_problem short_steps = problem_of(30, 64, 32, 1, 90, 128);
  assert_status(KJIT_OK, decode_choose(&short_steps, &h200, &emptier, &error), &error);
  assert_int_equal(32, emptier.tile_n);
  const struct row others[] = {{22, 48, 48, 1, 74, 64, false, false},
                               {22, 96, 48, 1, 32, 64, false, false},
                               {22, 96, 48, 1, 74, 192, false, false}};
  expect_rows(others, sizeof others / sizeof *others);
}

/* By attention_short_sm90 all keys of a head would be on their way at once. */
static void test_decode_own__few_keys_of_many_heads_are_read_in_steps_with_slow_memory(void **state) {
  static const struct row rows[] = {{15, 128, 128, 1, 246, 64, true, false},  {100, 32, 32, 1, 100, 64, false, false},
                                    {42, 128, 128, 4, 128, 104, true, false}, {42, 128, 128, 4, 100, 104, false, false},
                                    {42, 128, 128, 4, 128, 96, false, false}, {4, 128, 128, 4, 128, 104, false, false},
                                    {60, 96, 96, 32, 128, 104, false, false}, {51, 6, 6, 1, 236, 64, false, true}};
  (void)state;
  expect_rows(rows, sizeof rows / sizeof *rows);
}

/* A multiprocessor holds three blocks with steps of 64 keys and four with 48, by which rounds are counted. */
static void test_decode_own__steps_of_many_tiles_are_by_their_rounds(void **state) {
  static const struct {
    int64_t batch, keys;
    int32_t tile_n, blocks_per_sm;
  } expected[] = {{150, 1400, 64, 3}, {200, 900, 48, 4}, {300, 1000, 64, 3}, {350, 400, 64, 3}, {1864, 367, 48, 3}};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem = problem_of(expected[i].batch, 32, 2, 1, expected[i].keys, 64);
    kjit_attention_decode_sm90_config config;
    kjit_error error = {0};
    assert_status(KJIT_OK, decode_choose(&problem, &h200, &config, &error), &error);
    assert_int_equal(expected[i].tile_n, config.tile_n);
    assert_int_equal(expected[i].blocks_per_sm, config.blocks_per_sm);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_own__a_round_of_whole_tiles_is_another_familys),
      cmocka_unit_test(test_decode_own__two_rounds_of_wide_tiles_are_another_familys),
      cmocka_unit_test(test_decode_own__a_short_round_is_another_familys),
      cmocka_unit_test(test_decode_own__rows_side_by_side_are_its_own_with_slow_memory),
      cmocka_unit_test(test_decode_own__tiles_side_by_side_share_lines),
      cmocka_unit_test(test_decode_own__few_keys_of_many_shared_heads_are_its_own),
      cmocka_unit_test(test_decode_own__few_keys_of_many_heads_are_read_in_steps_with_slow_memory),
      cmocka_unit_test(test_decode_own__steps_of_many_tiles_are_by_their_rounds),
  };
  return cmocka_run_group_tests_name("decode_own", tests, NULL, NULL);
}
