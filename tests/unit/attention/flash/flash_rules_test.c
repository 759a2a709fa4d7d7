#include "support/configs.h"
#include "support/test.h"

#include <stdio.h>

#include "attention/flash/flash_config.h"
#include "unit/attention/configs.h"

static void expect_legal(const kjit_flash_config *config) {
  kjit_error error;
  assert_status(KJIT_OK, plain_check(config, NULL, &error), &error);
}

static void expect_refused(const kjit_flash_config *config, const char *message) {
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_CONFIG, plain_check(config, NULL, &error), &error);
  assert_int_equal(error.status, KJIT_ERR_INVALID_CONFIG);
  assert_string_equal(error.message, message);
}

/* The base config with one field changed. */

static kjit_flash_config changed(size_t offset, int32_t value) {
  kjit_flash_config config = config_base();
  memcpy((char *)&config + offset, &value, sizeof value);
  return config;
}

#define CHANGED(field, value) changed(offsetof(kjit_flash_config, field), (value))

static void test_flash_rules__base_config_is_legal(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  expect_legal(&config);
}

static void test_flash_rules__dtype_must_be_16_bit(void **state) {
  (void)state;
  const kjit_flash_config fp32 = CHANGED(dtype, KJIT_FP32), bf16 = CHANGED(dtype, KJIT_BF16);
  expect_refused(&fp32, "dtype is 6: must be FP16 (5) or BF16 (15)");
  expect_legal(&bf16);
}

static void test_flash_rules__d_head_must_be_in_steps_of_16(void **state) {
  (void)state;
  const int32_t wrong[] = {INT32_MIN, -16, 0, 16, 31, 40, 127, 272, INT32_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const kjit_flash_config config = CHANGED(d_head, wrong[i]);
    char message[96];
    snprintf(message, sizeof message, "d_head is %d: must be a multiple of 16 from 32 to 256", (int)wrong[i]);
    expect_refused(&config, message);
  }
  for (int32_t d_head = 32; d_head <= 256; d_head += 16) {
    const kjit_flash_config config = CHANGED(d_head, d_head);
    expect_legal(&config);
  }
}

static void test_flash_rules__n_warps_must_be_a_power_of_two_up_to_8(void **state) {
  (void)state;
  const int32_t wrong[] = {INT32_MIN, -1, 0, 3, 5, 6, 7, 16};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const kjit_flash_config config = CHANGED(n_warps, wrong[i]);
    char message[96];
    snprintf(message, sizeof message, "n_warps is %d: must be 1, 2, 4 or 8", (int)wrong[i]);
    expect_refused(&config, message);
  }
}

static void test_flash_rules__B_r_must_give_each_warp_whole_tiles(void **state) {
  (void)state;
  const kjit_flash_config odd = CHANGED(B_r, 96), large = CHANGED(B_r, 320), zero = CHANGED(B_r, 0),
                          negative = CHANGED(B_r, -64), three = CHANGED(B_r, 192);
  expect_refused(&odd, "B_r is 96: must be a multiple of 16 * n_warps (64) up to 256");
  expect_refused(&large, "B_r is 320: must be a multiple of 16 * n_warps (64) up to 256");
  expect_refused(&zero, "B_r is 0: must be a multiple of 16 * n_warps (64) up to 256");
  expect_refused(&negative, "B_r is -64: must be a multiple of 16 * n_warps (64) up to 256");
  expect_refused(&three, "B_r is 192: with n_warps 4, d_head 128 and B_c 64 a thread accumulates in (B_r / n_warps) * "
                         "(d_head + B_c) / 32 = 288 registers; must be at most 256");
}

static void test_flash_rules__8_warps_do_not_fit_64_rows(void **state) {
  (void)state;
  const kjit_flash_config config = CHANGED(n_warps, 8);
  expect_refused(&config, "B_r is 64: must be a multiple of 16 * n_warps (128) up to 256");
}

static void test_flash_rules__B_c_must_be_in_steps_of_16(void **state) {
  (void)state;
  const int32_t wrong[] = {-16, 0, 8, 24, 272};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const kjit_flash_config config = CHANGED(B_c, wrong[i]);
    char message[96];
    snprintf(message, sizeof message, "B_c is %d: must be a multiple of 16 up to 256", (int)wrong[i]);
    expect_refused(&config, message);
  }
}

static void test_flash_rules__booleans_must_be_0_or_1(void **state) {
  (void)state;
  const kjit_flash_config async = CHANGED(async_copy, 2), eager = CHANGED(eager_load_blocks, -1),
                          swizzled = CHANGED(swizzled, 2), buffer = CHANGED(mma_double_buffer_loads, 3),
                          softmax = CHANGED(optimized_softmax, 255);
  expect_refused(&async, "async_copy is 2: must be 0 or 1");
  expect_refused(&eager, "eager_load_blocks is -1: must be 0 or 1");
  expect_refused(&swizzled, "swizzled is 2: must be 0 or 1");
  expect_refused(&buffer, "mma_double_buffer_loads is 3: must be 0 or 1");
  expect_refused(&softmax, "optimized_softmax is 255: must be 0 or 1");
}

