/* kjit_attention_forward() over a fake driver and compiler: what reaches the driver, and how often. */
#include "support/configs.h"
#include "unit/attention/attention_fixture.h"

/* The fake driver's map shows what it was made of: address, sizes, strides, box, type. */
static void expect_map(const struct attention_tensor_map *map, void *data, const uint64_t sizes[4],
                       const uint64_t strides[3], uint64_t box_rows) {
  uint64_t words[16];
  memcpy(words, map, sizeof words);
  assert_int_equal(words[0], (uintptr_t)data);
  assert_memory_equal(&words[1], sizes, 4 * sizeof *sizes);
  assert_memory_equal(&words[6], strides, 3 * sizeof *strides);
  assert_int_equal(words[10], 64);
  assert_int_equal(words[11], box_rows);
  assert_int_equal(words[13] & 0xff, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  assert_int_equal(words[13] >> 16 & 0xff, CU_TENSOR_MAP_SWIZZLE_128B);
  assert_int_equal(words[15], 4);
}

static void test_attention_forward__problem_reaches_the_kernel(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  forward(f, &args, STREAM(7));
  const struct attention_sm90_params *params = launched();
  assert_int_equal(params->batch, 2);
  assert_int_equal(params->heads, 6);
  assert_int_equal(params->heads_per_kv, 3);
  assert_int_equal(params->seq_q, 1000);
  assert_int_equal(params->seq_kv, 700);
  assert_int_equal(params->query_tiles, 8);
  assert_int_equal(params->section, 3); /* of an L2 that holds nothing: the heads of one key head */
  assert_null(params->lse);
  assert_true(params->scale > 0.0721f && params->scale < 0.0722f); /* 1 / sqrt(192) */
  assert_true(params->scale_log2 > 1.4426f * params->scale && params->scale_log2 < 1.4428f * params->scale);
  const struct fake_launch *launch = &fake_driver.launch;
  assert_int_equal(launch->grid[0], MULTIPROCESSORS);
  assert_int_equal(launch->grid[1] * launch->grid[2], 1);
  assert_int_equal(launch->block[0], 384);
  assert_ptr_equal(launch->stream, STREAM(7));
}

static void test_attention_forward__maps_are_those_of_the_tensors(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  forward(f, &args, NULL);
  const struct attention_sm90_params *params = launched();
  expect_map(&params->q, address(1), (uint64_t[]){192, 1000, 6, 2},
             (uint64_t[]){6 * 192 * 2, 192 * 2, UINT64_C(1000) * 6 * 192 * 2}, 64);
  expect_map(&params->k, address(2), (uint64_t[]){192, 700, 2, 2},
             (uint64_t[]){2 * 192 * 2, 192 * 2, UINT64_C(700) * 2 * 192 * 2}, 128);
  expect_map(&params->v, address(3), (uint64_t[]){128, 700, 2, 2},
             (uint64_t[]){2 * 128 * 2, 128 * 2, UINT64_C(700) * 2 * 128 * 2}, 128);
  expect_map(&params->o, address(4), (uint64_t[]){128, 1000, 6, 2},
             (uint64_t[]){6 * 128 * 2, 128 * 2, UINT64_C(1000) * 6 * 128 * 2}, 64);
}

static void test_attention_forward__strides_of_single_axes_are_made_legal(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = grouped_args(0, 1, 1, 0);
  args.q.stride[2] = 7;
  forward(f, &args, NULL);
  expect_map(&launched()->q, address(1), (uint64_t[]){192, 1000, 1, 2},
             (uint64_t[]){192 * 2, 192 * 2, UINT64_C(1000) * 192 * 2}, 64);
}

static void test_attention_forward__maps_are_encoded_once_for_the_same_tensors(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  for (int i = 0; i < 3; i++)
    forward(f, &args, NULL);
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), 4);
  const struct attention_sm90_params first = *launched();
  args.k.data = address(9);
  forward(f, &args, NULL);
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), 8);
  assert_memory_not_equal(&first.k, &launched()->k, sizeof first.k);
  assert_memory_equal(&first.v, &launched()->v, sizeof first.v);
  args = causal_args();
  forward(f, &args, NULL);
  assert_memory_equal(&first, launched(), sizeof first.q * 4);
}

