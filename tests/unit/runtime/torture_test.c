/* One scenario that touches everything, with each driver call and each allocation made to fail in turn. Whatever fails:
 * a status, a message, nothing left over, and a runtime that works when the trouble is gone. */
#include "fixture.h"

#include <stdbool.h>

struct args {
  uint64_t a, b;
};

static char memory[16];

static kjit_status nothing(void *user, kjit_error *error) {
  (void)user;
  (void)error;
  return KJIT_OK;
}

static kjit_status launch_twice(kjit_kernel *kernel, kjit_error *error) {
  static const struct args args = {1, 2};
  const kjit_arg arg = KJIT_ARG(args);
  kjit_launch shape = {.struct_size = sizeof shape, .grid = {8, 1, 1}, .block = {128}, .dynamic_shared_bytes = 100000};
  kjit_status status = kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, error);
  shape.cluster[0] = 2;
  if (status == KJIT_OK) status = kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, error);
  return status;
}

static kjit_status scenario(kjit_runtime *runtime, kjit_error *error) {
  float milliseconds;
  kjit_kernel *kernel = NULL;
  const kjit_build_request request = fixture_request(NULL, "a");
  kjit_device_info info = {.struct_size = sizeof info};
  fake_driver.pointer.type = CU_MEMORYTYPE_DEVICE;
  fake_driver.pointer.seen_at = (CUdeviceptr)(uintptr_t)memory;
  kjit_status status = kjit_device_get_info(runtime, 1, &info, error);
  if (status == KJIT_OK) status = kjit_kernel_get(runtime, &request, &kernel, error);
  if (status == KJIT_OK) status = launch_twice(kernel, error);
  if (status == KJIT_OK) status = runtime_time(runtime, NULL, nothing, NULL, &milliseconds, error);
  if (status == KJIT_OK) status = runtime_check_pointer(runtime, memory, 0, "q.data", error);
  kjit_kernel_release(kernel);
  return status;
}

static void test_torture__each_driver_call_fails_in_turn(void **state) {
  struct fixture *f = *state;
  long failures = 0;
  for (long n = 0;; n++) {
    atomic_store(&fake_driver.calls, 0);
    assert_status(KJIT_OK, fixture_open(f), &f->error);
    atomic_store(&fake_driver.fail_at, n);
    const kjit_status status = scenario(f->runtime, &f->error);
    const bool reached = atomic_load(&fake_driver.calls) > n;
    atomic_store(&fake_driver.fail_at, FAKE_NEVER);
    assert_int_equal(status, f->error.status);
    if (status != KJIT_OK) {
      failures++;
      assert_true(f->error.message[0] != '\0');
      assert_int_equal(CUDA_ERROR_UNKNOWN, f->error.cause);
      memset(&f->error, 0, sizeof f->error);
    }
    assert_status(KJIT_OK, scenario(f->runtime, &f->error), &f->error);
    fixture_close(f);
    assert_int_equal(0, atomic_load(&fake_driver.live));
    assert_int_equal(0, atomic_load(&f->memory.live));
    if (!reached) break;
  }
  assert_in_range(failures, 30, 1000);
}

static void test_torture__each_allocation_fails_in_turn(void **state) {
  struct fixture *f = *state;
  long failures = 0;
  for (long n = 0;; n++) {
    failing_allocator_reset(&f->memory, n);
    kjit_status status = fixture_open(f);
    if (status == KJIT_OK) status = scenario(f->runtime, &f->error);
    const bool reached = atomic_load(&f->memory.calls) > n;
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    if (status != KJIT_OK) {
      failures++;
      assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
      memset(&f->error, 0, sizeof f->error);
    }
    if (f->runtime) assert_status(KJIT_OK, scenario(f->runtime, &f->error), &f->error);
    fixture_close(f);
    assert_int_equal(0, atomic_load(&fake_driver.live));
    assert_int_equal(0, atomic_load(&f->memory.live));
    if (!reached) break;
  }
  assert_in_range(failures, 5, 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_torture__each_driver_call_fails_in_turn, fixture_setup_closed,
                                      fixture_teardown),
      cmocka_unit_test_setup_teardown(test_torture__each_allocation_fails_in_turn, fixture_setup_closed,
                                      fixture_teardown),
  };
  return cmocka_run_group_tests_name("torture", tests, NULL, NULL);
}
