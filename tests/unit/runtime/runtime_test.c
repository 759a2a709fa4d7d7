#include "fixture.h"

#include <unistd.h>

static kjit_status create(struct fixture *f, const kjit_runtime_options *options) {
  const struct runtime_fakes fakes = {.driver = &fake_driver_api};
  memset(&f->error, 0, sizeof f->error);
  return runtime_create_with(&f->runtime, options, &fakes, &f->error);
}

static kjit_runtime_options options_of(struct fixture *f) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = f->folder.path;
  options.allocator = failing_allocator_hooks(&f->memory);
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  return options;
}

static void test_runtime__impossible_options_are_named(void **state) {
  struct fixture *f = *state;
  kjit_runtime_options options = options_of(f);
  options.cache_mode = 4;
  assert_status(KJIT_ERR_INVALID_ARG, create(f, &options), &f->error);
  assert_contains(f->error.message, "options.cache_mode: 4");
  options = options_of(f);
  options.flags = 0x80;
  assert_status(KJIT_ERR_INVALID_ARG, create(f, &options), &f->error);
  assert_contains(f->error.message, "options.flags: 0x80");
  options = options_of(f);
  options.reserved = 1;
  assert_status(KJIT_ERR_INVALID_ARG, create(f, &options), &f->error);
  assert_contains(f->error.message, "options.reserved");
  options = options_of(f);
  options.allocator.release = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, create(f, &options), &f->error);
  assert_contains(f->error.message, "options.allocator");
  assert_null(f->runtime);
}

static void test_runtime__options_of_a_newer_header(void **state) {
  struct fixture *f = *state;
  struct {
    kjit_runtime_options known;
    uint64_t unknown;
  } newer = {.known = options_of(f)};
  newer.known.struct_size = sizeof newer;
  assert_status(KJIT_OK, create(f, &newer.known), &f->error);
  fixture_close(f);
  newer.unknown = 1;
  assert_status(KJIT_ERR_UNSUPPORTED, create(f, &newer.known), &f->error);
  assert_null(f->runtime);
}

static void test_runtime__options_of_every_size_since_the_first_are_taken(void **state) {
  struct fixture *f = *state;
  kjit_runtime_options options = options_of(f);
  const size_t first = 104;
  assert_int_equal(first, offsetof(kjit_runtime_options, bundle_paths));
  for (size_t size = 0; size <= sizeof options; size += sizeof(void *)) {
    options.struct_size = size;
    assert_status(size < first ? KJIT_ERR_INVALID_ARG : KJIT_OK, create(f, &options), &f->error);
    fixture_close(f);
  }
}

static void test_runtime__driver_is_not_touched_before_it_is_needed(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = fixture_request("sm_90", "a");
  kjit_artifact *artifact;
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  kjit_artifact_release(artifact);
  fixture_close(f);
  assert_int_equal(0, atomic_load(&fake_driver.calls));
}

static void test_runtime__stats_fill_what_the_caller_has_room_for(void **state) {
  struct fixture *f = *state;
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_non_null(fixture_kernel(f, "sm_90", "a"));
  kjit_runtime_stats stats;
  memset(&stats, 0xEE, sizeof stats);
  stats.struct_size = offsetof(kjit_runtime_stats, launches);
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(1, stats.builds);
  assert_int_equal(1, stats.kernels_loaded);
  assert_true(stats.launches == 0xEEEEEEEEEEEEEEEEu);
  assert_int_equal(offsetof(kjit_runtime_stats, launches), stats.struct_size);
}

