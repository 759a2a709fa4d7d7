#include "support/test.h"

#include <stdbool.h>

#include <kjit/attention.h>

#include "attention/flash/flash_text.h"
#include "base/error.h"

struct toy {
  int32_t dtype, width, slow, A_load, B_load, buffer;
};

static const kjit_field_info toy_rows[] = {
    {"dtype", "", "element type", KJIT_FIELD_DTYPE, offsetof(struct toy, dtype), NULL, 0, NULL},
    {"width", "", "columns", KJIT_FIELD_INT, offsetof(struct toy, width), NULL, 0, NULL},
    {"slow", "slow", "slowly", KJIT_FIELD_BOOL, offsetof(struct toy, slow), NULL, 0, NULL},
    {"A_load", "", "of A", KJIT_FIELD_LOAD, offsetof(struct toy, A_load), NULL, 0, NULL},
    {"B_load", "", "of B", KJIT_FIELD_LOAD, offsetof(struct toy, B_load), NULL, 0, NULL},
    {"buffer", "buf", "twice", KJIT_FIELD_BOOL, offsetof(struct toy, buffer), NULL, 0, NULL},
};
static const struct field_table toy_table = {"toy", "Toy", toy_rows, 6, sizeof(struct toy), 0};

static const struct toy sample = {KJIT_FP16, 64, 1, 2, 4, 1};

static void expect_parse(const char *text, const struct toy *wanted) {
  struct toy config;
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, short_form_parse(&toy_table, text, &config, &error), &error);
  assert_memory_equal(&config, wanted, sizeof config);
}

/* The message begins with the column, and holds `part`. */
static void expect_failure(const char *text, unsigned column, const char *part) {
  static const struct toy zero;
  struct toy config = sample;
  kjit_error error;
  char head[32];
  error_clear(&error);
  assert_status(KJIT_ERR_PARSE, short_form_parse(&toy_table, text, &config, &error), &error);
  snprintf(head, sizeof head, "column %u: ", column);
  assert_ptr_equal(strstr(error.message, head), error.message);
  assert_contains(error.message, part);
  assert_memory_equal(&config, &zero, sizeof config);
}

static void test_short_form_parse__printed_form_is_read(void **state) {
  (void)state;
  expect_parse("(FP16, 64): slow+load_2_4_tiles+buf", &sample);
}

static void test_short_form_parse__features_come_in_any_order(void **state) {
  (void)state;
  expect_parse("(FP16, 64): buf+load_2_4_tiles+slow", &sample);
}

static void test_short_form_parse__absent_features_are_off(void **state) {
  (void)state;
  const struct toy plain = {KJIT_BF16, 64, 0, 0, 0, 0};
  expect_parse("(BF16, 64): load_0_0_tiles", &plain);
}

static void test_short_form_parse__dtype_is_name_in_any_case_or_number(void **state) {
  (void)state;
  expect_parse("(fp16, 64): slow+load_2_4_tiles+buf", &sample);
  expect_parse("(5, 64): slow+load_2_4_tiles+buf", &sample);
}

static void test_short_form_parse__blanks_between_tokens_are_skipped(void **state) {
  (void)state;
  expect_parse(" \t( FP16 ,64 ) :slow + load_2_4_tiles +buf ", &sample);
}

static void test_short_form_parse__values_are_read_not_judged(void **state) {
  (void)state;
  const struct toy odd = {-3, INT32_MIN, 0, INT32_MAX, 1, 0};
  expect_parse("(-3, -2147483648): load_2147483647_1_tiles", &odd);
}

static void test_short_form_parse__demangled_plain_is_read(void **state) {
  (void)state;
  expect_parse("Toy{5, 64, true, 2, 4, 1}", &sample);
  expect_parse("Toy{5, 64, 1, 2, 4, true}", &sample);
}

