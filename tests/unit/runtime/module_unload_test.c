/* Which loaded modules go when there are too many that nobody holds, and which never do. */
#include "fixture.h"

#define IDLE_MAX 4

/* A runtime that keeps few idle modules. */
static int setup(void **state) {
  if (fixture_setup_closed(state)) return -1;
  struct fixture *f = *state;
  f->modules_max_idle = IDLE_MAX;
  return fixture_open(f) == KJIT_OK ? 0 : -1;
}

static kjit_kernel *take(struct fixture *f, int number) {
  char text[16];
  kjit_kernel *kernel = NULL;
  snprintf(text, sizeof text, "kernel %d", number);
  const kjit_build_request request = fixture_request("sm_90", text);
  assert_status(KJIT_OK, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  return kernel;
}

static void take_and_release(struct fixture *f, int first, int count) {
  for (int i = first; i < first + count; i++)
    kjit_kernel_release(take(f, i));
}

static int unloads(void) {
  return fake_driver_calls_of(FAKE_LibraryUnload);
}

static void run(struct fixture *f, kjit_kernel *kernel, CUstream stream) {
  static const char value[16];
  const kjit_launch shape = kjit_launch_default();
  const kjit_arg arg = KJIT_ARG(value);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, stream, &f->error), &f->error);
}

static void test_module_unload__up_to_the_bound_nothing_goes(void **state) {
  struct fixture *f = *state;
  take_and_release(f, 0, IDLE_MAX);
  take_and_release(f, 0, IDLE_MAX);
  assert_int_equal(0, unloads());
  assert_int_equal(IDLE_MAX, fake_driver_calls_of(FAKE_LibraryLoadData));
}

static void test_module_unload__the_longest_idle_goes_first(void **state) {
  struct fixture *f = *state;
  take_and_release(f, 0, IDLE_MAX);
  take_and_release(f, 0, 1); /* used again: 1 is the oldest now */
  take_and_release(f, 9, 2);
  assert_int_equal(1, unloads());
  const int before = fake_driver_calls_of(FAKE_LibraryLoadData);
  take_and_release(f, 0, 1);
  assert_int_equal(before, fake_driver_calls_of(FAKE_LibraryLoadData));
  take_and_release(f, 1, 1);
  assert_int_equal(before + 1, fake_driver_calls_of(FAKE_LibraryLoadData));
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_true(stats.kernels_unloaded >= 1);
}

static void test_module_unload__what_is_held_stays(void **state) {
  struct fixture *f = *state;
  kjit_kernel *held[3 * IDLE_MAX];
  for (int i = 0; i < 3 * IDLE_MAX; i++)
    held[i] = take(f, i);
  assert_int_equal(0, unloads());
  kjit_kernel *const second = kjit_kernel_retain(held[0]);
  for (int i = 0; i < 3 * IDLE_MAX; i++)
    kjit_kernel_release(held[i]);
  take_and_release(f, 100, 2);
  assert_true(unloads() > 0);
  run(f, second, NULL);
  assert_ptr_equal(second, take(f, 0));
  kjit_kernel_release(second);
  kjit_kernel_release(second);
}

static void test_module_unload__launched_ones_are_waited_for_first(void **state) {
  struct fixture *f = *state;
  kjit_kernel *const kernel = take(f, 0);
  run(f, kernel, NULL);
  kjit_kernel_release(kernel);
  take_and_release(f, 1, IDLE_MAX + 1);
  assert_int_equal(1, atomic_load(&fake_driver.synchronized));
  assert_int_equal(1, unloads());
}

static void test_module_unload__nothing_goes_while_waiting_is_refused(void **state) {
  struct fixture *f = *state;
  kjit_kernel *const kernel = take(f, 0);
  run(f, kernel, NULL);
  kjit_kernel_release(kernel);
  fake_driver.fail_call = FAKE_CtxSynchronize;
  take_and_release(f, 1, 2 * IDLE_MAX);
  assert_int_equal(0, unloads());
  fake_driver.fail_call = FAKE_CALLS;
  take_and_release(f, 50, 1);
  assert_true(unloads() > 0);
}

static void test_module_unload__captured_kernel_stays(void **state) {
  struct fixture *f = *state;
  kjit_kernel *const kernel = take(f, 0);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  run(f, kernel, (CUstream)(uintptr_t)0x10);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_NONE;
  kjit_kernel_release(kernel);
  take_and_release(f, 1, 3 * IDLE_MAX);
  assert_ptr_equal(kernel, take(f, 0));
  kjit_kernel_release(kernel);
}

static void test_module_unload__kernel_with_handles_given_out_stays(void **state) {
  struct fixture *f = *state;
  kjit_kernel_handles handles = {.struct_size = sizeof handles};
  kjit_kernel *const kernel = take(f, 0);
  assert_status(KJIT_OK, kjit_kernel_get_handles(kernel, &handles, &f->error), &f->error);
  kjit_kernel_release(kernel);
  take_and_release(f, 1, 3 * IDLE_MAX);
  assert_ptr_equal(kernel, take(f, 0));
  kjit_kernel_release(kernel);
}

static void test_module_unload__kernel_loaded_in_a_context_of_ones_own_stays(void **state) {
  struct fixture *f = *state;
  fake_driver.context = (CUcontext)(uintptr_t)0x77;
  take_and_release(f, 0, 3 * IDLE_MAX);
  assert_int_equal(0, unloads());
}

static void *churn(void *user) {
  struct fixture *f = user;
  for (int i = 0; i < 60; i++) {
    char text[16];
    kjit_kernel *kernel = NULL;
    snprintf(text, sizeof text, "kernel %d", i % 11);
    const kjit_build_request request = fixture_request("sm_90", text);
    if (kjit_kernel_get(f->runtime, &request, &kernel, NULL) != KJIT_OK) return "no kernel";
    const kjit_status status = runtime_kernel_prepare(kernel, 0, 0, NULL);
    if (status != KJIT_OK || kjit_kernel_parameter_count(kernel) != 1) return "not a kernel";
    kjit_kernel_release(kernel);
  }
  return NULL;
}

static void test_module_unload__eight_threads_take_and_release(void **state) {
  struct fixture *f = *state;
  fixture_in_threads(f, churn);
  assert_true(unloads() > 0);
  take_and_release(f, 0, 1);
  assert_true(atomic_load(&fake_driver.live) <= IDLE_MAX + 1);
}

#define UNLOAD_TEST(test) cmocka_unit_test_setup_teardown(test_module_unload__##test, setup, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      UNLOAD_TEST(up_to_the_bound_nothing_goes),
      UNLOAD_TEST(the_longest_idle_goes_first),
      UNLOAD_TEST(what_is_held_stays),
      UNLOAD_TEST(launched_ones_are_waited_for_first),
      UNLOAD_TEST(nothing_goes_while_waiting_is_refused),
      UNLOAD_TEST(captured_kernel_stays),
      UNLOAD_TEST(kernel_with_handles_given_out_stays),
      UNLOAD_TEST(kernel_loaded_in_a_context_of_ones_own_stays),
      UNLOAD_TEST(eight_threads_take_and_release),
  };
  return cmocka_run_group_tests_name("module_unload", tests, NULL, NULL);
}
