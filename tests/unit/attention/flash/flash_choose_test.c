#include "support/configs.h"
#include "support/test.h"

#include <stdio.h>

#include "attention/attention_arguments.h"
#include "attention/attention_variant_launch.h"
#include "attention/flash/flash_call.h"
#include "attention/flash/flash_choose.h"
#include "base/error.h"
#include "family/config.h"
#include "support/attention_grid.h"
#include "unit/attention/configs.h"
#include "unit/attention/flash/variants.h"

static const char *const archs[] = {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"};
#define ARCH_COUNT (sizeof archs / sizeof *archs)

/* By problem, without defaults left open. */
static kjit_status choose_variant(const kjit_attention_problem *problem, const char *arch, struct flash_variant *out,
                                  kjit_error *error) {
  kjit_attention_problem taken;
  struct family_place place;
  error_clear(error);
  *out = (struct flash_variant){0};
  kjit_status status = attention_problem_take(&taken, problem, error);
  if (status == KJIT_OK) status = family_place_of_arch(arch, &place, error);
  return status == KJIT_OK ? flash_choose(&taken, &place, out, error) : status;
}

/* Sizes as they are, also those that no problem has. */
static kjit_status choose_config(int32_t dtype, int64_t seq_q, int64_t seq_kv, int64_t head_dim, const char *arch,
                                 kjit_flash_config *out, kjit_error *error) {
  const kjit_attention_problem problem = {
      .dtype = dtype, .seq_q = seq_q, .seq_kv = seq_kv, .head_dim = head_dim, .head_dim_v = head_dim};
  struct family_place place;
  struct flash_variant variant = {0};
  error_clear(error);
  kjit_status status = family_place_of_arch(arch, &place, error);
  if (status == KJIT_OK) status = flash_choose(&problem, &place, &variant, error);
  *out = variant.config;
  return status;
}

static kjit_flash_config choose(int64_t seq_q, int64_t seq_kv, int64_t head_dim, const char *arch) {
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_OK, choose_config(KJIT_BF16, seq_q, seq_kv, head_dim, arch, &config, &error), &error);
  return config;
}

static void test_flash_choose__every_head_size_on_every_architecture_is_legal(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 15, 16, 17, 32, 33, 64, 65, 127, 128, 129, 4097, INT32_MAX, INT64_MAX};
  const size_t count = sizeof lengths / sizeof *lengths;
  for (size_t a = 0; a < ARCH_COUNT; a++) {
    for (int32_t head_dim = 32; head_dim <= 256; head_dim += 16) {
      for (size_t i = 0; i < count * count; i++) {
        const kjit_flash_config config = choose(lengths[i / count], lengths[i % count], head_dim, archs[a]);
        kjit_error error;
        assert_status(KJIT_OK, plain_check(&config, archs[a], &error), &error);
        assert_int_equal(config.d_head, head_dim);
        assert_int_equal(config.dtype, KJIT_BF16);
      }
    }
  }
}

static void test_flash_choose__result_is_canonical(void **state) {
  (void)state;
  for (int32_t head_dim = 32; head_dim <= 256; head_dim += 16) {
    const kjit_flash_config config = choose(1000, 1000, head_dim, "sm_90");
    const kjit_flash_config canonical = plain_canonical(&config);
    assert_memory_equal(&config, &canonical, sizeof config);
  }
}

static void test_flash_choose__long_sequences_get_the_large_tile(void **state) {
  (void)state;
  const kjit_flash_config config = choose(4096, 4096, 128, "sm_90");
  assert_int_equal(config.B_r, 128);
  assert_true(config.async_copy && config.eager_load_blocks && config.swizzled && config.optimized_softmax);
}

static void test_flash_choose__short_queries_get_fewer_rows(void **state) {
  (void)state;
  assert_true(choose(1, 4096, 128, "sm_90").B_r < choose(4096, 4096, 128, "sm_90").B_r);
}

static void test_flash_choose__little_shared_memory_gets_a_smaller_tile(void **state) {
  (void)state;
  const kjit_flash_config large = choose(4096, 4096, 128, "sm_80"), small = choose(4096, 4096, 128, "sm_86");
  assert_true(plain_geometry(&small).shared_bytes < plain_geometry(&large).shared_bytes);
}

static void expect_unsupported(int32_t dtype, int64_t head_dim, const char *arch, const char *part) {
  const kjit_flash_config zero = {0};
  kjit_flash_config config = config_base();
  kjit_error error;
  assert_status(KJIT_ERR_UNSUPPORTED, choose_config(dtype, 1, 1, head_dim, arch, &config, &error), &error);
  assert_contains(error.message, part);
  assert_memory_equal(&config, &zero, sizeof config);
}

static void test_flash_choose__what_the_family_lacks_is_unsupported(void **state) {
  (void)state;
  expect_unsupported(KJIT_FP32, 128, "sm_90", "no config of flash_forward fits: dtype is 6");
  expect_unsupported(KJIT_FP16, 44, "sm_90", "head_dim is 44: flash_forward takes multiples of 8 up to 256");
  expect_unsupported(KJIT_FP16, 0, "sm_90", "head_dim is 0");
  expect_unsupported(KJIT_FP16, 512, "sm_90", "head_dim is 512");
  expect_unsupported(KJIT_FP16, INT64_MAX, "sm_90", "head_dim is 9223372036854775807");
  expect_unsupported(KJIT_FP16, INT64_MIN, "sm_90", "head_dim is -9223372036854775808");
  expect_unsupported(KJIT_FP16, 128, "sm_75", "requires sm_80 or higher (current: sm_75)");
  expect_unsupported(KJIT_FP16, 128, "sm_999", "sm_999");
}

