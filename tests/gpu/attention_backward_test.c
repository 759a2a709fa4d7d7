/* Attention backward on a GPU beside float64: the kernels that the library chooses, and flash_backward's. */
#include <stdlib.h>
#include <string.h>

#include "backward_cases.h"
#include "support/test.h"

static const struct {
  int64_t seq_q, seq_kv;
} lengths[] = {{1, 1},     {64, 128},  {113, 203}, {128, 217}, {113, 211}, {108, 256},
               {256, 512}, {384, 256}, {512, 256}, {640, 128}, {512, 512}, {777, 530}};
static const int64_t heads[][2] = {{4, 4}, {6, 2}, {4, 1}};

enum { LENGTHS = sizeof lengths / sizeof *lengths, HEADS = sizeof heads / sizeof *heads };

static const enum problem_layout layouts[] = {LAYOUT_BSHD, LAYOUT_BHSD, LAYOUT_PADDED, LAYOUT_SHARED_KV};

/* One case of FA3's grid: lengths, masks and types, groups, layouts in turn. */
static struct backward_case grid_case(struct gpu_fixture *fixture, int64_t head_dim, int64_t head_dim_v, size_t turn,
                                      const char *arch) {
  return (struct backward_case){
      .problem = {.asked = PROBLEM_OF(.dtype = turn % 3 ? KJIT_BF16 : KJIT_FP16, .batch = 1 + (int64_t)(turn % 2),
                                      .heads_q = heads[turn % HEADS][0], .heads_kv = heads[turn % HEADS][1],
                                      .seq_q = lengths[turn % LENGTHS].seq_q, .seq_kv = lengths[turn % LENGTHS].seq_kv,
                                      .head_dim = head_dim, .head_dim_v = head_dim_v,
                                      .flags = turn / 2 % 2 ? KJIT_ATTENTION_CAUSAL : 0),
                  .layout = layouts[turn % 4],
                  .lse = true,
                  .seed = random_next(&fixture->random)},
      .choices = {.dlse = turn % 5 == 0, .expanded = turn % 7 == 3, .seed = random_next(&fixture->random)},
      .in_any_order = turn % 2 != 0,
      .arch = arch};
}

static void run_sizes(void **state, const int64_t (*sizes)[2], size_t count, const char *arch) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case *cases = test_calloc(count * LENGTHS, sizeof *cases);
  size_t made = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < LENGTHS; j++)
      cases[made++] = grid_case(fixture, sizes[i][0], sizes[i][1], j + i, arch);
  backward_run_cases(fixture, cases, made);
  test_free(cases);
}

/* What flash_backward is compiled for here. */
static const char *flash_arch(const struct gpu_fixture *fixture) {
  return fixture->card.arch;
}

static void test_attention_backward__usual_head_sizes_are_right(void **state) {
  static const int64_t sizes[][2] = {{64, 64}, {128, 128}, {96, 96}, {256, 256}, {192, 128}};
  run_sizes(state, sizes, sizeof sizes / sizeof *sizes, NULL);
}

static void test_attention_backward__every_head_size_is_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case cases[32];
  for (size_t i = 0; i < 32; i++)
    cases[i] = grid_case(fixture, 8 + 8 * (int64_t)i, i % 3 ? 8 + 8 * (int64_t)i : 256 - 8 * (int64_t)i, i + 4, NULL);
  backward_run_cases(fixture, cases, 32);
}

static void test_flash_backward__usual_head_sizes_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const int64_t sizes[][2] = {{64, 64}, {128, 128}, {256, 256}, {40, 72}};
  run_sizes(state, sizes, sizeof sizes / sizeof *sizes, flash_arch(fixture));
}

static void test_attention_backward__each_gradient_alone_is_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case cases[14];
  for (uint32_t i = 0; i < 14; i++) {
    cases[i] = grid_case(fixture, 64, 64, i, i < 7 ? NULL : flash_arch(fixture));
    cases[i].choices.wanted = i % 7 + 1;
  }
  backward_run_cases(fixture, cases, 14);
}

/* As many as $KJIT_GPU_RANDOM_CASES says. */
static void test_attention_backward__random_problems_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const int64_t sizes[] = {64, 128, 72, 96, 256};
  const char *given = getenv("KJIT_GPU_RANDOM_CASES");
  const size_t count = given ? strtoul(given, NULL, 10) : 60;
  assert_in_range(count, 1, 100000);
  struct backward_case *cases = test_calloc(count, sizeof *cases);
  for (size_t i = 0; i < count; i++) {
    const int64_t size = sizes[random_next(&fixture->random) % 5];
    cases[i] = grid_case(fixture, size, size, (size_t)(random_next(&fixture->random) % 1000), NULL);
    cases[i].problem.asked.seq_q = 1 + (int64_t)(random_next(&fixture->random) % 700);
    cases[i].problem.asked.seq_kv = 1 + (int64_t)(random_next(&fixture->random) % 700);
    cases[i].in_any_order = i % 2 == 0;
    cases[i].problem.scale = i % 4 == 0 ? 1.0 : 0; /* scores far apart */
  }
  backward_run_cases(fixture, cases, count);
  test_free(cases);
}

/* Sequences for which the planner takes other tiles. */
static void test_attention_backward__long_sequences_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case cases[4];
  for (size_t i = 0; i < 4; i++) {
    cases[i] = grid_case(fixture, i < 2 ? 64 : 128, i < 2 ? 64 : 128, i + 5, NULL);
    cases[i].problem.asked.seq_q = 4100;
    cases[i].problem.asked.seq_kv = i % 2 ? 4500 : 700;
    problem_set_causal(&cases[i].problem, i % 2 != 0);
  }
  backward_run_cases(fixture, cases, 4);
}

static void assert_same_bits(struct gpu_fixture *fixture, const struct backward_case *one, size_t runs) {
  struct attention_data data;
  struct gradients gradients;
  kjit_error error = {0};
  uint64_t first = 0, now = 0;
  backward_case_create(fixture, one, &data, &gradients);
  for (size_t i = 0; i < runs; i++) {
    assert_status(KJIT_OK, backward_run(fixture, one, &gradients, &error), &error);
    assert_status(KJIT_OK, gradients_digest(&gradients, i ? &now : &first, &error), &error);
    if (i) assert_true(now == first);
  }
  gradients_destroy(&gradients);
  attention_data_destroy(&data);
}

static void test_attention_backward__runs_have_equal_bits(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  for (size_t i = 0; i < 4; i++) {
    struct backward_case one =
        grid_case(fixture, i % 2 ? 128 : 64, i % 2 ? 128 : 64, 10, i < 2 ? NULL : flash_arch(fixture));
    one.in_any_order = false;
    problem_set_causal(&one.problem, i % 2 != 0);
    assert_same_bits(fixture, &one, 50);
  }
}

/* $KJIT_TEST_FILTER names one of the tests, so that several processes can share them. */
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_backward__usual_head_sizes_are_right),
      cmocka_unit_test(test_attention_backward__usual_head_sizes_are_right),
      cmocka_unit_test(test_attention_backward__every_head_size_is_right),
      cmocka_unit_test(test_attention_backward__each_gradient_alone_is_right),
      cmocka_unit_test(test_attention_backward__random_problems_are_right),
      cmocka_unit_test(test_attention_backward__long_sequences_are_right),
      cmocka_unit_test(test_attention_backward__runs_have_equal_bits),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("attention backward on a GPU", tests, gpu_setup, gpu_teardown);
}
