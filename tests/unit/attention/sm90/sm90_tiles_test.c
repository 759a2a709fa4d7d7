/* How a problem is cut: pure arithmetic. */
#include "attention/sm90/sm90_tiles.h"

#include "attention/sm90/sm90_config.h"
#include "support/test.h"
#include "unit/attention/attention_problem.h"
#include "unit/attention/sm90/sm90_configs.h"

#define SM_COUNT 132

static struct sm90_tiles cut(const kjit_attention_problem *problem, int32_t packed, int32_t consumers) {
  kjit_attention_sm90_config config = sm90_base();
  config.packed = packed;
  config.consumers = consumers;
  return sm90_tiles_of(problem, &config);
}

static int64_t parts_of(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config) {
  const struct sm90_card card = usual_card(SM_COUNT);
  return sm90_tiles_parts(tiles, config, &card);
}

static int64_t parts(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq_q, int64_t seq_kv, int32_t packed) {
  const kjit_attention_problem problem = problem_of(batch, heads_q, heads_kv, seq_q, seq_kv, 128);
  kjit_attention_sm90_config config = sm90_base();
  config.packed = packed;
  config.consumers = 1;
  const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
  return parts_of(&tiles, &config);
}

static void test_sm90_tiles__rows_are_positions(void **state) {
  (void)state;
  const kjit_attention_problem problem = problem_of(2, 6, 2, 1000, 700, 128);
  const struct sm90_tiles tiles = cut(&problem, 1, 2);
  assert_int_equal(tiles.query_tiles, 8);
  assert_int_equal(tiles.heads, 6);
  assert_int_equal(tiles.heads_per_kv, 3);
  assert_int_equal(tiles.count, 8 * 6 * 2);
  assert_int_equal(tiles.key_blocks, 6);
  assert_int_equal(tiles.rows, 64);
}

/* 5 positions of up to 4 heads are 20 rows; 6 heads are two packs. */
static void test_sm90_tiles__packed_rows_are_positions_and_heads(void **state) {
  (void)state;
  const kjit_attention_problem problem = problem_of(3, 12, 2, 5, 700, 128);
  const struct sm90_tiles tiles = cut(&problem, 4, 1);
  assert_int_equal(tiles.query_tiles, 1);
  assert_int_equal(tiles.heads, 4);
  assert_int_equal(tiles.heads_per_kv, 2);
  assert_int_equal(tiles.count, 12);
  assert_int_equal(tiles.rows, 24);
}

static void test_sm90_tiles__full_cards_and_few_keys_are_not_split(void **state) {
  (void)state;
  assert_int_equal(1, parts(1, 106, 106, 1, 65536, 1)); /* four fifths of 132 */
  assert_int_equal(1, parts(16, 64, 8, 1, 65536, 8));
  assert_int_equal(1, parts(1, 1, 1, 1, 512, 1));
  assert_int_equal(1, parts(3, 64, 64, 2048, 65536, 1));
  assert_int_equal(1, parts(1, 100, 100, 1, 65536, 1)); /* all that memory gives is asked for as it is */
}

static void test_sm90_tiles__parts_fill_the_card(void **state) {
  (void)state;
  assert_int_equal(16, parts(1, 64, 8, 1, 65536, 8));      /* 8 tiles */
  assert_int_equal(2, parts(1, 64, 64, 1, 65536, 1));      /* 64 */
  assert_true(parts(1, 144, 144, 1, 65536, 1) > 1);        /* the second round would be nearly empty */
  assert_in_range(parts(1, 1, 1, 1, 1 << 20, 1), 64, 128); /* one tile, a million keys */
}

/* Merging takes longer with every part. */
static void test_sm90_tiles__few_blocks_are_not_cut_as_finely_as_can_be(void **state) {
  (void)state;
  assert_in_range(parts(1, 64, 1, 1, 8192, 64), 2, 32); /* 64 blocks */
}

static void test_sm90_tiles__no_part_is_empty_and_none_could_be_saved(void **state) {
  (void)state;
  for (int64_t keys = 513; keys < 200000; keys += 641) {
    const int64_t blocks = (keys + 127) / 128, chosen = parts(1, 24, 3, 1, keys, 8);
    const int64_t longest = (blocks + chosen - 1) / chosen;
    assert_true(chosen <= blocks && chosen <= SM90_MOST_PARTS);
    assert_true((chosen - 1) * longest < blocks);
  }
}

