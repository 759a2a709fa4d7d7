#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

static void test_device__properties_are_read_once(void **state) {
  struct fixture *f = *state;
  kjit_device_info info = {.struct_size = sizeof info};
  for (int i = 0; i < 3; i++)
    assert_status(KJIT_OK, kjit_device_get_info(f->runtime, 0, &info, &f->error), &f->error);
  assert_string_equal("Fake GPU", info.name);
  assert_int_equal(0, info.ordinal);
  assert_int_equal(13000, info.driver_version);
  assert_int_equal(232448, info.max_shared_per_block);
  assert_int_equal(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, info.multiprocessors);
  assert_int_equal(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, info.max_shared_per_multiprocessor);
  assert_int_equal(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, info.l2_bytes);
  assert_int_equal(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, info.clock_khz);
  assert_true(info.memory_bytes == (uint64_t)80 << 30);
  assert_int_equal(1, fake_driver_calls_of(FAKE_DeviceGetName));
}

static void test_device__architectures_are_named(void **state) {
  static const struct {
    int major, minor;
    const char *arch, *specific;
  } known[] = {{8, 0, "sm_80", "sm_80"},     {8, 9, "sm_89", "sm_89"},     {9, 0, "sm_90", "sm_90a"},
               {10, 0, "sm_100", "sm_100a"}, {12, 0, "sm_120", "sm_120a"}, {12, 1, "sm_121", "sm_121a"}};
  struct fixture *f = *state;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    fixture_close(f);
    fake_driver.device[1].major = known[i].major;
    fake_driver.device[1].minor = known[i].minor;
    assert_status(KJIT_OK, fixture_open(f), &f->error);
    kjit_device_info info = {.struct_size = sizeof info};
    assert_status(KJIT_OK, kjit_device_get_info(f->runtime, 1, &info, &f->error), &f->error);
    assert_string_equal(known[i].arch, info.arch);
    assert_string_equal(known[i].specific, info.arch_specific);
  }
}

static void test_device__unknown_ordinal_names_the_known_ones(void **state) {
  struct fixture *f = *state;
  kjit_device_info info = {.struct_size = sizeof info};
  assert_status(KJIT_ERR_INVALID_ARG, kjit_device_get_info(f->runtime, 2, &info, &f->error), &f->error);
  assert_contains(f->error.message, "ordinal: 2");
  assert_contains(f->error.message, "0 to 1");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_device_get_info(f->runtime, -2, &info, &f->error), &f->error);
}

static void test_device__minus_one_is_the_current_contexts(void **state) {
  struct fixture *f = *state;
  fake_driver_set_current(1);
  kjit_device_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, kjit_device_get_info(f->runtime, -1, &info, &f->error), &f->error);
  assert_int_equal(1, info.ordinal);
}

static void test_device__no_context_says_what_makes_one(void **state) {
  struct fixture *f = *state;
  fake_driver_set_current(-1);
  kjit_device_info info = {.struct_size = sizeof info};
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_get_info(f->runtime, -1, &info, &f->error), &f->error);
  assert_contains(f->error.message, "cuCtxSetCurrent");
  assert_int_equal(CUDA_ERROR_INVALID_CONTEXT, f->error.cause);
}

static void test_device__handles_need_not_be_ordinals(void **state) {
  struct fixture *f = *state;
  fake_driver.first_handle = 40;
  fake_driver_set_current(1);
  int32_t ordinal;
  assert_status(KJIT_OK, runtime_current_device(f->runtime, &ordinal, &f->error), &f->error);
  assert_int_equal(1, ordinal);
  assert_string_equal("sm_80", runtime_device(f->runtime, ordinal, &f->error)->arch);
}

static void test_device__failed_query_is_reported_and_tried_again(void **state) {
  struct fixture *f = *state;
  kjit_device_info info = {.struct_size = sizeof info};
  fake_driver.fail_call = FAKE_DeviceTotalMem;
  assert_status(KJIT_ERR_DRIVER, kjit_device_get_info(f->runtime, 0, &info, &f->error), &f->error);
  assert_contains(f->error.message, "device 0");
  assert_contains(f->error.message, "CUDA_ERROR_UNKNOWN");
  fake_driver.fail_call = FAKE_CALLS;
  assert_status(KJIT_OK, kjit_device_get_info(f->runtime, 0, &info, &f->error), &f->error);
}

