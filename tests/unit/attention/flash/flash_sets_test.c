#include "support/configs.h"
#include "support/test.h"

#include <stdbool.h>
#include <stdio.h>

#include "unit/attention/configs.h"

#define CAPACITY 128

struct set {
  kjit_flash_config configs[CAPACITY];
  size_t count;
};

static struct set read_set(const char *name) {
  struct set set;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_set(name, set.configs, CAPACITY, &set.count, &error), &error);
  return set;
}

static bool contains(const struct set *set, const kjit_flash_config *config) {
  for (size_t i = 0; i < set->count; i++) {
    if (plain_compare(&set->configs[i], config) == 0) return true;
  }
  return false;
}

static void expect_sorted(const struct set *set) {
  for (size_t i = 1; i < set->count; i++)
    assert_int_equal(plain_compare(&set->configs[i - 1], &set->configs[i]), -1);
}

static void test_flash_sets__counts_are_the_seeds(void **state) {
  (void)state;
  assert_int_equal(read_set("progression").count, 7);
  assert_int_equal(read_set("autotune").count, 80);
  assert_int_equal(read_set("prebuilt").count, 85);
  assert_int_equal(read_set("progression_all").count, 56);
}

static void test_flash_sets__are_sorted_and_without_repetition(void **state) {
  (void)state;
  const struct set autotune = read_set("autotune"), prebuilt = read_set("prebuilt"), all = read_set("progression_all");
  expect_sorted(&autotune);
  expect_sorted(&prebuilt);
  expect_sorted(&all);
}

static void test_flash_sets__every_config_is_legal(void **state) {
  (void)state;
  const char *const names[] = {"progression", "autotune", "prebuilt", "progression_all"};
  for (size_t n = 0; n < 4; n++) {
    const struct set set = read_set(names[n]);
    for (size_t i = 0; i < set.count; i++) {
      kjit_error error;
      assert_status(KJIT_OK, plain_check(&set.configs[i], "sm_86", &error), &error);
    }
  }
}

static void test_flash_sets__progression_is_the_staircase(void **state) {
  (void)state;
  static const char *const features[] = {"async+load_0_0_0_tiles",
                                         "async+swizzled+load_0_0_0_tiles",
                                         "async+eager+swizzled+load_0_0_0_tiles",
                                         "async+eager+swizzled+load_2_2_2_tiles",
                                         "async+eager+swizzled+load_2_2_2_tiles+buffer",
                                         "async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax",
                                         "async+eager+swizzled+load_0_2_2_tiles+opt_softmax"};
  const struct set set = read_set("progression");
  for (size_t i = 0; i < 7; i++) {
    char text[KJIT_FLASH_CONFIG_TEXT_MAX], wanted[KJIT_FLASH_CONFIG_TEXT_MAX];
    kjit_error error;
    snprintf(wanted, sizeof wanted, "(FP16, 128, 64, 64, 4): %s", features[i]);
    assert_status(KJIT_OK, kjit_flash_config_print(&set.configs[i], 0, text, sizeof text, &error), &error);
    assert_string_equal(text, wanted);
  }
}

/* How many autotune configs have this tile and dtype; every one must have the load counts of the original project's
 * table. */
static size_t count_tile(const struct set *set, int32_t dtype, int32_t B_r, int32_t B_c,
                         bool (*fits)(int32_t q, int32_t k)) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) {
    const kjit_flash_config *config = &set->configs[i];
    if (config->dtype != dtype || config->B_r != B_r || config->B_c != B_c) continue;
    assert_true(fits(config->Q_mma_load_K_tiles, config->K_mma_load_K_tiles));
    assert_true(config->V_mma_load_K_tiles == 0 || config->V_mma_load_K_tiles == 2);
    count++;
  }
  return count;
}

static bool both_streamed(int32_t q, int32_t k) {
  return q == 2 && k == 2;
}

static bool query_kept(int32_t q, int32_t k) {
  return q == 0 && (k == 0 || k == 2);
}

static void test_flash_sets__autotune_is_the_seeds_table(void **state) {
  (void)state;
  const struct set set = read_set("autotune");
  const int32_t dtypes[] = {KJIT_FP16, KJIT_BF16};
  for (size_t d = 0; d < 2; d++) {
    assert_int_equal(count_tile(&set, dtypes[d], 64, 32, both_streamed), 8);
    assert_int_equal(count_tile(&set, dtypes[d], 64, 64, query_kept), 16);
    assert_int_equal(count_tile(&set, dtypes[d], 128, 32, both_streamed), 8);
    assert_int_equal(count_tile(&set, dtypes[d], 128, 64, both_streamed), 8);
  }
}

static void test_flash_sets__autotune_is_async_eager_swizzled(void **state) {
  (void)state;
  const struct set set = read_set("autotune");
  for (size_t i = 0; i < set.count; i++) {
    const kjit_flash_config *config = &set.configs[i];
    assert_true(config->async_copy && config->eager_load_blocks && config->swizzled);
    assert_int_equal(config->d_head, 128);
    assert_int_equal(config->n_warps, 4);
  }
}

