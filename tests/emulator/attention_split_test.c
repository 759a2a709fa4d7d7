/* Attention on the emulator where key blocks are shared out among blocks of threads, beside float64: attention_sm90
 * with query heads packed into a tile's rows, attention_decode_sm90, and attention_serving_sm90 with one_part. Each
 * case runs twice, with blocks and warps in another order: the same bits both times. */
#include "emulator_fixture.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention_cases.h"
#include "support/test.h"

/* More than the other tests have, so that a few tiles are split into many parts: two rounds of merging. */
#define MULTIPROCESSORS "40"

static int setup(void **state) {
  emulator_choose();
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", MULTIPROCESSORS, 1));
  assert_int_equal(0, setenv("KJIT_SEED", "1", 0));
  return gpu_setup(state);
}

struct shape {
  int64_t batch, heads, heads_kv, seq_q, seq_kv, head_dim, head_dim_v;
  bool causal;
  const char *config; /* without what follows from the problem; NULL: one_part, which the planner chooses */
};

static void run_chosen(struct gpu_fixture *fixture, const struct trial_problem *problem) {
  kjit_config config;
  kjit_error error;
  int32_t one_part = 0;
  assert_status(KJIT_OK, kjit_attention_choose(fixture->runtime, &problem->asked, NULL, &config, NULL, &error), &error);
  assert_status(KJIT_OK, kjit_config_get(&config, "one_part", &one_part, &error), &error);
  assert_int_equal(1, one_part);
  attention_run_problems(fixture, problem, 1);
}

static void run_shapes(void **state, const char *family, const struct shape *shapes, size_t count) {
  struct gpu_fixture *fixture = attention_require(state);
  if (!getenv("KJIT_TEST_ALL_CONFIGS")) count = (count + 1) / 2; /* all of them take a minute of processor time */
  for (size_t i = 0; i < count; i++) {
    const struct shape *shape = &shapes[i];
    const struct trial_problem problem = {
        .asked = PROBLEM_OF(.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16, .batch = shape->batch, .heads_q = shape->heads,
                            .heads_kv = shape->heads_kv, .seq_q = shape->seq_q, .seq_kv = shape->seq_kv,
                            .head_dim = shape->head_dim, .head_dim_v = shape->head_dim_v,
                            .flags = shape->causal ? KJIT_ATTENTION_CAUSAL : 0),
        .layout = i % 2 ? LAYOUT_BHSD : LAYOUT_BSHD,
        .lse = 1,
        .seed = random_next(&fixture->random)};
    char text[256];
    snprintf(text, sizeof text, "dtype=%s,head_dim=%d,head_dim_v=%d,causal=%d,%s", i % 2 ? "fp16" : "bf16",
             (int)shape->head_dim, (int)shape->head_dim_v, shape->causal, shape->config ? shape->config : "");
    if (shape->config)
      attention_run_config(fixture, family, text, &problem);
    else
      run_chosen(fixture, &problem);
  }
}

#define RUN(family, shapes) run_shapes(state, family, shapes, sizeof(shapes) / sizeof *(shapes))

#define ONE_CONSUMER  "consumers=1,tile_n=128,stages=2,q_buffers=1,o_chunks=0,ping_pong=0,rescale_slack=15,"
#define TWO_CONSUMERS "consumers=2,tile_n=128,stages=2,q_buffers=1,o_chunks=0,ping_pong=1,rescale_slack=15,"

/* One new position against a cache of keys: a group of eight, seven (a row of eight is nobody's), one. */
static void test_attention_sm90__one_position_against_many_keys_is_right(void **state) {
  static const struct shape shapes[] = {{1, 8, 1, 1, 3001, 64, 64, 0, ONE_CONSUMER "packed=8,split=1"},
                                        {1, 14, 2, 1, 1500, 64, 64, 0, ONE_CONSUMER "packed=8,split=1"},
                                        {2, 3, 3, 1, 2000, 64, 64, 0, ONE_CONSUMER "packed=1,split=1"}};
  RUN("attention_sm90", shapes);
}

