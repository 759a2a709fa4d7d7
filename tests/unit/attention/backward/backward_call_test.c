/* kjit_attention_backward() over a fake driver and compiler: what reaches the driver, and configs of the caller. */
#include <kjit/attention_backward.h>

#include "attention/stream_workspace.h"
#include "attention_backward_sm90/params.h"
#include "flash_backward/variant_params.h"
#include "unit/attention/attention_fixture.h"

static int setup_backward(void **state) {
  if (setup(state) != 0) return -1;
  fake_nvrtc.entry = "attention_backward_sm90";
  fake_driver.parameter_bytes = sizeof(struct attention_backward_sm90_params);
  return 0;
}

#define BACKWARD_TEST(test) cmocka_unit_test_setup_teardown(test, setup_backward, fixture_teardown)

static kjit_tensor rows(uintptr_t number) {
  return (kjit_tensor){
      .data = address(number), .dtype = KJIT_FP32, .rank = 3, .shape = {2, 6, 1000}, .stride = {6 * 1000, 1000, 1}};
}

/* 1000 queries of 6 heads, 700 keys of 2, head sizes 64. */
static kjit_attention_backward_args backward_args(void) {
  kjit_attention_backward_args args = kjit_attention_backward_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, 1000, 6, 64);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, 700, 2, 64);
  args.v = args.k, args.dk = args.k, args.dv = args.k;
  args.o = args.q, args.dout = args.q, args.dq = args.q;
  args.v.data = address(3), args.o.data = address(4), args.dout.data = address(5);
  args.dq.data = address(6), args.dk.data = address(7), args.dv.data = address(8);
  args.lse = rows(9), args.delta = rows(10);
  return args;
}

static const struct attention_backward_sm90_params *launched_backward(void) {
  static struct attention_backward_sm90_params params;
  memcpy(&params, fake_driver.launch.args, sizeof params);
  return &params;
}

static void test_attention_backward__launches_dq_then_dk_and_dv(void **state) {
  struct fixture *f = *state;
  kjit_attention_backward_args args = backward_args();
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, STREAM(7), &f->error), &f->error);
  const struct flash_backward_params *rest = &launched_backward()->rest;
  assert_int_equal(fake_driver.launch.grid[0], 6); /* 700 keys by 128 */
  assert_int_equal(fake_driver.launch.grid[1], 2);
  assert_int_equal(fake_driver.launch.grid[2], 2);
  assert_ptr_equal(fake_driver.launch.stream, STREAM(7));
  assert_ptr_equal(rest->dk, address(7));
  assert_ptr_equal(rest->delta, address(10));
  assert_null(rest->dlse);
  assert_int_equal(rest->heads_per_kv, 3);
  assert_int_equal(rest->seq_q, 1000);
  assert_int_equal(rest->seq_kv, 700);
  assert_true(rest->scale > 0.1249f && rest->scale < 0.1251f);
  args.dk.data = args.dv.data = NULL;
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, NULL, &f->error), &f->error);
  assert_int_equal(fake_driver.launch.grid[0], 8); /* 1000 queries by 128 */
  assert_int_equal(fake_driver.launch.grid[1], 6);
}

static void test_attention_backward__maps_are_encoded_once_for_the_same_tensors(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  for (int i = 0; i < 3; i++)
    assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, NULL, &f->error), &f->error);
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), 5 + 6);
}

/* Kernels behind the first are launched as dependents. */
static int launches(void) {
  return fake_driver_calls_of(FAKE_LaunchKernel) + fake_driver_calls_of(FAKE_LaunchKernelEx);
}

static void test_attention_backward_plan__runs_every_kernel(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_OK, kjit_attention_backward_plan_create(&plan, f->runtime, NULL, 0, &args, &f->error), &f->error);
  const int before = launches();
  assert_status(KJIT_OK, kjit_attention_plan_run(plan, STREAM(3), &f->error), &f->error);
  assert_int_equal(launches() - before, 2);
  assert_ptr_equal(fake_driver.launch.stream, STREAM(3));
  kjit_attention_plan_destroy(plan);
}

