#include "support/test.h"

#include <kjit/kjit.h>

/* Values are ABI: what is listed here was released, and this list only grows. */
static const struct {
  kjit_status status;
  int value;
  const char *name;
} released[] = {
    {KJIT_OK, 0, "KJIT_OK"},
    {KJIT_ERR_INVALID_ARG, 1, "KJIT_ERR_INVALID_ARG"},
    {KJIT_ERR_NO_MEMORY, 2, "KJIT_ERR_NO_MEMORY"},
    {KJIT_ERR_UNSUPPORTED, 3, "KJIT_ERR_UNSUPPORTED"},
    {KJIT_ERR_INVALID_CONFIG, 4, "KJIT_ERR_INVALID_CONFIG"},
    {KJIT_ERR_PARSE, 5, "KJIT_ERR_PARSE"},
    {KJIT_ERR_NO_NVRTC, 6, "KJIT_ERR_NO_NVRTC"},
    {KJIT_ERR_COMPILE, 7, "KJIT_ERR_COMPILE"},
    {KJIT_ERR_NO_DRIVER, 8, "KJIT_ERR_NO_DRIVER"},
    {KJIT_ERR_DRIVER, 9, "KJIT_ERR_DRIVER"},
    {KJIT_ERR_IO, 10, "KJIT_ERR_IO"},
    {KJIT_ERR_CORRUPT, 11, "KJIT_ERR_CORRUPT"},
    {KJIT_ERR_NOT_RESIDENT, 12, "KJIT_ERR_NOT_RESIDENT"},
    {KJIT_ERR_NOT_FOUND, 13, "KJIT_ERR_NOT_FOUND"},
    {KJIT_ERR_TIMEOUT, 14, "KJIT_ERR_TIMEOUT"},
    {KJIT_ERR_CANCELLED, 15, "KJIT_ERR_CANCELLED"},
    {KJIT_ERR_UNTRUSTED, 16, "KJIT_ERR_UNTRUSTED"},
    {KJIT_ERR_INTERNAL, 17, "KJIT_ERR_INTERNAL"},
};

#define RELEASED (sizeof released / sizeof *released)

static void test_status__values_and_names_stay(void **state) {
  (void)state;
  for (size_t i = 0; i < RELEASED; i++) {
    assert_int_equal(released[i].value, released[i].status);
    assert_string_equal(released[i].name, kjit_status_name(released[i].status));
  }
}

static void test_status__every_one_is_listed_here(void **state) {
  (void)state;
  size_t count = 0;
#define COUNT(name, value, text) count++;
  KJIT_STATUS_MAP(COUNT)
#undef COUNT
  assert_int_equal(RELEASED, count);
}

static void test_status__each_has_a_sentence_of_its_own(void **state) {
  (void)state;
  for (size_t i = 0; i < RELEASED; i++) {
    const char *const text = kjit_status_text(released[i].status);
    assert_true(strlen(text) >= strlen("success"));
    assert_null(strchr(text, '\n'));
    for (size_t j = 0; j < i; j++)
      assert_string_not_equal(text, kjit_status_text(released[j].status));
  }
}

static void test_status__unknown_value_has_a_name_and_a_text(void **state) {
  (void)state;
  assert_string_equal("KJIT_ERR_?", kjit_status_name((kjit_status)999));
  assert_string_equal("KJIT_ERR_?", kjit_status_name((kjit_status)-1));
  assert_non_null(kjit_status_text((kjit_status)999));
}

static void test_version__library_and_header_agree(void **state) {
  (void)state;
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", KJIT_VERSION_MAJOR, KJIT_VERSION_MINOR, KJIT_VERSION_PATCH);
  assert_string_equal(version, KJIT_VERSION_STRING);
  assert_string_equal(version, kjit_version());
}

static void test_origin__names_are_those_of_the_command_line(void **state) {
  (void)state;
  static const char *const names[] = {"none", "memory", "bundle", "site", "user", "remote", "built"};
  for (int origin = KJIT_ORIGIN_NONE; origin <= KJIT_ORIGIN_BUILT; origin++)
    assert_string_equal(names[origin], kjit_origin_name((kjit_origin)origin));
  assert_string_equal("none", kjit_origin_name((kjit_origin)99));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status__values_and_names_stay),
      cmocka_unit_test(test_status__every_one_is_listed_here),
      cmocka_unit_test(test_status__each_has_a_sentence_of_its_own),
      cmocka_unit_test(test_status__unknown_value_has_a_name_and_a_text),
      cmocka_unit_test(test_version__library_and_header_agree),
      cmocka_unit_test(test_origin__names_are_those_of_the_command_line),
  };
  return cmocka_run_group_tests_name("api status", tests, NULL, NULL);
}
