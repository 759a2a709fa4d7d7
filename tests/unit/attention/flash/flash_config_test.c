#include "support/configs.h"
#include "support/test.h"

#include <stdio.h>

#include "unit/attention/configs.h"

#define SHORT "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"

static void print(const kjit_flash_config *config, uint32_t flags, char text[KJIT_FLASH_CONFIG_TEXT_MAX]) {
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_print(config, flags, text, KJIT_FLASH_CONFIG_TEXT_MAX, &error), &error);
}

static void expect_print(uint32_t flags, const char *wanted) {
  const kjit_flash_config config = config_base();
  char text[KJIT_FLASH_CONFIG_TEXT_MAX];
  print(&config, flags, text);
  assert_string_equal(text, wanted);
}

static void expect_parse(const char *text, const kjit_flash_config *wanted) {
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_parse(text, &config, &error), &error);
  assert_int_equal(plain_compare(&config, wanted), 0);
}

static void expect_round_trip(const kjit_flash_config *config) {
  char text[KJIT_FLASH_CONFIG_TEXT_MAX];
  print(config, 0, text);
  expect_parse(text, config);
}

static void test_flash_config__short_form_is_the_seeds(void **state) {
  (void)state;
  expect_print(0, SHORT);
}

static void test_flash_config__parts_can_be_left_out(void **state) {
  (void)state;
  expect_print(KJIT_PRINT_NO_D_HEAD, "(FP16, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax");
  expect_print(KJIT_PRINT_NO_TUPLE, "async+eager+swizzled+load_2_2_2_tiles+opt_softmax");
}

static void test_flash_config__parts_left_out_do_not_parse_back(void **state) {
  (void)state;
  kjit_flash_config config;
  assert_int_equal(kjit_flash_config_parse("(FP16, 64, 64, 4): load_2_2_2_tiles", &config, NULL), KJIT_ERR_PARSE);
  assert_int_equal(kjit_flash_config_parse("async+load_2_2_2_tiles", &config, NULL), KJIT_ERR_PARSE);
}

static void test_flash_config__json_has_every_field_in_order(void **state) {
  (void)state;
  expect_print(KJIT_PRINT_JSON,
               "{\"dtype\": \"FP16\", \"d_head\": 128, \"B_r\": 64, \"B_c\": 64, \"n_warps\": 4, \"async_copy\": true, "
               "\"eager_load_blocks\": true, \"swizzled\": true, \"Q_mma_load_K_tiles\": 2, \"K_mma_load_K_tiles\": 2, "
               "\"V_mma_load_K_tiles\": 2, \"mma_double_buffer_loads\": false, \"optimized_softmax\": true}");
}

static void test_flash_config__every_prebuilt_config_is_read_back(void **state) {
  (void)state;
  kjit_flash_config configs[85];
  size_t count;
  kjit_error error;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", configs, 85, &count, &error), &error);
  for (size_t i = 0; i < count; i++)
    expect_round_trip(&configs[i]);
}

static void test_flash_config__random_legal_configs_are_read_back(void **state) {
  (void)state;
  uint64_t seed = 4;
  for (int i = 0; i < 20000; i++) {
    const kjit_flash_config config = random_legal_config(&seed);
    expect_round_trip(&config);
  }
}

static void test_flash_config__longest_text_fits(void **state) {
  (void)state;
  kjit_flash_config config;
  char text[KJIT_FLASH_CONFIG_TEXT_MAX];
  for (size_t i = 0; i < sizeof config / sizeof(int32_t); i++) {
    const int32_t least = INT32_MIN;
    memcpy((char *)&config + i * sizeof least, &least, sizeof least);
  }
  print(&config, 0, text);
  print(&config, KJIT_PRINT_JSON, text);
  assert_contains(text, "\"optimized_softmax\": -2147483648}");
}

static void test_flash_config__small_capacity_is_refused(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  char text[sizeof SHORT];
  kjit_error error;
  memset(text, 'x', sizeof text);
  assert_status(KJIT_OK, kjit_flash_config_print(&config, 0, text, sizeof text, &error), &error);
  for (size_t capacity = 1; capacity < sizeof text; capacity++) {
    memset(text, 'x', sizeof text);
    assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_print(&config, 0, text, capacity, &error), &error);
    assert_contains(error.message, "capacity");
    assert_string_equal(text, "");
    assert_int_equal(text[capacity], 'x');
  }
}

static void test_flash_config__bad_print_arguments_are_refused(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  char text[8];
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_print(NULL, 0, text, sizeof text, &error), &error);
  assert_contains(error.message, "config");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_print(&config, 0, NULL, sizeof text, &error), &error);
  assert_contains(error.message, "text");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_print(&config, 0, text, 0, &error), &error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_print(&config, 8, text, sizeof text, &error), &error);
  assert_contains(error.message, "flags");
}

static void test_flash_config__demangled_spellings_are_read(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  expect_parse("FlashForwardKernelConfig{5, 128, 64, 64, 4, true, true, true, 2, 2, 2, false, true}", &config);
  expect_parse("FlashForwardKernelConfig{5, 128, 64, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1}", &config);
  expect_parse("FlashForwardKernelConfig{(c10::ScalarType)5, (int)128, (int)64, (int)64, (int)4, (bool)1, (bool)1, "
               "(bool)1, (int)2, (int)2, (int)2, (bool)0, (bool)1}",
               &config);
}

