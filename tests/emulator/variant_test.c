/* Attention variants on the emulator beside float64, on both families: row intervals, lists of blocks, given blocks,
 * score functions, sinks; packed query heads and split keys. */
#include "emulator_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "variant_trial.h"

static const struct variant_shape shapes[] = {
    {1, 2, 2, 200, 333, 64, true}, /* several tiles, ragged */
    {2, 4, 1, 65, 130, 64, false}, /* a group of heads */
    {1, 4, 2, 1, 700, 64, true},   /* packed heads, split keys */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static size_t run_one(struct gpu_fixture *fixture, const struct variant_case *one, const struct variant_shape *shape,
                      const kjit_config *config) {
  struct variant_report report;
  kjit_error error = {0};
  const kjit_status status =
      variant_trial_run(&fixture->card, fixture->runtime, one, shape, config, 7, &report, &error);
  if (status == KJIT_OK && report.passed) return 0;
  print_error("%s B%d H%d/%d Sq%d Skv%d D%d%s: %s\n", one->name, shape->batch, shape->heads, shape->heads_kv,
              shape->seq_q, shape->seq_kv, shape->head_dim, config ? " flash_forward" : "",
              status == KJIT_OK ? report.why : error.message);
  if (status != KJIT_OK) print_error("  %s\n", emulator_complaint(&fixture->card));
  emulator_clear_complaint(&fixture->card);
  return 1;
}

static size_t run(struct gpu_fixture *fixture, const char *name, const struct variant_shape *shape,
                  const kjit_config *config) {
  const struct variant_case *one = variant_case_named(name);
  assert_non_null(one);
  return run_one(fixture, one, shape, config);
}

/* On the planner's kernel, and on flash_forward with a config of its own. */
static void run_case(void **state, const char *name) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  size_t failures = 0;
  for (size_t i = 0; i < SHAPES; i++) {
    kjit_attention_problem problem = kjit_attention_problem_default();
    kjit_config config;
    problem.dtype = shapes[i].bf16 ? KJIT_BF16 : KJIT_FP16;
    problem.heads_q = shapes[i].heads;
    problem.heads_kv = shapes[i].heads_kv;
    problem.seq_q = shapes[i].seq_q;
    problem.seq_kv = shapes[i].seq_kv;
    problem.head_dim = shapes[i].head_dim;
    assert_status(KJIT_OK, kjit_attention_choose(fixture->runtime, &problem, "sm_80", &config, NULL, &error), &error);
    failures += run(fixture, name, &shapes[i], NULL);
    failures += run(fixture, name, &shapes[i], &config);
  }
  assert_int_equal(0, failures);
}

#define CASE(name)                                                                                                     \
  static void test_variant__##name##_is_right(void **state) {                                                          \
    run_case(state, #name);                                                                                            \
  }

CASE(window)
CASE(streaming)
CASE(document)
CASE(rows_in_turn_causal)
CASE(sliding_tile)
CASE(every_other_row)
CASE(by_head)
CASE(nothing)
CASE(softcap)
CASE(alibi)
CASE(pairs_causal)
CASE(relative)
CASE(sinks)
CASE(window_sinks)
CASE(softcap_sinks)
CASE(blocks)
CASE(blocks_48)
CASE(blocks_document)
CASE(kept_document)

/* One shape of the planner's kernel, because all of them take the emulator five seconds. */
static void test_variant__sliding_tile_is_right_on_one_shape(void **state) {
  assert_int_equal(0, run(gpu_require(state), "sliding_tile", &shapes[0], NULL));
}

/* Lists of a causal problem, whose diagonal cuts blocks that the mask does not. */
static void test_variant__rows_in_turn_causal_is_right_on_one_shape(void **state) {
  assert_int_equal(0, run(gpu_require(state), "rows_in_turn_causal", &shapes[0], NULL));
}

/* A kernel whose consumers take no turns, and more key blocks than K buffers: all warps have read a buffer's entry
 * before it is written again. */
static void test_variant__entries_are_read_before_they_are_written_again(void **state) {
  static const struct variant_shape long_shape = {1, 1, 1, 190, 450, 256, true};
  assert_int_equal(0, run(gpu_require(state), "prefix", &long_shape, NULL));
}

/* Terms are copied for the key block before, and a walk that leaves blocks out comes to another one. */
static void test_variant__terms_are_those_of_the_block(void **state) {
  static const struct variant_shape long_shape = {1, 1, 1, 400, 400, 128, true};
  assert_int_equal(0, run(gpu_require(state), "pairs_streaming", &long_shape, NULL));
}

/* Keys that a mask excludes by whole blocks may hold anything. */
static void test_variant__nan_in_unseen_blocks_does_not_spread(void **state) {
  static const struct variant_shape hiding = {1, 1, 1, 130, 900, 64, true};
  static const char *const names[] = {"window", "document"};
  struct gpu_fixture *fixture = gpu_require(state);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct variant_case one = *variant_case_named(names[i]);
    one.hides_nan = true;
    assert_int_equal(0, run_one(fixture, &one, &hiding, NULL));
  }
}

#define TEST(name) cmocka_unit_test(test_variant__##name##_is_right)

int main(void) {
  /* The first five have a case of each hook: intervals, judged masks, scores, sinks, given lists. The emulator takes
   * minutes for all of them, which KJIT_TEST_ALL_CONFIGS=1 asks for. */
  const struct CMUnitTest tests[] = {TEST(window),
                                     TEST(document),
                                     TEST(softcap),
                                     TEST(sinks),
                                     TEST(blocks_document),
                                     cmocka_unit_test(test_variant__sliding_tile_is_right_on_one_shape),
                                     cmocka_unit_test(test_variant__rows_in_turn_causal_is_right_on_one_shape),
                                     cmocka_unit_test(test_variant__nan_in_unseen_blocks_does_not_spread),
                                     cmocka_unit_test(test_variant__entries_are_read_before_they_are_written_again),
                                     cmocka_unit_test(test_variant__terms_are_those_of_the_block)};
  const struct CMUnitTest rest[] = {TEST(streaming),       TEST(sliding_tile),
                                    TEST(every_other_row), TEST(by_head),
                                    TEST(nothing),         TEST(alibi),
                                    TEST(window_sinks),    TEST(pairs_causal),
                                    TEST(relative),        TEST(softcap_sinks),
                                    TEST(kept_document),   TEST(blocks),
                                    TEST(blocks_48),       TEST(rows_in_turn_causal)};
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  int failed = cmocka_run_group_tests_name("variants on the emulator", tests, emulator_setup, gpu_teardown);
  if (getenv("KJIT_TEST_ALL_CONFIGS"))
    failed += cmocka_run_group_tests_name("the rest of the variants", rest, emulator_setup, gpu_teardown);
  return failed;
}