static void test_attention_forward__many_tensors_each_get_their_own_maps(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  for (int round = 0; round < 2; round++) {
    for (uintptr_t i = 0; i < 1000; i++) {
      uint64_t seen;
      args.q.data = address(100 + i);
      forward(f, &args, NULL);
      memcpy(&seen, &launched()->q, sizeof seen);
      assert_int_equal(seen, (uintptr_t)address(100 + i));
    }
  }
}

static void test_attention_forward__later_calls_ask_the_driver_little(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args causal = causal_args(), full = grouped_args(0, 6, 2, 0);
  forward(f, &causal, STREAM(1));
  forward(f, &full, STREAM(1));
  long calls = atomic_load(&fake_driver.calls);
  forward(f, &full, STREAM(1));
  assert_int_equal(atomic_load(&fake_driver.calls) - calls, 2); /* which device is current, and the launch */
  calls = atomic_load(&fake_driver.calls);
  forward(f, &causal, STREAM(1));
  assert_int_equal(atomic_load(&fake_driver.calls) - calls, 5); /* and: capturing? which context? which stream? */
  forward(f, &causal, STREAM(7));
  calls = atomic_load(&fake_driver.calls);
  forward(f, &causal, STREAM(7));
  assert_int_equal(atomic_load(&fake_driver.calls) - calls, 4); /* a created stream's number says all */
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 2);
}

/* One device, which is sm_90. */
static int setup_one_device(void **state) {
  if (setup(state) != 0) return -1;
  fixture_close(*state);
  fake_driver.device_count = 1;
  return fixture_open(*state) != KJIT_OK;
}

static void test_attention_forward__one_device_is_not_asked_for(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = grouped_args(0, 6, 2, 0);
  forward(f, &args, STREAM(7));
  const long calls = atomic_load(&fake_driver.calls);
  forward(f, &args, STREAM(7));
  assert_int_equal(atomic_load(&fake_driver.calls) - calls, 1);
  fake_driver_set_current(-1);
  assert_status(KJIT_ERR_NO_DRIVER, kjit_attention_forward(f->runtime, NULL, &args, STREAM(7), &f->error), &f->error);
  assert_contains(f->error.message, "cuCtxSetCurrent");
}

/* A call that came before in everything but one argument. */
static void test_attention_forward__recalled_call_is_that_of_its_arguments(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = grouped_args(0, 6, 2, 0);
  for (int i = 0; i < 4; i++)
    forward(f, &args, STREAM(7));
  const struct attention_sm90_params first = *launched();
  kjit_attention_args other = args;
  other.scale = 0.5f;
  forward(f, &other, STREAM(7));
  assert_true(launched()->scale == 0.5f);
  other = args;
  other.o.data = address(9);
  forward(f, &other, STREAM(7));
  assert_memory_not_equal(&first.o, &launched()->o, sizeof first.o);
  other = args;
  other.lse = (kjit_tensor){
      .data = address(5), .dtype = KJIT_FP32, .rank = 3, .shape = {2, 6, 1000}, .stride = {6 * 1024, 1024, 1}};
  forward(f, &other, STREAM(7));
  assert_ptr_equal(address(5), launched()->lse);
  other = args;
  other.window_left = 5;
  other.flags = KJIT_ATTENTION_WINDOW;
  forward(f, &other, STREAM(7));
  assert_int_equal(2, atomic_load(&fake_nvrtc.compiles)); /* a window is another kernel */
  other = args;
  other.q.stride[3] = 2;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_forward(f->runtime, NULL, &other, STREAM(7), &f->error),
                &f->error);
  forward(f, &args, STREAM(7));
  assert_memory_equal(&first, launched(), offsetof(struct attention_sm90_params, partials)); /* padding may differ */
}

static void test_attention_forward__recalled_call_needs_its_device(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = grouped_args(0, 6, 2, 0);
  for (int i = 0; i < 4; i++)
    forward(f, &args, STREAM(7));
  fake_driver_set_current(1);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_forward(f->runtime, NULL, &args, STREAM(7), &f->error), &f->error);
}

