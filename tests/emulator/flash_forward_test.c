/* flash_forward on the emulator beside float64: every flag both ways, both types, block shapes, lengths, layouts. */
#include "case_generator.h"

#include "emulator_fixture.h"
#include <stdbool.h>

#include "support/configs.h"
#include "support/test.h"

/* A config for each row of flags; between them every number of warps, both types and narrow, odd and wide heads. */
static const struct {
  int32_t dtype, d_head, B_r, B_c, n_warps;
} shapes[GENERATOR_FLAG_ROWS] = {
    {KJIT_FP16, 64, 64, 64, 4},  {KJIT_BF16, 64, 32, 32, 2},  {KJIT_FP16, 80, 64, 32, 4}, {KJIT_BF16, 128, 64, 32, 4},
    {KJIT_FP16, 48, 16, 48, 1},  {KJIT_BF16, 64, 128, 32, 8}, {KJIT_FP16, 32, 64, 64, 2}, {KJIT_BF16, 160, 64, 32, 4},
    {KJIT_FP16, 128, 16, 32, 1}, {KJIT_BF16, 96, 64, 64, 4},
};

/* Of one config. Between them: one key, fewer queries than a block, ragged and whole blocks, each layout; a
 * scale at which the largest score moves so far that the output is rescaled. */
static const struct {
  int64_t batch, heads, seq_q, seq_kv;
  double scale;
  enum problem_layout layout;
  bool lse;
} lengths[] = {
    {1, 1, 1, 1, 0, LAYOUT_BSHD, 1},     {2, 2, 37, 101, 2, LAYOUT_PADDED, 1},   {1, 2, 129, 64, 0.25, LAYOUT_BHSD, 0},
    {1, 3, 70, 70, 0, LAYOUT_PACKED, 1}, {2, 2, 17, 33, 0, LAYOUT_SHARED_KV, 1},
};

enum { LENGTHS = sizeof lengths / sizeof *lengths };

static struct trial_problem problem_of(struct gpu_fixture *fixture, const kjit_flash_config *config, size_t index) {
  return (struct trial_problem){.asked = PROBLEM_OF(.dtype = config->dtype, .batch = lengths[index].batch,
                                                    .heads_q = lengths[index].heads, .seq_q = lengths[index].seq_q,
                                                    .seq_kv = lengths[index].seq_kv, .head_dim = config->d_head),
                                .layout = lengths[index].layout,
                                .scale = lengths[index].scale,
                                .lse = lengths[index].lse,
                                .seed = random_next(&fixture->random)};
}

static kjit_flash_config config_of(size_t row) {
  kjit_flash_config config = {.dtype = shapes[row].dtype,
                              .d_head = shapes[row].d_head,
                              .B_r = shapes[row].B_r,
                              .B_c = shapes[row].B_c,
                              .n_warps = shapes[row].n_warps};
  kjit_error error = {0};
  generator_flags(&config, row);
  assert_status(KJIT_OK, plain_check(&config, "sm_90", &error), &error);
  return config;
}

static void test_flash_forward__every_flag_is_right_at_every_length(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_case cases[GENERATOR_FLAG_ROWS * LENGTHS];
  size_t count = 0;
  for (size_t row = 0; row < GENERATOR_FLAG_ROWS; row++)
    for (size_t i = 0; i < LENGTHS; i++, count++) {
      cases[count].config = config_of(row);
      cases[count].problem = problem_of(fixture, &cases[count].config, i);
    }
  gpu_run_cases(fixture, cases, count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_forward__every_flag_is_right_at_every_length),
  };
  return cmocka_run_group_tests_name("flash_forward on the emulator", tests, emulator_setup, gpu_teardown);
}