static void parse(const char *family, const char *text, kjit_config *config) {
  kjit_error error;
  assert_status(KJIT_OK, kjit_config_parse(kjit_family_find(family), text, config, &error), &error);
}

#define SM90_CONFIG(head, pass)                                                                                        \
  "dtype=bf16,head_dim=" head ",head_dim_v=64,causal=0,pass=" pass                                                     \
  ",consumers=2,tile=64,stages=2,value_stages=2,pipelined=0,direct=0,staggered=0,persistent=0,stores=0"

static void expect_refused(struct fixture *f, const kjit_config *configs, size_t count, kjit_status status,
                           const char *message) {
  const kjit_attention_backward_args args = backward_args();
  assert_int_equal(status, kjit_attention_backward(f->runtime, configs, count, &args, NULL, &f->error));
  assert_string_equal(f->error.message, message);
}

static void test_attention_backward__configs_must_compute_each_gradient_once(void **state) {
  struct fixture *f = *state;
  kjit_config configs[2], forward;
  parse("attention_backward_sm90", SM90_CONFIG("64", "1"), &configs[0]);
  parse("attention_backward_sm90", SM90_CONFIG("64", "4"), &configs[1]);
  expect_refused(f, configs, 2, KJIT_ERR_INVALID_CONFIG, "configs: none computes dk");
  configs[1] = configs[0];
  expect_refused(f, configs, 2, KJIT_ERR_INVALID_CONFIG,
                 "configs[1]: computes a gradient that is not wanted or was computed before it");
  parse("attention_backward_sm90", SM90_CONFIG("64", "6"), &configs[0]);
  expect_refused(f, configs, 2, KJIT_ERR_INVALID_CONFIG,
                 "configs[0]: computes dk, which must come behind dq or delta (pass 1 or 8)");
  parse("attention_backward_sm90", SM90_CONFIG("72", "1"), &configs[0]);
  expect_refused(f, configs, 2, KJIT_ERR_INVALID_CONFIG, "head_dim is 72: must be the tensors' head_dim, 64");
  expect_refused(f, configs, 5, KJIT_ERR_INVALID_ARG, "count: must be from 1 to KJIT_ATTENTION_BACKWARD_KERNELS_MAX");
  forward = (kjit_config){.family = kjit_family_find("attention_sm90")};
  expect_refused(f, &forward, 1, KJIT_ERR_INVALID_ARG,
                 "configs[0].family: must be one that computes attention backward");
}

static void test_attention_backward__configs_of_the_caller_are_launched(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  kjit_config configs[2];
  parse("attention_backward_sm90", SM90_CONFIG("64", "1"), &configs[0]);
  parse("attention_backward_sm90", SM90_CONFIG("64", "6"), &configs[1]);
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, configs, 2, &args, NULL, &f->error), &f->error);
  assert_int_equal(fake_driver.launch.block[0], 384);
}

#define SUM_CONFIG(pass, consumers, stages)                                                                            \
  "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,pass=" pass ",consumers=" consumers ",tile=128,stages=" stages        \
  ",value_stages=" stages ",pipelined=0,direct=0,staggered=0,persistent=0,stores=0"

/* The three kernels that sum dq in memory that they share, in their order alone. */
static void test_attention_backward__kernels_that_sum_dq_come_in_their_order(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  kjit_config configs[3], wrong[2];
  parse("attention_backward_sm90", SUM_CONFIG("8", "1", "1"), &configs[0]);
  parse("attention_backward_sm90", SUM_CONFIG("7", "2", "2"), &configs[1]);
  parse("attention_backward_sm90", SUM_CONFIG("16", "1", "1"), &configs[2]);
  const int before = launches();
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, configs, 3, &args, NULL, &f->error), &f->error);
  assert_int_equal(launches() - before, 3);
  wrong[0] = configs[0];
  wrong[1] = configs[2];
  expect_refused(f, wrong, 2, KJIT_ERR_INVALID_CONFIG,
                 "configs[1]: sums dq, whose passes must come in the order 8, 7, 16 of attention_backward_sm90");
  expect_refused(f, configs, 2, KJIT_ERR_INVALID_CONFIG, "configs: none computes dq");
}

