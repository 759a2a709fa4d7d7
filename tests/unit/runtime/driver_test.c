#include "support/test.h"

#include "base/error.h"
#include "fake_driver.h"
#include "runtime/driver.h"

static kjit_error error;

static int setup(void **state) {
  (void)state;
  fake_driver_reset();
  error_clear(&error);
  return 0;
}

static void test_driver__missing_library_says_where_it_was_looked_for_and_what_still_works(void **state) {
  (void)state;
  struct driver driver;
  assert_status(KJIT_ERR_NO_DRIVER, driver_open(&driver, "/nowhere/libcuda.so.1", &error), &error);
  assert_contains(error.message, "/nowhere/libcuda.so.1");
  assert_contains(error.message, "KJIT_LIBCUDA");
  assert_contains(error.message, "compiling and the cache work without it");
}

static void test_driver__library_that_is_no_driver_names_the_function_it_lacks(void **state) {
  (void)state;
  struct driver driver;
  assert_status(KJIT_ERR_NO_DRIVER, driver_open(&driver, "libm.so.6", &error), &error);
  assert_contains(error.message, "libm.so.6");
  assert_contains(error.message, "cuInit");
  assert_null(driver.lib.handle);
}

/* A symbol without its "_v2" would be an older function with another meaning. */
static void test_driver__symbols_are_those_that_the_headers_choose(void **state) {
  (void)state;
#define TEXT_OF(token)  #token
#define EXPANDED(token) TEXT_OF(token)
  static const struct {
    const char *symbol, *header;
  } functions[] = {
#define DRIVER_FN(name, symbol, args) {symbol, EXPANDED(cu##name)},
#include "runtime/driver_api.def"
#undef DRIVER_FN
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    /* Since 12.8 there is a second version, which reports errors of earlier work apart; old drivers lack it. */
    if (strcmp(functions[i].symbol, "cuEventElapsedTime") == 0) continue;
    assert_string_equal(functions[i].header, functions[i].symbol);
  }
}

static void test_driver__failure_has_the_callers_words_the_code_and_the_drivers(void **state) {
  (void)state;
  assert_status(KJIT_ERR_DRIVER,
                driver_fail(&fake_driver_api, KJIT_ERR_DRIVER, CUDA_ERROR_INVALID_IMAGE, &error, "loading %s", "this"),
                &error);
  assert_string_equal("loading this: CUDA_ERROR_INVALID_IMAGE: the image is bad", error.message);
  assert_int_equal(KJIT_CAUSE_CUDA, error.cause_domain);
  assert_int_equal(CUDA_ERROR_INVALID_IMAGE, error.cause);
}

static void test_driver__unknown_code_is_still_a_sentence(void **state) {
  (void)state;
  assert_status(KJIT_ERR_DRIVER, driver_fail(&fake_driver_api, KJIT_ERR_DRIVER, (CUresult)12345, &error, "loading"),
                &error);
  assert_contains(error.message, "loading: an unknown CUDA error");
  assert_int_equal(12345, error.cause);
}

static void test_driver__codes_that_mean_no_context_become_no_driver(void **state) {
  (void)state;
  static const CUresult codes[] = {CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_CONTEXT,
                                   CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_NO_DEVICE};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    error_clear(&error);
    assert_status(KJIT_ERR_NO_DRIVER, driver_fail(&fake_driver_api, KJIT_ERR_DRIVER, codes[i], &error, "x"), &error);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_driver__missing_library_says_where_it_was_looked_for_and_what_still_works, setup),
      cmocka_unit_test_setup(test_driver__library_that_is_no_driver_names_the_function_it_lacks, setup),
      cmocka_unit_test_setup(test_driver__symbols_are_those_that_the_headers_choose, setup),
      cmocka_unit_test_setup(test_driver__failure_has_the_callers_words_the_code_and_the_drivers, setup),
      cmocka_unit_test_setup(test_driver__unknown_code_is_still_a_sentence, setup),
      cmocka_unit_test_setup(test_driver__codes_that_mean_no_context_become_no_driver, setup),
  };
  return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
