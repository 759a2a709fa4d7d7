#include "launching.h"

static uint64_t launches(struct fixture *f) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  return stats.launches;
}

static void test_launch__everything_reaches_the_driver(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = {
      .struct_size = sizeof shape, .grid = {1000, 20, 3}, .block = {32, 4, 2}, .dynamic_shared_bytes = 4096};
  const CUstream stream = (CUstream)(uintptr_t)0x1234;
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, stream, &f->error), &f->error);
  const struct fake_launch *const it = &fake_driver.launch;
  assert_memory_equal(shape.grid, it->grid, sizeof it->grid);
  assert_memory_equal(shape.block, it->block, sizeof it->block);
  assert_int_equal(4096, it->shared_bytes);
  assert_ptr_equal(stream, it->stream);
  assert_memory_equal(&args, it->args, sizeof args);
  assert_int_equal(1, launches(f));
}

static void test_launch__zero_block_means_one(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  static const unsigned int ones[3] = {1, 1, 1};
  memset(shape.block, 0, sizeof shape.block);
  assert_status(KJIT_OK, launch(f, &shape), &f->error);
  assert_memory_equal(ones, fake_driver.launch.grid, sizeof ones);
  assert_memory_equal(ones, fake_driver.launch.block, sizeof ones);
}

static void test_launch__empty_grid_is_said_and_not_run(void **state) {
  struct fixture *f = *state;
  for (int axis = 0; axis < 3; axis++) {
    char what[32];
    kjit_launch shape = kjit_launch_default();
    shape.grid[axis] = 0;
    snprintf(what, sizeof what, "launch.grid[%d]: 0; an empty", axis);
    assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, what);
  }
}

static void test_launch__limits_are_named_with_the_number(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  shape.grid[1] = 65536;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.grid[1]: 65536; CUDA allows at most 65535");
  shape = kjit_launch_default();
  shape.grid[2] = 65536;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.grid[2]: 65536");
  shape = kjit_launch_default();
  shape.grid[0] = 0x80000000u;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.grid[0]: 2147483648; CUDA allows at most 2147483647");
  shape = kjit_launch_default();
  shape.block[2] = 65;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.block[2]: 65; CUDA allows at most 64");
  shape = kjit_launch_default();
  shape.block[0] = 512, shape.block[1] = 4;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "512 x 4 x 1 = 2048 threads; CUDA allows at most 1024");
}

static void test_launch__largest_legal_shape_is_launched(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = {.struct_size = sizeof shape, .grid = {0x7fffffff, 65535, 65535}, .block = {16, 1, 64}};
  assert_status(KJIT_OK, launch(f, &shape), &f->error);
}

static void test_launch__more_threads_than_the_kernel_allows_are_refused(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  fake_driver.max_threads = 256;
  shape.block[0] = 512;
  assert_refused(f, &shape, KJIT_ERR_UNSUPPORTED, "512 threads; kernel \"k\" allows at most 256 on device 0");
}

static void test_launch__wrong_size_names_index_and_both_sizes(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  kjit_kernel *const kernel = kernel_of(f);
  const kjit_arg small = {&args, 8}, nowhere = {NULL, 16};
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, &small, 1, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "args[0].bytes: 8; parameter 0 of kernel \"k\" has 16");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, &nowhere, 1, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "args[0].value: ");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, NULL, 1, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "args: ");
  assert_int_equal(0, fake_driver_calls_of(FAKE_LaunchKernel));
}

static void test_launch__kernel_without_parameters_takes_none(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  fake_driver.parameter_count = 0;
  kjit_kernel *const kernel = kernel_of(f);
  assert_int_equal(0, kjit_kernel_parameter_count(kernel));
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, NULL, 0, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "arg_count: 1; kernel \"k\" has 0 parameters");
}

static void test_launch__five_arguments_arrive_in_order(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  const struct args values[5] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}};
  kjit_arg list[5];
  for (int i = 0; i < 5; i++)
    list[i] = (kjit_arg){&values[i], sizeof values[i]};
  fake_driver.parameter_count = 5;
  kjit_kernel *const kernel = kernel_of(f);
  assert_int_equal(5, kjit_kernel_parameter_count(kernel));
  assert_int_equal(16, kjit_kernel_parameter_bytes(kernel, 4));
  assert_int_equal(0, kjit_kernel_parameter_bytes(kernel, 5));
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, list, 5, NULL, &f->error), &f->error);
  assert_memory_equal(values, fake_driver.launch.args, sizeof values);
  list[3].bytes = 4;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, list, 5, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "args[3].bytes: 4; parameter 3");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, list, 4, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "arg_count: 4; kernel \"k\" has 5 parameters");
}

