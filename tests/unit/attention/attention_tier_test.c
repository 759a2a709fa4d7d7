/* The tiered build over a fake driver and compiler: which kernel serves which call, and that nothing is left over. */
#include "support/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kjit/attention.h>

#include "unit/runtime/fixture.h"

#define STREAM ((CUstream)(uintptr_t)0x77)

static const char *const entries[] = {"attention_padding", "attention_sm90", "flash_forward", NULL};

static CUresult any_pointer(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer) {
  for (unsigned int i = 0; i < count; i++) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
      *(CUdeviceptr *)values[i] = pointer;
    else
      *(int *)values[i] = 1;
  }
  return CUDA_SUCCESS;
}

static atomic_int capturing;

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  *status = atomic_load(&capturing) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

/* Threads in x of the latest block that was launched. */
static atomic_uint launched_threads;

static CUresult launch(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                       CUstream stream, void **parameters, void **extra) {
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_y, (void)block_z, (void)shared_bytes;
  (void)stream, (void)parameters, (void)extra;
  atomic_store(&launched_threads, block_x);
  return CUDA_SUCCESS;
}

static kjit_status open_tiered(struct fixture *f, uint32_t calls) {
  static struct driver_api driver;
  kjit_runtime_options options = kjit_runtime_options_default();
  struct runtime_fakes fakes = {.driver = &driver};
  driver = fake_driver_api;
  driver.PointerGetAttributes = any_pointer;
  driver.StreamIsCapturing = is_capturing;
  driver.LaunchKernel = launch;
  options.cache_dir = f->folder.path;
  options.allocator = failing_allocator_hooks(&f->memory);
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  options.tiered = KJIT_TIERED_ON;
  options.tier_calls = calls;
  const kjit_status status = nvrtc_create_fake(&fakes.nvrtc, &f->mem, fake_nvrtc_api(), "nvrtc-fake", &f->error);
  return status == KJIT_OK ? runtime_create_with(&f->runtime, &options, &fakes, &f->error) : status;
}

static int setup_with(void **state, uint32_t calls) {
  if (fixture_setup_closed(state) != 0) return -1;
  atomic_store(&capturing, 0);
  fake_nvrtc.entries = entries;
  fake_nvrtc.slow = "attention_sm90";
  atomic_store(&fake_nvrtc.compile_ms, 60000); /* until the test lets it go */
  return open_tiered(*state, calls) != KJIT_OK;
}

static int setup(void **state) {
  return setup_with(state, 0);
}

static int setup_three_calls(void **state) {
  return setup_with(state, 3);
}

/* The runtime's thread uses the fake driver until the runtime ends, so it ends before the fixture is taken apart. */
static int teardown(void **state) {
  fixture_close(*state);
  return fixture_teardown(state);
}

#define TIER_TEST(test)        cmocka_unit_test_setup_teardown(test, setup, teardown)
#define THREE_CALLS_TEST(test) cmocka_unit_test_setup_teardown(test, setup_three_calls, teardown)

static void *address(uintptr_t number) {
  return (void *)(number << 20);
}

static kjit_attention_args args_of_head(int64_t seq, int64_t head_dim) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, seq, 4, head_dim);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, seq, 4, head_dim);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 2, seq, 4, head_dim);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 2, seq, 4, head_dim);
  return args;
}

static kjit_attention_args args_of(int64_t seq) {
  return args_of_head(seq, 128);
}

static void forward(struct fixture *f, int64_t seq) {
  const kjit_attention_args args = args_of(seq);
  kjit_error error;
  assert_status(KJIT_OK, kjit_attention_forward(f->runtime, NULL, &args, STREAM, &error), &error);
}

/* Threads of a block tell the families apart: a small tile's four warps, and two or more warpgroups. */
static bool was_first_tier(void) {
  return atomic_load(&launched_threads) == 128;
}

static kjit_runtime_stats stats_of(struct fixture *f) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  return stats;
}

static void let_it_compile(void) {
  atomic_store(&fake_nvrtc.compile_ms, 0);
}

static void wait_until(bool (*holds)(struct fixture *f), struct fixture *f) {
  const struct timespec one = {0, 1000000};
  for (int ms = 0; ms < 60000 && !holds(f); ms++)
    nanosleep(&one, NULL);
  assert_true(holds(f));
}

static bool two_are_loaded(struct fixture *f) {
  return stats_of(f).kernels_loaded == 2;
}

static bool one_is_compiling(struct fixture *f) {
  (void)f;
  return atomic_load(&fake_nvrtc.compiles) == 2;
}

