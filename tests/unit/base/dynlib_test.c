#include "base/dynlib.h"
#include "support/test.h"

static void test_dynlib__missing_library_is_not_found_in_the_loaders_words(void **state) {
  (void)state;
  struct dynlib lib;
  kjit_error error = {0};
  assert_status(KJIT_ERR_NOT_FOUND, dynlib_open(&lib, "libkjit-there-is-none.so.1", &error), &error);
  assert_contains(error.message, "libkjit-there-is-none.so.1");
  assert_null(lib.handle);
}

static void test_dynlib__symbols_are_found_by_name(void **state) {
  (void)state;
  struct dynlib lib;
  kjit_error error = {0};
  assert_status(KJIT_OK, dynlib_open(&lib, "libm.so.6", &error), &error);
  assert_int_equal('/', lib.path[0]);
  assert_contains(lib.path, "libm.so.6");
  assert_non_null(dynlib_symbol(&lib, "cos"));
  assert_null(dynlib_symbol(&lib, "kjit_there_is_none"));
  dynlib_close(&lib);
}

static void test_dynlib__closed_library_has_no_symbols(void **state) {
  (void)state;
  struct dynlib lib = {0};
  assert_null(dynlib_symbol(&lib, "cos"));
  dynlib_close(&lib);
  assert_null(lib.handle);
}

static void test_dynlib__open_loaded_finds_what_is_loaded_and_loads_nothing(void **state) {
  (void)state;
  struct dynlib lib;
  assert_true(dynlib_open_loaded(&lib, "libcmocka.so.0"));
  assert_contains(lib.path, "libcmocka.so.0");
  dynlib_close(&lib);
  assert_false(dynlib_open_loaded(&lib, "libnvrtc.so.13"));
  assert_null(lib.handle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dynlib__missing_library_is_not_found_in_the_loaders_words),
      cmocka_unit_test(test_dynlib__symbols_are_found_by_name),
      cmocka_unit_test(test_dynlib__closed_library_has_no_symbols),
      cmocka_unit_test(test_dynlib__open_loaded_finds_what_is_loaded_and_loads_nothing),
  };
  return cmocka_run_group_tests_name("dynlib", tests, NULL, NULL);
}
