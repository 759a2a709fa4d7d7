/* A variant's change of tiles on the emulator beside float64. Two multiprocessors, so that a block of threads changes
 * tiles often and the slots of planned bounds are used again; with two Q buffers, with one, with three consumers,
 * with memory of O's own beside two, and with a tile of keys that leaves no room for bounds, which the consumers then
 * compute. */
#include "emulator_fixture.h"

#include <kjit/attention_sm90.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "variant_trial.h"

static const struct variant_shape shape = {1, 4, 4, 300, 400, 64, true};
/* As many heads as lists have keep words for. */
static const struct variant_shape shared = {1, 8, 8, 200, 400, 64, true};

/* consumers, tile_n, stages, q_buffers, o_chunks */
static const int configs[][5] = {{2, 64, 2, 2, 0},  {2, 64, 2, 1, 1}, {3, 80, 2, 2, 0},
                                 {2, 208, 4, 1, 0}, {2, 64, 2, 2, 1}, {3, 80, 2, 2, 1}};

static size_t run_split(struct gpu_fixture *fixture, const struct variant_shape *of, const char *name, const int *f,
                        int split) {
  struct variant_report report;
  kjit_error error = {0};
  kjit_config config;
  char text[256];
  const struct variant_case *one = variant_case_named(name);
  assert_non_null(one);
  snprintf(text, sizeof text,
           "dtype=bf16,head_dim=%d,head_dim_v=%d,causal=%d,consumers=%d,tile_n=%d,stages=%d,q_buffers=%d,o_chunks=%d,"
           "ping_pong=1,rescale_slack=15,packed=1,split=%d",
           of->head_dim, of->head_dim, one->causal, f[0], f[1], f[2], f[3], f[4], split);
  assert_status(KJIT_OK, kjit_config_parse(kjit_family_find("attention_sm90"), text, &config, &error), &error);
  const kjit_status status = variant_trial_run(&fixture->card, fixture->runtime, one, of, &config, 7, &report, &error);
  if (status == KJIT_OK && report.passed) return 0;
  print_error("%s %s: %s\n", name, text, status == KJIT_OK ? report.why : error.message);
  if (status != KJIT_OK) print_error("  %s\n", emulator_complaint(&fixture->card));
  emulator_clear_complaint(&fixture->card);
  return 1;
}

static size_t run_on(struct gpu_fixture *fixture, const struct variant_shape *of, const char *name, const int *f) {
  return run_split(fixture, of, name, f, 0);
}

static size_t run(struct gpu_fixture *fixture, const char *name, const int *f) {
  return run_on(fixture, &shape, name, f);
}

/* By default one config, since compiling a kernel for the emulator takes seconds; with KJIT_TEST_ALL_CONFIGS=1 all. */
static void run_case(void **state, const char *name, size_t config) {
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
    if (i == config || emulator_mutation_step() == 1) failures += run(fixture, name, configs[i]);
  assert_int_equal(0, failures);
}

static void test_variant_tiles__planned_bounds_are_right(void **state) {
  run_case(state, "window", 0);
}

static void test_variant_tiles__o_of_its_own_beside_two_queries_is_right(void **state) {
  run_case(state, "window", 4);
}

static void test_variant_tiles__bounds_without_room_are_right(void **state) {
  run_case(state, "two_sided", 3);
}

/* Lists that tell for each consumer's rows: of two and three consumers. Three with 48 keys in a step have lists that
 * tell for the tile alone. */
static void test_variant_tiles__lists_with_parts_are_right(void **state) {
  static const int parted[][5] = {{2, 64, 2, 1, 1}, {3, 80, 2, 2, 0}, {3, 48, 2, 2, 0}};
  static const char *const names[] = {"document", "causal_document", "blocks_48", "blocks_document"};
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    for (size_t i = 0; i < sizeof parted / sizeof *parted; i++)
      if ((n == 1 && i == 1) || emulator_mutation_step() == 1) failures += run(fixture, names[n], parted[i]);
  assert_int_equal(0, failures);
}

/* Keep words of lists: of one word a row, of two, of three consumers, with a map of the caller's, without turns, of a
 * causal member, and of blocks that a map alone divides. */
static void test_variant_tiles__keep_words_of_lists_are_right(void **state) {
  static const int worded[][5] = {{2, 64, 2, 2, 0}, {3, 80, 2, 2, 0}, {2, 144, 2, 1, 1}, {1, 64, 2, 2, 0}};
  static const char *const names[] = {"document", "blocks_48", "dilated", "blocks_document", "global_window", "blocks"};
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    for (size_t i = 0; i < sizeof worded / sizeof *worded; i++)
      if ((n == i && n < 2) || emulator_mutation_step() == 1) failures += run_on(fixture, &shared, names[n], worded[i]);
  assert_int_equal(0, failures);
}

/* Two pairs of consumers, each with tiles of its own: lists with keep words and of both pairs' judging, of the caller's
 * blocks, a window's bounds, a score function that is folded and one that is not, with turns and memory for O. */
static void test_variant_tiles__two_pairs_of_consumers_are_right(void **state) {
  static const int pairs[][5] = {{4, 64, 4, 2, 0}, {4, 64, 4, 1, 1}, {4, 48, 2, 2, 1}};
  static const char *const names[] = {"document", "blocks_document", "blocks",         "window",
                                      "alibi",    "kept_blocks",     "causal_document"};
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
      if (n == i || emulator_mutation_step() == 1) failures += run_on(fixture, &shared, names[n], pairs[i]);
  assert_int_equal(0, failures);
}

