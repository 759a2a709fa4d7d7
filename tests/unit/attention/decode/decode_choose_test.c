/* The planner of attention_decode_sm90: whose problems it takes, that its configs are legal, and how runs are cut. */
#include <string.h>

#include "attention/decode/decode_choose.h"
#include "support/test.h"
#include "unit/attention/decode/decode_problem.h"

static kjit_status choose(const kjit_attention_problem *problem, kjit_attention_decode_sm90_config *config) {
  kjit_error error;
  return decode_choose(problem, &h200, config, &error);
}

static void test_decode_choose__few_rows_over_many_keys_are_its_own(void **state) {
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem mine = problem_of(1, 64, 8, 8, 256, 128);
  const kjit_attention_problem many_rows = problem_of(1, 64, 8, 9, 256, 128),
                               few_keys = problem_of(1, 8, 8, 1, 255, 128);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&mine, &config));
  assert_int_equal(64, config.rows);
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&many_rows, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&few_keys, &config));
}

/* A launch of one tile a head is the shortest here. */
static void test_decode_choose__one_query_of_few_narrow_heads_is_its_own(void **state) {
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem mine = problem_of(3, 8, 4, 1, 84, 64), few_keys = problem_of(3, 8, 4, 1, 64, 64),
                               wide = problem_of(3, 8, 4, 1, 84, 128), queries = problem_of(3, 8, 4, 2, 84, 64),
                               many = problem_of(99, 4, 4, 1, 84, 64);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&mine, &config));
  assert_int_equal(128, config.tile_n);
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&few_keys, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&wide, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&queries, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&many, &config));
  const kjit_attention_problem most = problem_of(2, 128, 64, 1, 174, 64),
                               more_keys = problem_of(2, 128, 64, 1, 209, 64);
  assert_int_equal(KJIT_OK, choose(&most, &config));
  assert_int_equal(208, config.tile_n);
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&more_keys, &config));
}

/* One step for up to 208 keys, which a thread has registers for. */
static void test_decode_choose__hardly_more_keys_than_a_step_are_one(void **state) {
  static const struct {
    int64_t keys, columns;
    int32_t tile_n;
  } expected[] = {{128, 64, 128}, {130, 64, 160}, {160, 64, 160}, {161, 64, 208},
                  {208, 64, 208}, {209, 64, 128}, {150, 40, 160}};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem = problem_of(7, 32, 2, 1, expected[i].keys, expected[i].columns);
    kjit_attention_decode_sm90_config config;
    kjit_error error = {0};
    assert_status(KJIT_OK, decode_choose(&problem, &h100, &config, &error), &error);
    assert_status(KJIT_OK, decode_check(&config, &error), &error);
    assert_int_equal(expected[i].tile_n, config.tile_n);
  }
}

/* Where attention_sm90 would give a few multiprocessors a second tile; 0 keys: not its own. */
static void test_decode_choose__few_second_tiles_go_side_by_side(void **state) {
  static const struct {
    int64_t batch, heads_q, heads_kv, seq_q, keys, columns;
    int32_t tile_n;
  } expected[] = {{7, 40, 20, 16, 11341, 64, 128}, {24, 12, 6, 28, 12907, 64, 128}, {31, 40, 5, 4, 11321, 64, 96},
                  {9, 20, 20, 40, 5000, 64, 96},   {4, 48, 48, 44, 10137, 64, 96},  {16, 14, 14, 44, 5000, 64, 0},
                  {9, 20, 20, 40, 5000, 128, 0},   {1, 100, 100, 40, 12000, 40, 0}, {11, 20, 20, 41, 7151, 48, 0},
                  {1, 96, 96, 44, 15379, 56, 0},   {2, 45, 45, 50, 9000, 48, 0},    {1, 80, 80, 40, 12000, 40, 128}};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem = problem_of(expected[i].batch, expected[i].heads_q, expected[i].heads_kv,
                                                      expected[i].seq_q, expected[i].keys, expected[i].columns);
    kjit_attention_decode_sm90_config config;
    kjit_error error = {0};
    const kjit_status status = decode_choose(&problem, &h100, &config, &error);
    assert_int_equal(expected[i].tile_n ? KJIT_OK : KJIT_ERR_UNSUPPORTED, status);
    if (status == KJIT_OK) assert_int_equal(expected[i].tile_n, config.tile_n);
  }
}

