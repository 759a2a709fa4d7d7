/* Attention backward on the emulator beside float64: masks, groups of heads, head sizes, lengths, layouts. */
#include <stdlib.h>

#include "backward_cases.h"

#include "emulator_fixture.h"
#include "support/test.h"

/* More keys than queries, more queries than keys (the first rows see none), one key; whole and ragged tiles. */
static const struct { int64_t seq_q, seq_kv; } lengths[] = {{70, 150}, {150, 70}, {128, 1}};
static const int64_t heads[][2] = {{2, 2}, {4, 2}, {3, 1}};
static const enum problem_layout layouts[] = {LAYOUT_BSHD, LAYOUT_PADDED, LAYOUT_BHSD, LAYOUT_SHARED_KV};

enum { LENGTHS = sizeof lengths / sizeof *lengths, PERSISTENT = 4 };

static void run_size(void **state, int64_t head_dim, int64_t head_dim_v, size_t turn, const char *arch) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case cases[LENGTHS];
  for (size_t i = 0; i < LENGTHS; i++) {
    const bool causal = (turn + i) % 2 != 0;
    cases[i] = (struct backward_case){
        .problem = {.asked = PROBLEM_OF(.dtype = causal ? KJIT_FP16 : KJIT_BF16, .batch = 1 + (int64_t)(i == 2),
                                        .heads_q = heads[(turn + i) % 3][0], .heads_kv = heads[(turn + i) % 3][1],
                                        .seq_q = lengths[i].seq_q, .seq_kv = lengths[i].seq_kv, .head_dim = head_dim,
                                        .head_dim_v = head_dim_v, .flags = causal ? KJIT_ATTENTION_CAUSAL : 0),
                    .layout = layouts[(turn + i) % 4],
                    .scale = i == 1 ? 1 : 0, /* scores far apart */
                    .lse = true,
                    .seed = random_next(&fixture->random)},
        .choices = {.dlse = i % 2 != 0, .expanded = i == 1, .seed = random_next(&fixture->random)},
        .arch = arch};
  }
  backward_run_cases(fixture, cases, LENGTHS);
}

/* The kernels that sum dq: several tiles of keys, steps of 64 and 128 queries, ragged ones. `turn` has the variety.
 * Persistent blocks have more tiles than there are multiprocessors. */
static void run_sums(void **state, int64_t head_dim, int64_t head_dim_v, int32_t tile, size_t turn, size_t count) {
  static const int64_t sizes[][2][2] = {{{100, 150}, {150, 100}}, {{200, 200}, {130, 260}}};
  const bool persistent = turn >= PERSISTENT;
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case cases[2];
  turn %= PERSISTENT;
  for (size_t i = 0; i < 2; i++) {
    const bool causal = (turn + i) % 2 != 0;
    cases[i] = (struct backward_case){
        .problem = {.asked = PROBLEM_OF(.dtype = causal ? KJIT_FP16 : KJIT_BF16, .batch = 1, .heads_q = 2,
                                        .heads_kv = 1 + (int64_t)((turn + i) / 2 % 2), .seq_q = sizes[persistent][i][0],
                                        .seq_kv = sizes[persistent][i][1], .head_dim = head_dim,
                                        .head_dim_v = head_dim_v, .flags = causal ? KJIT_ATTENTION_CAUSAL : 0),
                    .layout = layouts[(turn + i) % 4],
                    .scale = i == 1 ? 1 : 0, /* scores far apart */
                    .lse = true,
                    .seed = random_next(&fixture->random)},
        .choices = {.dlse = i % 2 != 0, .expanded = i == 1, .seed = random_next(&fixture->random)},
        .sums = tile,
        .direct = head_dim > 128 || (turn == 3 && !persistent),
        .staggered = head_dim <= 128 && turn < 3 && i == 0,
        .persistent = persistent,
        .serial = turn % 2 != 0,
        .in_any_order = (turn + i) / 2 % 2 != 0};
    cases[i].stores = !cases[i].direct && (!cases[i].staggered || cases[i].in_any_order); /* also unseen queries */
  }
  backward_run_cases(fixture, cases, count);
}

static void test_attention_backward_sm90__sums_of_head_size_64_are_right(void **state) {
  run_sums(state, 64, 64, 128, 0, 2);
}

static void test_attention_backward_sm90__sums_of_head_size_128_are_right(void **state) {
  run_sums(state, 128, 128, 64, 1, 2);
}

static void test_attention_backward_sm90__sums_of_head_size_256_are_right(void **state) {
  run_sums(state, 256, 256, 64, 0, 2);
}

static void test_attention_backward_sm90__sums_of_head_sizes_200_and_232_are_right(void **state) {
  run_sums(state, 200, 232, 64, 1, 2);
}

static void test_attention_backward_sm90__sums_by_half_bands_are_right(void **state) {
  run_sums(state, 64, 64, 64, 2, 2);
}

static void test_attention_backward_sm90__sums_of_head_sizes_72_and_40_are_right(void **state) {
  run_sums(state, 72, 40, 64, 3, 2);
}

static void test_attention_backward_sm90__sums_of_head_sizes_24_and_56_are_right(void **state) {
  run_sums(state, 24, 56, 128, 1, 1);
}

