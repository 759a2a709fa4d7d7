#include "support/test.h"

static void test_status__every_value_has_name_and_text(void **state) {
  (void)state;
#define CHECK(name, value, words)                                                                                      \
  assert_int_equal(value, KJIT_##name);                                                                                \
  assert_string_equal("KJIT_" #name, kjit_status_name((kjit_status)(value)));                                          \
  assert_string_equal(words, kjit_status_text((kjit_status)(value)));
  KJIT_STATUS_MAP(CHECK)
#undef CHECK
}

static void test_status__unknown_value_is_named_as_unknown(void **state) {
  (void)state;
  assert_string_equal("KJIT_ERR_?", kjit_status_name((kjit_status)4711));
  assert_string_equal("KJIT_ERR_?", kjit_status_name(KJIT_STATUS_FORCE_INT));
  assert_string_equal("unknown status", kjit_status_text((kjit_status)4711));
}

static void test_version__is_that_of_the_header(void **state) {
  (void)state;
  char expected[32];
  snprintf(expected, sizeof expected, "%d.%d.%d", KJIT_VERSION_MAJOR, KJIT_VERSION_MINOR, KJIT_VERSION_PATCH);
  assert_string_equal(expected, kjit_version());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status__every_value_has_name_and_text),
      cmocka_unit_test(test_status__unknown_value_is_named_as_unknown),
      cmocka_unit_test(test_version__is_that_of_the_header),
  };
  return cmocka_run_group_tests_name("common", tests, NULL, NULL);
}
