/* O's memory of its own: few keys of heads whose rows are no whole lines of L2. */
#include "support/test.h"

#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "unit/attention/sm90/sm90_configs.h"

static kjit_attention_problem few_keys(int64_t seq_q, int64_t seq_kv, int64_t head_dim) {
  kjit_attention_problem problem = sm90_problem(seq_q, head_dim, 0);
  problem.seq_kv = seq_kv;
  return problem;
}

/* So many heads of one batch entry each. */
static kjit_attention_problem pairs_of(int64_t pairs, int64_t seq_q, int64_t seq_kv, int64_t head_dim) {
  kjit_attention_problem problem = few_keys(seq_q, seq_kv, head_dim);
  problem.batch = pairs;
  problem.heads_q = problem.heads_kv = 1;
  return problem;
}

/* Two steps, so that the next tile's first product goes beside this tile's last; up to 80 columns three consumers. */
static void test_sm90_keep_output__few_keys_of_parts_of_lines_take_two_steps(void **state) {
  (void)state;
  static const struct {
    int64_t seq_kv, head_dim;
    int32_t consumers, tile_n, o_chunks;
  } rows[] = {{41, 120, 2, 32, 2}, {26, 96, 2, 32, 2}, {94, 160, 2, 48, 3}, {35, 176, 2, 32, 3},
              {19, 80, 3, 64, 2},  {43, 40, 3, 64, 1}, {64, 72, 3, 64, 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = few_keys(1539, rows[i].seq_kv, rows[i].head_dim);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
    assert_int_equal(config.consumers, rows[i].consumers);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.q_buffers, 2);
    assert_int_equal(config.o_chunks, rows[i].o_chunks);
  }
}

/* What was not measured to gain, or has no room, is stored through Q. */
static void test_sm90_keep_output__other_problems_store_through_q(void **state) {
  (void)state;
  const kjit_attention_problem whole_lines = few_keys(1539, 41, 64), many_keys = few_keys(1539, 129, 120),
                               wide = few_keys(1539, 65, 200), short_queries = few_keys(639, 41, 120);
  kjit_attention_problem few_tiles = few_keys(1539, 41, 120), causal = few_keys(1539, 41, 120);
  few_tiles.batch = few_tiles.heads_q = few_tiles.heads_kv = 4;
  causal.flags = KJIT_ATTENTION_CAUSAL;
  const kjit_attention_problem *const problems[] = {&whole_lines,   &many_keys, &wide,
                                                    &short_queries, &few_tiles, &causal};
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
    const kjit_attention_sm90_config config = sm90_chosen(problems[i], 132);
    assert_true(config.q_buffers == 1 || config.o_chunks == 0);
  }
}

/* Heads that share keys go side by side into tiles of three consumers, if as many fill a tile. */
static void test_sm90_keep_output__heads_that_share_keys_lie_side_by_side(void **state) {
  static const struct {
    int64_t group, head_dim;
    int32_t packed, consumers;
  } rows[] = {{4, 120, 4, 3}, {16, 40, 16, 3}, {2, 160, 2, 2}, {7, 120, 1, 2}, {32, 120, 1, 2}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = few_keys(1539, 41, rows[i].head_dim);
    problem.heads_kv = 4;
    problem.heads_q = rows[i].group * problem.heads_kv;
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
    assert_int_equal(config.packed, rows[i].packed);
    assert_int_equal(config.consumers, rows[i].consumers);
    assert_int_equal(config.tile_n, 32);
    assert_int_equal(config.o_chunks, (rows[i].head_dim + 63) / 64);
  }
}

/* Two steps of 128 columns, with slow memory, in place of attention_short_sm90's whole heads. */
static void test_sm90_keep_output__slow_memory_takes_two_steps_of_whole_lines(void **state) {
  const struct sm90_card h100 = slow_card(132), h200 = usual_card(132);
  static const struct {
    int64_t pairs, seq_q, seq_kv, head_dim;
    bool is_own;
    int32_t tile_n;
  } rows[] = {{4096, 128, 128, 128, true, 64}, {36, 21970, 71, 128, true, 48},  {10880, 85, 85, 128, true, 48},
              {112, 8738, 37, 128, true, 32},  {80, 11760, 23, 128, true, 16},  {112, 8738, 37, 64, false, 0},
              {1500, 128, 128, 128, false, 0}, {4096, 130, 128, 128, false, 0}, {8192, 128, 128, 64, false, 0},
              {4096, 128, 129, 128, false, 0}, {8192, 64, 64, 128, false, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = pairs_of(rows[i].pairs, rows[i].seq_q, rows[i].seq_kv, rows[i].head_dim);
    kjit_attention_sm90_config config;
    kjit_error error = {0};
    assert_int_equal(sm90_takes_few_keys(&problem, &h100), rows[i].is_own);
    assert_false(sm90_takes_few_keys(&problem, &h200));
    if (!rows[i].is_own) continue;
    assert_status(KJIT_OK, sm90_choose(&problem, &h100, &config, &error), &error);
    assert_int_equal(config.consumers, 2);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.o_chunks, 2);
  }
}

