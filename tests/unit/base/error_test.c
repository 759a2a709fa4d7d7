#include "base/error.h"
#include "support/test.h"

static void test_error__record_is_512_bytes(void **state) {
  (void)state;
  assert_int_equal(512, sizeof(kjit_error));
}

static void test_error__clear_resets_everything(void **state) {
  (void)state;
  kjit_error error;
  memset(&error, 0xA5, sizeof error);
  error_clear(&error);
  assert_int_equal(KJIT_OK, error.status);
  assert_int_equal(KJIT_CAUSE_NONE, error.cause_domain);
  assert_int_equal(0, error.cause);
  assert_string_equal("", error.message);
}

static void test_error__null_record_is_accepted(void **state) {
  (void)state;
  error_clear(NULL);
  assert_int_equal(KJIT_ERR_IO, error_set(NULL, KJIT_ERR_IO, "x"));
  assert_int_equal(KJIT_ERR_NO_MEMORY, error_no_memory(NULL));
}

static void test_error__first_one_wins(void **state) {
  (void)state;
  kjit_error error = {0};
  assert_int_equal(KJIT_ERR_IO, error_set_cause(&error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, 28, "disk %d full", 3));
  assert_int_equal(KJIT_ERR_CORRUPT, error_set(&error, KJIT_ERR_CORRUPT, "later"));
  assert_int_equal(KJIT_ERR_IO, error.status);
  assert_int_equal(KJIT_CAUSE_ERRNO, error.cause_domain);
  assert_int_equal(28, error.cause);
  assert_string_equal("disk 3 full", error.message);
}

static void test_error__message_is_one_line(void **state) {
  (void)state;
  kjit_error error = {0};
  (void)error_set(&error, KJIT_ERR_PARSE, "%s", "a\nb\r\tc\x7f");
  assert_string_equal("a b  c ", error.message);
}

static void test_error__long_message_is_cut_and_says_so(void **state) {
  (void)state;
  kjit_error error = {0};
  char text[600];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  (void)error_set(&error, KJIT_ERR_PARSE, "%s", text);
  assert_int_equal(sizeof error.message - 1, strlen(error.message));
  assert_string_equal("xx...", error.message + strlen(error.message) - 5);
}

static void test_error__message_of_just_the_size_is_whole(void **state) {
  (void)state;
  kjit_error error = {0};
  char text[sizeof error.message];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  (void)error_set(&error, KJIT_ERR_PARSE, "%s", text);
  assert_string_equal(text, error.message);
}

static void test_error__cut_leaves_no_half_character(void **state) {
  (void)state;
  for (int shift = 0; shift < 3; shift++) {
    kjit_error error = {0};
    char text[700] = "abc";
    for (int i = 0; i < 220; i++)
      strcpy(text + shift + 3 * i, "\xE2\x82\xAC"); /* the euro sign */
    (void)error_set(&error, KJIT_ERR_PARSE, "%s", text);
    const size_t length = strlen(error.message);
    assert_string_equal("...", error.message + length - 3);
    assert_int_equal(0, (length - 3 - (size_t)shift) % 3);
  }
}

static void test_error__invalid_names_field_and_rule(void **state) {
  (void)state;
  kjit_error error = {0};
  assert_status(KJIT_ERR_INVALID_ARG, error_invalid(&error, "arch", "missing"), &error);
  assert_string_equal("arch: missing", error.message);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_error__record_is_512_bytes),
      cmocka_unit_test(test_error__clear_resets_everything),
      cmocka_unit_test(test_error__null_record_is_accepted),
      cmocka_unit_test(test_error__first_one_wins),
      cmocka_unit_test(test_error__message_is_one_line),
      cmocka_unit_test(test_error__long_message_is_cut_and_says_so),
      cmocka_unit_test(test_error__message_of_just_the_size_is_whole),
      cmocka_unit_test(test_error__cut_leaves_no_half_character),
      cmocka_unit_test(test_error__invalid_names_field_and_rule),
  };
  return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