static void test_flash_sets__four_of_autotune_buffer_nothing(void **state) {
  (void)state;
  const struct set set = read_set("autotune");
  size_t count = 0;
  for (size_t i = 0; i < set.count; i++) {
    const kjit_flash_config *config = &set.configs[i];
    count += config->mma_double_buffer_loads && !config->Q_mma_load_K_tiles && !config->K_mma_load_K_tiles &&
             !config->V_mma_load_K_tiles;
  }
  assert_int_equal(count, 4);
}

static void test_flash_sets__prebuilt_is_autotune_and_five_of_the_progression(void **state) {
  (void)state;
  const struct set prebuilt = read_set("prebuilt"), autotune = read_set("autotune"), steps = read_set("progression");
  const bool in_autotune[] = {0, 0, 1, 0, 0, 0, 1};
  for (size_t i = 0; i < autotune.count; i++)
    assert_true(contains(&prebuilt, &autotune.configs[i]));
  for (size_t i = 0; i < steps.count; i++) {
    assert_true(contains(&prebuilt, &steps.configs[i]));
    assert_int_equal(contains(&autotune, &steps.configs[i]), in_autotune[i]);
  }
}

static void test_flash_sets__prebuilt_has_45_fp16_and_40_bf16(void **state) {
  (void)state;
  const struct set set = read_set("prebuilt");
  size_t fp16 = 0;
  for (size_t i = 0; i < set.count; i++)
    fp16 += set.configs[i].dtype == KJIT_FP16;
  assert_int_equal(fp16, 45);
}

static void test_flash_sets__progression_all_has_eight_tiles_of_seven(void **state) {
  (void)state;
  static const int32_t tiles[8][3] = {{128, 128, 4}, {128, 128, 8}, {128, 64, 4}, {128, 64, 8},
                                      {128, 32, 4},  {128, 32, 8},  {64, 64, 4},  {64, 32, 4}};
  const struct set set = read_set("progression_all");
  for (size_t t = 0; t < 8; t++) {
    size_t count = 0;
    for (size_t i = 0; i < set.count; i++) {
      const kjit_flash_config *config = &set.configs[i];
      count += config->B_r == tiles[t][0] && config->B_c == tiles[t][1] && config->n_warps == tiles[t][2];
    }
    assert_int_equal(count, 7);
  }
}

static void test_flash_sets__count_alone_can_be_asked_for(void **state) {
  (void)state;
  size_t count = 0;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", NULL, 0, &count, &error), &error);
  assert_int_equal(count, 85);
}

static void test_flash_sets__small_capacity_is_refused(void **state) {
  (void)state;
  kjit_flash_config configs[84];
  size_t count = 1;
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_set("prebuilt", configs, 84, &count, &error), &error);
  assert_string_equal(error.message, "capacity: 84 is too small; the set has 85 configs");
  assert_int_equal(count, 0);
}

static void test_flash_sets__unknown_name_lists_the_known(void **state) {
  (void)state;
  size_t count = 1;
  kjit_error error;
  assert_status(KJIT_ERR_NOT_FOUND, kjit_flash_config_set("prog", NULL, 0, &count, &error), &error);
  assert_string_equal(error.message,
                      "set \"prog\" does not exist; there are progression, autotune, prebuilt, progression_all");
  assert_int_equal(count, 0);
}

static void test_flash_sets__null_arguments_are_refused(void **state) {
  (void)state;
  size_t count;
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_set(NULL, NULL, 0, &count, &error), &error);
  assert_contains(error.message, "name");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_set("prebuilt", NULL, 0, NULL, &error), &error);
  assert_contains(error.message, "count");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_sets__counts_are_the_seeds),
      cmocka_unit_test(test_flash_sets__are_sorted_and_without_repetition),
      cmocka_unit_test(test_flash_sets__every_config_is_legal),
      cmocka_unit_test(test_flash_sets__progression_is_the_staircase),
      cmocka_unit_test(test_flash_sets__autotune_is_the_seeds_table),
      cmocka_unit_test(test_flash_sets__autotune_is_async_eager_swizzled),
      cmocka_unit_test(test_flash_sets__four_of_autotune_buffer_nothing),
      cmocka_unit_test(test_flash_sets__prebuilt_is_autotune_and_five_of_the_progression),
      cmocka_unit_test(test_flash_sets__prebuilt_has_45_fp16_and_40_bf16),
      cmocka_unit_test(test_flash_sets__progression_all_has_eight_tiles_of_seven),
      cmocka_unit_test(test_flash_sets__count_alone_can_be_asked_for),
      cmocka_unit_test(test_flash_sets__small_capacity_is_refused),
      cmocka_unit_test(test_flash_sets__unknown_name_lists_the_known),
      cmocka_unit_test(test_flash_sets__null_arguments_are_refused),
  };
  return cmocka_run_group_tests_name("flash_sets", tests, NULL, NULL);
}
