/* flash_forward with a mask, grouped heads, odd and unequal head sizes on the emulator beside float64. */
#include <stdbool.h>
#include <stdlib.h>

#include "case_generator.h"
#include "emulator_fixture.h"

#include "support/test.h"

/* A kernel for each row of flags: between them mask and groups each way, head sizes with and without columns that do
 * not exist, Q wider than V and V wider than Q, every number of warps. */
static const struct {
  int32_t dtype, head_dim, head_dim_v, d_head, B_r, B_c, n_warps;
  bool causal;
  int64_t heads_q, heads_kv;
} kernels[GENERATOR_FLAG_ROWS] = {
    {KJIT_FP16, 64, 64, 64, 64, 64, 4, 1, 2, 2},   {KJIT_BF16, 40, 40, 48, 32, 32, 2, 1, 4, 2},
    {KJIT_FP16, 72, 48, 80, 64, 32, 4, 1, 3, 1},   {KJIT_BF16, 32, 88, 96, 64, 48, 4, 1, 4, 2},
    {KJIT_FP16, 48, 24, 48, 16, 48, 1, 0, 6, 3},   {KJIT_BF16, 64, 32, 64, 128, 32, 8, 1, 2, 1},
    {KJIT_FP16, 104, 96, 112, 32, 64, 2, 1, 4, 2}, {KJIT_BF16, 192, 128, 192, 64, 32, 4, 1, 4, 2},
    {KJIT_FP16, 64, 128, 128, 16, 32, 1, 1, 1, 1}, {KJIT_BF16, 8, 16, 32, 64, 64, 4, 0, 4, 2},
};

/* More keys than queries, more queries than keys (the first rows see none), one query; whole and ragged blocks. */
static const struct { int64_t seq_q, seq_kv; } lengths[] = {{37, 101}, {70, 48}, {1, 65}};

enum { LENGTHS = sizeof lengths / sizeof *lengths };

static struct gpu_case case_of(struct gpu_fixture *fixture, size_t row, size_t index) {
  static const enum problem_layout layouts[] = {LAYOUT_BSHD, LAYOUT_PADDED, LAYOUT_BHSD, LAYOUT_SHARED_KV};
  struct gpu_case made = {
      .config = {.dtype = kernels[row].dtype,
                 .d_head = kernels[row].d_head,
                 .B_r = kernels[row].B_r,
                 .B_c = kernels[row].B_c,
                 .n_warps = kernels[row].n_warps},
      .problem = {.asked = PROBLEM_OF(.dtype = kernels[row].dtype, .batch = 1, .heads_q = kernels[row].heads_q,
                                      .heads_kv = kernels[row].heads_kv, .seq_q = lengths[index].seq_q,
                                      .seq_kv = lengths[index].seq_kv, .head_dim = kernels[row].head_dim,
                                      .head_dim_v = kernels[row].head_dim_v,
                                      .flags = (kernels[row].causal) ? KJIT_ATTENTION_CAUSAL : 0),
                  .layout = layouts[(row + index) % 4],
                  .lse = 1,
                  .seed = random_next(&fixture->random)}};
  generator_flags(&made.config, row);
  return made;
}

static void test_flash_traits__every_flag_is_right_at_every_length(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_case cases[GENERATOR_FLAG_ROWS * LENGTHS];
  size_t count = 0;
  for (size_t row = 0; row < GENERATOR_FLAG_ROWS; row++)
    for (size_t i = 0; i < LENGTHS; i++)
      cases[count++] = case_of(fixture, row, i);
  gpu_run_cases(fixture, cases, count);
}

/* The tiered build's first kernel has code of its own for guarded loads and for storing O. */
static void test_flash_traits__first_tier_is_right_at_every_length(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_case cases[2 * LENGTHS];
  for (size_t i = 0; i < 2 * LENGTHS; i++) {
    cases[i] = case_of(fixture, i % 2 ? 2 : 4, i / 2); /* causal, groups of three heads; full, groups of two */
    cases[i].config = (kjit_flash_config){.dtype = KJIT_FP16,
                                          .d_head = i % 2 ? 80 : 48,
                                          .B_r = 64,
                                          .B_c = 16,
                                          .n_warps = 4,
                                          .async_copy = 1,
                                          .eager_load_blocks = 1,
                                          .swizzled = 1,
                                          .Q_mma_load_K_tiles = 2,
                                          .K_mma_load_K_tiles = 2};
  }
  gpu_run_cases(fixture, cases, 2 * LENGTHS);
}

/* As many as $KJIT_EMULATOR_RANDOM_CASES says, each with a kernel of its own to compile: by hand, after a change. */
static void test_flash_traits__random_cases_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const char *given = getenv("KJIT_EMULATOR_RANDOM_CASES");
  const long count = given ? strtol(given, NULL, 10) : 2;
  assert_in_range(count, 1, 100000);
  struct gpu_case *cases = test_calloc((size_t)count, sizeof *cases);
  for (long i = 0; i < count; i++) {
    cases[i] = generator_random_traits(&fixture->random, fixture->card.arch);
    cases[i].problem.asked.seq_q = 1 + cases[i].problem.asked.seq_q % 100;
    cases[i].problem.asked.seq_kv = 1 + cases[i].problem.asked.seq_kv % 100;
  }
  gpu_run_cases(fixture, cases, (size_t)count);
  test_free(cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_traits__every_flag_is_right_at_every_length),
      cmocka_unit_test(test_flash_traits__first_tier_is_right_at_every_length),
      cmocka_unit_test(test_flash_traits__random_cases_are_right),
  };
  return cmocka_run_group_tests_name("flash_forward's traits on the emulator", tests, emulator_setup, gpu_teardown);
}