/* Heads of 64 and 128 columns under a causal mask take one step. */
static void test_sm90_keep_output__slow_memory_takes_one_step_of_a_triangle(void **state) {
  const struct sm90_card h100 = slow_card(132), h200 = usual_card(132);
  kjit_attention_problem problem = pairs_of(8192, 128, 128, 64);
  kjit_attention_sm90_config config;
  kjit_error error = {0};
  (void)state;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  assert_true(sm90_takes_few_keys(&problem, &h100));
  assert_false(sm90_takes_few_keys(&problem, &h200));
  assert_status(KJIT_OK, sm90_choose(&problem, &h100, &config, &error), &error);
  assert_int_equal(config.consumers, 2);
  assert_int_equal(config.tile_n, 128);
  assert_int_equal(config.o_chunks, 1);
  problem.head_dim = problem.head_dim_v = 128;
  assert_true(sm90_takes_few_keys(&problem, &h100));
  assert_status(KJIT_OK, sm90_choose(&problem, &h100, &config, &error), &error);
  assert_int_equal(config.tile_n, 128);
  assert_int_equal(config.o_chunks, 2);
  problem.seq_q = problem.seq_kv = 112;
  assert_false(sm90_takes_few_keys(&problem, &h100));
}

/* Two steps of 96 keys, of three consumers up to 112 columns; with slow memory not with 104 and 112. */
static void test_sm90_keep_output__long_heads_take_two_steps(void **state) {
  static const struct {
    int64_t head_dim, seq;
    bool is_own;
    int32_t consumers, o_chunks;
  } rows[] = {{128, 189, true, 2, 2}, {120, 173, true, 2, 2},  {112, 181, true, 3, 0},  {72, 189, true, 3, 0},
              {64, 189, false, 0, 0}, {128, 193, false, 0, 0}, {128, 160, false, 0, 0}, {136, 189, false, 0, 0}};
  const struct sm90_card h100 = slow_card(132), h200 = usual_card(132);
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = few_keys(rows[i].seq, rows[i].seq, rows[i].head_dim);
    problem.batch = 600;
    problem.heads_q = problem.heads_kv = 1;
    assert_int_equal(sm90_takes_long_heads(&problem, &h100), rows[i].is_own && rows[i].head_dim != 112);
    assert_int_equal(sm90_takes_long_heads(&problem, &h200), rows[i].is_own);
    if (!rows[i].is_own) continue;
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
    assert_int_equal(config.consumers, rows[i].consumers);
    assert_int_equal(config.tile_n, 96);
    assert_int_equal(config.o_chunks, rows[i].o_chunks);
  }
}

/* Few keys of many queries whose rows are no whole lines, whatever the memory, and one tile for each wide head with
 * slow memory. */
static void test_sm90_keep_output__steps_of_few_keys_are_short(void **state) {
  const struct sm90_card h100 = slow_card(132), h200 = usual_card(132);
  static const struct {
    int64_t pairs, seq_q, seq_kv, head_dim;
    int32_t consumers, tile_n, q_buffers, o_chunks;
    bool on_h200;
  } rows[] = {{240, 1200, 110, 72, 3, 64, 2, 2, true}, {384, 900, 120, 96, 3, 64, 2, 2, true},
              {400, 500, 90, 120, 2, 48, 2, 2, true},  {552, 1023, 119, 112, 2, 64, 2, 2, true},
              {64, 6145, 21, 232, 1, 32, 1, 4, true},  {48, 8000, 40, 248, 1, 64, 1, 4, true},
              {3840, 97, 97, 240, 2, 48, 1, 4, false}, {1920, 110, 110, 160, 2, 48, 1, 3, false},
              {4040, 96, 96, 128, 2, 48, 2, 2, false}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = pairs_of(rows[i].pairs, rows[i].seq_q, rows[i].seq_kv, rows[i].head_dim);
    kjit_attention_sm90_config config;
    kjit_error error = {0};
    assert_true(sm90_takes_few_keys(&problem, &h100));
    assert_int_equal(sm90_takes_few_keys(&problem, &h200), rows[i].on_h200);
    assert_status(KJIT_OK, sm90_choose(&problem, &h100, &config, &error), &error);
    assert_int_equal(config.consumers, rows[i].consumers);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.q_buffers, rows[i].q_buffers);
    assert_int_equal(config.o_chunks, rows[i].o_chunks);
  }
}

