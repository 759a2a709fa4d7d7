#include "support/configs.h"
#include "support/test.h"

#include "attention/flash/flash_config.h"
#include "unit/attention/configs.h"

static kjit_flash_config tile(int32_t B_r, int32_t B_c, int32_t n_warps) {
  kjit_flash_config config = config_base();
  config.B_r = B_r;
  config.B_c = B_c;
  config.n_warps = n_warps;
  return config;
}

static void expect_shared(int32_t B_r, int32_t B_c, uint32_t bytes) {
  const kjit_flash_config config = tile(B_r, B_c, 4);
  assert_int_equal(plain_geometry(&config).shared_bytes, bytes);
}

static void test_flash_geometry__shared_bytes_are_the_seeds(void **state) {
  (void)state;
  expect_shared(64, 32, 32768);
  expect_shared(64, 64, 49152);
  expect_shared(128, 32, 49152);
  expect_shared(128, 64, 65536);
  expect_shared(128, 128, 98304);
}

static void test_flash_geometry__threads_follow_the_warps(void **state) {
  (void)state;
  const kjit_flash_config four = tile(128, 64, 4), eight = tile(128, 64, 8), one = tile(16, 16, 1);
  assert_int_equal(plain_geometry(&four).threads[0], 128);
  assert_int_equal(plain_geometry(&eight).threads[0], 256);
  assert_int_equal(plain_geometry(&one).threads[0], 32);
}

static void test_flash_geometry__illegal_config_does_no_harm(void **state) {
  (void)state;
  const kjit_flash_config zero = {0};
  assert_int_equal(plain_blocks_per_sm(&zero, 128, "sm_80"), 0);
}

static void expect_ctas(uint32_t wanted, kjit_flash_config config, uint32_t registers, const char *arch) {
  assert_int_equal(plain_blocks_per_sm(&config, registers, arch), wanted);
}

static void test_flash_geometry__ctas_are_limited_by_registers(void **state) {
  (void)state;
  expect_ctas(4, tile(64, 32, 4), 128, "sm_80"); /* 16 warps of 4096 registers; by shared memory 4 too */
  expect_ctas(3, tile(64, 32, 4), 168, "sm_80"); /* 168 * 32 = 5376: 3 warps in each quarter of the file */
  expect_ctas(2, tile(64, 32, 4), 255, "sm_80"); /* rounded up to 256 */
  expect_ctas(1, tile(128, 32, 8), 255, "sm_80");
}

static void test_flash_geometry__registers_are_rounded_up_per_warp(void **state) {
  (void)state;
  expect_ctas(3, tile(64, 32, 4), 161, "sm_80"); /* 161 * 32 rounds to 5376: 168 registers a thread */
  expect_ctas(3, tile(64, 32, 4), 160, "sm_80");
  expect_ctas(3, tile(64, 32, 4), 129, "sm_80"); /* one over 128 costs a block */
}

static void test_flash_geometry__ctas_are_limited_by_shared_memory(void **state) {
  (void)state;
  expect_ctas(3, tile(64, 64, 4), 64, "sm_80"); /* 167936 / (49152 + 1024) */
  expect_ctas(2, tile(128, 64, 4), 64, "sm_80");
  expect_ctas(1, tile(128, 64, 4), 64, "sm_86"); /* 102400 / (65536 + 1024) */
  expect_ctas(4, tile(64, 64, 4), 64, "sm_90");
}

static void test_flash_geometry__reserved_shared_memory_counts(void **state) {
  (void)state;
  /* Two blocks of 50 KiB would fill sm_86's 100 KiB, but each also costs the system's 1 KiB. */
  kjit_flash_config config = tile(16, 192, 1);
  config.d_head = 64;
  assert_int_equal(plain_geometry(&config).shared_bytes, 50 * 1024);
  expect_ctas(1, config, 64, "sm_86");
  config.B_c = 176; /* 46 KiB */
  expect_ctas(2, config, 64, "sm_86");
}

static void test_flash_geometry__ctas_are_limited_by_threads_and_blocks(void **state) {
  (void)state;
  kjit_flash_config small = tile(16, 16, 1), wide = tile(128, 16, 8);
  small.d_head = wide.d_head = 32;
  small.V_mma_load_K_tiles = wide.V_mma_load_K_tiles = 0;
  expect_ctas(32, small, 32, "sm_80"); /* blocks per multiprocessor */
  expect_ctas(16, small, 32, "sm_86");
  expect_ctas(24, small, 32, "sm_89");
  expect_ctas(8, wide, 32, "sm_80"); /* 2048 / 256 threads */
  expect_ctas(6, wide, 32, "sm_89"); /* 1536 / 256 threads */
}

static void test_flash_geometry__what_cannot_run_has_no_ctas(void **state) {
  (void)state;
  kjit_flash_config large = tile(128, 128, 8);
  large.d_head = 256;
  expect_ctas(0, large, 128, "sm_86"); /* 192 KiB */
  expect_ctas(1, large, 128, "sm_90");
  expect_ctas(0, tile(64, 64, 4), 0, "sm_80");
  expect_ctas(0, tile(64, 64, 4), 256, "sm_80");
  expect_ctas(0, tile(64, 64, 4), 128, "sm_75");
  expect_ctas(0, tile(64, 64, 4), 128, "sm_999");
  expect_ctas(0, tile(64, 64, 4), 128, "nonsense");
  expect_ctas(0, tile(64, 64, 4), 128, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_geometry__shared_bytes_are_the_seeds),
      cmocka_unit_test(test_flash_geometry__threads_follow_the_warps),
      cmocka_unit_test(test_flash_geometry__illegal_config_does_no_harm),
      cmocka_unit_test(test_flash_geometry__ctas_are_limited_by_registers),
      cmocka_unit_test(test_flash_geometry__registers_are_rounded_up_per_warp),
      cmocka_unit_test(test_flash_geometry__ctas_are_limited_by_shared_memory),
      cmocka_unit_test(test_flash_geometry__reserved_shared_memory_counts),
      cmocka_unit_test(test_flash_geometry__ctas_are_limited_by_threads_and_blocks),
      cmocka_unit_test(test_flash_geometry__what_cannot_run_has_no_ctas),
  };
  return cmocka_run_group_tests_name("flash_geometry", tests, NULL, NULL);
}