static void test_attention_forward__refused_map_names_the_tensor(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  fake_driver.fail_call = FAKE_TensorMapEncodeTiled;
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "q: the driver makes no tensor map of 2 x 6 x 1000 x 192 elements");
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 0);
}

static void test_attention_forward__stride_beyond_the_copy_engine_is_unsupported(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  args.v.stride[0] = INT64_C(1) << 39;
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_string_equal(f->error.message,
                      "v.stride[0] is 549755813888: attention_sm90 needs strides below 2^39 elements");
}

static void test_attention_forward__log_sum_exp_goes_where_it_is_wanted(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  args.lse = (kjit_tensor){
      .data = address(5), .dtype = KJIT_FP32, .rank = 3, .shape = {2, 6, 1000}, .stride = {6 * 1024, 1024, 1}};
  forward(f, &args, NULL);
  assert_ptr_equal(launched()->lse, address(5));
  assert_int_equal(launched()->lse_batch_stride, 6 * 1024);
  assert_int_equal(launched()->lse_head_stride, 1024);
}

static void test_attention_forward__other_cards_run_flash_forward(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = kjit_attention_args_default();
  args.q = args.k = args.v = args.o = kjit_tensor_bshd(address(1), KJIT_FP16, 1, 1, 128, 2, 128);
  args.k.data = address(2);
  args.v.data = address(3);
  args.o.data = address(4);
  fake_nvrtc.entry = "flash_forward";
  fake_driver_set_current(1);
  forward(f, &args, NULL);
  assert_int_equal(fake_driver.launch.grid[1], 2);
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), 0);
  args.flags = KJIT_ATTENTION_CAUSAL;
  forward(f, &args, NULL);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 2);
}

static void test_attention_sm90_forward__config_must_fit_arguments_and_card(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = grouped_args(0, 6, 2, 0);
  kjit_attention_sm90_config config = sm90_base();
  static const char *const messages[] = {"head_dim is 128: must be the tensors' head_dim, 192",
                                         "causal is 1: must be the arguments' flag, 0",
                                         "dtype is FP16 (5): must be the tensors', BF16 (15)"};
  for (int i = 0; i < 3; i++) {
    if (i == 1) config.causal = 1, config.head_dim = 192;
    if (i == 2) config.dtype = KJIT_FP16;
    assert_status(KJIT_ERR_INVALID_CONFIG, sm90_forward(f->runtime, &config, &args, NULL, &f->error), &f->error);
    assert_string_equal(f->error.message, messages[i]);
  }
  config = sm90_base();
  config.head_dim = 192;
  config.q_buffers = 1;
  assert_status(KJIT_OK, sm90_forward(f->runtime, &config, &args, NULL, &f->error), &f->error);
  args = grouped_args(1, 6, 2, 0);
  fake_driver_set_current(1);
  assert_status(KJIT_ERR_UNSUPPORTED, sm90_forward(f->runtime, &config, &args, NULL, &f->error), &f->error);
  assert_string_equal(f->error.message, "arch: attention_sm90 requires sm_90a (current: sm_80)");
  kjit_config nameless = sm90_config(&config);
  nameless.family = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_forward(f->runtime, &nameless, &args, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "config.family");
}

