/* Dense calls by attention_serving_sm90's kernel with one_part, over a fake driver: what reaches the kernel, and what a
 * launch takes of device memory. And which key heads runs have side by side. */
#include <stdio.h>

#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "attention_serving_sm90/layout.h"
#include "attention_serving_sm90/one_part_params.h"
#include "unit/attention/attention_fixture.h"

#define READ_BYTES offsetof(struct attention_serving_one_part_params, all)

/* Two batch entries of three positions, eight query heads that share two key heads, 2,000 keys: 4 tiles for the 32
 * blocks of threads that the fake card's 16 multiprocessors run at a time. */
static kjit_attention_args decode_args(uint32_t flags) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, 3, 8, 128);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, 2000, 2, 128);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 2, 2000, 2, 128);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 2, 3, 8, 128);
  args.flags = flags;
  return args;
}

static int setup_one_part(void **state) {
  const int failed = setup(state);
  fake_nvrtc.entry = "attention_serving_sm90";
  fake_driver.parameter_bytes = sizeof(struct attention_serving_one_part_params);
  return failed;
}

#define ONE_PART_TEST(test) cmocka_unit_test_setup_teardown(test, setup_one_part, fixture_teardown)

static struct attention_serving_one_part_params launched_one_part(void) {
  struct attention_serving_one_part_params params;
  memcpy(&params, fake_driver.launch.args, sizeof params);
  return params;
}

/* A dense call is one of serving without lengths and page table: 32 blocks of keys, 8 parts of 4 for each tile. */
static void test_one_part__the_kernel_gets_a_call_of_equal_lengths(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(0);
  forward(f, &args, STREAM(1));
  const struct attention_serving_one_part_params params = launched_one_part();
  assert_null(params.used_k);
  assert_null(params.page_table);
  assert_int_equal(params.batch, 2);
  assert_int_equal(params.tiles, 2);
  assert_int_equal(params.row_tiles, 1);
  assert_int_equal(params.runs_of_tile, 8);
  assert_int_equal(params.capacity, 2000);
  assert_int_equal(params.rows_new, 0);
  assert_int_equal(params.appends, 0);
  assert_int_equal(params.rotates, 0);
  assert_int_equal(params.rows_q, 3);
  assert_int_equal(params.group, 4);
  assert_int_equal(params.window_right, -1);
  assert_int_equal(params.box_rows, 64);
  assert_int_equal(params.q_stride.seq, 1024);
  assert_int_equal(params.o_stride.batch, 3072);
  assert_ptr_equal(params.q, args.q.data);
  assert_int_equal(fake_driver.launch.grid[0], 32);
  for (size_t i = 0; i < 32 * SERVING_SM90_MERGE_COUNTERS; i++)
    assert_int_equal(params.arrivals[i], 0);
}

/* The last of several positions stands at the last key. */
static void test_one_part__a_mask_bounds_several_positions_alone(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = decode_args(KJIT_ATTENTION_CAUSAL);
  forward(f, &args, STREAM(1));
  assert_int_equal(launched_one_part().window_right, 0);
  args.q.shape[1] = args.o.shape[1] = 1;
  forward(f, &args, STREAM(1));
  assert_int_equal(launched_one_part().window_right, -1);
}

static void test_one_part__a_call_that_comes_again_is_the_same(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(KJIT_ATTENTION_CAUSAL);
  forward(f, &args, STREAM(1));
  const struct attention_serving_one_part_params first = launched_one_part();
  for (int n = 0; n < 3; n++) {
    forward(f, &args, STREAM(1));
    const struct attention_serving_one_part_params again = launched_one_part();
    assert_memory_equal(&first, &again, READ_BYTES);
  }
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), 2);
}

static void test_one_part__each_stream_has_memory_of_its_own(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(0);
  forward(f, &args, STREAM(1));
  float *const first = launched_one_part().partials;
  forward(f, &args, STREAM(2));
  assert_ptr_not_equal(launched_one_part().partials, first);
  forward(f, &args, STREAM(1));
  assert_ptr_equal(launched_one_part().partials, first);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 2);
}

/* Whole tiles are right too, only slower. */
static void test_one_part__without_memory_nothing_is_divided(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(0);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  fake_driver.fail_call = FAKE_MemAllocAsync;
  forward(f, &args, STREAM(1));
  assert_int_equal(launched_one_part().runs_of_tile, 1);
  assert_null(launched_one_part().partials);
  assert_int_equal(fake_driver.launch.grid[0], 4);
}

static void test_one_part__a_plan_divides(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(0);
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_OK, kjit_attention_plan_create(&plan, f->runtime, NULL, &args, &f->error), &f->error);
  const kjit_status status = kjit_attention_plan_run(plan, STREAM(3), &f->error);
  kjit_attention_plan_destroy(plan);
  assert_status(KJIT_OK, status, &f->error);
  assert_int_equal(launched_one_part().runs_of_tile, 8);
}

