/* Plans over a fake driver and compiler. */
#include "support/configs.h"

#include "unit/attention/configs.h"
#include "unit/runtime/fixture.h"
#include <stdbool.h>

static void *address(uintptr_t number) {
  return (void *)(number << 20);
}

static kjit_attention_args good_args(void) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, 0, 2, 100, 3, 128);
  args.k = args.v = kjit_tensor_bshd(address(2), KJIT_FP16, 0, 2, 70, 3, 128);
  args.o = kjit_tensor_bshd(address(4), KJIT_FP16, 0, 2, 100, 3, 128);
  return args;
}

/* Every pointer is the current device's memory, but for one. */
static const void *refused;
static atomic_int pointers_asked;

static CUresult answer_for_pointer(unsigned int count, CUpointer_attribute *attributes, void **values,
                                   CUdeviceptr pointer) {
  const bool known = pointer != (CUdeviceptr)(uintptr_t)refused;
  atomic_fetch_add(&pointers_asked, 1);
  for (unsigned int i = 0; i < count; i++) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *(unsigned int *)values[i] = known ? CU_MEMORYTYPE_DEVICE : 0;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      *(int *)values[i] = 0;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
      *(CUdeviceptr *)values[i] = known ? pointer : 0;
  }
  return CUDA_SUCCESS;
}

static int setup(void **state) {
  static struct driver_api driver;
  driver = fake_driver_api;
  driver.PointerGetAttributes = answer_for_pointer;
  refused = NULL;
  atomic_store(&pointers_asked, 0);
  if (fixture_setup_closed(state) != 0) return -1;
  fake_nvrtc.entry = "flash_forward";
  return fixture_open_over(*state, &driver) != KJIT_OK;
}

#define PLAN_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

static kjit_status create(struct fixture *f, kjit_attention_plan **plan) {
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = good_args();
  return plain_plan_create(plan, f->runtime, &config, &args, &f->error);
}

static void test_flash_plan__run_is_one_driver_call(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_OK, create(f, &plan), &f->error);
  const long calls = atomic_load(&fake_driver.calls);
  const CUstream stream = (CUstream)(uintptr_t)0x99;
  for (int i = 0; i < 3; i++)
    assert_status(KJIT_OK, kjit_attention_plan_run(plan, stream, &f->error), &f->error);
  assert_int_equal(atomic_load(&fake_driver.calls) - calls, 3);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 3);
  assert_int_equal(fake_driver.launch.grid[0], 2);
  assert_int_equal(fake_driver.launch.shared_bytes, 49152);
  assert_ptr_equal(fake_driver.launch.stream, stream);
  kjit_attention_plan_destroy(plan);
}

static void test_flash_plan__runs_are_not_counted_as_launches(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = NULL;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, create(f, &plan), &f->error);
  assert_status(KJIT_OK, kjit_attention_plan_run(plan, NULL, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(stats.launches, 0);
  kjit_attention_plan_destroy(plan);
}

static void test_flash_plan__driver_is_asked_about_every_pointer(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_OK, create(f, &plan), &f->error);
  assert_int_equal(atomic_load(&pointers_asked), 4);
  kjit_attention_plan_destroy(plan);
}

static void test_flash_plan__pointer_unknown_to_the_driver_gives_no_plan(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = (kjit_attention_plan *)address(9);
  refused = address(4);
  assert_status(KJIT_ERR_INVALID_ARG, create(f, &plan), &f->error);
  assert_contains(f->error.message, "o: 0x400000 is not memory that CUDA allocated");
  assert_null(plan);
}

static void test_flash_plan__bad_arguments_give_no_plan(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = (kjit_attention_plan *)address(9);
  kjit_attention_args args = good_args();
  args.o.rank = 2;
  assert_status(KJIT_ERR_INVALID_ARG, plain_plan_create(&plan, f->runtime, NULL, &args, &f->error), &f->error);
  assert_contains(f->error.message, "o.rank is 2");
  assert_null(plan);
  assert_status(KJIT_ERR_INVALID_ARG, create(f, NULL), &f->error);
}

static void test_flash_plan__launch_failure_is_reported(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_OK, create(f, &plan), &f->error);
  fake_driver.fail_call = FAKE_LaunchKernel;
  fake_driver.failure = CUDA_ERROR_INVALID_HANDLE;
  assert_status(KJIT_ERR_DRIVER, kjit_attention_plan_run(plan, NULL, &f->error), &f->error);
  kjit_attention_plan_destroy(plan);
}

static void test_flash_plan__null_is_accepted_or_refused(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan_destroy(NULL);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_plan_run(NULL, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "plan");
}

static void test_flash_plan__every_allocation_may_fail(void **state) {
  struct fixture *f = *state;
  kjit_attention_plan *plan = NULL;
  for (long n = 0; !plan; n++) {
    assert_true(n < 1000);
    atomic_store(&f->memory.calls, 0);
    atomic_store(&f->memory.once, 1);
    atomic_store(&f->memory.fail_at, n);
    const kjit_status status = create(f, &plan);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    assert_int_equal(status == KJIT_OK, plan != NULL);
    if (status != KJIT_OK) assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
  }
  kjit_attention_plan_destroy(plan);
}

static kjit_status forward_timed(struct fixture *f, const kjit_flash_config *config, const kjit_attention_args *args,
                                 float *milliseconds) {
  kjit_attention_plan *plan = NULL;
  kjit_status status = plain_plan_create(&plan, f->runtime, config, args, &f->error);
  if (status == KJIT_OK) status = kjit_attention_plan_time(plan, NULL, milliseconds, &f->error);
  kjit_attention_plan_destroy(plan);
  return status;
}

static void test_flash_plan_time__milliseconds_come_from_events_that_are_destroyed(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = good_args();
  float milliseconds = -1;
  assert_status(KJIT_OK, forward_timed(f, &config, &args, &milliseconds), &f->error);
  assert_true(milliseconds >= 0);
  assert_int_equal(fake_driver_calls_of(FAKE_EventCreate), 2);
  assert_int_equal(fake_driver_calls_of(FAKE_EventDestroy), 2);
  assert_int_equal(fake_driver_calls_of(FAKE_EventElapsedTime), 1);
}

static void test_flash_plan_time__failure_gives_zero_milliseconds(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  const kjit_attention_args good = good_args();
  float milliseconds = 5;
  fake_driver.fail_call = FAKE_EventSynchronize;
  fake_driver.failure = CUDA_ERROR_LAUNCH_FAILED;
  assert_status(KJIT_ERR_DRIVER, forward_timed(f, &config, &good, &milliseconds), &f->error);
  assert_true(milliseconds == 0);
  assert_status(KJIT_ERR_INVALID_ARG, forward_timed(f, &config, &good, NULL), &f->error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      PLAN_TEST(test_flash_plan_time__milliseconds_come_from_events_that_are_destroyed),
      PLAN_TEST(test_flash_plan_time__failure_gives_zero_milliseconds),
      PLAN_TEST(test_flash_plan__run_is_one_driver_call),
      PLAN_TEST(test_flash_plan__runs_are_not_counted_as_launches),
      PLAN_TEST(test_flash_plan__driver_is_asked_about_every_pointer),
      PLAN_TEST(test_flash_plan__pointer_unknown_to_the_driver_gives_no_plan),
      PLAN_TEST(test_flash_plan__bad_arguments_give_no_plan),
      PLAN_TEST(test_flash_plan__launch_failure_is_reported),
      PLAN_TEST(test_flash_plan__null_is_accepted_or_refused),
      PLAN_TEST(test_flash_plan__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("flash_plan", tests, NULL, NULL);
}
