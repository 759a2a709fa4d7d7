/* Calls over a fake driver and compiler: what is checked, compiled, loaded and launched, and how often. */
#include "attention/attention_arguments.h"
#include "attention/flash/flash_call.h"
#include "support/configs.h"
#include "unit/attention/configs.h"
#include "unit/runtime/fixture.h"

static int setup(void **state) {
  const int failed = fixture_setup(state);
  fake_nvrtc.entry = "flash_forward";
  return failed;
}

#define FLASH_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

/* Device 0 of the fake machine is sm_90 and current, device 1 is sm_80. */
static void *address(uintptr_t number) {
  return (void *)(number << 20);
}

static kjit_attention_args args_on(int32_t device, int64_t head_dim) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, device, 2, 100, 3, head_dim);
  args.k = kjit_tensor_bshd(address(2), KJIT_FP16, device, 2, 70, 3, head_dim);
  args.v = kjit_tensor_bshd(address(3), KJIT_FP16, device, 2, 70, 3, head_dim);
  args.o = kjit_tensor_bshd(address(4), KJIT_FP16, device, 2, 100, 3, head_dim);
  return args;
}

static kjit_status forward(struct fixture *f, const kjit_flash_config *config, const kjit_attention_args *args) {
  return plain_forward(f->runtime, config, args, (CUstream)(uintptr_t)0x77, &f->error);
}

/* The base config on device 0. */
static kjit_status forward_base(struct fixture *f) {
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  return forward(f, &config, &args);
}

static uint64_t launches(struct fixture *f) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  return stats.launches;
}

/* Refused, and nothing was compiled, loaded or launched. */
static void expect_refused(struct fixture *f, kjit_status wanted, const kjit_flash_config *config,
                           const kjit_attention_args *args, const char *part) {
  assert_status(wanted, forward(f, config, args), &f->error);
  assert_contains(f->error.message, part);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 0);
  assert_int_equal(fake_driver_calls_of(FAKE_LibraryLoadData), 0);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 0);
}

static void test_flash_forward__launch_has_grid_block_and_shared_memory(void **state) {
  struct fixture *f = *state;
  const struct fake_launch *it = &fake_driver.launch;
  assert_status(KJIT_OK, forward_base(f), &f->error);
  assert_int_equal(it->grid[0], 2); /* 100 rows in tiles of 64 */
  assert_int_equal(it->grid[1], 3);
  assert_int_equal(it->grid[2], 2);
  assert_int_equal(it->block[0], 128);
  assert_int_equal(it->block[1], 1);
  assert_int_equal(it->block[2], 1);
  assert_int_equal(it->shared_bytes, 49152);
  assert_ptr_equal(it->stream, (CUstream)(uintptr_t)0x77);
}

/* What the family makes of the arguments. */
static void expect_params(const kjit_attention_args *args, const kjit_attention_problem *problem,
                          struct flash_forward_params *params) {
  const struct flash_variant variant = {.config = config_base()};
  const struct attention_launch launch = {.values = (const int32_t *)&variant, .parts = 1};
  struct flash_call call;
  assert_int_equal(flash_attention.prepare(&call, NULL, &launch, args, problem, NULL, NULL), KJIT_OK);
  *params = call.params.base;
}

static void test_flash_forward__parameters_reach_the_driver(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = args_on(0, 128);
  struct flash_forward_params params;
  kjit_attention_problem problem;
  fake_driver.parameter_bytes = sizeof params;
  attention_arguments_problem(&args, &problem);
  expect_params(&args, &problem, &params);
  assert_status(KJIT_OK, forward_base(f), &f->error);
  assert_memory_equal(fake_driver.launch.args, &params, sizeof params);
}

static void test_flash_forward__first_call_builds_and_later_calls_only_launch(void **state) {
  struct fixture *f = *state;
  assert_status(KJIT_OK, forward_base(f), &f->error);
  const long calls = atomic_load(&fake_driver.calls);
  for (int i = 0; i < 5; i++)
    assert_status(KJIT_OK, forward_base(f), &f->error);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 1);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 6);
  /* Which device is current, and the launch. */
  assert_int_equal(atomic_load(&fake_driver.calls) - calls, 5 * 2);
  assert_int_equal(launches(f), 6);
}

static void test_flash_forward__aliases_share_one_kernel(void **state) {
  struct fixture *f = *state;
  kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  config.V_mma_load_K_tiles = 0;
  assert_status(KJIT_OK, forward(f, &config, &args), &f->error);
  const CUfunction function = fake_driver.launch.function;
  config.V_mma_load_K_tiles = 8;
  assert_status(KJIT_OK, forward(f, &config, &args), &f->error);
  assert_ptr_equal(fake_driver.launch.function, function);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 1);
}

static void test_flash_forward__each_architecture_gets_its_own_kernel(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(1, 128);
  assert_status(KJIT_OK, forward_base(f), &f->error);
  fake_driver_set_current(1);
  assert_status(KJIT_OK, forward(f, &config, &args), &f->error);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 2);
}

