/* What the planner changes in a dense problem's config so that it suits a variant of attention. */
#include "support/test.h"

#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "unit/attention/attention_problem.h"
#include "unit/attention/sm90/sm90_configs.h"

static void test_sm90_suit_variant__needs_get_what_suits_them(void **state) {
  (void)state;
  static const struct {
    int64_t head_dim;
    struct sm90_variant_needs needs;
    int32_t consumers, tile_n;
  } rows[] = {{64, {.is_narrow = false}, 3, 128},
              {64, {.is_narrow = true}, 2, 128},
              {64, {.is_narrow = true, .is_stepped = true}, 4, 64},
              {40, {.is_narrow = true, .is_stepped = true}, 4, 64},
              {32, {.is_narrow = true, .is_stepped = true}, 2, 128},
              {80, {.is_narrow = true, .is_stepped = true}, 2, 112},
              {64, {.is_narrow = true, .is_stepped = true, .is_scored = true}, 2, 128},
              {64, {.is_listed = true}, 4, 64},
              {64, {.is_listed = true, .is_scored = true}, 2, 128},
              {64, {.is_narrow = true, .is_listed = true, .is_mapped = true}, 4, 64},
              {64, {.is_narrow = true, .is_listed = true, .is_mapped = true, .is_scored = true}, 2, 128},
              {128, {.is_narrow = true, .is_listed = true, .is_mapped = true}, 2, 128},
              {128, {.is_listed = true, .is_curved = true}, 2, 128},
              {64, {.is_tiled = true}, 3, 80},
              {128, {.is_narrow = false}, 2, 128},
              {128, {.is_curved = true}, 3, 80},
              {128, {.is_tiled = true}, 2, 112},
              {64, {.gathered = 1}, 2, 112},
              {128, {.gathered = 1}, 2, 128},
              {256, {.gathered = 1}, 2, 64},
              {64, {.gathered = 2}, 2, 80},
              {128, {.gathered = 2, .is_curved = true}, 2, 80},
              {64, {.is_tiled = true, .is_staged = true}, 2, 128},
              {128, {.is_tiled = true, .is_staged = true}, 2, 128},
              {256, {.is_tiled = true, .is_staged = true}, 2, 64},
              {64, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 128},
              {80, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 128},
              {96, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 128},
              {128, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 128},
              {160, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 64},
              {192, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 64},
              {256, {.is_tiled = true, .is_staged = true, .is_boxed = true}, 2, 64},
              {128, {.is_narrow = true, .is_curved = true}, 2, 128},
              {256, {.is_narrow = true, .is_tiled = true, .is_curved = true}, 2, 64}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = kjit_attention_problem_default();
    problem.dtype = KJIT_BF16;
    problem.flags = KJIT_ATTENTION_CAUSAL;
    problem.batch = problem.heads_q = problem.heads_kv = 16;
    problem.seq_q = problem.seq_kv = 4096;
    problem.head_dim = problem.head_dim_v = rows[i].head_dim;
    kjit_attention_sm90_config config;
    kjit_error error = {0};
    assert_status(KJIT_OK, sm90_config_choose(&problem, 0, &config, &error), &error);
    sm90_suit_variant(&problem, &rows[i].needs, &config);
    assert_int_equal(config.consumers, rows[i].consumers);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_status(KJIT_OK, sm90_check(&config, &error), &error);
    if (rows[i].needs.is_boxed) assert_true(sm90_term_slots(&config) > 0);
  }
}

/* Measured with dense attention alone: of variants some lose by it. */
static void test_sm90_suit_variant__o_is_stored_through_q(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  problem.batch = problem.heads_q = problem.heads_kv = 16;
  problem.seq_q = problem.seq_kv = 512;
  problem.head_dim = problem.head_dim_v = 128;
  const struct sm90_variant_needs needs = {.is_narrow = true};
  kjit_attention_sm90_config config;
  kjit_error error = {0};
  assert_status(KJIT_OK, sm90_config_choose(&problem, 0, &config, &error), &error);
  assert_int_equal(config.o_chunks, 2);
  sm90_suit_variant(&problem, &needs, &config);
  assert_int_equal(config.q_buffers, 2);
  assert_int_equal(config.o_chunks, 0);
}