static void test_runtime__driver_path_option_wins_over_the_environment(void **state) {
  struct fixture *f = *state;
  kjit_runtime_options options = options_of(f);
  uint32_t count;
  setenv("KJIT_LIBCUDA", "/from/environment.so", 1);
  options.flags = 0;
  assert_status(KJIT_OK, runtime_create_with(&f->runtime, &options, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_contains(f->error.message, "/from/environment.so");
  fixture_close(f);
  options.libcuda_path = "/from/option.so";
  assert_status(KJIT_OK, runtime_create_with(&f->runtime, &options, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_contains(f->error.message, "/from/option.so");
  fixture_close(f);
  options = options_of(f);
  assert_status(KJIT_OK, runtime_create_with(&f->runtime, &options, NULL, &f->error), &f->error);
  if (kjit_device_count(f->runtime, &count, &f->error) != KJIT_OK) assert_lacks(f->error.message, "/from/");
  unsetenv("KJIT_LIBCUDA");
}

static atomic_int made, ended;

static void *make_state(kjit_runtime *runtime) {
  atomic_fetch_add(&made, 1);
  usleep(5000); /* so that others are here too */
  return mem_alloc(runtime_mem(runtime), 1);
}

static void end_state(kjit_runtime *runtime, void *state) {
  atomic_fetch_add(&ended, 1);
  mem_free(runtime_mem(runtime), state);
}

static void *get_slot(void *user) {
  struct fixture *f = user;
  static const struct runtime_slot slot = {make_state, end_state}, other = {make_state, end_state};
  void *const state = runtime_slot_get(f->runtime, &slot);
  if (state == runtime_slot_get(f->runtime, &other)) return "one state for two slots";
  return state == runtime_slot_get(f->runtime, &slot) ? NULL : "two states";
}

static void test_runtime__each_slot_keeps_one_state_and_ends_every_one(void **state) {
  struct fixture *f = *state;
  atomic_store(&made, 0);
  atomic_store(&ended, 0);
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  fixture_in_threads(f, get_slot);
  assert_int_equal(atomic_load(&made) - 2, atomic_load(&ended));
  fixture_close(f);
  assert_int_equal(atomic_load(&made), atomic_load(&ended));
}

static void test_runtime__doctor_describes_a_driver_that_works(void **state) {
  struct fixture *f = *state;
  kjit_doctor_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_status(KJIT_OK, kjit_doctor(f->runtime, &report, &f->error), &f->error);
  assert_int_equal(KJIT_OK, report.driver_status);
  assert_int_equal(2, report.device_count);
  assert_int_equal(13000, report.driver_version);
  assert_string_equal("", report.driver_message);
  assert_string_equal(f->folder.path, report.cache_path);
}

static void test_runtime__doctor_describes_a_driver_that_does_not_start(void **state) {
  struct fixture *f = *state;
  kjit_doctor_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  fake_driver.fail_call = FAKE_Init;
  assert_status(KJIT_OK, kjit_doctor(f->runtime, &report, &f->error), &f->error);
  assert_int_equal(KJIT_ERR_NO_DRIVER, report.driver_status);
  assert_int_equal(13000, report.driver_version);
  assert_contains(report.driver_message, "cuInit");
}

static void test_runtime__missing_arguments_are_named(void **state) {
  struct fixture *f = *state;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  kjit_artifact *artifact;
  const kjit_build_request request = fixture_request("sm_90", "a");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_runtime_create(NULL, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "out");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_runtime_get_stats(NULL, &stats, &f->error), &f->error);
  assert_contains(f->error.message, "runtime");
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_runtime_get_stats(f->runtime, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "stats");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_build(f->runtime, NULL, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "request");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_build(f->runtime, &request, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "out");
  kjit_runtime_destroy(NULL);
}

#define CLOSED_TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup_closed, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      CLOSED_TEST(test_runtime__impossible_options_are_named),
      CLOSED_TEST(test_runtime__options_of_a_newer_header),
      CLOSED_TEST(test_runtime__options_of_every_size_since_the_first_are_taken),
      CLOSED_TEST(test_runtime__driver_is_not_touched_before_it_is_needed),
      CLOSED_TEST(test_runtime__stats_fill_what_the_caller_has_room_for),
      CLOSED_TEST(test_runtime__driver_path_option_wins_over_the_environment),
      CLOSED_TEST(test_runtime__each_slot_keeps_one_state_and_ends_every_one),
      CLOSED_TEST(test_runtime__doctor_describes_a_driver_that_works),
      CLOSED_TEST(test_runtime__doctor_describes_a_driver_that_does_not_start),
      CLOSED_TEST(test_runtime__missing_arguments_are_named),
  };
  return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
