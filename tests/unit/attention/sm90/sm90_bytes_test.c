/* Steps of tiles that read keys alone, by the bytes that are on their way on an H200 and an H100. */
#include "support/test.h"

#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "base/integer.h"
#include "unit/attention/sm90/sm90_configs.h"

static kjit_attention_sm90_config chosen_on(const kjit_attention_problem *problem, uint32_t memory_gb_s) {
  const struct family_figures figures = {.memory_gb_s = memory_gb_s};
  const struct sm90_card card = sm90_card_of(132, &figures);
  kjit_attention_sm90_config config;
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, sm90_choose(problem, &card, &config, &error), &error);
  return config;
}

enum { H100_GB_S = 3352, H200_GB_S = 4800 };

static kjit_attention_problem few_rows(int64_t batch, int64_t heads, int64_t seq_q, int64_t seq_kv, int64_t head_dim) {
  return sm90_sized(sm90_problem(seq_kv, head_dim, 0), batch, heads, heads, seq_q);
}

/* The fastest steps that were timed, or as fast as these within 3 %. */
static void test_sm90_limit_bytes__steps_are_those_that_were_fastest(void **state) {
  (void)state;
  static const struct {
    int64_t batch, heads, seq_q, seq_kv, head_dim;
    int32_t h100[2], h200[2]; /* keys and stages */
  } rows[] = {
      {4, 20, 16, 5871, 128, {96, 2}, {128, 2}}, {14, 6, 19, 6567, 128, {96, 2}, {96, 2}},
      {3, 24, 16, 8000, 128, {96, 2}, {128, 2}}, {8, 12, 16, 4000, 128, {64, 2}, {96, 2}},
      {4, 28, 32, 3000, 128, {64, 2}, {64, 2}},  {17, 6, 30, 5000, 128, {64, 2}, {96, 2}},
      {6, 20, 44, 6000, 64, {128, 2}, {128, 2}}, {14, 6, 19, 9000, 64, {128, 3}, {128, 3}},
      {4, 20, 16, 3000, 256, {48, 2}, {64, 2}},  {8, 12, 4, 4761, 256, {32, 2}, {48, 2}},
      {1, 64, 1, 9000, 256, {64, 2}, {64, 2}},   {6, 16, 1, 5000, 192, {48, 2}, {64, 2}},
      {2, 48, 20, 6000, 96, {64, 2}, {96, 2}},   {3, 40, 32, 5000, 112, {48, 2}, {64, 2}},
      {11, 20, 2, 3311, 176, {32, 2}, {64, 2}},  {10, 8, 16, 400, 128, {64, 2}, {64, 2}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem =
        few_rows(rows[i].batch, rows[i].heads, rows[i].seq_q, rows[i].seq_kv, rows[i].head_dim);
    const kjit_attention_sm90_config there = chosen_on(&problem, H100_GB_S), here = chosen_on(&problem, H200_GB_S);
    assert_int_equal(there.tile_n, rows[i].h100[0]);
    assert_int_equal(there.stages, rows[i].h100[1]);
    assert_int_equal(here.tile_n, rows[i].h200[0]);
    assert_int_equal(here.stages, rows[i].h200[1]);
    assert_int_equal(here.consumers, 1);
    assert_int_equal(here.split + there.split, 0);
  }
}

/* Whatever the tiles, heads and cards, configs are legal and no more bytes are asked for with more tiles. */
static void test_sm90_limit_bytes__more_tiles_take_no_longer_steps(void **state) {
  (void)state;
  for (int64_t columns = 64; columns <= 256; columns += 24) {
    int32_t last = INT32_MAX;
    for (int64_t heads = 72; heads <= 132; heads++) {
      const kjit_attention_problem problem = few_rows(1, heads, 16, 6000, columns);
      const kjit_attention_sm90_config config = chosen_on(&problem, H100_GB_S);
      kjit_error error;
      assert_status(KJIT_OK, sm90_config_check(&config, "sm_90a", &error), &error);
      assert_true(config.tile_n * config.stages <= last);
      last = config.tile_n * config.stages;
    }
  }
}

/* Tiles that share keys read them together, and masks leave tiles of different lengths. */
static void test_sm90_limit_bytes__other_tiles_are_left_alone(void **state) {
  (void)state;
  kjit_attention_problem shared = few_rows(2, 40, 100, 6000, 128), causal = few_rows(4, 20, 16, 5871, 128);
  const kjit_attention_problem rounds = few_rows(40, 8, 40, 900, 128), few_keys = few_rows(4, 20, 16, 200, 128),
                               short_rounds = few_rows(212, 8, 16, 402, 64), narrow = few_rows(18, 48, 16, 3725, 32);
  shared.heads_kv = 20;
  causal.flags = KJIT_ATTENTION_CAUSAL;
  assert_true(chosen_on(&shared, H200_GB_S).tile_n == 128);
  assert_int_equal(chosen_on(&causal, H200_GB_S).stages, 3);
  assert_int_equal(chosen_on(&rounds, H200_GB_S).tile_n, 64);
  assert_int_equal(chosen_on(&rounds, H100_GB_S).tile_n, 64);
  assert_int_equal(chosen_on(&few_keys, H200_GB_S).stages, 3);
  assert_int_equal(chosen_on(&short_rounds, H200_GB_S).tile_n, 128);
  assert_int_equal(chosen_on(&narrow, H200_GB_S).stages, 4);
}

/* Two rounds of narrow tiles take two stages of 128 keys with slow memory. */
static void test_sm90_limit_bytes__narrow_tiles_take_two_stages_with_slow_memory(void **state) {
  static const struct {
    int64_t batch, heads, seq_q, seq_kv, head_dim;
    int32_t h100, h200; /* stages */
  } rows[] = {{4, 32, 32, 19404, 40, 2, 4}, {2, 60, 30, 9000, 40, 2, 4},  {11, 20, 41, 7151, 48, 2, 4},
              {28, 4, 32, 6060, 56, 2, 4},  {15, 18, 32, 4000, 32, 4, 4}, {4, 32, 32, 19404, 24, 4, 4}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem =
        few_rows(rows[i].batch, rows[i].heads, rows[i].seq_q, rows[i].seq_kv, rows[i].head_dim);
    const kjit_attention_sm90_config there = chosen_on(&problem, H100_GB_S), here = chosen_on(&problem, H200_GB_S);
    assert_int_equal(there.stages, rows[i].h100);
    assert_int_equal(here.stages, rows[i].h200);
    assert_int_equal(there.tile_n, 128);
  }
}

/* Tiles of two consumers of which a few multiprocessors have a second one become pairs of half the rows. */
static void test_sm90_limit_bytes__few_second_tiles_are_halved_with_slow_memory(void **state) {
  static const struct {
    int64_t batch, heads, seq_q, seq_kv, head_dim;
    int32_t consumers, stages;
  } rows[] = {{6, 28, 78, 6991, 64, 1, 3},   {4, 40, 102, 6462, 64, 1, 3},  {4, 40, 108, 5477, 128, 1, 2},
              {5, 36, 90, 4500, 128, 1, 2},  {1, 96, 94, 17616, 64, 2, 2},  {1, 100, 90, 9000, 128, 2, 2},
              {19, 12, 86, 2567, 160, 2, 2}, {5, 24, 137, 13763, 64, 3, 2}, {19, 12, 86, 2567, 128, 2, 2}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem =
        few_rows(rows[i].batch, rows[i].heads, rows[i].seq_q, rows[i].seq_kv, rows[i].head_dim);
    const kjit_attention_sm90_config there = chosen_on(&problem, H100_GB_S), here = chosen_on(&problem, H200_GB_S);
    assert_int_equal(there.consumers, rows[i].consumers);
    assert_int_equal(there.stages, rows[i].stages);
    assert_int_equal(there.split, 0);
    assert_true(here.consumers > 1);
  }
}

static bool shares_on(const kjit_attention_problem *problem, uint32_t memory_gb_s) {
  const struct family_figures figures = {.memory_gb_s = memory_gb_s};
  const struct sm90_card card = sm90_card_of(132, &figures);
  const kjit_attention_sm90_config config = chosen_on(problem, memory_gb_s);
  return sm90_shares_lines(problem, &card, &config);
}

/* Lines of neighbouring heads are shared by tiles that memory bounds, where it is slow; not by those that share keys,
 * nor in short launches. */
static void test_sm90_shares_lines__tiles_that_slow_memory_bounds_do(void **state) {
  (void)state;
  const kjit_attention_problem one_round = few_rows(2, 48, 20, 6000, 96), rounds = few_rows(6, 40, 40, 2000, 96);
  const kjit_attention_problem shared = few_rows(2, 48, 200, 6000, 96), few_keys = few_rows(2, 48, 20, 800, 96);
  assert_true(shares_on(&one_round, H100_GB_S));
  assert_true(shares_on(&rounds, H100_GB_S));
  assert_false(shares_on(&one_round, H200_GB_S));
  assert_false(shares_on(&shared, H100_GB_S));
  assert_false(shares_on(&few_keys, H100_GB_S));
}

/* Little more than half of the multiprocessors read all that memory gives; with few keys, merging costs more. */
static void test_sm90_tiles_parts__tiles_that_read_alone_are_whole(void **state) {
  (void)state;
  const kjit_attention_problem half = few_rows(10, 8, 1, 1500, 64), short_keys = few_rows(7, 8, 1, 700, 64),
                               few = few_rows(5, 8, 1, 8000, 64), rest = few_rows(3, 48, 44, 5702, 96);
  assert_int_equal(sm90_chosen(&half, 132).split, 0);
  assert_int_equal(sm90_chosen(&short_keys, 132).split, 0);
  assert_int_equal(sm90_chosen(&few, 132).split, 1);
  assert_int_equal(sm90_chosen(&rest, 132).split, 1); /* 144 tiles: 12 alone in the second round */
}

/* With slow memory a second round of few tiles is no reason to part all of them, unless that gains much. */
static void test_sm90_tiles_parts__slow_memory_takes_rounds_of_whole_tiles(void **state) {
  (void)state;
  const kjit_attention_problem rows = few_rows(4, 40, 108, 5477, 128), one_round = few_rows(1, 40, 108, 5477, 128);
  const kjit_attention_problem one_consumer = few_rows(12, 16, 64, 10694, 64);
  const kjit_attention_sm90_config whole = chosen_on(&rows, H100_GB_S);
  assert_int_equal(whole.split, 0);
  assert_int_equal(chosen_on(&one_consumer, H100_GB_S).split, 0);
  assert_int_equal(chosen_on(&rows, H200_GB_S).split, 1);
  assert_int_equal(chosen_on(&one_round, H100_GB_S).split, 1);
  const kjit_attention_problem most_of_one = few_rows(1, 96, 78, 16043, 64), less = few_rows(1, 60, 78, 16043, 64);
  assert_int_equal(chosen_on(&most_of_one, H100_GB_S).split, 0);
  assert_int_equal(chosen_on(&less, H100_GB_S).split, 1);
}

/* 252 queries fill two tiles of 128 and hardly more than one of 192: 295 us with three consumers on an H200, 232 with
 * two and steps of 64 keys. */
static void test_sm90_choose__short_steps_of_two_consumers_are_compared(void **state) {
  (void)state;
  const kjit_attention_problem two = few_rows(512, 4, 252, 252, 152), long_queries = few_rows(64, 4, 2520, 2520, 152);
  const kjit_attention_sm90_config config = sm90_chosen(&two, 132);
  assert_int_equal(config.consumers, 2);
  assert_int_equal(config.tile_n, 64);
  assert_int_equal(sm90_chosen(&long_queries, 132).consumers, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_limit_bytes__steps_are_those_that_were_fastest),
      cmocka_unit_test(test_sm90_limit_bytes__more_tiles_take_no_longer_steps),
      cmocka_unit_test(test_sm90_limit_bytes__other_tiles_are_left_alone),
      cmocka_unit_test(test_sm90_limit_bytes__narrow_tiles_take_two_stages_with_slow_memory),
      cmocka_unit_test(test_sm90_limit_bytes__few_second_tiles_are_halved_with_slow_memory),
      cmocka_unit_test(test_sm90_shares_lines__tiles_that_slow_memory_bounds_do),
      cmocka_unit_test(test_sm90_tiles_parts__tiles_that_read_alone_are_whole),
      cmocka_unit_test(test_sm90_tiles_parts__slow_memory_takes_rounds_of_whole_tiles),
      cmocka_unit_test(test_sm90_choose__short_steps_of_two_consumers_are_compared),
  };
  return cmocka_run_group_tests_name("sm90_bytes", tests, NULL, NULL);
}