/* So many tiles of a head that several lanes share the ranks of its order; the first tile is much longer than the
 * others, so that it comes ahead of all sections. */
static void test_variant_tiles__lists_of_many_tiles_are_right(void **state) {
  static const struct variant_shape many = {1, 2, 2, 1100, 500, 64, true};
  static const int config[] = {1, 64, 2, 2, 0};
  assert_int_equal(0, run_on(gpu_require(state), &many, "kept_first_rows", config));
}

/* Blocks that are kept, of a mask and of the caller's lists, which differ by head. */
static void test_variant_tiles__kept_blocks_are_right(void **state) {
  static const int config[] = {2, 64, 2, 2, 0};
  assert_int_equal(0, run_on(gpu_require(state), &shared, "kept_document", config));
  assert_int_equal(0, run_on(gpu_require(state), &shared, "kept_blocks", config));
}

/* Terms of a tensor in boxes that TMA brings: of one and two steps at once, of three boxes for two of a step; of one
 * consumer. They are added to the scores. */
static void test_variant_tiles__terms_in_boxes_are_right(void **state) {
  static const struct variant_shape shapes[] = {{2, 2, 2, 300, 400, 64, true}, {1, 3, 3, 300, 400, 128, true}};
  static const int boxed[][5] = {{2, 64, 2, 2, 0}, {2, 128, 2, 1, 1}, {2, 128, 2, 1, 0}, {1, 64, 3, 1, 1}};
  static const char *const names[] = {"pairs_causal", "pairs_document", "pairs", "pairs_streaming",
                                      "pairs_of_two_heads"};
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    for (size_t s = 0; s < 2; s++)
      for (size_t i = 0; i < sizeof boxed / sizeof *boxed; i++)
        if ((n == s && i == n) || emulator_mutation_step() == 1)
          failures += run_on(fixture, &shapes[s], names[n], boxed[i]);
  assert_int_equal(0, failures);
}

/* The same by the planner's configs of other heads: with 96 columns terms are read in the exponent. */
static void test_variant_tiles__terms_in_boxes_of_other_heads_are_right(void **state) {
  static const int head_dims[] = {80, 96, 160};
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++) {
    const bool is_wide = head_dims[i] > 128;
    const struct variant_shape of = {1, 2, 2, 200, 300, head_dims[i], true};
    const int config[] = {2, is_wide ? 64 : 128, 2, is_wide ? 1 : 2, 0};
    failures += run_on(fixture, &of, "pairs_causal", config);
  }
  assert_int_equal(0, failures);
}

/* Splits of a tile whose terms come in boxes. */
static void test_variant_tiles__terms_in_boxes_of_splits_are_right(void **state) {
  static const struct variant_shape long_rows = {1, 1, 1, 100, 1000, 64, true};
  static const int config[] = {1, 64, 2, 1, 0};
  assert_int_equal(0, run_split(gpu_require(state), &long_rows, "pairs", config, 1));
}

/* Walks that begin at the diagonal: of few blocks, of more than a warp looks at in one round, and with bounds on both
 * sides of it. */
static void test_variant_tiles__walks_outwards_are_right(void **state) {
  static const struct variant_shape wide = {1, 2, 2, 500, 900, 64, true};
  static const int walked[][5] = {{2, 64, 2, 2, 0}, {2, 16, 2, 2, 0}, {3, 80, 2, 2, 1}};
  static const char *const names[] = {"distance", "distance_window"};
  struct gpu_fixture *fixture = gpu_require(state);
  size_t failures = 0;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    for (size_t i = 0; i < sizeof walked / sizeof *walked; i++)
      if (n == 1 - i || emulator_mutation_step() == 1) failures += run_on(fixture, &wide, names[n], walked[i]);
  assert_int_equal(0, failures);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_variant_tiles__planned_bounds_are_right),
                                     cmocka_unit_test(test_variant_tiles__o_of_its_own_beside_two_queries_is_right),
                                     cmocka_unit_test(test_variant_tiles__bounds_without_room_are_right),
                                     cmocka_unit_test(test_variant_tiles__lists_with_parts_are_right),
                                     cmocka_unit_test(test_variant_tiles__keep_words_of_lists_are_right),
                                     cmocka_unit_test(test_variant_tiles__terms_in_boxes_are_right),
                                     cmocka_unit_test(test_variant_tiles__terms_in_boxes_of_other_heads_are_right),
                                     cmocka_unit_test(test_variant_tiles__terms_in_boxes_of_splits_are_right),
                                     cmocka_unit_test(test_variant_tiles__walks_outwards_are_right),
                                     cmocka_unit_test(test_variant_tiles__two_pairs_of_consumers_are_right),
                                     cmocka_unit_test(test_variant_tiles__lists_of_many_tiles_are_right),
                                     cmocka_unit_test(test_variant_tiles__kept_blocks_are_right)};
  (void)setenv("KJIT_EMULATOR_MULTIPROCESSORS", "2", 1);
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("changes of tiles on the emulator", tests, emulator_setup, gpu_teardown);
}