static void test_device__driver_that_does_not_start_says_so_and_what_works(void **state) {
  struct fixture *f = *state;
  fake_driver.fail_call = FAKE_Init;
  uint32_t count = 7;
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_int_equal(0, count);
  assert_contains(f->error.message, "cuInit: CUDA_ERROR_UNKNOWN");
  assert_contains(f->error.message, "compiling and the cache work without it");
  assert_int_equal(CUDA_ERROR_UNKNOWN, f->error.cause);
  fake_driver.fail_call = FAKE_CALLS;
  assert_status(KJIT_OK, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_int_equal(2, count);
}

static void test_device__driver_without_gpu_counts_none(void **state) {
  struct fixture *f = *state;
  fake_driver.fail_call = FAKE_Init;
  fake_driver.failure = CUDA_ERROR_NO_DEVICE;
  uint32_t count = 7;
  assert_status(KJIT_OK, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_int_equal(0, count);
  kjit_device_info info = {.struct_size = sizeof info};
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_get_info(f->runtime, 0, &info, &f->error), &f->error);
  assert_contains(f->error.message, "CUDA_VISIBLE_DEVICES");
}

static void test_device__absurd_count_is_refused(void **state) {
  struct fixture *f = *state;
  fake_driver.device_count = 1 << 20;
  uint32_t count;
  assert_status(KJIT_ERR_NO_DRIVER, kjit_device_count(f->runtime, &count, &f->error), &f->error);
  assert_contains(f->error.message, "1048576");
}

static void *count_devices(void *user) {
  struct fixture *f = user;
  uint32_t count;
  if (kjit_device_count(f->runtime, &count, NULL) != KJIT_OK || count != 2) return "no devices";
  return runtime_device(f->runtime, 1, NULL) ? NULL : "no properties";
}

static void test_device__many_threads_start_the_driver_once(void **state) {
  struct fixture *f = *state;
  fixture_in_threads(f, count_devices);
  assert_int_equal(1, fake_driver_calls_of(FAKE_Init));
  assert_int_equal(1, fake_driver_calls_of(FAKE_DeviceGetName));
}

/* In the child: 0 when everything is as promised. */
static int child_of_a_started_driver(struct fixture *f) {
  const long calls = atomic_load(&fake_driver.calls);
  const kjit_build_request request = fixture_request("sm_90", "built in the child");
  kjit_artifact *artifact = NULL;
  uint32_t count;
  if (kjit_device_count(f->runtime, &count, &f->error) != KJIT_ERR_NO_DRIVER) return 1;
  if (!strstr(f->error.message, "fork")) return 2;
  if (kjit_build(f->runtime, &request, &artifact, &f->error) != KJIT_OK) return 3;
  if (runtime_device(f->runtime, 0, &f->error)) return 4;
  kjit_artifact_release(artifact);
  fixture_close(f);
  return atomic_load(&fake_driver.calls) != calls ? 5 : 0;
}

static void test_device__forked_child_builds_but_calls_no_driver(void **state) {
  struct fixture *f = *state;
  assert_non_null(fixture_kernel(f, "sm_90", "loaded in the parent"));
  const pid_t child = fork();
  if (!child) _exit(child_of_a_started_driver(f));
  int result = -1;
  assert_int_equal(child, waitpid(child, &result, 0));
  assert_true(WIFEXITED(result));
  assert_int_equal(0, WEXITSTATUS(result));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_device__properties_are_read_once),
      FIXTURE_TEST(test_device__architectures_are_named),
      FIXTURE_TEST(test_device__unknown_ordinal_names_the_known_ones),
      FIXTURE_TEST(test_device__minus_one_is_the_current_contexts),
      FIXTURE_TEST(test_device__no_context_says_what_makes_one),
      FIXTURE_TEST(test_device__handles_need_not_be_ordinals),
      FIXTURE_TEST(test_device__failed_query_is_reported_and_tried_again),
      FIXTURE_TEST(test_device__driver_that_does_not_start_says_so_and_what_works),
      FIXTURE_TEST(test_device__driver_without_gpu_counts_none),
      FIXTURE_TEST(test_device__absurd_count_is_refused),
      FIXTURE_TEST(test_device__many_threads_start_the_driver_once),
      FIXTURE_TEST(test_device__forked_child_builds_but_calls_no_driver),
  };
  return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