/* A count that is garbage: the first arguments are good ones, and nothing is behind them. */
static void test_launch__count_beyond_the_kernels_allocates_nothing(void **state) {
  struct fixture *f = *state;
  static const size_t counts[] = {2, 65, 32765, (size_t)1 << 31, SIZE_MAX / sizeof(void *), SIZE_MAX};
  const kjit_launch shape = kjit_launch_default();
  fake_driver.parameter_count = 1;
  kjit_kernel *const kernel = kernel_of(f);
  const long before = atomic_load(&f->memory.calls);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_launch(kernel, &shape, &arg, counts[i], NULL, &f->error),
                  &f->error);
    assert_contains(f->error.message, "; kernel \"k\" has 1 parameter");
  }
  assert_int_equal(before, atomic_load(&f->memory.calls));
  assert_int_equal(0, fake_driver_calls_of(FAKE_LaunchKernel));
}

/* More than have room on the stack. */
static void test_launch__two_hundred_arguments_arrive(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  uint16_t values[200];
  kjit_arg list[200];
  for (uint16_t i = 0; i < 200; i++) {
    values[i] = (uint16_t)(i * 7);
    list[i] = (kjit_arg)KJIT_ARG(values[i]);
  }
  fake_driver.parameter_count = 200;
  fake_driver.parameter_bytes = 2;
  assert_status(KJIT_OK, kjit_kernel_launch(kernel_of(f), &shape, list, 200, NULL, &f->error), &f->error);
  assert_memory_equal(values, fake_driver.launch.args, sizeof values);
}

static void test_launch__driver_that_cannot_tell_parameters_is_trusted(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  struct driver_api old = fake_driver_api;
  old.KernelGetParamInfo = NULL;
  fixture_close(f);
  assert_status(KJIT_OK, fixture_open_over(f, &old), &f->error);
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  fixture_close(f);
}

static void test_launch__small_shared_memory_asks_for_nothing(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  shape.dynamic_shared_bytes = 48 * 1024;
  assert_status(KJIT_OK, launch(f, &shape), &f->error);
  assert_int_equal(0, fake_driver_calls_of(FAKE_KernelSetAttribute));
}

static void test_launch__static_shared_memory_counts_towards_the_48_kib(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  fake_driver.static_shared = 1024;
  shape.dynamic_shared_bytes = 48 * 1024;
  assert_status(KJIT_OK, launch(f, &shape), &f->error);
  assert_int_equal(1, fake_driver_calls_of(FAKE_KernelSetAttribute));
  assert_int_equal(232448 - 1024, atomic_load(&fake_driver.device[0].raised_bytes));
}

static void test_launch__large_shared_memory_is_asked_for_once_per_kernel_and_device(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  fake_driver.device[1].major = 9;
  kjit_kernel *const kernel = kernel_of(f);
  for (uint32_t bytes = 100000; bytes <= 160000; bytes += 20000) {
    for (int device = 0; device < 2; device++) {
      fake_driver_set_current(device);
      shape.dynamic_shared_bytes = bytes;
      assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
    }
  }
  assert_int_equal(1, fake_driver_calls_of(FAKE_LibraryLoadData));
  assert_int_equal(1, atomic_load(&fake_driver.device[0].raised));
  assert_int_equal(1, atomic_load(&fake_driver.device[1].raised));
  assert_int_equal(232448, atomic_load(&fake_driver.device[0].raised_bytes));
  assert_int_equal(166912, atomic_load(&fake_driver.device[1].raised_bytes));
}

static void *prepare_large(void *user) {
  struct fixture *f = user;
  const kjit_build_request request = fixture_request(NULL, "a");
  kjit_kernel *kernel;
  if (kjit_kernel_get(f->runtime, &request, &kernel, NULL) != KJIT_OK) return "no kernel";
  const kjit_status status = runtime_kernel_prepare(kernel, 0, 200000, NULL);
  kjit_kernel_release(kernel);
  return status == KJIT_OK ? NULL : "not prepared";
}