static void test_decode_choose__configs_of_every_head_size_are_legal(void **state) {
  (void)state;
  for (int64_t columns = 8; columns <= 256; columns += 8)
    for (int64_t group = 1; group <= (columns > 128 ? 16 : 64); group *= 4) {
      kjit_attention_decode_sm90_config config;
      kjit_error error;
      const kjit_attention_problem problem = problem_of(1, group, 1, 1, 4096, columns);
      assert_int_equal(KJIT_OK, choose(&problem, &config));
      assert_status(KJIT_OK, decode_check(&config, &error), &error);
    }
}

static void test_decode_choose__one_causal_query_is_a_full_problem(void **state) {
  kjit_attention_decode_sm90_config config;
  kjit_attention_problem problem = problem_of(1, 8, 1, 1, 4096, 128);
  (void)state;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  assert_int_equal(0, config.causal);
}

static uint32_t runs_of(int64_t batch, int64_t heads, int64_t keys) {
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem problem = problem_of(batch, 8 * heads, heads, 1, keys, 128);
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
  return decode_plan_of(&tiles, &config, &h200).runs;
}

static void test_decode_runs__end_where_tiles_end(void **state) {
  (void)state;
  assert_int_equal(256, runs_of(4, 8, 8192));
  assert_int_equal(240, runs_of(5, 8, 25872));
}

/* Where merging would take longer than it gains, or tiles fill many rounds. */
static void test_decode_runs__are_the_tiles_where_these_keep_memory_busy(void **state) {
  (void)state;
  assert_int_equal(168, runs_of(21, 8, 395));
  assert_int_equal(1024, runs_of(128, 8, 2048));
}

/* Of 132 multiprocessors 28 would read two tiles and the others one: 49 us on an H200, where memory needs 32. */
static void test_decode_runs__are_parts_where_multiprocessors_would_end_apart(void **state) {
  (void)state;
  assert_int_equal(4 * 160, runs_of(5, 32, 1521));
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem problem = problem_of(14, 12, 12, 1, 2343, 224);
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
  assert_int_equal(2 * 168, decode_plan_of(&tiles, &config, &h100).runs);
}

/* By steps of 128 keys two blocks of threads would run at a time on each multiprocessor, of three: 118 us on an H200,
 * where steps of 64 keys, all parts at once, take 106. Heads whose parts are all run at once keep steps of 128 keys. */
static void test_decode_choose__parts_of_64_columns_run_at_once(void **state) {
  (void)state;
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem uneven = problem_of(2, 28, 28, 1, 27075, 64), even = problem_of(1, 32, 32, 1, 63100, 64);
  assert_int_equal(KJIT_OK, choose(&uneven, &config));
  assert_int_equal(64, config.tile_n);
  const struct decode_tiles tiles = decode_tiles_of(&uneven, &config);
  const uint32_t runs = decode_plan_of(&tiles, &config, &h200).runs;
  assert_int_equal(7 * 56, runs);
  assert_true(runs <= h200.multiprocessors * (uint32_t)config.blocks_per_sm);
  assert_int_equal(KJIT_OK, choose(&even, &config));
  assert_int_equal(128, config.tile_n);
  assert_int_equal(2, config.blocks_per_sm);
}

/* Four tiles more than the card takes at a time would work alone on a second round of long caches. */
static void test_decode_runs__cross_tiles_where_a_last_round_is_nearly_empty(void **state) {
  (void)state;
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem problem = problem_of(67, 16, 2, 1, 32768, 256);
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
  assert_int_equal(134, tiles.count);
  assert_int_equal(132, decode_plan_of(&tiles, &config, &h200).runs);
}

static void test_decode_runs__of_few_keys_are_the_tiles_or_key_blocks(void **state) {
  (void)state;
  assert_int_equal(1, runs_of(1, 1, 257));
  assert_int_equal(16, runs_of(1, 1, 1000)); /* a key block each */
}

static void test_decode_plan__takes_as_long_as_the_cards_memory(void **state) {
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem problem = problem_of(5, 64, 8, 1, 8192, 128);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&problem, &config));
  const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
  const int64_t there = decode_plan_of(&tiles, &config, &h100).time, here = decode_plan_of(&tiles, &config, &h200).time;
  assert_in_range(there * 100 / here, 135, 150);
}

