/* The planner of attention_short_sm90: whose problems it takes, and that its configs are legal. */
#include <string.h>

#include "attention/short/short_choose.h"
#include "support/test.h"
#include "support/usual_card.h"

enum { MULTIPROCESSORS = 132 };

static kjit_attention_problem problem_of(int64_t pairs, int64_t seq_q, int64_t seq_kv, int64_t head_dim) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.batch = pairs;
  problem.heads_q = problem.heads_kv = 1;
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  problem.head_dim = problem.head_dim_v = head_dim;
  return problem;
}

static kjit_status choose(const kjit_attention_problem *problem, kjit_attention_short_sm90_config *config) {
  kjit_error error = {0};
  const struct sm90_card card = usual_card(MULTIPROCESSORS);
  return short_choose(problem, &card, config, &error);
}

static void test_short_choose__few_keys_of_many_heads_are_its_own(void **state) {
  kjit_attention_short_sm90_config config;
  const kjit_attention_problem mine = problem_of(512, 128, 128, 64), many_keys = problem_of(512, 128, 257, 64),
                               few_tiles = problem_of(65, 128, 128, 64);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&mine, &config));
  assert_int_equal(128, config.tile_n);
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&many_keys, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&few_tiles, &config));
}

/* Packed into a tile's rows they are done sooner, by attention_sm90. */
static void test_short_choose__few_queries_of_grouped_heads_are_not_its_own(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_attention_problem problem = problem_of(1024, 20, 128, 64);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  problem.heads_q = 8;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&problem, &config));
  problem.seq_q = 128;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
}

/* Five tiles for eight are no gain where there are many. */
static void test_short_choose__many_tiles_are_packed_where_half_are_left(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_attention_problem problem = problem_of(400, 78, 78, 64);
  (void)state;
  problem.heads_q = 12;
  problem.heads_kv = 3;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  problem.batch = 10;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&problem, &config));
  problem.batch = 400;
  problem.seq_q = 32;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&problem, &config));
  problem.seq_q = 78;
  problem.head_dim = problem.head_dim_v = 200;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&problem, &config));
}

/* Two tiles of Q in shared memory are one of each of two warpgroups, or two of one. */
static void test_short_choose__two_warpgroups_go_before_two_tiles_of_q(void **state) {
  kjit_attention_short_sm90_config config;
  const kjit_attention_problem few = problem_of(64, 178, 178, 128), many = problem_of(64, 1171, 49, 256);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&few, &config));
  assert_int_equal(2, config.consumers);
  assert_int_equal(1, config.q_buffers);
  assert_int_equal(KJIT_OK, choose(&many, &config));
  assert_int_equal(1, config.consumers);
  assert_int_equal(3, config.q_buffers);
}

static void test_short_choose__many_queries_of_rows_that_are_no_whole_lines_are_not_its_own(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_attention_problem problem = problem_of(159, 885, 28, 80);
  (void)state;
  problem.heads_q = 8;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&problem, &config));
  problem.seq_kv = 129;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  problem.seq_kv = 28;
  problem.head_dim = problem.head_dim_v = 64;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
}

static void test_short_choose__few_keys_of_wide_parts_of_lines_are_not_its_own(void **state) {
  kjit_attention_short_sm90_config config;
  const kjit_attention_problem mine = problem_of(352, 1539, 129, 120), few_keys = problem_of(352, 1539, 41, 120),
                               whole_lines = problem_of(352, 1539, 41, 128), wide = problem_of(352, 1539, 65, 200),
                               few_queries = problem_of(352, 639, 41, 120), few_tiles = problem_of(42, 1539, 41, 120);
  (void)state;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&few_keys, &config));
  assert_int_equal(KJIT_OK, choose(&mine, &config));
  assert_int_equal(KJIT_OK, choose(&whole_lines, &config));
  assert_int_equal(KJIT_OK, choose(&wide, &config));
  assert_int_equal(KJIT_OK, choose(&few_queries, &config));
  assert_int_equal(KJIT_OK, choose(&few_tiles, &config));
}

/* One tile of Q for each of two warpgroups is all that fits. */
static void test_short_choose__many_starved_heads_are_not_its_own(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_attention_problem many = problem_of(624, 187, 187, 72), few = problem_of(64, 178, 178, 128),
                         two_tiles = problem_of(624, 128, 187, 72), full = problem_of(624, 187, 187, 72);
  (void)state;
  many.flags = few.flags = two_tiles.flags = KJIT_ATTENTION_CAUSAL;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&many, &config));
  assert_int_equal(KJIT_OK, choose(&few, &config));
  assert_int_equal(KJIT_OK, choose(&two_tiles, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&full, &config));
  const kjit_attention_problem fewer_keys = problem_of(624, 160, 160, 72), few_heads = problem_of(64, 187, 187, 72),
                               narrow = problem_of(624, 187, 187, 64);
  assert_int_equal(KJIT_OK, choose(&fewer_keys, &config));
  assert_int_equal(KJIT_OK, choose(&few_heads, &config));
  assert_int_equal(KJIT_OK, choose(&narrow, &config));
}