static void test_flash_rules__load_counts_must_be_powers_of_two(void **state) {
  (void)state;
  const kjit_flash_config q = CHANGED(Q_mma_load_K_tiles, 1), k = CHANGED(K_mma_load_K_tiles, 3),
                          v = CHANGED(V_mma_load_K_tiles, -2);
  expect_refused(&q, "Q_mma_load_K_tiles is 1: must be 0 or a power of two from 2");
  expect_refused(&k, "K_mma_load_K_tiles is 3: must be 0 or a power of two from 2");
  expect_refused(&v, "V_mma_load_K_tiles is -2: must be 0 or a power of two from 2");
}

static void test_flash_rules__load_counts_must_not_pass_their_axis(void **state) {
  (void)state;
  const kjit_flash_config k = CHANGED(K_mma_load_K_tiles, 32), v = CHANGED(V_mma_load_K_tiles, 16),
                          huge = CHANGED(V_mma_load_K_tiles, 1 << 30);
  expect_refused(&k, "K_mma_load_K_tiles is 32: must be at most 16, the 8-wide fragments of d_head (128)");
  expect_refused(&v, "V_mma_load_K_tiles is 16: must be at most 8, the 8-wide fragments of B_c (64)");
  expect_refused(&huge, "V_mma_load_K_tiles is 1073741824: must be at most 8, the 8-wide fragments of B_c (64)");
}

static void test_flash_rules__buffered_load_counts_must_leave_two_slices(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.mma_double_buffer_loads = 1;
  config.V_mma_load_K_tiles = 8;
  expect_refused(&config, "V_mma_load_K_tiles is 8: must be at most 4, the 8-wide fragments of half of B_c (64)");
  config.V_mma_load_K_tiles = 4;
  expect_legal(&config);
  config.Q_mma_load_K_tiles = config.K_mma_load_K_tiles = 16;
  expect_refused(&config, "Q_mma_load_K_tiles is 16: must be at most 8, the 8-wide fragments of half of d_head (128)");
}

static void test_flash_rules__load_counts_must_divide_their_axis(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.d_head = 48;
  config.Q_mma_load_K_tiles = config.K_mma_load_K_tiles = 4;
  expect_refused(&config, "Q_mma_load_K_tiles is 4: must be a divisor of 6, the 8-wide fragments of d_head (48)");
  config.Q_mma_load_K_tiles = 0;
  expect_refused(&config, "K_mma_load_K_tiles is 4: must be a divisor of 6, the 8-wide fragments of d_head (48)");
  config.K_mma_load_K_tiles = 2;
  expect_legal(&config);
  config.B_c = 80;
  config.V_mma_load_K_tiles = 4;
  expect_refused(&config, "V_mma_load_K_tiles is 4: must be a divisor of 10, the 8-wide fragments of B_c (80)");
}

static void test_flash_rules__Q_must_be_streamed_as_K_or_kept(void **state) {
  (void)state;
  kjit_flash_config config = CHANGED(K_mma_load_K_tiles, 4);
  expect_refused(&config, "Q_mma_load_K_tiles is 2: must be 0 or equal to K_mma_load_K_tiles (4)");
  config.K_mma_load_K_tiles = 0;
  expect_refused(&config, "Q_mma_load_K_tiles is 2: must be 0 or equal to K_mma_load_K_tiles (0)");
  config.Q_mma_load_K_tiles = 0;
  expect_legal(&config);
}

static void test_flash_rules__accumulators_must_fit_the_registers(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.B_r = config.B_c = 128;
  expect_legal(&config); /* 32 * (128 + 128) / 32 = 256, as in the set progression_all */
  config.B_c = 144;
  expect_refused(&config, "B_r is 128: with n_warps 4, d_head 128 and B_c 144 a thread accumulates in (B_r / n_warps) "
                          "* (d_head + B_c) / 32 = 272 registers; must be at most 256");
  config.n_warps = 8;
  expect_legal(&config);
}

static void test_flash_rules__first_broken_rule_is_reported(void **state) {
  (void)state;
  kjit_flash_config config = {0};
  expect_refused(&config, "dtype is 0: must be FP16 (5) or BF16 (15)");
}

static void test_flash_rules__nothing_crashes_on_extreme_values(void **state) {
  (void)state;
  const int32_t extremes[] = {INT32_MIN, -1, 0, 1, INT32_MAX};
  uint64_t seed = 1;
  for (int i = 0; i < 20000; i++) {
    kjit_flash_config config = random_config(&seed);
    const size_t offset = sizeof(int32_t) * random_below(&seed, sizeof config / sizeof(int32_t));
    memcpy((char *)&config + offset, &extremes[random_below(&seed, 5)], sizeof(int32_t));
    kjit_error error;
    const kjit_status status = plain_check(&config, "sm_90", &error);
    assert_true(status == KJIT_OK || status == KJIT_ERR_INVALID_CONFIG || status == KJIT_ERR_UNSUPPORTED);
    assert_true((status == KJIT_OK) == (error.message[0] == '\0'));
  }
}