static void test_decode_choose__more_than_half_a_tile_of_wide_rows_is_not_its_own(void **state) {
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem half = problem_of(7, 1, 1, 32, 62245, 192), more = problem_of(7, 1, 1, 33, 62245, 192),
                               narrow = problem_of(7, 1, 1, 33, 62245, 128);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&half, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&more, &config));
  assert_int_equal(KJIT_OK, choose(&narrow, &config));
}

static void test_decode_choose__rows_of_many_heads_are_not_its_own(void **state) {
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem many = problem_of(60, 32, 32, 61, 307, 128), few = problem_of(1, 32, 32, 61, 607, 128),
                               one = problem_of(60, 32, 32, 1, 307, 128);
  (void)state;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&many, &config));
  assert_int_equal(KJIT_OK, choose(&few, &config));
  assert_int_equal(KJIT_OK, choose(&one, &config));
}

/* What 21 bytes a ns for a multiprocessor, in place of 30, make another choice of. */
static void test_decode_choose__slow_memory_wants_few_bytes_on_their_way(void **state) {
  static const struct {
    int64_t batch, heads, rows, keys, columns;
    int32_t tile_n, stages, blocks_per_sm;
  } expected[] = {
      {3, 8, 4, 23583, 152, 48, 2, 1},   {1, 40, 8, 7070, 192, 48, 2, 1},   {139, 20, 16, 300, 120, 48, 2, 2},
      {15, 32, 8, 2063, 72, 128, 2, 1},  {4, 16, 4, 52760, 32, 48, 2, 4},   {25, 4, 2, 21260, 40, 48, 2, 3},
      {4, 32, 1, 6000, 120, 48, 2, 1},   {1, 48, 1, 20192, 104, 32, 2, 3},  {2, 48, 1, 11615, 104, 32, 2, 3},
      {1, 104, 1, 11615, 104, 64, 2, 1}, {3, 24, 4, 18843, 72, 48, 2, 2},   {11, 16, 2, 6400, 72, 48, 2, 2},
      {11, 32, 16, 1553, 72, 32, 2, 3},  {2, 96, 1, 6030, 64, 64, 2, 2},    {1, 48, 1, 36294, 64, 64, 2, 2},
      {25, 12, 4, 5502, 64, 48, 2, 3},   {22, 64, 1, 511, 64, 64, 2, 3},    {3, 12, 1, 7771, 128, 64, 2, 2},
      {1, 20, 1, 36874, 128, 64, 2, 2},  {1, 48, 15, 11792, 216, 48, 2, 1}, {1, 24, 2, 14674, 232, 32, 2, 1},
      {1, 40, 1, 7613, 256, 32, 2, 1},   {2, 4, 1, 2000, 256, 64, 2, 1},    {48, 32, 1, 1419, 40, 32, 2, 2},
      {1, 32, 8, 19595, 168, 32, 2, 1}};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    kjit_attention_decode_sm90_config config;
    kjit_error error = {0};
    const kjit_attention_problem problem = problem_of(expected[i].batch, expected[i].heads, expected[i].heads,
                                                      expected[i].rows, expected[i].keys, expected[i].columns);
    assert_status(KJIT_OK, decode_choose(&problem, &h100, &config, &error), &error);
    assert_int_equal(expected[i].tile_n, config.tile_n);
    assert_int_equal(expected[i].stages, config.stages);
    assert_int_equal(expected[i].blocks_per_sm, config.blocks_per_sm);
  }
}

/* Their blocks of threads wait for each step, whatever the memory. */
static void test_decode_choose__short_launches_take_long_steps(void **state) {
  const kjit_attention_problem few_parts = problem_of(14, 4, 1, 1, 1962, 64),
                               long_keys = problem_of(24, 1, 1, 1, 11181, 64),
                               wide = problem_of(11, 64, 4, 1, 662, 128);
  const kjit_attention_problem *const problems[] = {&few_parts, &long_keys, &wide};
  (void)state;
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
    kjit_attention_decode_sm90_config here, there;
    kjit_error error = {0};
    assert_int_equal(KJIT_OK, choose(problems[i], &here));
    assert_status(KJIT_OK, decode_choose(problems[i], &h100, &there, &error), &error);
    assert_int_equal(128, there.tile_n);
    assert_memory_equal(&here, &there, sizeof here);
  }
}

/* Does the config that is chosen for a problem on a card share lines with the runs that are planned? */
static bool shares_lines(const kjit_attention_problem *problem, const struct decode_card *card) {
  kjit_attention_decode_sm90_config config;
  kjit_error error = {0};
  assert_status(KJIT_OK, decode_choose(problem, card, &config, &error), &error);
  const struct decode_tiles tiles = decode_tiles_of(problem, &config);
  return decode_shares_lines(&tiles, &config, decode_plan_of(&tiles, &config, card).runs, card->multiprocessors);
}