/* Steps of 64 keys of wide heads are shortened where they make a fifth more keys of them. */
static void test_sm90_choose__wide_heads_take_steps_that_few_keys_fill(void **state) {
  static const struct {
    int64_t keys;
    int32_t tile_n, stages;
  } rows[] = {{137, 48, 2}, {156, 32, 3}, {170, 64, 2}, {256, 64, 2}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = few_keys(845, rows[i].keys, 256);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.stages, rows[i].stages);
  }
}

/* Two steps, with slow memory, of heads whose rows are no whole lines, of which lines of 128 bytes are fetched. */
static void test_sm90_keep_output__slow_memory_takes_two_steps_of_parts_of_lines(void **state) {
  const struct sm90_card h100 = slow_card(132), h200 = usual_card(132);
  static const struct {
    int64_t pairs, group, seq, head_dim;
    int32_t tile_n; /* 0: not its own */
  } rows[] = {{7552, 1, 93, 96, 48},  {6400, 1, 100, 80, 64}, {15360, 1, 70, 72, 48},  {5120, 1, 110, 72, 64},
              {4680, 1, 75, 104, 48}, {3200, 1, 80, 120, 48}, {3840, 1, 120, 88, 0},   {3840, 1, 100, 104, 0},
              {4680, 1, 64, 96, 0},   {4680, 1, 129, 96, 0},  {2250, 2, 125, 72, 0},   {2000, 1, 93, 96, 0},
              {1000, 1, 93, 160, 0},  {7552, 1, 93, 40, 0},   {10000, 1, 128, 112, 64}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = pairs_of(rows[i].pairs, rows[i].seq, rows[i].seq, rows[i].head_dim);
    problem.heads_q = rows[i].group;
    kjit_attention_sm90_config config;
    kjit_error error = {0};
    assert_int_equal(sm90_takes_few_keys(&problem, &h100), rows[i].tile_n > 0);
    assert_false(sm90_takes_few_keys(&problem, &h200));
    assert_status(KJIT_OK, sm90_choose(&problem, &h100, &config, &error), &error);
    assert_int_equal(sm90_shares_lines(&problem, &h100, &config), rows[i].tile_n > 0);
    assert_false(sm90_shares_lines(&problem, &h200, &config));
    if (rows[i].tile_n == 0) continue;
    assert_int_equal(config.consumers, 2);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.stages, 2);
    assert_int_equal(config.q_buffers, 2);
    assert_int_equal(config.o_chunks, 2);
    config.tile_n = 32; /* three or four steps, which were not measured */
    assert_false(sm90_shares_lines(&problem, &h100, &config));
  }
}

/* Its steps are short because of O's memory, which a variant has not. */
static void test_sm90_suit_variant__few_keys_take_whole_steps(void **state) {
  (void)state;
  const struct sm90_variant_needs needs = {.is_narrow = false};
  const kjit_attention_problem problem = few_keys(4096, 41, 120);
  kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
  kjit_error error = {0};
  sm90_suit_variant(&problem, &needs, &config);
  assert_int_equal(config.consumers, 3);
  assert_int_equal(config.tile_n, 64);
  assert_int_equal(config.o_chunks, 0);
  assert_status(KJIT_OK, sm90_check(&config, &error), &error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_keep_output__few_keys_of_parts_of_lines_take_two_steps),
      cmocka_unit_test(test_sm90_keep_output__other_problems_store_through_q),
      cmocka_unit_test(test_sm90_keep_output__heads_that_share_keys_lie_side_by_side),
      cmocka_unit_test(test_sm90_keep_output__slow_memory_takes_two_steps_of_whole_lines),
      cmocka_unit_test(test_sm90_keep_output__steps_of_few_keys_are_short),
      cmocka_unit_test(test_sm90_choose__wide_heads_take_steps_that_few_keys_fill),
      cmocka_unit_test(test_sm90_keep_output__slow_memory_takes_two_steps_of_parts_of_lines),
      cmocka_unit_test(test_sm90_keep_output__slow_memory_takes_one_step_of_a_triangle),
      cmocka_unit_test(test_sm90_keep_output__long_heads_take_two_steps),
      cmocka_unit_test(test_sm90_suit_variant__few_keys_take_whole_steps),
  };
  return cmocka_run_group_tests_name("sm90_output", tests, NULL, NULL);
}
