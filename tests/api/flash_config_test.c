/* A user's work with configs: no runtime, no GPU. */
#include "support/configs.h"
#include "support/test.h"

#include <stdio.h>

#include <kjit/flash_forward.h>

#define TEXT "(BF16, 96, 128, 48, 8): async+eager+swizzled+load_0_4_2_tiles+buffer+opt_softmax"

static kjit_flash_config read_text(const char *text) {
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_parse(text, &config, &error), &error);
  return config;
}

static void test_flash_config__text_becomes_fields(void **state) {
  (void)state;
  const kjit_flash_config config = read_text(TEXT);
  assert_int_equal(config.dtype, KJIT_BF16);
  assert_int_equal(config.d_head, 96);
  assert_int_equal(config.B_r, 128);
  assert_int_equal(config.B_c, 48);
  assert_int_equal(config.n_warps, 8);
  assert_int_equal(config.Q_mma_load_K_tiles, 0);
  assert_int_equal(config.K_mma_load_K_tiles, 4);
  assert_int_equal(config.V_mma_load_K_tiles, 2);
  assert_int_equal(config.mma_double_buffer_loads, 1);
}

static void test_flash_config__fields_become_text(void **state) {
  (void)state;
  const kjit_flash_config config = read_text(TEXT);
  char text[KJIT_FLASH_CONFIG_TEXT_MAX];
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_print(&config, 0, text, sizeof text, &error), &error);
  assert_string_equal(text, TEXT);
}

static void test_flash_config__a_table_in_another_language_can_be_built_from_the_fields(void **state) {
  (void)state;
  const kjit_flash_config config = read_text(TEXT);
  char json[KJIT_FLASH_CONFIG_TEXT_MAX];
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_print(&config, KJIT_PRINT_JSON, json, sizeof json, &error), &error);
  const kjit_family *family = kjit_family_find("flash_forward");
  for (size_t i = 0; i < sizeof config / sizeof(int32_t); i++) {
    const kjit_field_info *field = kjit_family_field(family, i);
    char name[64];
    assert_int_equal(field->offset, i * sizeof(int32_t));
    assert_true(*field->text);
    snprintf(name, sizeof name, "\"%s\": ", field->name);
    assert_contains(json, name);
  }
}

static void test_flash_config__illegal_value_is_named(void **state) {
  (void)state;
  kjit_flash_config config = read_text(TEXT);
  kjit_error error;
  config.d_head = 100;
  assert_status(KJIT_ERR_INVALID_CONFIG, plain_check(&config, "sm_80", &error), &error);
  assert_string_equal(error.message, "d_head is 100: must be a multiple of 16 from 32 to 256");
}

static void test_flash_config__numbers_follow(void **state) {
  (void)state;
  const kjit_flash_config config = read_text(TEXT);
  const kjit_geometry geometry = plain_geometry(&config);
  assert_int_equal(geometry.threads[0], 256);
  assert_int_equal(geometry.shared_bytes, (128 + 2 * 48) * 96 * 2);
  assert_int_equal(plain_blocks_per_sm(&config, 128, "sm_80"), 2);
}

static void test_flash_config__sets_are_read_after_asking_for_their_count(void **state) {
  (void)state;
  size_t count = 0, again = 0;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", NULL, 0, &count, &error), &error);
  kjit_flash_config *configs = calloc(count, sizeof *configs);
  assert_non_null(configs);
  const kjit_status status = kjit_flash_config_set("prebuilt", configs, count, &again, &error);
  const kjit_status last = plain_check(&configs[count - 1], "sm_90", NULL);
  free(configs);
  assert_status(KJIT_OK, status, &error);
  assert_int_equal(again, 85);
  assert_int_equal(last, KJIT_OK);
}

static void test_flash_config__a_choice_passes_its_own_check(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_config config;
  uint32_t decided_by = KJIT_DECIDED_BY_NONE;
  kjit_error error;
  problem.dtype = KJIT_FP16;
  problem.seq_q = 4096;
  problem.head_dim = 128;
  assert_status(KJIT_OK, kjit_attention_choose(NULL, &problem, "sm_90", &config, &decided_by, &error), &error);
  assert_int_equal(decided_by, KJIT_DECIDED_BY_RULES);
  assert_string_equal(kjit_family_name(config.family), "flash_forward");
  assert_status(KJIT_OK, kjit_config_check(&config, "sm_90", &error), &error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_config__text_becomes_fields),
      cmocka_unit_test(test_flash_config__fields_become_text),
      cmocka_unit_test(test_flash_config__a_table_in_another_language_can_be_built_from_the_fields),
      cmocka_unit_test(test_flash_config__illegal_value_is_named),
      cmocka_unit_test(test_flash_config__numbers_follow),
      cmocka_unit_test(test_flash_config__sets_are_read_after_asking_for_their_count),
      cmocka_unit_test(test_flash_config__a_choice_passes_its_own_check),
  };
  return cmocka_run_group_tests_name("flash_config", tests, NULL, NULL);
}