/* On an H200 72 and 80 columns are slower with lines that are shared, on an H100 faster. */
static void test_decode_choose__lines_are_shared_where_memory_is_slow(void **state) {
  (void)state;
  for (int64_t columns = 72; columns <= 120; columns += 8) {
    const kjit_attention_problem problem = problem_of(11, 16, 16, 2, 6400, columns);
    assert_false(shares_lines(&problem, &h200));
    assert_true(shares_lines(&problem, &h100));
  }
}

/* Neighbouring heads are read at the same places by runs that begin together, not by those of a second round. */
static void test_decode_choose__lines_are_shared_by_runs_that_go_side_by_side(void **state) {
  const kjit_attention_problem two_rounds = problem_of(15, 32, 32, 8, 2063, 72),
                               at_once = problem_of(11, 32, 32, 16, 1553, 72),
                               many_rounds = problem_of(375, 12, 6, 1, 602, 80);
  (void)state;
  assert_false(shares_lines(&two_rounds, &h100));
  assert_true(shares_lines(&at_once, &h100));
  assert_true(shares_lines(&many_rounds, &h100));
}

static void test_decode_choose__runs_that_cross_tiles_share_no_lines(void **state) {
  const struct decode_tiles tiles = {1, 200, 70};
  const kjit_attention_decode_sm90_config config = {
      .dtype = KJIT_BF16, .head_dim = 88, .head_dim_v = 88, .rows = 16, .tile_n = 64, .stages = 2, .blocks_per_sm = 1};
  (void)state;
  assert_false(decode_shares_lines(&tiles, &config, 132, 132));
  assert_false(decode_shares_lines(&tiles, &config, 200, 132));
  assert_true(decode_shares_lines(&tiles, &config, 200, 264));
}

/* Runs that end inside of tiles of heads of half a line each would fetch lines twice. */
static void test_decode_choose__narrow_tiles_stay_whole_with_slow_memory(void **state) {
  (void)state;
  const kjit_attention_problem problem = problem_of(17, 12, 12, 8, 13076, 32);
  kjit_attention_decode_sm90_config config;
  kjit_error error;
  assert_int_equal(KJIT_OK, decode_choose(&problem, &h100, &config, &error));
  assert_int_equal(48, config.tile_n);
  assert_int_equal(4, config.blocks_per_sm);
  const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
  assert_int_equal(2 * 204, decode_plan_of(&tiles, &config, &h100).runs);
}

/* Slow memory has enough on its way by tiles that are not cut; by 144 of them with longer steps. */
static void test_decode_choose__with_slow_memory_tiles_beyond_one_round_stay_whole(void **state) {
  (void)state;
  static const struct {
    int64_t batch, heads, queries, keys, columns;
    int32_t tile_n, blocks_per_sm;
  } expected[] = {{7, 24, 4, 9825, 64, 64, 2},   {41, 4, 1, 2814, 64, 64, 2},   {3, 48, 8, 7984, 64, 96, 2},
                  {17, 12, 8, 5000, 104, 32, 3}, {17, 12, 8, 8000, 72, 32, 3},  {11, 24, 1, 4321, 112, 48, 2},
                  {6, 28, 1, 6000, 128, 48, 2},  {10, 24, 1, 5000, 128, 48, 2}, {6, 24, 8, 4000, 104, 48, 2}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const int64_t heads = expected[i].heads;
    const kjit_attention_problem problem =
        problem_of(expected[i].batch, heads, heads, expected[i].queries, expected[i].keys, expected[i].columns);
    kjit_attention_decode_sm90_config config;
    kjit_error error;
    assert_status(KJIT_OK, decode_choose(&problem, &h100, &config, &error), &error);
    assert_int_equal(expected[i].tile_n, config.tile_n);
    assert_int_equal(expected[i].blocks_per_sm, config.blocks_per_sm);
    const struct decode_tiles tiles = decode_tiles_of(&problem, &config);
    assert_int_equal(tiles.count, decode_plan_of(&tiles, &config, &h100).runs);
  }
}