/* A part without keys would arrive at a counter that the parts with keys have set to zero, so that the next launch
 * would not begin at zero. */
static void test_sm90_tiles__parts_are_no_more_than_key_blocks(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  config.consumers = 1;
  config.split = 1;
  int64_t most = 1;
  for (config.tile_n = 16; config.tile_n <= 128; config.tile_n += 16)
    for (int64_t keys = 1; keys <= 4096; keys += 93) {
      const kjit_attention_problem problem = problem_of(1, 1, 1, 64, keys, 128);
      const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
      const int64_t chosen = parts_of(&tiles, &config);
      assert_true(chosen <= tiles.key_blocks);
      most = chosen > most ? chosen : most;
    }
  assert_true(most > 1);
}

/* Nothing that a config can ask for takes more memory than it may. */
static void test_sm90_tiles__memory_is_bounded(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  config.head_dim_v = 256;
  config.consumers = 3;
  for (int64_t heads = 1; heads <= 400; heads++) {
    const kjit_attention_problem problem = problem_of(1, heads, heads, 192, 1 << 20, 128);
    const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
    const int64_t chosen = parts_of(&tiles, &config);
    if (chosen > 1) assert_true(sm90_tiles_partial_bytes(&tiles, &config, chosen) <= SM90_PARTIALS_MAX);
  }
}

static void test_sm90_tiles__memory_is_that_of_the_kernel(void **state) {
  (void)state;
  const kjit_attention_problem problem = problem_of(1, 16, 2, 1, 4096, 128);
  kjit_attention_sm90_config config = sm90_base();
  config.packed = 8;
  config.consumers = 1;
  const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
  assert_int_equal(sm90_tiles_arrivals(&tiles, &config, 10), 20);
  assert_int_equal(sm90_tiles_partial_bytes(&tiles, &config, 10), 20 * 8 * (128 + 4) * 4);
}

static int64_t longest(int64_t batch, int64_t heads, int64_t seq_q, int64_t seq_kv, int32_t consumers) {
  kjit_attention_problem problem = problem_of(batch, heads, heads, seq_q, seq_kv, 64);
  problem.flags = KJIT_ATTENTION_CAUSAL;
  kjit_attention_sm90_config config = sm90_base();
  config.causal = 1;
  config.consumers = consumers;
  const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
  return sm90_tiles_longest(&tiles, &config, SM_COUNT);
}

/* Each multiprocessor takes the next tile when it has done with one. */
static void test_sm90_tiles__causal_tiles_are_taken_in_turn(void **state) {
  (void)state;
  assert_int_equal(19, longest(13, 2, 605, 2420, 2));      /* 130 tiles: the longest */
  assert_int_equal(16 + 17, longest(15, 2, 605, 2420, 2)); /* 150, of which 18 of 16 come behind 12 of 16 and 6 of 17 */
  assert_int_equal(4 + 3, longest(33, 4, 256, 512, 2));    /* 264: two each */
  assert_int_equal(4, longest(33, 2, 256, 512, 2));        /* 132 */
  assert_int_equal(4, longest(100, 2, 512, 512, 1));       /* 1,600 are more than are counted */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_tiles__rows_are_positions),
      cmocka_unit_test(test_sm90_tiles__packed_rows_are_positions_and_heads),
      cmocka_unit_test(test_sm90_tiles__full_cards_and_few_keys_are_not_split),
      cmocka_unit_test(test_sm90_tiles__parts_fill_the_card),
      cmocka_unit_test(test_sm90_tiles__few_blocks_are_not_cut_as_finely_as_can_be),
      cmocka_unit_test(test_sm90_tiles__no_part_is_empty_and_none_could_be_saved),
      cmocka_unit_test(test_sm90_tiles__parts_are_no_more_than_key_blocks),
      cmocka_unit_test(test_sm90_tiles__memory_is_bounded),
      cmocka_unit_test(test_sm90_tiles__memory_is_that_of_the_kernel),
      cmocka_unit_test(test_sm90_tiles__causal_tiles_are_taken_in_turn),
  };
  return cmocka_run_group_tests_name("sm90_tiles", tests, NULL, NULL);
}