/* A config that serves other calls of the family is none for dense tensors. */
static void test_one_part__other_configs_of_the_family_are_refused(void **state) {
  static const struct {
    const char *first, *last, *message; /* a config's first and last fields */
  } refused[] = {
      {"dtype=fp16,cache=fp16,head_dim=128", "one_part=1,gathered=0,runs=0,grouped=0,apart=0",
       "dtype is FP16 (5): must be the tensors', BF16 (15)"},
      {"dtype=bf16,cache=fp8_e4m3,head_dim=128", "one_part=1,gathered=0,runs=0,grouped=0,apart=0",
       "cache is 24: must be the tensors' dtype"},
      {"dtype=bf16,cache=bf16,head_dim=64", "one_part=1,gathered=0,runs=0,grouped=0,apart=0",
       "head_dim is 64: must be the tensors' head_dim, 128"},
      {"dtype=bf16,cache=bf16,head_dim=128", "one_part=0,gathered=0,runs=0,grouped=0,apart=0",
       "one_part is 0: must be"},
      {"dtype=bf16,cache=bf16,head_dim=128", "one_part=1,gathered=1,runs=0,grouped=0,apart=0",
       "gathered is 1: must be"},
      {"dtype=bf16,cache=bf16,head_dim=128", "one_part=1,gathered=0,runs=1,grouped=0,apart=0", "runs is 1: must be"}};
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(0);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    kjit_config config;
    char text[256];
    const kjit_family *family = kjit_family_find("attention_serving_sm90");
    snprintf(text, sizeof text, "%s,head_dim_v=128,rows=64,keys=64,stages=2,blocks_per_sm=2,softcap=0,%s",
             refused[i].first, refused[i].last);
    assert_status(KJIT_OK, kjit_config_parse(family, text, &config, &f->error), &f->error);
    const kjit_status status = kjit_attention_forward(f->runtime, &config, &args, STREAM(1), &f->error);
    assert_int_equal(status, KJIT_ERR_INVALID_CONFIG);
    assert_contains(f->error.message, refused[i].message);
  }
}

/* Neighbouring blocks of threads have the key heads of one position: as many as divide the heads and the grid, and up
 * to eight; one where a head has several tiles, which share its keys, and where tiles are few. */
static void test_one_part__runs_have_key_heads_abreast(void **state) {
  static const struct {
    int heads_kv, rows_q, blocks, abreast_log2;
  } calls[] = {{8, 1, 264, 3}, {32, 1, 264, 3},  {4, 1, 264, 2}, {12, 1, 264, 2}, {1, 1, 264, 0},
               {8, 1, 132, 2}, {8, 100, 132, 0}, {6, 1, 263, 0}, {8, 1, 1280, 0}};
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(0);
  forward(f, &args, STREAM(1)); /* opens the driver */
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const struct serving_sm90_config config = {.dtype = KJIT_BF16,
                                               .cache = KJIT_BF16,
                                               .head_dim = 128,
                                               .head_dim_v = 128,
                                               .rows = 64,
                                               .keys = 64,
                                               .one_part = 1,
                                               .runs = 1};
    const struct attention_serving_strides strides = {
        .batch = (int64_t)640 * calls[i].heads_kv * 128, .seq = (int64_t)calls[i].heads_kv * 128, .head = 128};
    const struct attention_serving_params params = {.k = address(2),
                                                    .v = address(3),
                                                    .k_stride = strides,
                                                    .v_stride = strides,
                                                    .batch = 40,
                                                    .heads_kv = calls[i].heads_kv,
                                                    .group = 4,
                                                    .rows_q = calls[i].rows_q,
                                                    .rows_k = 640,
                                                    .cache_rows = 40,
                                                    .runs = calls[i].blocks};
    struct attention_serving_one_part_params argument;
    assert_status(KJIT_OK, serving_sm90_argument(f->runtime, (const int32_t *)&config, &params, &argument, &f->error),
                  &f->error);
    assert_int_equal(argument.abreast_log2, calls[i].abreast_log2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ONE_PART_TEST(test_one_part__the_kernel_gets_a_call_of_equal_lengths),
      ONE_PART_TEST(test_one_part__a_mask_bounds_several_positions_alone),
      ONE_PART_TEST(test_one_part__a_call_that_comes_again_is_the_same),
      ONE_PART_TEST(test_one_part__each_stream_has_memory_of_its_own),
      ONE_PART_TEST(test_one_part__without_memory_nothing_is_divided),
      ONE_PART_TEST(test_one_part__a_plan_divides),
      ONE_PART_TEST(test_one_part__other_configs_of_the_family_are_refused),
      ONE_PART_TEST(test_one_part__runs_have_key_heads_abreast),
  };
  return cmocka_run_group_tests_name("one_part_call", tests, NULL, NULL);
}