/* The kernel that makes dq of the sums begins while they are still added to, so it knows how many parts make a head's
 * sums, and how many query heads may have to wait to the end: here all 12, because 6 tiles of keys of 2 x 2 heads are
 * fewer than multiprocessors. */
static void test_attention_backward__sums_are_awaited_head_by_head(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  kjit_config configs[3];
  parse("attention_backward_sm90", SUM_CONFIG("8", "1", "1"), &configs[0]);
  parse("attention_backward_sm90", SUM_CONFIG("7", "2", "2"), &configs[1]);
  parse("attention_backward_sm90", SUM_CONFIG("16", "1", "1"), &configs[2]);
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, configs, 3, &args, NULL, &f->error), &f->error);
  const struct attention_backward_sm90_params *params = launched_backward();
  assert_int_equal(params->parts, 2 * 6); /* two consumers, 700 keys by 128 */
  assert_int_equal(params->section, 2 * 6);
  assert_ptr_equal(params->turns + 2 * 2 * 6 * 16, params->next_tile); /* 1000 queries by 128, as tiles of 64 */
  assert_ptr_equal(params->next_tile + 1, params->done);
}

/* For how many of 32 heads of so many queries and keys pass 16 has to wait to the end. */
static int late_heads(struct fixture *f, int64_t seq, uint32_t flags) {
  kjit_attention_backward_args args = kjit_attention_backward_args_default();
  kjit_config configs[3];
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 1, seq, 32, 64);
  args.k = args.v = args.o = args.dout = args.dq = args.dk = args.dv = args.q;
  args.lse = args.delta = (kjit_tensor){
      .data = address(2), .dtype = KJIT_FP32, .rank = 3, .shape = {1, 32, seq}, .stride = {32 * seq, seq, 1}};
  args.dq.data = address(3), args.dk.data = address(4), args.dv.data = address(5), args.delta.data = address(6);
  args.o.data = address(7);
  args.flags |= flags;
  parse("attention_backward_sm90", SUM_CONFIG("8", "1", "1"), &configs[0]);
  parse("attention_backward_sm90", SUM_CONFIG("7", "2", "2"), &configs[1]);
  parse("attention_backward_sm90", SUM_CONFIG("16", "1", "1"), &configs[2]);
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, configs, 3, &args, NULL, &f->error), &f->error);
  return launched_backward()->section;
}

/* Where tiles of keys take turns, those of as many heads as have 16 MiB of queries, gradients and sums are worked on
 * together, and of two at least. Otherwise heads come one after the other, and the last two tiles of 16 multiprocessors
 * are of one head. */
static void test_attention_backward__heads_are_worked_on_together_where_tiles_take_turns(void **state) {
  assert_int_equal(late_heads(*state, 4096, 0), 2);
  assert_int_equal(late_heads(*state, 4096, KJIT_ATTENTION_DETERMINISTIC), 8);
  assert_int_equal(late_heads(*state, 8192, 0), 1);
  assert_int_equal(late_heads(*state, 8192, KJIT_ATTENTION_DETERMINISTIC), 4);
  assert_int_equal(late_heads(*state, 32768, KJIT_ATTENTION_DETERMINISTIC), 2);
}