static void test_decode_choose__with_slow_memory_many_rows_are_not_its_own(void **state) {
  kjit_attention_decode_sm90_config config;
  kjit_error error = {0};
  const kjit_attention_problem many = problem_of(2, 6, 6, 50, 2439, 96), half = problem_of(2, 6, 6, 32, 2439, 96);
  (void)state;
  assert_int_equal(KJIT_OK, choose(&many, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, decode_choose(&many, &h100, &config, &error));
  assert_int_equal(KJIT_OK, decode_choose(&half, &h100, &config, &error));
}

/* Sixteen query heads of a key head: of 128 columns packed into tiles of attention_sm90. */
static void test_decode_choose__sixteen_rows_of_many_narrow_heads_are_its_own(void **state) {
  static const struct {
    int64_t batch, keys;
    int32_t tile_n, blocks_per_sm;
  } expected[] = {{224, 243, 64, 3}, {100, 600, 64, 3}, {133, 600, 48, 4}};
  kjit_attention_decode_sm90_config config;
  const kjit_attention_problem more = problem_of(224, 51, 3, 1, 243, 64), few_keys = problem_of(224, 48, 3, 1, 32, 64),
                               few_heads = problem_of(32, 64, 4, 1, 4096, 64),
                               wide = problem_of(224, 48, 3, 1, 243, 128),
                               long_keys = problem_of(44, 48, 3, 1, 1500, 64);
  kjit_error error = {0};
  (void)state;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const kjit_attention_problem problem = problem_of(expected[i].batch, 48, 3, 1, expected[i].keys, 64);
    assert_int_equal(KJIT_OK, choose(&problem, &config));
    assert_int_equal(2, config.stages);
    assert_int_equal(expected[i].tile_n, config.tile_n);
    assert_int_equal(expected[i].blocks_per_sm, config.blocks_per_sm);
  }
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&more, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&few_keys, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&few_heads, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&wide, &config));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, choose(&long_keys, &config));
  assert_int_equal(KJIT_OK, decode_choose(&long_keys, &h100, &config, &error));
  assert_int_equal(2, config.blocks_per_sm);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_choose__few_rows_over_many_keys_are_its_own),
      cmocka_unit_test(test_decode_choose__one_query_of_few_narrow_heads_is_its_own),
      cmocka_unit_test(test_decode_choose__hardly_more_keys_than_a_step_are_one),
      cmocka_unit_test(test_decode_choose__few_second_tiles_go_side_by_side),
      cmocka_unit_test(test_decode_choose__configs_of_every_head_size_are_legal),
      cmocka_unit_test(test_decode_choose__one_causal_query_is_a_full_problem),
      cmocka_unit_test(test_decode_runs__end_where_tiles_end),
      cmocka_unit_test(test_decode_runs__are_the_tiles_where_these_keep_memory_busy),
      cmocka_unit_test(test_decode_runs__are_parts_where_multiprocessors_would_end_apart),
      cmocka_unit_test(test_decode_choose__parts_of_64_columns_run_at_once),
      cmocka_unit_test(test_decode_runs__cross_tiles_where_a_last_round_is_nearly_empty),
      cmocka_unit_test(test_decode_runs__of_few_keys_are_the_tiles_or_key_blocks),
      cmocka_unit_test(test_decode_plan__takes_as_long_as_the_cards_memory),
      cmocka_unit_test(test_decode_choose__more_than_half_a_tile_of_wide_rows_is_not_its_own),
      cmocka_unit_test(test_decode_choose__rows_of_many_heads_are_not_its_own),
      cmocka_unit_test(test_decode_choose__slow_memory_wants_few_bytes_on_their_way),
      cmocka_unit_test(test_decode_choose__short_launches_take_long_steps),
      cmocka_unit_test(test_decode_choose__lines_are_shared_where_memory_is_slow),
      cmocka_unit_test(test_decode_choose__lines_are_shared_by_runs_that_go_side_by_side),
      cmocka_unit_test(test_decode_choose__runs_that_cross_tiles_share_no_lines),
      cmocka_unit_test(test_decode_choose__with_slow_memory_many_rows_are_not_its_own),
      cmocka_unit_test(test_decode_choose__narrow_tiles_stay_whole_with_slow_memory),
      cmocka_unit_test(test_decode_choose__with_slow_memory_tiles_beyond_one_round_stay_whole),
      cmocka_unit_test(test_decode_choose__sixteen_rows_of_many_narrow_heads_are_its_own),
  };
  return cmocka_run_group_tests_name("decode_choose", tests, NULL, NULL);
}
