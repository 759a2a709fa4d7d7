/* attention_sm90 on the emulator where query heads are packed into a tile's rows and key blocks are shared out among
 * blocks, beside float64. Each case runs twice, with blocks and warps in another order: the same bits both times. */
#include <string.h>

#include "emulator_fixture.h"

#include <stdbool.h>
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
  int32_t packed, split; /* of the config that the planner chooses */
  bool causal;
};

static void run_shapes(void **state, const struct shape *shapes, size_t count) {
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[8];
  assert_true(count <= 8);
  if (!getenv("KJIT_TEST_ALL_CONFIGS")) count = (count + 1) / 2; /* all of them take a minute of processor time */
  for (size_t i = 0; i < count; i++) {
    const struct shape *shape = &shapes[i];
    problems[i] = (struct trial_problem){
        .asked = PROBLEM_OF(.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16, .batch = shape->batch, .heads_q = shape->heads,
                            .heads_kv = shape->heads_kv, .seq_q = shape->seq_q, .seq_kv = shape->seq_kv,
                            .head_dim = shape->head_dim, .head_dim_v = shape->head_dim_v,
                            .flags = shape->causal ? KJIT_ATTENTION_CAUSAL : 0),
        .layout = i % 2 ? LAYOUT_BHSD : LAYOUT_BSHD,
        .lse = 1,
        .seed = random_next(&fixture->random)};
    kjit_config config;
    int32_t packed = 0, split = 0;
    kjit_error error;
    assert_status(KJIT_OK, kjit_attention_choose(fixture->runtime, &problems[i].asked, NULL, &config, NULL, &error),
                  &error);
    /* Few rows over many keys are for the family that is made for them; its configs have neither field. */
    if (!strcmp(kjit_family_name(config.family), "attention_decode_sm90")) continue;
    assert_status(KJIT_OK, kjit_config_get(&config, "packed", &packed, &error), &error);
    assert_status(KJIT_OK, kjit_config_get(&config, "split", &split, &error), &error);
    assert_int_equal(shape->packed, packed);
    assert_int_equal(shape->split, split);
  }
  attention_run_problems(fixture, problems, count);
}

#define RUN(shapes) run_shapes(state, shapes, sizeof(shapes) / sizeof *(shapes))

/* One new position against a cache of keys: a group of eight, seven (a row of eight is nobody's), one. */
static void test_attention__one_position_against_many_keys_is_right(void **state) {
  static const struct shape shapes[] = {{1, 8, 1, 1, 3001, 64, 64, 8, 1, 0},
                                        {1, 14, 2, 1, 1500, 64, 64, 8, 1, 0},
                                        {2, 3, 3, 1, 2000, 64, 64, 1, 1, 0},
                                        {1, 8, 1, 1, 3001, 64, 64, 8, 1, 1}};
  RUN(shapes);
}

/* Several: rows of a tile see different keys, the last tile is not full. */
static void test_attention__some_positions_against_many_keys_are_right(void **state) {
  static const struct shape shapes[] = {
      {1, 8, 2, 5, 1030, 72, 40, 2, 1, 1}, {1, 6, 1, 33, 1100, 72, 40, 1, 1, 0}, {8, 6, 1, 21, 901, 72, 40, 8, 1, 1}};
  RUN(shapes);
}

/* Tiles of one launch with less key blocks than parts, rows that see nothing at all. */
static void test_attention__fewer_keys_than_queries_are_right(void **state) {
  static const struct shape shapes[] = {{1, 1, 1, 700, 650, 64, 64, 1, 1, 1}, {1, 4, 1, 90, 700, 64, 64, 4, 1, 1}};
  RUN(shapes);
}

/* Two consumers merge apart. */
static void test_attention__two_consumers_that_split_are_right(void **state) {
  static const struct shape shapes[] = {{1, 1, 1, 128, 1500, 128, 128, 1, 1, 1},
                                        {12, 8, 1, 16, 1500, 128, 128, 8, 1, 0}};
  RUN(shapes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention__one_position_against_many_keys_is_right),
      cmocka_unit_test(test_attention__some_positions_against_many_keys_are_right),
      cmocka_unit_test(test_attention__fewer_keys_than_queries_are_right),
      cmocka_unit_test(test_attention__two_consumers_that_split_are_right),
  };
  return cmocka_run_group_tests_name("split attention on the emulator", tests, setup, gpu_teardown);
}