static void test_tiered__first_calls_are_served_while_the_chosen_kernel_is_built(void **state) {
  struct fixture *f = *state;
  for (int i = 0; i < 5; i++) {
    forward(f, 4096);
    assert_true(was_first_tier());
  }
  assert_int_equal(stats_of(f).first_tier_calls, 5);
  assert_int_equal(stats_of(f).tier_swaps, 0);
  let_it_compile();
  wait_until(two_are_loaded, f);
  do
    forward(f, 4096); /* the thread has loaded the kernel, and is about to say so */
  while (was_first_tier());
  assert_int_equal(stats_of(f).tier_swaps, 1);
  const uint64_t served = stats_of(f).first_tier_calls;
  const long calls = atomic_load(&fake_driver.calls);
  forward(f, 4096);
  assert_false(was_first_tier());
  assert_true(atomic_load(&fake_driver.calls) - calls <= 5); /* as any resident launch */
  assert_int_equal(stats_of(f).first_tier_calls, served);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 2);
}

static bool three_are_loaded(struct fixture *f) {
  return stats_of(f).kernels_loaded == 3;
}

/* Heads of 200 columns are copied into whole lines by a kernel of its own. */
static void test_tiered__kernel_in_front_is_built_before_the_swap(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = args_of_head(8192, 200);
  kjit_error error;
  assert_status(KJIT_OK, kjit_attention_forward(f->runtime, NULL, &args, STREAM, &error), &error);
  assert_true(was_first_tier());
  let_it_compile();
  wait_until(three_are_loaded, f);
  do
    assert_status(KJIT_OK, kjit_attention_forward(f->runtime, NULL, &args, STREAM, &error), &error);
  while (was_first_tier());
  assert_int_equal(stats_of(f).tier_swaps, 1);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 3);
}

static void test_tiered__other_lengths_share_the_first_tiers_kernel(void **state) {
  struct fixture *f = *state;
  forward(f, 4096);
  forward(f, 2048);
  forward(f, 100);
  assert_true(was_first_tier());
  assert_int_equal(stats_of(f).kernels_loaded, 1);
}

static void test_tiered__what_is_cached_is_taken_at_once(void **state) {
  struct fixture *f = *state;
  let_it_compile();
  forward(f, 4096);
  wait_until(two_are_loaded, f);
  fixture_close(f);
  atomic_store(&fake_nvrtc.compile_ms, 60000);
  assert_int_equal(open_tiered(f, 0), KJIT_OK);
  forward(f, 4096);
  assert_false(was_first_tier());
  assert_int_equal(stats_of(f).first_tier_calls, 0);
}