static void test_flash_forward__shared_memory_limit_is_raised_once(void **state) {
  struct fixture *f = *state;
  kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  config.B_r = 128; /* 64 KiB */
  for (int i = 0; i < 3; i++)
    assert_status(KJIT_OK, forward(f, &config, &args), &f->error);
  assert_int_equal(atomic_load(&fake_driver.device[0].raised), 1);
  assert_int_equal(fake_driver.launch.shared_bytes, 65536);
}

static void test_flash_forward__without_config_one_is_chosen(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = args_on(1, 80); /* device 1 is sm_80 */
  kjit_attention_problem problem;
  kjit_config chosen;
  fake_driver_set_current(1);
  attention_arguments_problem(&args, &problem);
  assert_status(KJIT_OK, kjit_attention_choose(f->runtime, &problem, NULL, &chosen, NULL, &f->error), &f->error);
  assert_string_equal(kjit_family_name(chosen.family), "flash_forward");
  assert_status(KJIT_OK, forward(f, NULL, &args), &f->error);
  assert_int_equal(fake_driver.launch.block[0], kjit_config_geometry(&chosen).threads[0]);
  assert_int_equal(fake_driver.launch.shared_bytes, kjit_config_geometry(&chosen).shared_bytes);
}

static void test_flash_forward__without_config_too_large_a_head_is_unsupported(void **state) {
  const kjit_attention_args args = args_on(1, 264);
  fake_driver_set_current(1);
  expect_refused(*state, KJIT_ERR_UNSUPPORTED, NULL, &args, "head_dim is 264: flash_forward takes multiples of 8");
}

static void test_flash_forward__illegal_config_is_refused(void **state) {
  kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  config.B_r = 96;
  expect_refused(*state, KJIT_ERR_INVALID_CONFIG, &config, &args, "B_r is 96");
}

static void test_flash_forward__config_for_other_tensors_is_refused(void **state) {
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 64);
  expect_refused(*state, KJIT_ERR_INVALID_CONFIG, &config, &args, "d_head is 128: must be the tensors' head_dim, 64");
}

static void test_flash_forward__resident_config_is_still_matched_with_the_tensors(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  kjit_attention_args args = args_on(0, 64);
  assert_status(KJIT_OK, forward_base(f), &f->error);
  assert_status(KJIT_ERR_INVALID_CONFIG, forward(f, &config, &args), &f->error);
  args = args_on(0, 128);
  args.k.device = 1;
  assert_status(KJIT_ERR_INVALID_ARG, forward(f, &config, &args), &f->error);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 1);
}

static void test_flash_forward__tensors_of_another_device_are_refused(void **state) {
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(1, 128);
  expect_refused(*state, KJIT_ERR_INVALID_ARG, &config, &args, "q.device is 1: must be the current device, 0");
}

static void test_flash_forward__old_device_is_unsupported(void **state) {
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  fake_driver.device[0].major = 7;
  fake_driver.device[0].minor = 5;
  expect_refused(*state, KJIT_ERR_UNSUPPORTED, &config, &args, "requires sm_80 or higher (current: sm_75)");
}

static void test_flash_forward__shared_memory_beyond_the_device_is_unsupported(void **state) {
  kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 256);
  config.d_head = 256;
  config.B_r = config.B_c = 128;
  config.n_warps = 8;
  fake_driver.device[0].shared_opt_in = 101376;
  expect_refused(*state, KJIT_ERR_UNSUPPORTED, &config, &args,
                 "= 196608 bytes of shared memory; must be at most 101376");
}

static void test_flash_forward__without_context_there_is_no_driver(void **state) {
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  fake_driver_set_current(-1);
  expect_refused(*state, KJIT_ERR_NO_DRIVER, &config, &args, "");
}

static void test_flash_forward__null_arguments_are_refused(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  const kjit_attention_args args = args_on(0, 128);
  expect_refused(f, KJIT_ERR_INVALID_ARG, &config, NULL, "args");
  assert_int_equal(plain_forward(NULL, &config, &args, NULL, &f->error), KJIT_ERR_INVALID_ARG);
  assert_contains(f->error.message, "runtime");
  assert_int_equal(plain_forward(NULL, &config, &args, NULL, NULL), KJIT_ERR_INVALID_ARG);
}

static void test_flash_forward__struct_of_a_newer_version_is_taken_while_its_tail_is_zero(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  struct {
    kjit_attention_args args;
    char tail[16];
  } newer = {.args = args_on(0, 128)};
  newer.args.struct_size = sizeof newer;
  newer.tail[8] = 1;
  expect_refused(f, KJIT_ERR_UNSUPPORTED, &config, &newer.args, "args");
  newer.tail[8] = 0;
  assert_status(KJIT_OK, forward(f, &config, &newer.args), &f->error);
}

static void test_flash_forward__impossible_struct_size_is_refused(void **state) {
  const kjit_flash_config config = config_base();
  kjit_attention_args args = args_on(0, 128);
  args.struct_size = 0;
  expect_refused(*state, KJIT_ERR_INVALID_ARG, &config, &args, "args.struct_size");
  args.struct_size = offsetof(kjit_attention_args, variant) - 1;
  expect_refused(*state, KJIT_ERR_INVALID_ARG, &config, &args, "args.struct_size");
}