/* initcheck of compute-sanitizer does not see what the bulk copy engine writes to sums. */
static void test_stream_workspace__memory_for_sums_is_filled_with_zeros_once(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, NULL, &f->error), &f->error);
  struct stream_workspace *workspace = stream_workspace_create(f->runtime); /* the driver is open */
  struct stream_space space;
  for (int turn = 0; turn < 2; turn++) {
    assert_true(stream_workspace_hold(workspace, 4096, 16, true, STREAM(7), &space));
    for (size_t i = 0; i < 4096 / sizeof(float); i++)
      assert_true(space.partials[i] == (float)turn);
    for (size_t i = 0; i < 4096 / sizeof(float); i++)
      space.partials[i] = 1;
    stream_workspace_put(workspace, &space, STREAM(7));
  }
  stream_workspace_destroy(workspace);
}

/* Otherwise the launches of two threads' calls on one stream could mix, and the sums of one be zeroed by the other. */
static void test_stream_workspace__no_two_threads_hold_one_piece(void **state) {
  struct fixture *f = *state;
  const kjit_attention_backward_args args = backward_args();
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, NULL, &f->error), &f->error);
  struct stream_workspace *workspace = stream_workspace_create(f->runtime); /* the driver is open */
  struct stream_space first, second, third;
  assert_true(stream_workspace_hold(workspace, 4096, 16, false, STREAM(7), &first));
  assert_true(stream_workspace_hold(workspace, 4096, 16, false, STREAM(7), &second));
  assert_ptr_not_equal(first.partials, second.partials);
  stream_workspace_put(workspace, &second, STREAM(7));
  stream_workspace_put(workspace, &first, STREAM(7));
  assert_true(stream_workspace_hold(workspace, 4096, 16, false, STREAM(7), &third));
  assert_ptr_equal(first.partials, third.partials);
  stream_workspace_put(workspace, &third, STREAM(7));
  stream_workspace_destroy(workspace);
}

static int setup_variant(void **state) {
  if (setup(state) != 0) return -1;
  fake_nvrtc.entry = "flash_backward";
  fake_driver.parameter_bytes = sizeof(struct flash_backward_variant_params);
  return 0;
}

#define VARIANT_TEST(test) cmocka_unit_test_setup_teardown(test, setup_variant, fixture_teardown)

static kjit_tensor numbers(uintptr_t number, int32_t dtype, int64_t seq_q) {
  return (kjit_tensor){.data = address(number),
                       .dtype = dtype,
                       .rank = 4,
                       .shape = {1, 6, seq_q, 700},
                       .stride = {6 * 700 * seq_q, 700 * seq_q, 700, 1}};
}

static void expect_gradient_refused(struct fixture *f, const kjit_attention_backward_args *args, kjit_status status,
                                    const char *message) {
  assert_int_equal(status, kjit_attention_backward(f->runtime, NULL, 0, args, NULL, &f->error));
  assert_non_null(strstr(f->error.message, message));
}

static void test_attention_backward__gradients_of_a_bias_are_a_kernel_of_their_own(void **state) {
  struct fixture *f = *state;
  kjit_attention_backward_args args = backward_args();
  const kjit_tensor bias = numbers(11, KJIT_BF16, 1), dbias = numbers(12, KJIT_FP32, 1);
  struct flash_backward_variant_params params;
  args.bias = &bias;
  args.dbias = &dbias;
  args.dq.data = args.dk.data = args.dv.data = NULL;
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, NULL, &f->error), &f->error);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel), 1);
  memcpy(&params, fake_driver.launch.args, sizeof params);
  assert_ptr_equal(params.gradients[0].data, address(12));
  assert_int_equal(params.gradients[0].size[2], 1);
  assert_int_equal(params.gradients[0].stride[1], 700);
}