static void test_flash_config__blogs_spelling_is_refused(void **state) {
  (void)state;
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_ERR_PARSE,
                kjit_flash_config_parse("(FP16, 128, 64, 64, 4): async+load_0_2_0_fragments", &config, &error), &error);
  assert_string_equal(error.message, "column 31: expected load_<Q>_<K>_<V>_tiles, found \"load_0_2_0_fragments\"");
}

static void test_flash_config__unknown_feature_lists_the_known(void **state) {
  (void)state;
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_ERR_PARSE,
                kjit_flash_config_parse("(FP16, 128, 64, 64, 4): asynch+load_0_2_0_tiles", &config, &error), &error);
  assert_string_equal(error.message, "column 25: expected one of load_<Q>_<K>_<V>_tiles, async, eager, swizzled, "
                                     "buffer, opt_softmax, found \"asynch\"");
}

static void test_flash_config__null_text_is_refused(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  const kjit_flash_config zero = {0};
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_parse(NULL, &config, &error), &error);
  assert_memory_equal(&config, &zero, sizeof config);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_flash_config_parse(SHORT, NULL, &error), &error);
}

static void test_flash_config__success_resets_the_error(void **state) {
  (void)state;
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_ERR_PARSE, kjit_flash_config_parse("", &config, &error), &error);
  assert_status(KJIT_OK, kjit_flash_config_parse(SHORT, &config, &error), &error);
  assert_int_equal(error.status, KJIT_OK);
  assert_string_equal(error.message, "");
}

static void test_flash_config__order_is_by_fields(void **state) {
  (void)state;
  kjit_flash_config a = config_base(), b = config_base();
  assert_int_equal(plain_compare(&a, &b), 0);
  a.B_r = 32;
  a.optimized_softmax = 7;
  assert_int_equal(plain_compare(&a, &b), -1);
  assert_int_equal(plain_compare(&b, &a), 1);
}

static void test_flash_field__rows_describe_the_struct(void **state) {
  (void)state;
  size_t count = 0;
  for (; kjit_family_field(kjit_family_find("flash_forward"), count); count++)
    assert_int_equal(kjit_family_field(kjit_family_find("flash_forward"), count)->offset, 4 * count);
  assert_int_equal(count, 17);
  assert_null(kjit_family_field(kjit_family_find("flash_forward"), SIZE_MAX));
}

static void test_flash_field__kinds_and_tokens_are_named(void **state) {
  (void)state;
  assert_string_equal(kjit_family_field(kjit_family_find("flash_forward"), 0)->name, "dtype");
  assert_int_equal(kjit_family_field(kjit_family_find("flash_forward"), 0)->kind, KJIT_FIELD_DTYPE);
  assert_string_equal(kjit_family_field(kjit_family_find("flash_forward"), 2)->name, "B_r");
  assert_int_equal(kjit_family_field(kjit_family_find("flash_forward"), 2)->kind, KJIT_FIELD_INT);
  assert_string_equal(kjit_family_field(kjit_family_find("flash_forward"), 2)->token, "");
  assert_string_equal(kjit_family_field(kjit_family_find("flash_forward"), 9)->name, "K_mma_load_K_tiles");
  assert_int_equal(kjit_family_field(kjit_family_find("flash_forward"), 9)->kind, KJIT_FIELD_LOAD);
  assert_int_equal(kjit_family_field(kjit_family_find("flash_forward"), 12)->kind, KJIT_FIELD_BOOL);
  assert_string_equal(kjit_family_field(kjit_family_find("flash_forward"), 12)->token, "opt_softmax");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_config__short_form_is_the_seeds),
      cmocka_unit_test(test_flash_config__parts_can_be_left_out),
      cmocka_unit_test(test_flash_config__parts_left_out_do_not_parse_back),
      cmocka_unit_test(test_flash_config__json_has_every_field_in_order),
      cmocka_unit_test(test_flash_config__every_prebuilt_config_is_read_back),
      cmocka_unit_test(test_flash_config__random_legal_configs_are_read_back),
      cmocka_unit_test(test_flash_config__longest_text_fits),
      cmocka_unit_test(test_flash_config__small_capacity_is_refused),
      cmocka_unit_test(test_flash_config__bad_print_arguments_are_refused),
      cmocka_unit_test(test_flash_config__demangled_spellings_are_read),
      cmocka_unit_test(test_flash_config__blogs_spelling_is_refused),
      cmocka_unit_test(test_flash_config__unknown_feature_lists_the_known),
      cmocka_unit_test(test_flash_config__null_text_is_refused),
      cmocka_unit_test(test_flash_config__success_resets_the_error),
      cmocka_unit_test(test_flash_config__order_is_by_fields),
      cmocka_unit_test(test_flash_field__rows_describe_the_struct),
      cmocka_unit_test(test_flash_field__kinds_and_tokens_are_named),
  };
  return cmocka_run_group_tests_name("flash_config", tests, NULL, NULL);
}