/* In order and causal; in any order and full, where tiles begin at different steps, is among those of head size 128. */
static void test_attention_backward_sm90__sums_of_persistent_blocks_are_right(void **state) {
  run_sums(state, 24, 56, 128, PERSISTENT + 1, 1);
}

static void test_attention_backward_sm90__sums_of_persistent_blocks_half_a_step_apart_are_right(void **state) {
  run_sums(state, 64, 64, 128, PERSISTENT + 0, 2);
  run_sums(state, 64, 64, 128, PERSISTENT + 2, 2);
}

static void test_attention_backward_sm90__sums_of_persistent_blocks_of_head_size_128_are_right(void **state) {
  run_sums(state, 128, 128, 64, PERSISTENT + 1, 2);
  run_sums(state, 128, 128, 64, PERSISTENT + 2, 2);
}

static void test_attention_backward_sm90__sums_of_persistent_blocks_of_head_sizes_72_and_40_are_right(void **state) {
  run_sums(state, 72, 40, 64, PERSISTENT + 3, 2);
}

static void test_flash_backward__head_size_64_is_right(void **state) {
  run_size(state, 64, 64, 0, "sm_90");
}

static void test_flash_backward__head_sizes_24_and_40_are_right(void **state) {
  run_size(state, 24, 40, 1, "sm_90");
}

static void test_flash_backward__head_size_128_is_right(void **state) {
  run_size(state, 128, 128, 2, "sm_90");
}

static void test_flash_backward__head_sizes_200_and_72_are_right(void **state) {
  run_size(state, 200, 72, 3, "sm_90");
}

/* Each gradient alone, and each two, with the kernels that the others leave out. */
static void run_some(void **state, const char *arch) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct backward_case cases[6];
  for (uint32_t i = 0; i < 6; i++) {
    cases[i] = (struct backward_case){.problem = {.asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 1, .heads_q = 2,
                                                                      .seq_q = 40, .seq_kv = 70, .head_dim = 32),
                                                  .lse = true,
                                                  .seed = i},
                                      .choices = {.wanted = i + 1, .dlse = true, .seed = i},
                                      .arch = arch};
  }
  backward_run_cases(fixture, cases, 6);
}

static void test_flash_backward__each_gradient_alone_is_right(void **state) {
  run_some(state, "sm_90");
}

static void test_attention_backward_sm90__each_gradient_alone_is_right(void **state) {
  run_some(state, NULL);
}

static void test_attention_backward_sm90__head_size_64_is_right(void **state) {
  run_size(state, 64, 64, 0, NULL);
}

static void test_attention_backward_sm90__head_sizes_72_and_40_are_right(void **state) {
  run_size(state, 72, 40, 1, NULL);
}

static void test_attention_backward_sm90__head_size_128_is_right(void **state) {
  run_size(state, 128, 128, 2, NULL);
}

static void test_attention_backward_sm90__head_sizes_192_and_128_are_right(void **state) {
  run_size(state, 192, 128, 3, NULL);
}

static void test_attention_backward_sm90__head_size_256_is_right(void **state) {
  run_size(state, 256, 256, 0, NULL);
}

static int setup(void **state) {
  emulator_choose();
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "2", 1)); /* persistent blocks stay for several tiles */
  assert_int_equal(0, setenv("KJIT_SEED", "1", 0));
  return gpu_setup(state);
}

int main(void) {
  /* The first four cover both families, head sizes that no tile is made for, persistent blocks, and gradients alone;
   * the emulator takes minutes for all of them, which KJIT_TEST_ALL_CONFIGS=1 asks for. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_backward__head_sizes_24_and_40_are_right),
      cmocka_unit_test(test_flash_backward__each_gradient_alone_is_right),
      cmocka_unit_test(test_attention_backward_sm90__head_sizes_72_and_40_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_persistent_blocks_are_right),
  };
  const struct CMUnitTest rest[] = {
      cmocka_unit_test(test_attention_backward_sm90__sums_of_persistent_blocks_half_a_step_apart_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_persistent_blocks_of_head_size_128_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_persistent_blocks_of_head_sizes_72_and_40_are_right),
      cmocka_unit_test(test_flash_backward__head_size_64_is_right),
      cmocka_unit_test(test_attention_backward_sm90__head_size_64_is_right),
      cmocka_unit_test(test_flash_backward__head_size_128_is_right),
      cmocka_unit_test(test_flash_backward__head_sizes_200_and_72_are_right),
      cmocka_unit_test(test_attention_backward_sm90__head_size_128_is_right),
      cmocka_unit_test(test_attention_backward_sm90__head_sizes_192_and_128_are_right),
      cmocka_unit_test(test_attention_backward_sm90__head_size_256_is_right),
      cmocka_unit_test(test_attention_backward_sm90__each_gradient_alone_is_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_head_sizes_24_and_56_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_head_size_256_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_head_sizes_200_and_232_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_by_half_bands_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_head_sizes_72_and_40_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_head_size_64_are_right),
      cmocka_unit_test(test_attention_backward_sm90__sums_of_head_size_128_are_right),
  };
  int failed = cmocka_run_group_tests_name("attention backward on the emulator", tests, setup, gpu_teardown);
  if (getenv("KJIT_TEST_ALL_CONFIGS"))
    failed += cmocka_run_group_tests_name("the rest of attention backward", rest, setup, gpu_teardown);
  return failed;
}
