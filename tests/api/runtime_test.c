#include "fixture.h"

static void test_runtime__needs_no_options(void **state) {
  (void)state;
  kjit_runtime *runtime = NULL;
  kjit_error error;
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, NULL, &error), &error);
  assert_non_null(runtime);
  kjit_runtime_destroy(runtime);
}

static void test_runtime__error_record_may_be_missing(void **state) {
  struct fixture *f = *state;
  kjit_runtime_options options = fixture_options(f);
  kjit_runtime *runtime = (kjit_runtime *)f;
  options.cache_mode = 77;
  assert_int_equal(KJIT_ERR_INVALID_ARG, kjit_runtime_create(&runtime, &options, NULL));
  assert_null(runtime);
}

static void test_runtime__that_compiles_nothing_is_not_waited_for(void **state) {
  struct fixture *f = *state;
  assert_status(KJIT_OK, kjit_runtime_wait_compiles(f->runtime, 60000, &f->error), &f->error);
  assert_int_equal(KJIT_ERR_INVALID_ARG, kjit_runtime_wait_compiles(NULL, 0, &f->error));
}

static void test_runtime__several_live_side_by_side(void **state) {
  struct fixture *f = *state;
  const kjit_runtime_options options = fixture_options(f);
  kjit_runtime *second = NULL;
  assert_status(KJIT_OK, kjit_runtime_create(&second, &options, &f->error), &f->error);
  assert_ptr_not_equal(f->runtime, second);
  assert_string_equal(f->folder.path, kjit_cache_path(second));
  kjit_runtime_destroy(second);
  assert_string_equal(f->folder.path, kjit_cache_path(f->runtime));
}

static void test_runtime__success_clears_an_old_error(void **state) {
  struct fixture *f = *state;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  f->error.status = KJIT_ERR_IO;
  strcpy(f->error.message, "an earlier call's");
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(KJIT_OK, f->error.status);
  assert_string_equal("", f->error.message);
}

static void test_runtime__memory_only_touches_no_folder(void **state) {
  struct fixture *f = *state;
  char path[TEMP_PATH_BYTES];
  kjit_runtime_options options = fixture_options(f);
  temp_folder_path(&f->folder, "never-made", path);
  options.cache_dir = path;
  options.cache_mode = KJIT_CACHE_OFF;
  fixture_open_with(f, &options);
  assert_null(kjit_cache_path(f->runtime));
  assert_int_equal(-1, access(path, F_OK));
}

static void test_doctor__describes_this_machine(void **state) {
  struct fixture *f = *state;
  kjit_doctor_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, kjit_doctor(f->runtime, &report, &f->error), &f->error);
  assert_int_equal(KJIT_OK, report.cache_status);
  assert_int_equal(KJIT_CACHE_RW, report.cache_mode);
  assert_string_equal(f->folder.path, report.cache_path);
  /* Each part either works and says what it is, or says what is missing. */
  if (report.nvrtc_status == KJIT_OK) {
    assert_in_range(report.nvrtc_major, 12, 99);
    assert_int_equal('/', report.nvrtc_path[0]);
    assert_contains(report.nvrtc_identity, "nvrtc-");
  } else {
    assert_int_equal(KJIT_ERR_NO_NVRTC, report.nvrtc_status);
    assert_contains(report.nvrtc_message, "KJIT_NVRTC");
  }
  if (report.driver_status == KJIT_OK) {
    assert_in_range(report.device_count, 1, 1024);
    assert_in_range(report.driver_version, 12000, 99999);
  } else {
    assert_int_equal(KJIT_ERR_NO_DRIVER, report.driver_status);
    assert_int_equal(0, report.device_count);
    assert_true(report.driver_message[0] != '\0');
  }
}

static void test_doctor__without_compiler_and_driver_says_where_it_looked(void **state) {
  struct fixture *f = *state;
  kjit_doctor_report report = {.struct_size = sizeof report};
  kjit_runtime_options options = fixture_options(f);
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  options.libcuda_path = "/nowhere/libcuda.so";
  fixture_open_with(f, &options);
  assert_status(KJIT_OK, kjit_doctor(f->runtime, &report, &f->error), &f->error);
  assert_int_equal(KJIT_ERR_NO_NVRTC, report.nvrtc_status);
  assert_contains(report.nvrtc_message, "/nowhere/libnvrtc.so");
  assert_int_equal(KJIT_ERR_NO_DRIVER, report.driver_status);
  assert_contains(report.driver_message, "/nowhere/libcuda.so");
  assert_contains(report.driver_message, "work without it");
}

static void test_kernel__without_driver_is_a_clear_no(void **state) {
  struct fixture *f = *state;
  kjit_runtime_options options = fixture_options(f);
  options.libcuda_path = "/nowhere/libcuda.so";
  fixture_open_with(f, &options);
  kjit_build_request request = kjit_build_request_default();
  kjit_kernel *kernel = (kjit_kernel *)f;
  uint32_t count = 7;
  request.entry = "k";
  request.source = (kjit_source){.name = "k.cu", .text = "extern \"C\" __global__ void k() {}"};
  assert_status(KJIT_ERR_NO_DRIVER, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  assert_null(kernel);
  assert_contains(f->error.message, "/nowhere/libcuda.so");
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_int_equal(0, count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_runtime__needs_no_options),
      FIXTURE_TEST(test_runtime__error_record_may_be_missing),
      FIXTURE_TEST(test_runtime__that_compiles_nothing_is_not_waited_for),
      FIXTURE_TEST(test_runtime__several_live_side_by_side),
      FIXTURE_TEST(test_runtime__success_clears_an_old_error),
      FIXTURE_TEST(test_runtime__memory_only_touches_no_folder),
      FIXTURE_TEST(test_doctor__describes_this_machine),
      FIXTURE_TEST(test_doctor__without_compiler_and_driver_says_where_it_looked),
      FIXTURE_TEST(test_kernel__without_driver_is_a_clear_no),
  };
  return cmocka_run_group_tests_name("api runtime", tests, NULL, NULL);
}
