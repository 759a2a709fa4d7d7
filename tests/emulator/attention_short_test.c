/* attention_short_sm90 on the emulator beside float64: heads of one tile and of several, groups, masks, head sizes and
 * layouts, on a card so small that the planner takes the family. Each case runs twice, with blocks and warps in another
 * order: the same bits both times. */
#include <string.h>

#include "emulator_fixture.h"

#include <stdbool.h>
#include <stdlib.h>

#include "attention_cases.h"
#include "support/test.h"

/* Few, so that a problem of some tiles has more of them than blocks of threads. */
#define MULTIPROCESSORS "2"

static int setup(void **state) {
  emulator_choose();
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", MULTIPROCESSORS, 1));
  assert_int_equal(0, setenv("KJIT_SEED", "1", 0));
  return gpu_setup(state);
}

struct shape {
  int64_t batch, heads, heads_kv, seq_q, seq_kv, head_dim, head_dim_v;
  bool causal;
  enum problem_layout layout;
};

static void run_shapes(void **state, const struct shape *shapes, size_t count) {
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[8];
  assert_true(count <= 8);
  if (!getenv("KJIT_TEST_ALL_CONFIGS")) count = (count + 1) / 2; /* all of them compile for many seconds */
  for (size_t i = 0; i < count; i++) {
    const struct shape *shape = &shapes[i];
    kjit_config config;
    kjit_error error;
    problems[i] = (struct trial_problem){
        .asked = PROBLEM_OF(.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16, .batch = shape->batch, .heads_q = shape->heads,
                            .heads_kv = shape->heads_kv, .seq_q = shape->seq_q, .seq_kv = shape->seq_kv,
                            .head_dim = shape->head_dim, .head_dim_v = shape->head_dim_v,
                            .flags = shape->causal ? KJIT_ATTENTION_CAUSAL : 0),
        .layout = shape->layout,
        .lse = i != 1,
        .seed = random_next(&fixture->random)};
    assert_status(KJIT_OK, kjit_attention_choose(fixture->runtime, &problems[i].asked, NULL, &config, NULL, &error),
                  &error);
    assert_string_equal("attention_short_sm90", kjit_family_name(config.family));
  }
  attention_run_problems(fixture, problems, count);
}

#define RUN(shapes) run_shapes(state, shapes, sizeof(shapes) / sizeof *(shapes))

/* So many that runs are whole heads: of two tiles, of one, and of four because two query heads share the keys. */
static void test_attention_short__many_heads_are_right(void **state) {
  static const struct shape shapes[] = {{7, 3, 3, 70, 128, 64, 64, false, LAYOUT_BSHD},
                                        {5, 4, 4, 50, 50, 64, 64, false, LAYOUT_BHSD},
                                        {9, 4, 2, 100, 77, 64, 64, false, LAYOUT_BSHD}};
  RUN(shapes);
}

/* A head's tiles in several runs, three consumers, a last tile of few rows; grouped heads. */
static void test_attention_short__several_tiles_a_head_are_right(void **state) {
  static const struct shape shapes[] = {{1, 6, 2, 197, 197, 64, 64, false, LAYOUT_PADDED},
                                        {1, 3, 1, 210, 77, 64, 64, false, LAYOUT_SHARED_KV}};
  RUN(shapes);
}

/* Rows that see some keys, all, or none. */
static void test_attention_short__causal_rows_are_right(void **state) {
  static const struct shape shapes[] = {{2, 2, 2, 130, 130, 64, 64, true, LAYOUT_BSHD},
                                        {2, 2, 1, 190, 100, 72, 40, true, LAYOUT_BHSD}};
  RUN(shapes);
}

static void test_attention_short__larger_heads_are_right(void **state) {
  static const struct shape shapes[] = {{2, 3, 3, 100, 90, 128, 128, false, LAYOUT_BSHD},
                                        {1, 3, 3, 200, 20, 192, 256, false, LAYOUT_BSHD}};
  RUN(shapes);
}

/* As many blocks of threads as key heads, more than run at a time, each with room for one head: of two tiles, and of
 * four of two query heads. */
static void test_attention_short__one_head_a_block_is_right(void **state) {
  static const struct shape shapes[] = {{3, 3, 3, 100, 70, 72, 72, false, LAYOUT_BSHD},
                                        {2, 6, 3, 90, 77, 72, 72, false, LAYOUT_BHSD}};
  struct gpu_fixture *fixture = attention_require(state);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const struct trial_problem problem = {
        .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = shapes[i].batch, .heads_q = shapes[i].heads,
                            .heads_kv = shapes[i].heads_kv, .seq_q = shapes[i].seq_q, .seq_kv = shapes[i].seq_kv,
                            .head_dim = shapes[i].head_dim, .head_dim_v = shapes[i].head_dim_v),
        .layout = shapes[i].layout,
        .lse = true,
        .seed = random_next(&fixture->random)};
    attention_run_config(fixture, "attention_short_sm90",
                         "dtype=bf16,head_dim=72,head_dim_v=72,causal=0,tile_n=80,consumers=1,stages=1,q_buffers=2,"
                         "blocks_per_sm=2",
                         &problem);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_short__many_heads_are_right),
      cmocka_unit_test(test_attention_short__several_tiles_a_head_are_right),
      cmocka_unit_test(test_attention_short__causal_rows_are_right),
      cmocka_unit_test(test_attention_short__larger_heads_are_right),
      cmocka_unit_test(test_attention_short__one_head_a_block_is_right),
  };
  return cmocka_run_group_tests_name("attention over few keys on the emulator", tests, setup, gpu_teardown);
}
