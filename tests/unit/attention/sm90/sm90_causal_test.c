/* The planner of attention_sm90 for causal problems, whose tiles end at a diagonal, and for rows that are no whole
 * lines of L2: steps and consumers that were measured better than full attention's. */
#include "support/test.h"

#include "attention/sm90/sm90_choose.h"
#include "base/error.h"
#include "unit/attention/sm90/sm90_configs.h"

static void test_sm90_choose__short_causal_takes_smaller_tiles_at_64(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(512, 64, KJIT_ATTENTION_CAUSAL);
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 2); /* four tiles of 128 rows, or three of 192 */
  problem = sm90_problem(902, 64, KJIT_ATTENTION_CAUSAL);
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 3); /* eight, the last with six rows, or five */
  problem = sm90_problem(2048, 64, KJIT_ATTENTION_CAUSAL);
  assert_int_equal(sm90_chosen(&problem, 0).consumers, 3);
}

/* 258 queries are three tiles of 128 rows, of which the last two visit blocks that are mostly beyond the diagonal. */
static void test_sm90_choose__short_causal_takes_shorter_steps_at_128(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(258, 128, KJIT_ATTENTION_CAUSAL);
  assert_int_equal(sm90_chosen(&problem, 132).tile_n, 64);
  problem = sm90_problem(512, 128, KJIT_ATTENTION_CAUSAL);
  assert_int_equal(sm90_chosen(&problem, 132).tile_n, 128);
}

/* A chunk of a prefill sees nearly all keys, so that its tiles are as long as full attention's. */
static void test_sm90_choose__chunks_take_the_tiles_of_full_attention(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(190, 64, KJIT_ATTENTION_CAUSAL);
  problem.seq_kv = 1521;
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 3);
  problem = sm90_problem(6078, 168, 0);
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 3);
  problem = sm90_problem(6078, 176, 0); /* they would spill */
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 2);
}

static kjit_attention_problem chunk(int64_t batch, int64_t heads, int64_t seq_q, int64_t seq_kv) {
  return sm90_sized(sm90_problem(seq_kv, 64, KJIT_ATTENTION_CAUSAL), batch, heads, heads, seq_q);
}

/* 150 tiles of 128 rows are two rounds, though the shortest begin last; 120 of 192 rows are one. */
static void test_sm90_choose__a_few_tiles_beyond_a_round_cost_a_second_one(void **state) {
  (void)state;
  kjit_attention_problem problem = chunk(15, 2, 605, 2420);
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 3);
  problem = chunk(13, 2, 605, 2420); /* 130 tiles */
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 2);
  problem = chunk(2, 12, 1513, 3027); /* 192 tiles of 192 rows end sooner than 288 of 128 */
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 3);
  problem = chunk(8, 4, 395, 395); /* 224 of 64 sooner than 128 of 128 */
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 1);
}

/* Parts of causal tiles are less even than the planner reckons, so tiles for half of the card are not split. Tiles that
 * end last have all of the memory to themselves, so the last problem keeps two consumers. */
static void test_sm90_choose__causal_tiles_for_half_of_the_card_stay_whole(void **state) {
  (void)state;
  kjit_attention_problem problem = chunk(6, 1, 1574, 3148);
  assert_int_equal(sm90_chosen(&problem, 132).split, 0);
  problem = chunk(2, 6, 722, 2890);
  assert_int_equal(sm90_chosen(&problem, 132).split, 0);
  problem = chunk(1, 2, 722, 2890); /* 24 tiles of 64 rows */
  assert_int_equal(sm90_chosen(&problem, 132).split, 1);
  problem = chunk(56, 6, 101, 101);
  problem.head_dim = problem.head_dim_v = 256;
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 2);
}

/* Steps of 64 keys and three stages begin sooner than steps of 128, and leave less of the last one empty. Where steps
 * of 128 are as full, O's memory of its own gains more. */
static void test_sm90_choose__few_keys_take_short_steps(void **state) {
  (void)state;
  static const struct {
    int64_t keys;
    uint32_t flags;
    int32_t tile_n, stages;
  } rows[] = {{199, 0, 128, 2}, {256, 0, 128, 2}, {1024, 0, 128, 2}, {1024, KJIT_ATTENTION_CAUSAL, 128, 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = sm90_problem(rows[i].keys, 128, rows[i].flags);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
    assert_int_equal(config.consumers, 2);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.stages, rows[i].stages);
  }
}

/* Kernels of parts of more than 128 columns of V begin slowly: 18 us in place of 29 on an H100. */
static void test_sm90_choose__wide_heads_are_split_where_that_gains_much(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(123, 224, 0);
  problem.batch = 3;
  problem.heads_q = problem.heads_kv = 1;
  problem.seq_kv = 1016;
  assert_int_equal(sm90_chosen(&problem, 132).split, 0);
  problem.seq_kv = 10160;
  assert_int_equal(sm90_chosen(&problem, 132).split, 1);
  problem = sm90_problem(92, 208, 0);
  problem.batch = problem.heads_q = problem.heads_kv = 12; /* 144 tiles, of which 12 are a second round */
  problem.seq_kv = 3883;
  assert_int_equal(sm90_chosen(&problem, 132).split, 0);
}

/* Rows of 152 columns lie in two lines of L2 each, so that K and V are better read for 192 rows at a time. */
static void test_sm90_choose__rows_of_parts_of_lines_take_three_consumers(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(4209, 152, 0);
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_choose__short_causal_takes_smaller_tiles_at_64),
      cmocka_unit_test(test_sm90_choose__short_causal_takes_shorter_steps_at_128),
      cmocka_unit_test(test_sm90_choose__chunks_take_the_tiles_of_full_attention),
      cmocka_unit_test(test_sm90_choose__a_few_tiles_beyond_a_round_cost_a_second_one),
      cmocka_unit_test(test_sm90_choose__causal_tiles_for_half_of_the_card_stay_whole),
      cmocka_unit_test(test_sm90_choose__rows_of_parts_of_lines_take_three_consumers),
      cmocka_unit_test(test_sm90_choose__few_keys_take_short_steps),
      cmocka_unit_test(test_sm90_choose__wide_heads_are_split_where_that_gains_much),
  };
  return cmocka_run_group_tests_name("sm90_causal", tests, NULL, NULL);
}
