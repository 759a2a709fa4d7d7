#include "support/test.h"

#include <kjit/attention.h>

#include "family/field_table.h"

/* A family of its own, so that nothing here depends on a real one. Names are not in byte order. */
struct toy {
  int32_t dtype, width, buffer, A_load, B_load;
};

static const kjit_field_info toy_rows[] = {
    {"dtype", "", "element type", KJIT_FIELD_DTYPE, offsetof(struct toy, dtype), NULL, 0, NULL},
    {"width", "", "columns", KJIT_FIELD_INT, offsetof(struct toy, width), NULL, 0, NULL},
    {"buffer", "buf", "twice", KJIT_FIELD_BOOL, offsetof(struct toy, buffer), NULL, 0, NULL},
    {"A_load", "", "of A", KJIT_FIELD_LOAD, offsetof(struct toy, A_load), NULL, 0, NULL},
    {"B_load", "", "of B", KJIT_FIELD_LOAD, offsetof(struct toy, B_load), NULL, 0, NULL},
};
static const struct field_table toy_table = {"toy", "Toy", toy_rows, 5, sizeof(struct toy), 0};

static const struct toy sample = {KJIT_FP16, 64, 1, 2, 4};

static void test_field_get__value_put_is_read_back(void **state) {
  (void)state;
  struct toy config = sample;
  field_put(&toy_rows[1], &config, -7);
  assert_int_equal(field_get(&toy_rows[1], &config), -7);
  assert_int_equal(config.width, -7);
  assert_int_equal(config.buffer, sample.buffer);
}

static void test_field_dtype_name__known_numbers_have_names(void **state) {
  (void)state;
  assert_string_equal(field_dtype_name(KJIT_FP16), "FP16");
  assert_string_equal(field_dtype_name(KJIT_BF16), "BF16");
  assert_string_equal(field_dtype_name(KJIT_FP32), "FP32");
  assert_null(field_dtype_name(KJIT_DTYPE_NONE));
  assert_null(field_dtype_name(-1));
}

static void test_field_dtype_from_name__any_case_is_read(void **state) {
  (void)state;
  int32_t dtype = 0;
  assert_true(field_dtype_from_name("bF16", 4, &dtype));
  assert_int_equal(dtype, KJIT_BF16);
}

static void test_field_dtype_from_name__prefix_and_extension_are_refused(void **state) {
  (void)state;
  int32_t dtype = 0;
  assert_false(field_dtype_from_name("FP1", 3, &dtype));
  assert_false(field_dtype_from_name("FP166", 5, &dtype));
  assert_false(field_dtype_from_name("", 0, &dtype));
}

static void test_field_table_compare__first_difference_decides(void **state) {
  (void)state;
  struct toy larger = sample, mixed = sample;
  larger.B_load++;
  mixed.width--;
  mixed.B_load = 1000;
  assert_int_equal(field_table_compare(&toy_table, &sample, &sample), 0);
  assert_int_equal(field_table_compare(&toy_table, &sample, &larger), -1);
  assert_int_equal(field_table_compare(&toy_table, &larger, &sample), 1);
  assert_int_equal(field_table_compare(&toy_table, &mixed, &sample), -1);
}

static void test_field_table_compare__extremes_do_not_overflow(void **state) {
  (void)state;
  struct toy least = sample, most = sample;
  least.width = INT32_MIN;
  most.width = INT32_MAX;
  assert_int_equal(field_table_compare(&toy_table, &least, &most), -1);
  assert_int_equal(field_table_compare(&toy_table, &most, &least), 1);
}

static void test_field_table_find__is_by_the_whole_name(void **state) {
  (void)state;
  assert_ptr_equal(field_table_find(&toy_table, toy_rows[1].name, strlen(toy_rows[1].name)), &toy_rows[1]);
  assert_null(field_table_find(&toy_table, toy_rows[1].name, strlen(toy_rows[1].name) - 1));
  assert_null(field_table_find(&toy_table, "", 0));
}

static void test_field_table_defines__are_sorted_by_name(void **state) {
  (void)state;
  char buffer[512];
  struct text text;
  text_init_fixed(&text, buffer, sizeof buffer);
  field_table_defines(&toy_table, &sample, &text);
  assert_false(text.failed);
  assert_string_equal(buffer, "#define KJIT_A_load 2\n"
                              "#define KJIT_B_load 4\n"
                              "#define KJIT_buffer 1\n"
                              "#define KJIT_dtype 5\n"
                              "#define KJIT_width 64\n");
}

static void test_field_table_json__has_names_and_booleans(void **state) {
  (void)state;
  char buffer[512];
  struct text text;
  text_init_fixed(&text, buffer, sizeof buffer);
  field_table_json(&toy_table, &sample, &text);
  assert_string_equal(buffer, "{\"dtype\": \"FP16\", \"width\": 64, \"buffer\": true, \"A_load\": 2, \"B_load\": 4}");
}

static void test_field_table_json__illegal_values_are_numbers(void **state) {
  (void)state;
  const struct toy odd = {7, -1, 2, 0, 0};
  char buffer[512];
  struct text text;
  text_init_fixed(&text, buffer, sizeof buffer);
  field_table_json(&toy_table, &odd, &text);
  assert_string_equal(buffer, "{\"dtype\": 7, \"width\": -1, \"buffer\": 2, \"A_load\": 0, \"B_load\": 0}");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_field_get__value_put_is_read_back),
      cmocka_unit_test(test_field_dtype_name__known_numbers_have_names),
      cmocka_unit_test(test_field_dtype_from_name__any_case_is_read),
      cmocka_unit_test(test_field_dtype_from_name__prefix_and_extension_are_refused),
      cmocka_unit_test(test_field_table_compare__first_difference_decides),
      cmocka_unit_test(test_field_table_compare__extremes_do_not_overflow),
      cmocka_unit_test(test_field_table_find__is_by_the_whole_name),
      cmocka_unit_test(test_field_table_defines__are_sorted_by_name),
      cmocka_unit_test(test_field_table_json__has_names_and_booleans),
      cmocka_unit_test(test_field_table_json__illegal_values_are_numbers),
  };
  return cmocka_run_group_tests_name("field_table", tests, NULL, NULL);
}