static void test_launch__eight_threads_ask_for_shared_memory_once(void **state) {
  struct fixture *f = *state;
  fake_driver.load_us = 5000;
  fixture_in_threads(f, prepare_large);
  assert_int_equal(1, atomic_load(&fake_driver.device[0].raised));
}

static void test_launch__more_shared_memory_than_the_device_has_is_refused(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  fake_driver.static_shared = 1024;
  shape.dynamic_shared_bytes = 232448;
  assert_refused(f, &shape, KJIT_ERR_UNSUPPORTED,
                 "232448 bytes of dynamic and 1024 of static shared memory; device 0 (sm_90) has 232448 per block");
  shape.dynamic_shared_bytes = UINT32_MAX;
  assert_refused(f, &shape, KJIT_ERR_UNSUPPORTED, "4294967295");
  assert_int_equal(0, fake_driver_calls_of(FAKE_KernelSetAttribute));
}

static void test_launch__device_that_cannot_run_the_kernel_is_named(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  kjit_kernel *const kernel = kernel_of(f);
  fake_driver_set_current(1);
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "sm_90a, which device 1 (Fake GPU, sm_80) cannot run");
}

static void test_launch__cluster_goes_with_the_launch(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = {.struct_size = sizeof shape, .grid = {8, 4, 1}, .block = {128}, .cluster = {2, 0, 1}};
  static const unsigned int expected[3] = {2, 1, 1};
  assert_status(KJIT_OK, launch(f, &shape), &f->error);
  assert_memory_equal(expected, fake_driver.launch.cluster, sizeof expected);
  assert_memory_equal(shape.grid, fake_driver.launch.grid, sizeof shape.grid);
  assert_memory_equal(&args, fake_driver.launch.args, sizeof args);
  assert_int_equal(1, fake_driver_calls_of(FAKE_LaunchKernelEx));
  assert_int_equal(1, launches(f));
}

static void test_launch__bad_clusters_are_refused(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = {.struct_size = sizeof shape, .grid = {9, 1, 1}, .cluster = {2, 1, 1}};
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.grid[0]: 9; must be a multiple of launch.cluster[0], 2");
  shape = (kjit_launch){.struct_size = sizeof shape, .grid = {16, 16, 2}, .cluster = {4, 4, 2}};
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "4 x 4 x 2 = 32 blocks; CUDA allows at most 16");
  shape = (kjit_launch){.struct_size = sizeof shape, .grid = {16, 16, 1}, .cluster = {UINT32_MAX, 4, 1}};
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.cluster[0]: 4294967295; CUDA allows at most 16");
  shape = (kjit_launch){.struct_size = sizeof shape, .grid = {2, 1, 1}, .cluster = {2, 1, 1}};
  fake_driver_set_current(1);
  assert_refused(f, &shape, KJIT_ERR_UNSUPPORTED, "device 1 (sm_80) has no clusters; sm_90 and later do");
}

static void test_launch__drivers_refusal_is_reported_and_not_counted(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  (void)kernel_of(f);
  fake_driver.fail_call = FAKE_LaunchKernel;
  fake_driver.failure = CUDA_ERROR_INVALID_VALUE;
  assert_status(KJIT_ERR_DRIVER, launch(f, &shape), &f->error);
  assert_contains(f->error.message, "launching kernel \"k\": CUDA_ERROR_INVALID_VALUE");
  assert_int_equal(KJIT_CAUSE_CUDA, f->error.cause_domain);
  assert_int_equal(CUDA_ERROR_INVALID_VALUE, f->error.cause);
  fake_driver.fail_call = FAKE_LaunchKernelEx;
  shape.cluster[0] = 1;
  assert_status(KJIT_ERR_DRIVER, launch(f, &shape), &f->error);
  assert_int_equal(0, launches(f));
}

