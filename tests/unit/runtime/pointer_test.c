#include "fixture.h"

static char memory[16];

static kjit_status check(struct fixture *f, const void *pointer) {
  memset(&f->error, 0, sizeof f->error);
  return runtime_check_pointer(f->runtime, pointer, 0, "q.data", &f->error);
}

static void test_pointer__memory_that_the_device_sees_is_accepted(void **state) {
  struct fixture *f = *state;
  fake_driver.pointer.type = CU_MEMORYTYPE_DEVICE;
  fake_driver.pointer.seen_at = (CUdeviceptr)(uintptr_t)memory;
  assert_status(KJIT_OK, check(f, memory), &f->error);
}

static void test_pointer__memory_that_cuda_does_not_know_is_named(void **state) {
  struct fixture *f = *state;
  assert_status(KJIT_ERR_INVALID_ARG, check(f, memory), &f->error);
  assert_contains(f->error.message, "q.data: ");
  assert_contains(f->error.message, "not memory that CUDA allocated");
  assert_status(KJIT_ERR_INVALID_ARG, check(f, NULL), &f->error);
}

static void test_pointer__memory_of_a_device_out_of_reach_names_both(void **state) {
  struct fixture *f = *state;
  fake_driver.pointer.type = CU_MEMORYTYPE_DEVICE;
  fake_driver.pointer.device = 1;
  assert_status(KJIT_ERR_INVALID_ARG, check(f, memory), &f->error);
  assert_contains(f->error.message, "memory of device 1, which device 0 cannot reach");
}

/* Registered host memory that the device sees at another address cannot be used by the host's. */
static void test_pointer__memory_seen_elsewhere_is_refused(void **state) {
  struct fixture *f = *state;
  fake_driver.pointer.type = CU_MEMORYTYPE_HOST;
  fake_driver.pointer.seen_at = 0x1000;
  assert_status(KJIT_ERR_INVALID_ARG, check(f, memory), &f->error);
}

static void test_pointer__drivers_failure_is_reported(void **state) {
  struct fixture *f = *state;
  fake_driver.fail_call = FAKE_PointerGetAttributes;
  assert_status(KJIT_ERR_DRIVER, check(f, memory), &f->error);
  assert_contains(f->error.message, "q.data");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_pointer__memory_that_the_device_sees_is_accepted),
      FIXTURE_TEST(test_pointer__memory_that_cuda_does_not_know_is_named),
      FIXTURE_TEST(test_pointer__memory_of_a_device_out_of_reach_names_both),
      FIXTURE_TEST(test_pointer__memory_seen_elsewhere_is_refused),
      FIXTURE_TEST(test_pointer__drivers_failure_is_reported),
  };
  return cmocka_run_group_tests_name("pointer", tests, NULL, NULL);
}