/* Dense attention takes two steps of so few keys with slow memory. A variant takes its own step, and no more consumers
 * than the queries fill. */
static void test_sm90_suit_variant__few_queries_take_no_consumer_that_they_do_not_fill(void **state) {
  (void)state;
  const struct sm90_card h100 = slow_card(132);
  const struct sm90_variant_needs needs = {.is_narrow = false};
  const kjit_attention_problem problem = problem_of(512, 16, 16, 128, 96, 96);
  kjit_attention_sm90_config config;
  kjit_error error = {0};
  assert_status(KJIT_OK, sm90_choose(&problem, &h100, &config, &error), &error);
  assert_int_equal(48, config.tile_n);
  sm90_suit_variant(&problem, &needs, &config);
  assert_int_equal(2, config.consumers);
  assert_in_range(config.tile_n, 64, 128);
}

/* Boxes of terms that a consumer's ring has: of two steps where there is room, of one and a half, and none where TMA
 * brings no terms. */
static void test_sm90_term_slots__are_those_that_fit(void **state) {
  (void)state;
  static const struct {
    kjit_attention_sm90_config config;
    int slots;
  } rows[] = {
      {{.head_dim = 64, .consumers = 2, .tile_n = 128, .q_buffers = 2}, 4},
      {{.head_dim = 128, .consumers = 2, .tile_n = 128, .q_buffers = 1, .o_chunks = 1}, 3},
      {{.head_dim = 128, .consumers = 2, .tile_n = 128, .q_buffers = 1}, 4},
      {{.head_dim = 128, .consumers = 2, .tile_n = 128, .q_buffers = 2}, 2},
      {{.head_dim = 128, .consumers = 2, .tile_n = 128, .q_buffers = 2, .o_chunks = 2}, 0},
      {{.head_dim = 128, .consumers = 2, .tile_n = 112, .q_buffers = 1}, 0},
      {{.head_dim = 256, .consumers = 2, .tile_n = 64, .q_buffers = 1}, 2},
      {{.head_dim = 64, .consumers = 3, .tile_n = 64, .q_buffers = 1}, 0},
      {{.head_dim = 64, .consumers = 1, .tile_n = 64, .q_buffers = 1, .packed = 4}, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_sm90_config config = rows[i].config;
    config.head_dim_v = config.head_dim;
    config.stages = 2;
    if (config.packed == 0) config.packed = 1;
    assert_int_equal(rows[i].slots, sm90_term_slots(&config));
  }
}

static int32_t consumers_of_lists(int64_t length, int64_t head_dim, int64_t heads) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.batch = 1;
  problem.heads_q = problem.heads_kv = heads;
  problem.seq_q = problem.seq_kv = length;
  problem.head_dim = problem.head_dim_v = head_dim;
  const struct sm90_variant_needs needs = {.is_listed = true};
  kjit_attention_sm90_config config;
  kjit_error error = {0};
  assert_status(KJIT_OK, sm90_config_choose(&problem, 0, &config, &error), &error);
  sm90_suit_variant(&problem, &needs, &config);
  return config.consumers;
}

static void test_sm90_suit_variant__long_lists_of_a_mask_have_large_tiles(void **state) {
  (void)state;
  assert_int_equal(3, consumers_of_lists(16384, 64, 32));
  assert_int_equal(4, consumers_of_lists(8192, 64, 32));
  assert_int_equal(2, consumers_of_lists(16384, 128, 32));
  assert_int_equal(2, consumers_of_lists(8192, 64, 8)); /* few tiles */
  assert_int_equal(2, consumers_of_lists(512, 64, 2048));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_suit_variant__needs_get_what_suits_them),
      cmocka_unit_test(test_sm90_term_slots__are_those_that_fit),
      cmocka_unit_test(test_sm90_suit_variant__long_lists_of_a_mask_have_large_tiles),
      cmocka_unit_test(test_sm90_suit_variant__few_queries_take_no_consumer_that_they_do_not_fill),
      cmocka_unit_test(test_sm90_suit_variant__o_is_stored_through_q)};
  return cmocka_run_group_tests_name("sm90_variant", tests, NULL, NULL);
}