static void test_launch__without_context_is_no_driver(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  kjit_kernel *const kernel = kernel_of(f);
  fake_driver_set_current(-1);
  assert_status(KJIT_ERR_NO_DRIVER, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
}

/* With one device the launch does not ask which is current; what the driver refuses is explained all the same. */
static void test_launch__without_context_beside_one_device_is_no_driver(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = kjit_launch_default();
  fake_driver.device_count = 1;
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  const int asked = fake_driver_calls_of(FAKE_CtxGetDevice);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  assert_int_equal(asked, fake_driver_calls_of(FAKE_CtxGetDevice));
  fake_driver_set_current(-1);
  assert_status(KJIT_ERR_NO_DRIVER, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "no CUDA context is current");
}

static void test_launch__struct_of_another_version(void **state) {
  struct fixture *f = *state;
  struct {
    kjit_launch known;
    uint64_t unknown;
  } newer = {.known = {.struct_size = sizeof newer, .grid = {7, 1, 1}}};
  assert_status(KJIT_OK, launch(f, &newer.known), &f->error);
  assert_int_equal(7, fake_driver.launch.grid[0]);
  newer.unknown = 1;
  assert_status(KJIT_ERR_UNSUPPORTED, launch(f, &newer.known), &f->error);
  newer.known.struct_size = 0;
  assert_status(KJIT_ERR_INVALID_ARG, launch(f, &newer.known), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, launch(f, NULL), &f->error);
}

/* A launch by plan: nothing but the driver's launch. */
static void test_launch__enqueue_makes_one_driver_call(void **state) {
  struct fixture *f = *state;
  static const uint32_t grid[3] = {3, 2, 1}, block[3] = {64, 1, 1};
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, runtime_kernel_prepare(kernel, 0, 1000, &f->error), &f->error);
  const long before = atomic_load(&fake_driver.calls);
  assert_status(KJIT_OK, runtime_kernel_enqueue(kernel, grid, block, 1000, &args, NULL, &f->error), &f->error);
  assert_int_equal(before + 1, atomic_load(&fake_driver.calls));
  assert_memory_equal(grid, fake_driver.launch.grid, sizeof grid);
  assert_int_equal(0, launches(f));
}

/* A launch of a kernel that is ready: the current device, and the launch. */
static void test_launch__ready_kernel_makes_two_driver_calls_and_no_allocation(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  shape.dynamic_shared_bytes = 200000;
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  const long before = atomic_load(&fake_driver.calls), allocations = atomic_load(&f->memory.calls);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  assert_int_equal(before + 2, atomic_load(&fake_driver.calls));
  assert_int_equal(allocations, atomic_load(&f->memory.calls));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_launch__everything_reaches_the_driver),
      FIXTURE_TEST(test_launch__zero_block_means_one),
      FIXTURE_TEST(test_launch__empty_grid_is_said_and_not_run),
      FIXTURE_TEST(test_launch__limits_are_named_with_the_number),
      FIXTURE_TEST(test_launch__largest_legal_shape_is_launched),
      FIXTURE_TEST(test_launch__more_threads_than_the_kernel_allows_are_refused),
      FIXTURE_TEST(test_launch__wrong_size_names_index_and_both_sizes),
      FIXTURE_TEST(test_launch__kernel_without_parameters_takes_none),
      FIXTURE_TEST(test_launch__five_arguments_arrive_in_order),
      FIXTURE_TEST(test_launch__count_beyond_the_kernels_allocates_nothing),
      FIXTURE_TEST(test_launch__two_hundred_arguments_arrive),
      FIXTURE_TEST(test_launch__driver_that_cannot_tell_parameters_is_trusted),
      FIXTURE_TEST(test_launch__small_shared_memory_asks_for_nothing),
      FIXTURE_TEST(test_launch__static_shared_memory_counts_towards_the_48_kib),
      FIXTURE_TEST(test_launch__large_shared_memory_is_asked_for_once_per_kernel_and_device),
      FIXTURE_TEST(test_launch__eight_threads_ask_for_shared_memory_once),
      FIXTURE_TEST(test_launch__more_shared_memory_than_the_device_has_is_refused),
      FIXTURE_TEST(test_launch__device_that_cannot_run_the_kernel_is_named),
      FIXTURE_TEST(test_launch__cluster_goes_with_the_launch),
      FIXTURE_TEST(test_launch__bad_clusters_are_refused),
      FIXTURE_TEST(test_launch__drivers_refusal_is_reported_and_not_counted),
      FIXTURE_TEST(test_launch__without_context_is_no_driver),
      FIXTURE_TEST(test_launch__without_context_beside_one_device_is_no_driver),
      FIXTURE_TEST(test_launch__struct_of_another_version),
      FIXTURE_TEST(test_launch__enqueue_makes_one_driver_call),
      FIXTURE_TEST(test_launch__ready_kernel_makes_two_driver_calls_and_no_allocation),
  };
  return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