/* As plain_forward() does: the config chosen, with the problem, is the kernel chosen. */
static void expect_chosen_fits(const kjit_attention_problem *problem, const char *arch) {
  struct flash_variant chosen, again;
  kjit_error error;
  assert_status(KJIT_OK, choose_variant(problem, arch, &chosen, &error), &error);
  assert_status(KJIT_OK, variant_check(&chosen, arch, &error), &error);
  assert_status(KJIT_OK, variant_of(&chosen.config, problem, &again, &error), &error);
  assert_memory_equal(&chosen, &again, sizeof chosen);
  const struct flash_variant canonical = variant_canonical(&chosen);
  assert_memory_equal(&chosen, &canonical, sizeof chosen);
}

static void test_flash_choose__every_problem_of_the_grid_gets_a_kernel_everywhere(void **state) {
  (void)state;
  for (size_t a = 0; a < ARCH_COUNT; a++) {
    for (size_t i = 0; i < ATTENTION_GRID_SIZE; i++) {
      const kjit_attention_problem problem = attention_grid_problem(i);
      expect_chosen_fits(&problem, archs[a]);
    }
  }
}

static void test_flash_choose__every_pair_of_head_sizes_gets_a_kernel(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.seq_q = 4096;
  for (problem.head_dim = 8; problem.head_dim <= 256; problem.head_dim += 8) {
    for (problem.head_dim_v = 8; problem.head_dim_v <= 256; problem.head_dim_v += 8) {
      expect_chosen_fits(&problem, "sm_80");
      expect_chosen_fits(&problem, "sm_120");
    }
  }
}

static void test_flash_choose__v_decides_the_tile_while_q_and_k_are_little_wider(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  struct flash_variant wider;
  kjit_error error;
  problem.dtype = KJIT_BF16;
  problem.seq_q = 4096;
  problem.head_dim = 192;
  problem.head_dim_v = 128;
  assert_status(KJIT_OK, choose_variant(&problem, "sm_80", &wider, &error), &error);
  const kjit_flash_config like = choose(4096, 4096, 128, "sm_80");
  assert_int_equal(wider.config.B_r, like.B_r);
  assert_int_equal(wider.config.B_c, like.B_c);
  assert_int_equal(wider.config.Q_mma_load_K_tiles, 2);
}

static void test_flash_choose__too_little_shared_memory_is_unsupported(void **state) {
  (void)state;
  const kjit_attention_problem problem = {
      .dtype = KJIT_FP16, .seq_q = 4096, .seq_kv = 4096, .head_dim = 256, .head_dim_v = 256};
  const struct family_place place = {"sm_80", 108, 48 * 1024, {0}};
  struct flash_variant variant;
  kjit_error error = {0};
  assert_status(KJIT_ERR_UNSUPPORTED, flash_choose(&problem, &place, &variant, &error), &error);
  assert_contains(error.message, "= 65536 bytes of shared memory; must be at most 49152 on sm_80");
}

/* The number of keys of a step for causal queries with a variant that has a score function, or none. */
static int32_t keys_for_variant(int64_t head_dim, const char *arch, bool has_score, int gathered) {
  const struct attention_variant_launch launch = {.source = {.has_score = has_score}, .gathered = gathered};
  kjit_attention_problem problem = kjit_attention_problem_default();
  struct flash_variant variant;
  kjit_error error;
  problem.dtype = KJIT_BF16;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  problem.seq_q = 4096;
  problem.head_dim = head_dim;
  assert_status(KJIT_OK, choose_variant(&problem, arch, &variant, &error), &error);
  flash_attention.suit(&problem, &launch, (int32_t *)&variant);
  assert_status(KJIT_OK, variant_check(&variant, arch, &error), &error);
  return variant.config.B_c;
}

static void test_flash_suit__a_score_function_gets_shorter_steps(void **state) {
  (void)state;
  assert_int_equal(keys_for_variant(64, "sm_80", false, 0), 96);
  assert_int_equal(keys_for_variant(64, "sm_80", true, 0), 80);
  assert_int_equal(keys_for_variant(64, "sm_80", true, 1), 80);
  assert_int_equal(keys_for_variant(64, "sm_80", true, 2), 48);
  assert_int_equal(keys_for_variant(64, "sm_86", true, 1), 64);
  assert_int_equal(keys_for_variant(128, "sm_80", true, 1), 48);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_choose__every_head_size_on_every_architecture_is_legal),
      cmocka_unit_test(test_flash_choose__result_is_canonical),
      cmocka_unit_test(test_flash_choose__long_sequences_get_the_large_tile),
      cmocka_unit_test(test_flash_choose__short_queries_get_fewer_rows),
      cmocka_unit_test(test_flash_choose__little_shared_memory_gets_a_smaller_tile),
      cmocka_unit_test(test_flash_choose__what_the_family_lacks_is_unsupported),
      cmocka_unit_test(test_flash_choose__every_problem_of_the_grid_gets_a_kernel_everywhere),
      cmocka_unit_test(test_flash_choose__every_pair_of_head_sizes_gets_a_kernel),
      cmocka_unit_test(test_flash_choose__v_decides_the_tile_while_q_and_k_are_little_wider),
      cmocka_unit_test(test_flash_choose__too_little_shared_memory_is_unsupported),
      cmocka_unit_test(test_flash_suit__a_score_function_gets_shorter_steps),
  };
  return cmocka_run_group_tests_name("flash_choose", tests, NULL, NULL);
}