static void test_short_form_parse__demangled_false_is_off(void **state) {
  (void)state;
  const struct toy off = {KJIT_FP16, 64, 0, 2, 4, 0};
  expect_parse("Toy{5, 64, false, 2, 4, 0}", &off);
}

static void test_short_form_parse__demangled_with_casts_is_read(void **state) {
  (void)state;
  expect_parse("Toy{(c10::ScalarType)5, (int)64, (bool)1, (int)2, (int)4, (bool)1}", &sample);
}

static void test_short_form_parse__some_casts_as_llvm_prints_them(void **state) {
  (void)state;
  expect_parse("Toy{(c10::ScalarType)5, 64, true, 2, 4, true}", &sample);
}

static void test_short_form_parse__foreign_cast_is_refused(void **state) {
  (void)state;
  expect_failure("Toy{5, (long)64, 1, 2, 4, 1}", 9, "expected width as (int), found \"long\"");
  expect_failure("Toy{(int)5, 64, 1, 2, 4, 1}", 6, "(c10::ScalarType)");
}

static void test_short_form_parse__demangled_with_too_few_values_is_refused(void **state) {
  (void)state;
  expect_failure("Toy{5, 64, 1, 2, 4}", 19, "expected \",\", found \"}\"");
}

static void test_short_form_parse__demangled_with_too_many_values_is_refused(void **state) {
  (void)state;
  expect_failure("Toy{5, 64, 1, 2, 4, 1, 0}", 22, "expected \"}\", found \",\"");
}

static void test_short_form_parse__boolean_must_be_one(void **state) {
  (void)state;
  expect_failure("Toy{5, 64, 2, 2, 4, 1}", 12, "slow as true, false, 0 or 1, found \"2\"");
  expect_failure("Toy{5, 64, 01, 2, 4, 1}", 12, "found \"01\"");
}

static void test_short_form_parse__other_type_is_refused(void **state) {
  (void)state;
  expect_failure("Toys{5, 64, 1, 2, 4, 1}", 1, "expected \"(\", found \"Toys\"");
}

static void test_short_form_parse__empty_text_is_refused(void **state) {
  (void)state;
  expect_failure("", 1, "expected \"(\", found the end");
}

static void test_short_form_parse__short_tuple_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16): load_0_0_tiles", 6, "expected \",\", found \")\"");
}

static void test_short_form_parse__long_tuple_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 64, 4): load_0_0_tiles", 10, "expected \")\", found \",\"");
}

static void test_short_form_parse__missing_colon_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 64) load_0_0_tiles", 12, "expected \":\", found \"load_0_0_tiles\"");
}

static void test_short_form_parse__unknown_dtype_is_refused(void **state) {
  (void)state;
  expect_failure("(FP17, 64): load_0_0_tiles", 2, "dtype as FP16, BF16 or a number, found \"FP17\"");
  expect_failure("(5x, 64): load_0_0_tiles", 2, "found \"5x\"");
}

static void test_short_form_parse__word_in_place_of_number_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, wide): load_0_0_tiles", 8, "expected width as a number, found \"wide\"");
  expect_failure("(FP16, 64w): load_0_0_tiles", 8, "found \"64w\"");
  expect_failure("(FP16, -): load_0_0_tiles", 8, "found \"-\"");
}

static void test_short_form_parse__number_beyond_32_bits_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 2147483648): load_0_0_tiles", 8, "a number that fits 32 bits");
  expect_failure("(FP16, -2147483649): load_0_0_tiles", 8, "a number that fits 32 bits");
  expect_failure("(FP16, 99999999999999999999999999): load_0_0_tiles", 8, "a number that fits 32 bits");
  expect_failure("(FP16, 64): load_0_4294967296_tiles", 13, "load_<A>_<B>_tiles");
}

static void test_short_form_parse__unknown_feature_is_named(void **state) {
  (void)state;
  expect_failure("(FP16, 64): slow+fast+load_0_0_tiles", 18, "one of load_<A>_<B>_tiles, slow, buf, found \"fast\"");
}

