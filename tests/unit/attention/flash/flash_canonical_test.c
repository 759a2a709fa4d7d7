#include "support/configs.h"
#include "support/test.h"

#include "unit/attention/configs.h"

#define RANDOM_CONFIGS 20000

static void expect_canonical(const kjit_flash_config *config, const kjit_flash_config *wanted) {
  const kjit_flash_config canonical = plain_canonical(config);
  assert_memory_equal(&canonical, wanted, sizeof canonical);
}

static void test_flash_canonical__meaningful_config_stays(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  expect_canonical(&config, &config);
  config.mma_double_buffer_loads = 1;
  expect_canonical(&config, &config);
}

static void test_flash_canonical__buffer_without_anything_streamed_is_off(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.Q_mma_load_K_tiles = config.K_mma_load_K_tiles = config.V_mma_load_K_tiles = 0;
  kjit_flash_config wanted = config;
  config.mma_double_buffer_loads = 1;
  expect_canonical(&config, &wanted);
}

static void test_flash_canonical__buffer_of_one_streamed_operand_stays(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.mma_double_buffer_loads = 1;
  config.Q_mma_load_K_tiles = config.K_mma_load_K_tiles = 0;
  expect_canonical(&config, &config);
  config.V_mma_load_K_tiles = 0;
  config.K_mma_load_K_tiles = 8;
  expect_canonical(&config, &config);
}

static void test_flash_canonical__whole_V_is_0(void **state) {
  (void)state;
  kjit_flash_config config = config_base(), wanted = config_base();
  config.V_mma_load_K_tiles = 8;
  wanted.V_mma_load_K_tiles = 0;
  expect_canonical(&config, &wanted);
}

static void test_flash_canonical__whole_K_is_0_where_Q_is(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.Q_mma_load_K_tiles = 0;
  config.K_mma_load_K_tiles = 16;
  kjit_flash_config wanted = config;
  wanted.K_mma_load_K_tiles = 0;
  expect_canonical(&config, &wanted);
}

static void test_flash_canonical__whole_K_stays_where_Q_follows_it(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  config.Q_mma_load_K_tiles = config.K_mma_load_K_tiles = 16;
  expect_canonical(&config, &config);
}

static void test_flash_canonical__is_idempotent_and_legal(void **state) {
  (void)state;
  uint64_t seed = 2;
  for (int i = 0; i < RANDOM_CONFIGS; i++) {
    const kjit_flash_config config = random_legal_config(&seed), once = plain_canonical(&config);
    kjit_error error;
    expect_canonical(&once, &once);
    assert_status(KJIT_OK, plain_check(&once, NULL, &error), &error);
  }
}

static void test_flash_canonical__keeps_the_geometry(void **state) {
  (void)state;
  uint64_t seed = 3;
  for (int i = 0; i < RANDOM_CONFIGS; i++) {
    const kjit_flash_config config = random_legal_config(&seed), canonical = plain_canonical(&config);
    assert_int_equal(canonical.dtype, config.dtype);
    assert_int_equal(canonical.d_head, config.d_head);
    assert_int_equal(canonical.B_r, config.B_r);
    assert_int_equal(canonical.B_c, config.B_c);
    assert_int_equal(canonical.n_warps, config.n_warps);
  }
}

static void test_flash_canonical__four_prebuilt_buffer_nothing(void **state) {
  (void)state;
  kjit_flash_config configs[85];
  size_t count, changed = 0;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", configs, 85, &count, &error), &error);
  for (size_t i = 0; i < count; i++) {
    const kjit_flash_config canonical = plain_canonical(&configs[i]);
    changed += plain_compare(&canonical, &configs[i]) != 0;
  }
  assert_int_equal(changed, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_canonical__meaningful_config_stays),
      cmocka_unit_test(test_flash_canonical__buffer_without_anything_streamed_is_off),
      cmocka_unit_test(test_flash_canonical__buffer_of_one_streamed_operand_stays),
      cmocka_unit_test(test_flash_canonical__whole_V_is_0),
      cmocka_unit_test(test_flash_canonical__whole_K_is_0_where_Q_is),
      cmocka_unit_test(test_flash_canonical__whole_K_stays_where_Q_follows_it),
      cmocka_unit_test(test_flash_canonical__is_idempotent_and_legal),
      cmocka_unit_test(test_flash_canonical__keeps_the_geometry),
      cmocka_unit_test(test_flash_canonical__four_prebuilt_buffer_nothing),
  };
  return cmocka_run_group_tests_name("flash_canonical", tests, NULL, NULL);
}