static void test_flash_rules__old_architecture_is_unsupported(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  kjit_error error;
  assert_status(KJIT_ERR_UNSUPPORTED, plain_check(&config, "sm_75", &error), &error);
  assert_string_equal(error.message, "arch: flash_forward requires sm_80 or higher (current: sm_75)");
}

static void test_flash_rules__unknown_architecture_is_unsupported(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  kjit_error error;
  assert_status(KJIT_ERR_UNSUPPORTED, plain_check(&config, "sm_999", &error), &error);
  assert_contains(error.message, "sm_999");
}

static void test_flash_rules__malformed_architecture_is_invalid(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_ARG, plain_check(&config, "hopper", &error), &error);
  assert_contains(error.message, "hopper");
}

static void test_flash_rules__specific_architecture_is_accepted(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  kjit_error error;
  assert_status(KJIT_OK, plain_check(&config, "sm_90a", &error), &error);
}

static void test_flash_rules__shared_memory_must_fit_the_architecture(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  kjit_error error;
  config.B_r = config.B_c = 128;
  config.d_head = 144;
  config.n_warps = 8;
  assert_status(KJIT_OK, plain_check(&config, NULL, &error), &error);
  assert_status(KJIT_OK, plain_check(&config, "sm_80", &error), &error);
  assert_status(KJIT_ERR_UNSUPPORTED, plain_check(&config, "sm_86", &error), &error);
  assert_string_equal(error.message,
                      "B_r is 128: with B_c 128 and d_head 144 a block needs (B_r + 2 * B_c) * d_head * 2 = 110592 "
                      "bytes of shared memory; must be at most 101376 on sm_86");
}

static kjit_status check_place(const kjit_flash_config *config, const char *arch, uint32_t shared_per_block,
                               kjit_error *error) {
  const struct family_place place = {arch, 132, shared_per_block, {0}};
  const struct flash_variant plain = flash_variant_plain(config);
  return flash_check_place(&plain, &place, error);
}

static void test_flash_rules__shared_memory_may_be_exactly_the_limit(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  assert_int_equal(check_place(&config, "sm_90", 49152, NULL), KJIT_OK);
  assert_int_equal(check_place(&config, "sm_90", 49151, NULL), KJIT_ERR_UNSUPPORTED);
}

static void test_flash_rules__device_newer_than_the_table_is_accepted(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  assert_int_equal(check_place(&config, "sm_130", 101376, NULL), KJIT_OK);
}

static void test_flash_rules__null_config_is_invalid(void **state) {
  (void)state;
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_ARG, plain_check(NULL, NULL, &error), &error);
  assert_contains(error.message, "config");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_rules__base_config_is_legal),
      cmocka_unit_test(test_flash_rules__dtype_must_be_16_bit),
      cmocka_unit_test(test_flash_rules__d_head_must_be_in_steps_of_16),
      cmocka_unit_test(test_flash_rules__n_warps_must_be_a_power_of_two_up_to_8),
      cmocka_unit_test(test_flash_rules__B_r_must_give_each_warp_whole_tiles),
      cmocka_unit_test(test_flash_rules__8_warps_do_not_fit_64_rows),
      cmocka_unit_test(test_flash_rules__B_c_must_be_in_steps_of_16),
      cmocka_unit_test(test_flash_rules__booleans_must_be_0_or_1),
      cmocka_unit_test(test_flash_rules__load_counts_must_be_powers_of_two),
      cmocka_unit_test(test_flash_rules__load_counts_must_not_pass_their_axis),
      cmocka_unit_test(test_flash_rules__buffered_load_counts_must_leave_two_slices),
      cmocka_unit_test(test_flash_rules__load_counts_must_divide_their_axis),
      cmocka_unit_test(test_flash_rules__Q_must_be_streamed_as_K_or_kept),
      cmocka_unit_test(test_flash_rules__accumulators_must_fit_the_registers),
      cmocka_unit_test(test_flash_rules__first_broken_rule_is_reported),
      cmocka_unit_test(test_flash_rules__nothing_crashes_on_extreme_values),
      cmocka_unit_test(test_flash_rules__old_architecture_is_unsupported),
      cmocka_unit_test(test_flash_rules__unknown_architecture_is_unsupported),
      cmocka_unit_test(test_flash_rules__malformed_architecture_is_invalid),
      cmocka_unit_test(test_flash_rules__specific_architecture_is_accepted),
      cmocka_unit_test(test_flash_rules__shared_memory_must_fit_the_architecture),
      cmocka_unit_test(test_flash_rules__shared_memory_may_be_exactly_the_limit),
      cmocka_unit_test(test_flash_rules__device_newer_than_the_table_is_accepted),
      cmocka_unit_test(test_flash_rules__null_config_is_invalid),
  };
  return cmocka_run_group_tests_name("flash_rules", tests, NULL, NULL);
}