static void test_short_form_parse__feature_prefix_is_unknown(void **state) {
  (void)state;
  expect_failure("(FP16, 64): slo+load_0_0_tiles", 13, "found \"slo\"");
  expect_failure("(FP16, 64): SLOW+load_0_0_tiles", 13, "found \"SLOW\"");
}

static void test_short_form_parse__repeated_feature_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 64): slow+load_0_0_tiles+slow", 33, "each feature once, found \"slow\"");
  expect_failure("(FP16, 64): load_0_0_tiles+load_0_0_tiles", 28, "each feature once");
}

static void test_short_form_parse__missing_load_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 64): slow+buf", 21, "expected \"+\" and load_<A>_<B>_tiles, found the end");
}

static void test_short_form_parse__malformed_load_is_refused(void **state) {
  (void)state;
  const char *const words[] = {"load_0_tiles",       "load_0_0_0_tiles", "load_0_0_fragments",
                               "load_0_0",           "load_0_0_tiles_x", "load_a_0_tiles",
                               "load_-1_0_tiles",    "load__0_tiles",    "load_",
                               "load_0_0_tilesload", "load_0_0_TILES"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    char text[64];
    snprintf(text, sizeof text, "(FP16, 64): %s", words[i]);
    expect_failure(text, 13, "expected load_<A>_<B>_tiles, found ");
  }
}

static void test_short_form_parse__empty_feature_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 64):", 12, "found the end");
  expect_failure("(FP16, 64): load_0_0_tiles+", 28, "found the end");
  expect_failure("(FP16, 64): +load_0_0_tiles", 13, "found \"+\"");
}

static void test_short_form_parse__trailing_text_is_refused(void **state) {
  (void)state;
  expect_failure("(FP16, 64): load_0_0_tiles|", 27, "expected the end of the text, found \"|\"");
  expect_failure("(FP16, 64): load_0_0_tiles slow", 28, "found \"slow\"");
  expect_failure("Toy{5, 64, 1, 2, 4, 1} x", 24, "found \"x\"");
}

static void test_short_form_parse__newline_is_not_a_blank(void **state) {
  (void)state;
  expect_failure("(FP16, 64): load_0_0_tiles\n", 27, "found byte 0x0A");
}

static void test_short_form_parse__bytes_beyond_ascii_are_shown_as_numbers(void **state) {
  (void)state;
  expect_failure("(FP16\xC3\xA4, 64): load_0_0_tiles", 6, "found byte 0xC3");
}

static void test_short_form_parse__long_word_is_cut_in_the_message(void **state) {
  (void)state;
  char text[2048];
  memset(text, 'x', sizeof text);
  text[0] = '(';
  text[sizeof text - 1] = '\0';
  expect_failure(text, 2, "x...\"");
}

static void test_short_form_parse__every_prefix_fails_without_harm(void **state) {
  (void)state;
  const char whole[] = "(FP16, 64): slow+load_2_4_tiles+buf";
  for (size_t length = 0; length < sizeof whole - 1; length++) {
    struct toy config;
    char prefix[sizeof whole] = {0};
    memcpy(prefix, whole, length);
    /* One prefix is a config of its own: it ends where the load group does. */
    const bool complete = length == strlen("(FP16, 64): slow+load_2_4_tiles");
    const kjit_status status = short_form_parse(&toy_table, prefix, &config, NULL);
    assert_int_equal(status, complete ? KJIT_OK : KJIT_ERR_PARSE);
  }
}

static void expect_print(bool tuple, const char *omit, const char *wanted) {
  char buffer[128];
  struct text text;
  text_init_fixed(&text, buffer, sizeof buffer);
  short_form_print(&toy_table, &sample, tuple, omit, &text);
  assert_false(text.failed);
  assert_string_equal(buffer, wanted);
}

static void test_short_form_print__features_are_in_field_order(void **state) {
  (void)state;
  expect_print(1, NULL, "(FP16, 64): slow+load_2_4_tiles+buf");
}