static void test_tiered__captured_stream_and_plan_wait_for_the_chosen_kernel(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = args_of(4096);
  kjit_attention_plan *plan;
  let_it_compile();
  atomic_store(&capturing, 1);
  forward(f, 4096);
  assert_false(was_first_tier());
  atomic_store(&capturing, 0);
  assert_status(KJIT_OK, kjit_attention_plan_create(&plan, f->runtime, NULL, &args, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_attention_plan_run(plan, STREAM, &f->error), &f->error);
  assert_false(was_first_tier());
  kjit_attention_plan_destroy(plan);
  assert_int_equal(stats_of(f).first_tier_calls, 0);
}

/* The thread that builds works in the device's primary context, which a context of cuCtxCreate() is not. */
static void test_tiered__context_of_the_programs_own_waits_for_the_chosen_kernel(void **state) {
  struct fixture *f = *state;
  let_it_compile();
  fake_driver.context = (CUcontext)&fake_driver;
  forward(f, 4096);
  assert_false(was_first_tier());
  assert_int_equal(stats_of(f).first_tier_calls, 0);
}

static void test_tiered__failed_build_is_reported_by_the_next_call(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = args_of(4096);
  atomic_store(&fake_nvrtc.reject, 1); /* of slow sources alone */
  forward(f, 4096);
  let_it_compile();
  kjit_status status = KJIT_OK;
  const struct timespec one = {0, 1000000};
  for (int ms = 0; ms < 60000 && status == KJIT_OK; ms++) {
    status = kjit_attention_forward(f->runtime, NULL, &args, STREAM, &f->error);
    nanosleep(&one, NULL);
  }
  assert_status(KJIT_ERR_COMPILE, status, &f->error);
}

static void test_tiered__calls_by_number_do_not_depend_on_time(void **state) {
  struct fixture *f = *state;
  let_it_compile();
  forward(f, 4096);
  assert_true(was_first_tier());
  wait_until(two_are_loaded, f);
  forward(f, 4096);
  forward(f, 4096);
  assert_true(was_first_tier());
  forward(f, 4096);
  assert_false(was_first_tier());
  assert_int_equal(stats_of(f).first_tier_calls, 3);
  assert_int_equal(stats_of(f).tier_swaps, 1);
}

static void test_tiered__calls_by_number_do_not_depend_on_the_cache(void **state) {
  struct fixture *f = *state;
  let_it_compile();
  for (int i = 0; i < 4; i++)
    forward(f, 4096);
  assert_false(was_first_tier());
  fixture_close(f);
  assert_int_equal(open_tiered(f, 3), KJIT_OK);
  for (int i = 0; i < 3; i++) {
    forward(f, 4096);
    assert_true(was_first_tier());
  }
  forward(f, 4096);
  assert_false(was_first_tier());
}

/* The teardown looks for memory, kernels and cache files that are left over. */
static void test_tiered__runtime_that_ends_early_stops_the_build(void **state) {
  struct fixture *f = *state;
  forward(f, 4096);
  wait_until(one_is_compiling, f);
  fixture_close(f);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  assert_int_equal(open_tiered(f, 0), KJIT_OK);
  kjit_runtime_stats before = stats_of(f);
  forward(f, 4096);
  assert_int_equal(stats_of(f).rebuilt_entries, before.rebuilt_entries); /* no half entry was left in the cache */
  assert_true(was_first_tier());
}

static bool is_building(struct fixture *f) {
  return (uint64_t)atomic_load(&fake_nvrtc.compiles) == stats_of(f).builds + 1;
}

/* A call of a process that is killed right behind it, while the first tier's kernel is written to the cache, or while
 * the chosen one is compiled. */
static void die_after_a_call(struct fixture *f, bool compiles) {
  const pid_t child = fork();
  int status = 0;
  assert_true(child >= 0);
  if (child == 0) {
    const struct timespec one = {0, 1000000};
    const kjit_attention_args args = args_of(4096);
    if (open_tiered(f, 0) != KJIT_OK) _exit(1);
    if (kjit_attention_forward(f->runtime, NULL, &args, STREAM, &f->error) != KJIT_OK || !was_first_tier()) _exit(2);
    for (int ms = 0; compiles && ms < 60000 && !is_building(f); ms++)
      nanosleep(&one, NULL);
    (void)raise(SIGKILL);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_tiered__process_that_ends_early_leaves_no_half_work(void **state) {
  struct fixture *f = *state;
  fixture_close(f);
  for (int i = 0; i < 6; i++)
    die_after_a_call(f, i % 2);
  let_it_compile();
  assert_int_equal(open_tiered(f, 0), KJIT_OK);
  forward(f, 4096);
  wait_until(two_are_loaded, f);
  do
    forward(f, 4096);
  while (was_first_tier());
  assert_int_equal(stats_of(f).rebuilt_entries, 0); /* of what was begun, nothing was taken for an entry */
  assert_true(atomic_load(&fake_nvrtc.compiles) <= 2);
}

static void *call_often(void *user) {
  fake_driver_set_current(0);
  for (int i = 0; i < 50; i++)
    forward(user, 4096 + 64 * (i % 4));
  return NULL;
}

static void test_tiered__threads_swap_once(void **state) {
  struct fixture *f = *state;
  pthread_t threads[4];
  let_it_compile();
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, call_often, f), 0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  wait_until(two_are_loaded, f);
  do
    forward(f, 4096);
  while (was_first_tier());
  assert_int_equal(stats_of(f).tier_swaps, 1);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 2);
}

static void test_tiered__option_is_checked(void **state) {
  struct fixture *f = *state;
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  options.tiered = 3;
  options.cache_dir = f->folder.path;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_runtime_create(&runtime, &options, &f->error), &f->error);
  assert_string_equal(f->error.message, "options.tiered: 3; must be a kjit_tiered, 0 to 2");
  options.tiered = KJIT_TIERED_DEFAULT;
  setenv("KJIT_TIERED", "soon", 1);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_runtime_create(&runtime, &options, &f->error), &f->error);
  assert_string_equal(f->error.message, "KJIT_TIERED: \"soon\"; must be on, off or a number from 1 on");
  unsetenv("KJIT_TIERED");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TIER_TEST(test_tiered__first_calls_are_served_while_the_chosen_kernel_is_built),
      TIER_TEST(test_tiered__kernel_in_front_is_built_before_the_swap),
      TIER_TEST(test_tiered__other_lengths_share_the_first_tiers_kernel),
      TIER_TEST(test_tiered__what_is_cached_is_taken_at_once),
      TIER_TEST(test_tiered__captured_stream_and_plan_wait_for_the_chosen_kernel),
      TIER_TEST(test_tiered__context_of_the_programs_own_waits_for_the_chosen_kernel),
      TIER_TEST(test_tiered__failed_build_is_reported_by_the_next_call),
      THREE_CALLS_TEST(test_tiered__calls_by_number_do_not_depend_on_time),
      THREE_CALLS_TEST(test_tiered__calls_by_number_do_not_depend_on_the_cache),
      TIER_TEST(test_tiered__runtime_that_ends_early_stops_the_build),
      TIER_TEST(test_tiered__process_that_ends_early_leaves_no_half_work),
      TIER_TEST(test_tiered__threads_swap_once),
      TIER_TEST(test_tiered__option_is_checked),
  };
  return cmocka_run_group_tests_name("the tiered build", tests, NULL, NULL);
}