/* Scores of 256 keys take all registers that ptxas gives a thread of three consumers. */
static void test_short_choose__many_keys_of_wide_heads_get_two_consumers(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_attention_problem problem = problem_of(931, 252, 252, 128);
  (void)state;
  problem.heads_q = 4;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  assert_int_equal(2, config.consumers);
  assert_int_equal(3, config.q_buffers);
}

/* So many queries of parts of lines leave L2 no room for two heads' keys, with slow memory. */
static void test_short_choose__slow_memory_keeps_one_heads_keys(void **state) {
  const struct sm90_card h100 = slow_card(MULTIPROCESSORS), h200 = usual_card(MULTIPROCESSORS);
  const kjit_attention_problem problem = problem_of(1664, 1108, 85, 72);
  kjit_attention_short_sm90_config config;
  kjit_error error = {0};
  (void)state;
  assert_status(KJIT_OK, short_choose(&problem, &h100, &config, &error), &error);
  assert_int_equal(3, config.consumers);
  assert_int_equal(1, config.stages);
  assert_int_equal(2, config.q_buffers);
  assert_status(KJIT_OK, short_choose(&problem, &h200, &config, &error), &error);
  assert_int_equal(2, config.stages);
}

static void test_short_choose__configs_of_every_size_are_legal(void **state) {
  (void)state;
  for (int64_t columns = 8; columns <= 256; columns += 8)
    for (int64_t keys = 1; keys <= 256; keys += 15) {
      kjit_attention_short_sm90_config config;
      kjit_error error = {0};
      const kjit_attention_problem problem = problem_of(1024, 256, keys, columns);
      if (choose(&problem, &config) != KJIT_OK) {
        assert_true(keys * columns > 80 * 160); /* shared memory or registers are too few */
        continue;
      }
      assert_status(KJIT_OK, short_check(&config, &error), &error);
      assert_in_range(config.tile_n - keys, 0, 15);
    }
}

static void test_short_check__a_config_of_too_many_registers_is_refused(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_error error = {0};
  const kjit_attention_problem problem = problem_of(1024, 128, 128, 64);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  config.consumers = config.blocks_per_sm = 4;
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, short_check(&config, &error));
  assert_non_null(strstr(error.message, "registers"));
}

static void test_short_choose__wide_heads_get_no_three_consumers(void **state) {
  kjit_attention_short_sm90_config config;
  kjit_error error = {0};
  const kjit_attention_problem problem = problem_of(1024, 129, 9, 200);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  assert_in_range(config.consumers, 1, 2);
  config.consumers = 3;
  config.blocks_per_sm = 1;
  assert_int_equal(KJIT_ERR_INVALID_CONFIG, short_check(&config, &error));
  assert_non_null(strstr(error.message, "head_dim_v is 200: must be at most 192 with consumers 3"));
}

/* Memory that gives a multiprocessor little wants few bytes on their way, of launches and tiles that it bounds. */
static void test_short_choose__slow_memory_takes_heads_alone_or_one_block(void **state) {
  const struct sm90_card h100 = slow_card(MULTIPROCESSORS);
  static const struct {
    int64_t pairs, seq_q, seq_kv;
    int32_t blocks_per_sm, stages;
  } expected[] = {{8192, 128, 128, 4, 1},
                  {2200, 128, 128, 4, 1},
                  {2000, 128, 128, 2, 2},
                  {8192, 96, 96, 2, 3},
                  {4096, 200, 128, 1, 2}};
  (void)state;
  kjit_attention_problem triangle = problem_of(8192, 128, 128, 64);
  kjit_attention_short_sm90_config config;
  triangle.flags = KJIT_ATTENTION_CAUSAL;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, short_choose(&triangle, &h100, &config, NULL));
  assert_int_equal(KJIT_OK, choose(&triangle, &config));
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem = problem_of(expected[i].pairs, expected[i].seq_q, expected[i].seq_kv, 64);
    kjit_attention_short_sm90_config here, there;
    kjit_error error = {0};
    assert_status(KJIT_OK, short_choose(&problem, &h100, &there, &error), &error);
    assert_int_equal(expected[i].blocks_per_sm, there.blocks_per_sm);
    assert_int_equal(expected[i].stages, there.stages);
    assert_int_equal(KJIT_OK, choose(&problem, &here));
    assert_int_equal(2, here.blocks_per_sm);
  }
}