static void test_flash_forward__compile_failure_is_reported_and_not_resident(void **state) {
  struct fixture *f = *state;
  atomic_store(&fake_nvrtc.reject, 1);
  assert_status(KJIT_ERR_COMPILE, forward_base(f), &f->error);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 0);
  assert_status(KJIT_ERR_COMPILE, forward_base(f), &f->error);
}

static void test_flash_forward__launch_failure_is_reported_and_not_counted(void **state) {
  struct fixture *f = *state;
  fake_driver.fail_call = FAKE_LaunchKernel;
  fake_driver.failure = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  assert_status(KJIT_ERR_DRIVER, forward_base(f), &f->error);
  assert_int_equal(f->error.cause, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  assert_int_equal(launches(f), 0);
}

/* The fake driver remembers its last launch, which several threads must not write at once: these only count. */
static atomic_int counted;

static CUresult count_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                             unsigned int block_x, unsigned int block_y, unsigned int block_z,
                             unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
  (void)shared_bytes, (void)stream, (void)parameters, (void)extra;
  atomic_fetch_add(&counted, 1);
  return CUDA_SUCCESS;
}

static int setup_threads(void **state) {
  static struct driver_api driver;
  driver = fake_driver_api;
  driver.LaunchKernel = count_launch;
  atomic_store(&counted, 0);
  if (fixture_setup_closed(state) != 0) return -1;
  fake_nvrtc.entry = "flash_forward";
  return fixture_open_over(*state, &driver) != KJIT_OK;
}

#define CALLS_PER_THREAD 20

/* Four configs, each thread in an order of its own. */
static void *forward_in_thread(void *user) {
  static atomic_int next;
  struct fixture *f = user;
  const kjit_attention_args args = args_on(0, 128);
  const int start = atomic_fetch_add(&next, 1);
  for (int i = 0; i < CALLS_PER_THREAD; i++) {
    kjit_flash_config config = config_base();
    kjit_error error;
    config.swizzled = (start + i) & 1;
    config.optimized_softmax = (start + i) >> 1 & 1;
    if (plain_forward(f->runtime, &config, &args, NULL, &error) != KJIT_OK) return "a call failed";
  }
  return NULL;
}

static void test_flash_forward__threads_share_one_build_for_each_config(void **state) {
  struct fixture *f = *state;
  fixture_in_threads(f, forward_in_thread);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 4);
  assert_int_equal(atomic_load(&counted), CALLS_PER_THREAD * FIXTURE_THREADS);
  assert_int_equal(launches(f), CALLS_PER_THREAD * FIXTURE_THREADS);
}

static void test_flash_forward__every_allocation_may_fail(void **state) {
  struct fixture *f = *state;
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    assert_true(n < 1000);
    atomic_store(&f->memory.calls, 0);
    atomic_store(&f->memory.once, 1);
    atomic_store(&f->memory.fail_at, n);
    status = forward_base(f);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    if (status != KJIT_OK) assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
  }
  assert_status(KJIT_OK, forward_base(f), &f->error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FLASH_TEST(test_flash_forward__launch_has_grid_block_and_shared_memory),
      FLASH_TEST(test_flash_forward__parameters_reach_the_driver),
      FLASH_TEST(test_flash_forward__first_call_builds_and_later_calls_only_launch),
      FLASH_TEST(test_flash_forward__aliases_share_one_kernel),
      FLASH_TEST(test_flash_forward__each_architecture_gets_its_own_kernel),
      FLASH_TEST(test_flash_forward__shared_memory_limit_is_raised_once),
      FLASH_TEST(test_flash_forward__without_config_one_is_chosen),
      FLASH_TEST(test_flash_forward__without_config_too_large_a_head_is_unsupported),
      FLASH_TEST(test_flash_forward__illegal_config_is_refused),
      FLASH_TEST(test_flash_forward__config_for_other_tensors_is_refused),
      FLASH_TEST(test_flash_forward__resident_config_is_still_matched_with_the_tensors),
      FLASH_TEST(test_flash_forward__tensors_of_another_device_are_refused),
      FLASH_TEST(test_flash_forward__old_device_is_unsupported),
      FLASH_TEST(test_flash_forward__shared_memory_beyond_the_device_is_unsupported),
      FLASH_TEST(test_flash_forward__without_context_there_is_no_driver),
      FLASH_TEST(test_flash_forward__null_arguments_are_refused),
      FLASH_TEST(test_flash_forward__struct_of_a_newer_version_is_taken_while_its_tail_is_zero),
      FLASH_TEST(test_flash_forward__impossible_struct_size_is_refused),
      FLASH_TEST(test_flash_forward__compile_failure_is_reported_and_not_resident),
      FLASH_TEST(test_flash_forward__launch_failure_is_reported_and_not_counted),
      cmocka_unit_test_setup_teardown(test_flash_forward__threads_share_one_build_for_each_config, setup_threads,
                                      fixture_teardown),
      FLASH_TEST(test_flash_forward__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("flash_forward", tests, NULL, NULL);
}