/* Several: rows of a tile see different keys, the last tile is not full. */
static void test_attention_sm90__some_positions_against_many_keys_are_right(void **state) {
  static const struct shape shapes[] = {{1, 6, 1, 33, 1100, 72, 40, 0, ONE_CONSUMER "packed=1,split=1"},
                                        {8, 6, 1, 21, 901, 72, 40, 1, TWO_CONSUMERS "packed=8,split=1"}};
  RUN("attention_sm90", shapes);
}

/* Tiles of one launch with less key blocks than parts, rows that see nothing at all. */
static void test_attention_sm90__fewer_keys_than_queries_are_right(void **state) {
  static const struct shape shapes[] = {{1, 1, 1, 700, 650, 64, 64, 1, ONE_CONSUMER "packed=1,split=1"},
                                        {1, 4, 1, 90, 700, 64, 64, 1, ONE_CONSUMER "packed=4,split=1"}};
  RUN("attention_sm90", shapes);
}

/* Two consumers merge apart. */
static void test_attention_sm90__two_consumers_that_split_are_right(void **state) {
  static const struct shape shapes[] = {{1, 1, 1, 128, 1500, 128, 128, 1, TWO_CONSUMERS "packed=1,split=1"},
                                        {12, 8, 1, 16, 1500, 128, 128, 0, TWO_CONSUMERS "packed=8,split=1"}};
  RUN("attention_sm90", shapes);
}

/* Tiles of 16 to 64 rows; runs that are parts of tiles, and runs that end inside of tiles; Q in registers and, with
 * more than 128 columns, in shared memory; fewer parts than a tile's result has rounds of quads. */
static void test_attention_decode_sm90__few_rows_are_right(void **state) {
  static const struct shape shapes[] = {{1, 14, 2, 1, 1500, 64, 64, 0, "rows=16,tile_n=128,stages=3,blocks_per_sm=2"},
                                        {2, 8, 1, 4, 400, 192, 192, 0, "rows=32,tile_n=96,stages=2,blocks_per_sm=1"},
                                        {1, 8, 2, 5, 1030, 72, 40, 1, "rows=32,tile_n=128,stages=4,blocks_per_sm=1"},
                                        {25, 3, 3, 1, 700, 128, 128, 0, "rows=16,tile_n=64,stages=3,blocks_per_sm=2"},
                                        {2, 6, 2, 1, 601, 200, 256, 0, "rows=16,tile_n=48,stages=2,blocks_per_sm=1"},
                                        {2, 20, 1, 3, 900, 64, 128, 1, "rows=64,tile_n=128,stages=2,blocks_per_sm=1"},
                                        {1, 8, 1, 1, 3001, 64, 64, 0, "rows=16,tile_n=64,stages=2,blocks_per_sm=4"}};
  RUN("attention_decode_sm90", shapes);
}

/* One position and several, more rows than a tile of 64 has, of several tiles; batch entries that two share a lane. */
static void test_one_part__few_tiles_are_right(void **state) {
  static const struct shape shapes[] = {{1, 14, 2, 1, 1500, 64, 64, 0, NULL},   {1, 8, 2, 5, 1030, 72, 40, 1, NULL},
                                        {1, 30, 1, 5, 1500, 128, 128, 1, NULL}, {19, 1, 1, 1, 900, 128, 128, 0, NULL},
                                        {1, 8, 1, 1, 3001, 64, 64, 0, NULL},    {2, 3, 3, 1, 2000, 40, 96, 0, NULL},
                                        {1, 6, 1, 33, 1100, 72, 40, 0, NULL},   {1, 40, 2, 6, 1100, 64, 64, 1, NULL},
                                        {5, 8, 1, 16, 1500, 128, 128, 0, NULL}};
  RUN("attention_serving_sm90", shapes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_sm90__one_position_against_many_keys_is_right),
      cmocka_unit_test(test_attention_sm90__some_positions_against_many_keys_are_right),
      cmocka_unit_test(test_attention_sm90__fewer_keys_than_queries_are_right),
      cmocka_unit_test(test_attention_sm90__two_consumers_that_split_are_right),
      cmocka_unit_test(test_attention_decode_sm90__few_rows_are_right),
      cmocka_unit_test(test_one_part__few_tiles_are_right),
  };
  return cmocka_run_group_tests_name("split attention on the emulator", tests, setup, gpu_teardown);
}