static void test_attention_backward__gradients_of_what_is_read_are_checked(void **state) {
  struct fixture *f = *state;
  kjit_attention_backward_args args = backward_args();
  const kjit_tensor bias = numbers(11, KJIT_BF16, 1000), narrow = numbers(12, KJIT_FP32, 1);
  kjit_tensor dbias = numbers(12, KJIT_BF16, 1000);
  args.dbias = &dbias;
  expect_gradient_refused(f, &args, KJIT_ERR_INVALID_ARG, "dbias: is given without bias");
  args.bias = &bias;
  expect_gradient_refused(f, &args, KJIT_ERR_INVALID_ARG, "the gradient of bias: its dtype is 15: must be FP32 (6)");
  args.dbias = &narrow;
  expect_gradient_refused(f, &args, KJIT_ERR_INVALID_ARG, "the gradient of bias: must have its shape");
  dbias.dtype = KJIT_FP32;
  args.dbias = &dbias;
  args.flags |= KJIT_ATTENTION_DETERMINISTIC;
  expect_gradient_refused(f, &args, KJIT_ERR_UNSUPPORTED, "KJIT_ATTENTION_DETERMINISTIC: the gradients of what a");
  dbias.device = 1;
  args.flags = 0;
  expect_gradient_refused(f, &args, KJIT_ERR_INVALID_ARG, "is on device 1, and device 0 writes it");
}

static void test_attention_backward__gradients_are_those_of_the_callers_tensors(void **state) {
  static const kjit_variant_tensor tensors[] = {{"d", KJIT_INT32, 1}, {"t", KJIT_FP32, 1}};
  struct fixture *f = *state;
  kjit_attention_backward_args args = backward_args();
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  kjit_attention_variant *variant;
  struct flash_backward_variant_params params;
  const kjit_tensor one = {.data = address(13), .dtype = KJIT_INT32, .rank = 1, .shape = {700}, .stride = {1}};
  kjit_tensor read[2] = {one, one}, gradients[2] = {{0}, one};
  text.score = "score + t[d[k]]";
  text.tensors = tensors;
  text.tensor_count = 2;
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  read[1].dtype = gradients[1].dtype = KJIT_FP32;
  gradients[1].data = address(14);
  args.variant = variant;
  args.variant_tensors = read;
  args.variant_gradients = gradients;
  args.dq.data = args.dk.data = args.dv.data = NULL;
  assert_status(KJIT_OK, kjit_attention_backward(f->runtime, NULL, 0, &args, NULL, &f->error), &f->error);
  memcpy(&params, fake_driver.launch.args, sizeof params);
  assert_null(params.gradients[0].data);
  assert_ptr_equal(params.gradients[1].data, address(14));
  gradients[0] = gradients[1];
  expect_gradient_refused(f, &args, KJIT_ERR_INVALID_ARG, "the gradient of d: it holds no real numbers");
  kjit_attention_variant_free(variant);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BACKWARD_TEST(test_attention_backward__launches_dq_then_dk_and_dv),
      BACKWARD_TEST(test_attention_backward__maps_are_encoded_once_for_the_same_tensors),
      BACKWARD_TEST(test_attention_backward_plan__runs_every_kernel),
      BACKWARD_TEST(test_attention_backward__configs_must_compute_each_gradient_once),
      BACKWARD_TEST(test_attention_backward__configs_of_the_caller_are_launched),
      BACKWARD_TEST(test_attention_backward__kernels_that_sum_dq_come_in_their_order),
      BACKWARD_TEST(test_attention_backward__sums_are_awaited_head_by_head),
      BACKWARD_TEST(test_attention_backward__heads_are_worked_on_together_where_tiles_take_turns),
      BACKWARD_TEST(test_stream_workspace__memory_for_sums_is_filled_with_zeros_once),
      BACKWARD_TEST(test_stream_workspace__no_two_threads_hold_one_piece),
      VARIANT_TEST(test_attention_backward__gradients_of_a_bias_are_a_kernel_of_their_own),
      VARIANT_TEST(test_attention_backward__gradients_of_what_is_read_are_checked),
      VARIANT_TEST(test_attention_backward__gradients_are_those_of_the_callers_tensors),
  };
  return cmocka_run_group_tests_name("backward_call", tests, NULL, NULL);
}