/* Rows of heads that lie side by side share lines, which L2 keeps where each block has one head. */
static void test_short_choose__with_slow_memory_parts_of_lines_are_read_side_by_side(void **state) {
  const struct sm90_card h100 = slow_card(MULTIPROCESSORS), h200 = usual_card(MULTIPROCESSORS);
  static const struct {
    int64_t pairs, seq, head_dim;
    bool is_beside;
  } expected[] = {{3840, 120, 88, true},  {3840, 100, 104, true}, {640, 128, 72, true},  {5120, 64, 72, false},
                  {3840, 160, 88, false}, {640, 110, 96, false},  {320, 80, 104, false}, {3392, 77, 184, true},
                  {5904, 80, 160, true},  {1000, 104, 160, false}};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem =
        problem_of(expected[i].pairs, expected[i].seq, expected[i].seq, expected[i].head_dim);
    kjit_attention_short_sm90_config here, there;
    kjit_error error = {0};
    assert_status(KJIT_OK, short_choose(&problem, &h100, &there, &error), &error);
    assert_status(KJIT_OK, short_choose(&problem, &h200, &here, &error), &error);
    const bool is_beside =
        there.consumers == 1 && there.stages == 1 && there.q_buffers == 2 && there.blocks_per_sm == 2;
    assert_int_equal(expected[i].is_beside, is_beside);
    assert_int_equal(expected[i].is_beside, short_shares_lines(&problem, &h100, &there));
    assert_false(short_shares_lines(&problem, &h200, &here));
    assert_false(here.stages == 1 && here.blocks_per_sm == 2);
  }
}

/* One head for each block of threads leaves wide queries no room for two tiles. */
static void test_short_choose__with_slow_memory_wide_queries_are_not_refused(void **state) {
  const struct sm90_card h100 = slow_card(MULTIPROCESSORS);
  kjit_attention_problem problem = problem_of(4800, 120, 120, 136);
  kjit_attention_short_sm90_config config;
  kjit_error error = {0};
  (void)state;
  problem.head_dim_v = 64;
  assert_status(KJIT_OK, short_choose(&problem, &h100, &config, &error), &error);
  assert_in_range(config.consumers, 2, 4);
}

/* Two steps by attention_sm90 have less on their way. */
static void test_short_choose__with_slow_memory_many_parts_of_lines_are_not_its_own(void **state) {
  const struct sm90_card h100 = slow_card(MULTIPROCESSORS);
  kjit_attention_short_sm90_config config;
  kjit_error error = {0};
  const kjit_attention_problem problem = problem_of(7552, 93, 93, 96);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, short_choose(&problem, &h100, &config, &error));
  assert_non_null(strstr(error.message, "many tiles of so few keys with 96 columns"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_short_choose__with_slow_memory_many_parts_of_lines_are_not_its_own),
      cmocka_unit_test(test_short_choose__with_slow_memory_parts_of_lines_are_read_side_by_side),
      cmocka_unit_test(test_short_choose__with_slow_memory_wide_queries_are_not_refused),
      cmocka_unit_test(test_short_choose__few_keys_of_many_heads_are_its_own),
      cmocka_unit_test(test_short_choose__few_queries_of_grouped_heads_are_not_its_own),
      cmocka_unit_test(test_short_choose__many_tiles_are_packed_where_half_are_left),
      cmocka_unit_test(test_short_choose__two_warpgroups_go_before_two_tiles_of_q),
      cmocka_unit_test(test_short_choose__many_queries_of_rows_that_are_no_whole_lines_are_not_its_own),
      cmocka_unit_test(test_short_choose__few_keys_of_wide_parts_of_lines_are_not_its_own),
      cmocka_unit_test(test_short_choose__many_starved_heads_are_not_its_own),
      cmocka_unit_test(test_short_choose__many_keys_of_wide_heads_get_two_consumers),
      cmocka_unit_test(test_short_choose__slow_memory_keeps_one_heads_keys),
      cmocka_unit_test(test_short_choose__configs_of_every_size_are_legal),
      cmocka_unit_test(test_short_choose__wide_heads_get_no_three_consumers),
      cmocka_unit_test(test_short_check__a_config_of_too_many_registers_is_refused),
      cmocka_unit_test(test_short_choose__slow_memory_takes_heads_alone_or_one_block),
  };
  return cmocka_run_group_tests_name("short_choose", tests, NULL, NULL);
}