static void test_attention_plan__run_launches_the_same(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  kjit_attention_plan *plan = NULL;
  forward(f, &args, STREAM(1));
  const struct attention_sm90_params direct = *launched();
  assert_status(KJIT_OK, kjit_attention_plan_create(&plan, f->runtime, NULL, &args, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_attention_plan_run(plan, STREAM(1), &f->error), &f->error);
  assert_memory_equal(&direct, launched(), offsetof(struct attention_sm90_params, scale_log2) + sizeof(float));
  assert_status(KJIT_OK, kjit_attention_plan_run(plan, STREAM(2), &f->error), &f->error);
  assert_ptr_not_equal(direct.tickets, launched()->tickets);
  kjit_attention_plan_destroy(plan);
  kjit_attention_plan_destroy(NULL);
}

static void test_attention_plan_time__waits_and_gives_the_time(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  kjit_attention_plan *plan = NULL;
  float milliseconds = 0;
  assert_status(KJIT_OK, kjit_attention_plan_create(&plan, f->runtime, NULL, &args, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_attention_plan_time(plan, NULL, &milliseconds, &f->error), &f->error);
  assert_true(milliseconds > 1);
  kjit_attention_plan_destroy(plan);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_plan_time(NULL, NULL, &milliseconds, &f->error), &f->error);
  assert_true(milliseconds == 0);
}

/* The fake driver remembers its last launch, which several threads must not write at once: these only check. */
static CUresult check_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                             unsigned int block_x, unsigned int block_y, unsigned int block_z,
                             unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
  uint64_t q_address;
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
  (void)shared_bytes, (void)extra;
  memcpy(&q_address, parameters[0], sizeof q_address);
  return q_address == (uintptr_t)stream << 20 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int setup_threads(void **state) {
  static struct driver_api driver;
  if (setup(state) != 0) return -1;
  fixture_close(*state);
  driver = fake_driver_api;
  driver.LaunchKernel = check_launch;
  return fixture_open_over(*state, &driver) != KJIT_OK;
}

/* Different tensors in an order of the thread's own: maps come and go under the readers, and are never mixed up. */
static void *forward_in_thread(void *user) {
  static atomic_int next;
  struct fixture *f = user;
  kjit_attention_args args = causal_args();
  uintptr_t number = (uintptr_t)atomic_fetch_add(&next, 1);
  for (int i = 0; i < 4000; i++) {
    kjit_error error;
    number = 10 + (number * 1103515245u + 12345u) % 600;
    args.q.data = address(number);
    if (kjit_attention_forward(f->runtime, NULL, &args, STREAM(number), &error) != KJIT_OK) return "a call failed";
  }
  return NULL;
}

static void test_attention_forward__threads_get_their_own_maps(void **state) {
  struct fixture *f = *state;
  fixture_in_threads(f, forward_in_thread);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 1);
}

static void test_attention_forward__every_allocation_may_fail(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    assert_true(n < 1000);
    atomic_store(&f->memory.calls, 0);
    atomic_store(&f->memory.once, 1);
    atomic_store(&f->memory.fail_at, n);
    status = kjit_attention_forward(f->runtime, NULL, &args, STREAM(1), &f->error);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    if (status != KJIT_OK) assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
  }
  forward(f, &args, STREAM(1));
  assert_non_null(launched()->tickets);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ATTENTION_TEST(test_attention_forward__problem_reaches_the_kernel),
      ATTENTION_TEST(test_attention_forward__maps_are_those_of_the_tensors),
      ATTENTION_TEST(test_attention_forward__strides_of_single_axes_are_made_legal),
      ATTENTION_TEST(test_attention_forward__maps_are_encoded_once_for_the_same_tensors),
      ATTENTION_TEST(test_attention_forward__many_tensors_each_get_their_own_maps),
      ATTENTION_TEST(test_attention_forward__later_calls_ask_the_driver_little),
      cmocka_unit_test_setup_teardown(test_attention_forward__one_device_is_not_asked_for, setup_one_device,
                                      fixture_teardown),
      ATTENTION_TEST(test_attention_forward__recalled_call_is_that_of_its_arguments),
      ATTENTION_TEST(test_attention_forward__recalled_call_needs_its_device),
      ATTENTION_TEST(test_attention_forward__refused_map_names_the_tensor),
      ATTENTION_TEST(test_attention_forward__stride_beyond_the_copy_engine_is_unsupported),
      ATTENTION_TEST(test_attention_forward__log_sum_exp_goes_where_it_is_wanted),
      ATTENTION_TEST(test_attention_forward__other_cards_run_flash_forward),
      ATTENTION_TEST(test_attention_sm90_forward__config_must_fit_arguments_and_card),
      ATTENTION_TEST(test_attention_plan__run_launches_the_same),
      ATTENTION_TEST(test_attention_plan_time__waits_and_gives_the_time),
      cmocka_unit_test_setup_teardown(test_attention_forward__threads_get_their_own_maps, setup_threads,
                                      fixture_teardown),
      ATTENTION_TEST(test_attention_forward__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("attention_forward", tests, NULL, NULL);
}