static void test_short_form_print__parts_can_be_left_out(void **state) {
  (void)state;
  expect_print(1, "width", "(FP16): slow+load_2_4_tiles+buf");
  expect_print(1, "dtype", "(64): slow+load_2_4_tiles+buf");
  expect_print(0, NULL, "slow+load_2_4_tiles+buf");
}

static void test_short_form_print__unknown_dtype_is_its_number(void **state) {
  (void)state;
  const struct toy odd = {7, 64, 0, 0, 0, 0};
  char buffer[64];
  struct text text;
  text_init_fixed(&text, buffer, sizeof buffer);
  short_form_print(&toy_table, &odd, 1, NULL, &text);
  assert_string_equal(buffer, "(7, 64): load_0_0_tiles");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_short_form_parse__printed_form_is_read),
      cmocka_unit_test(test_short_form_parse__features_come_in_any_order),
      cmocka_unit_test(test_short_form_parse__absent_features_are_off),
      cmocka_unit_test(test_short_form_parse__dtype_is_name_in_any_case_or_number),
      cmocka_unit_test(test_short_form_parse__blanks_between_tokens_are_skipped),
      cmocka_unit_test(test_short_form_parse__values_are_read_not_judged),
      cmocka_unit_test(test_short_form_parse__demangled_plain_is_read),
      cmocka_unit_test(test_short_form_parse__demangled_false_is_off),
      cmocka_unit_test(test_short_form_parse__demangled_with_casts_is_read),
      cmocka_unit_test(test_short_form_parse__some_casts_as_llvm_prints_them),
      cmocka_unit_test(test_short_form_parse__foreign_cast_is_refused),
      cmocka_unit_test(test_short_form_parse__demangled_with_too_few_values_is_refused),
      cmocka_unit_test(test_short_form_parse__demangled_with_too_many_values_is_refused),
      cmocka_unit_test(test_short_form_parse__boolean_must_be_one),
      cmocka_unit_test(test_short_form_parse__other_type_is_refused),
      cmocka_unit_test(test_short_form_parse__empty_text_is_refused),
      cmocka_unit_test(test_short_form_parse__short_tuple_is_refused),
      cmocka_unit_test(test_short_form_parse__long_tuple_is_refused),
      cmocka_unit_test(test_short_form_parse__missing_colon_is_refused),
      cmocka_unit_test(test_short_form_parse__unknown_dtype_is_refused),
      cmocka_unit_test(test_short_form_parse__word_in_place_of_number_is_refused),
      cmocka_unit_test(test_short_form_parse__number_beyond_32_bits_is_refused),
      cmocka_unit_test(test_short_form_parse__unknown_feature_is_named),
      cmocka_unit_test(test_short_form_parse__feature_prefix_is_unknown),
      cmocka_unit_test(test_short_form_parse__repeated_feature_is_refused),
      cmocka_unit_test(test_short_form_parse__missing_load_is_refused),
      cmocka_unit_test(test_short_form_parse__malformed_load_is_refused),
      cmocka_unit_test(test_short_form_parse__empty_feature_is_refused),
      cmocka_unit_test(test_short_form_parse__trailing_text_is_refused),
      cmocka_unit_test(test_short_form_parse__newline_is_not_a_blank),
      cmocka_unit_test(test_short_form_parse__bytes_beyond_ascii_are_shown_as_numbers),
      cmocka_unit_test(test_short_form_parse__long_word_is_cut_in_the_message),
      cmocka_unit_test(test_short_form_parse__every_prefix_fails_without_harm),
      cmocka_unit_test(test_short_form_print__features_are_in_field_order),
      cmocka_unit_test(test_short_form_print__parts_can_be_left_out),
      cmocka_unit_test(test_short_form_print__unknown_dtype_is_its_number),
  };
  return cmocka_run_group_tests_name("short_form", tests, NULL, NULL);
}
