/* Split launches over a fake driver: what they take of device memory, and packed maps. */
#include "attention/attention_arguments.h"
#include "attention/sm90/sm90_choose.h"
#include "unit/attention/attention_fixture.h"

/* One position, eight query heads that share a key head, 2,000 keys: one tile of the fake card's many. */
static kjit_attention_args decode_args(int64_t keys) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 1, 1, 16, 128);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 1, keys, 2, 128);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 1, keys, 2, 128);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 1, 1, 16, 128);
  return args;
}

/* The config that the family's own rules choose on the fake card: the planner would take another family. */
static kjit_config chosen_by_sm90(const kjit_attention_args *args) {
  kjit_config config = {.family = &sm90_family};
  kjit_attention_problem problem;
  kjit_error error;
  attention_arguments_problem(args, &problem);
  assert_status(KJIT_OK, usual_sm90_choose(&problem, 16, (kjit_attention_sm90_config *)(void *)config.values, &error),
                &error);
  return config;
}

static void forward_split(struct fixture *f, const kjit_attention_args *args, CUstream stream) {
  const kjit_config config = chosen_by_sm90(args);
  assert_status(KJIT_OK, kjit_attention_forward(f->runtime, &config, args, stream, &f->error), &f->error);
}

static void test_sm90_split__short_queries_are_packed_and_split(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(2000);
  forward_split(f, &args, STREAM(1));
  const struct attention_sm90_params *params = launched();
  assert_int_equal(params->heads, 2);
  assert_int_equal(params->heads_per_kv, 1);
  assert_int_equal(params->group, 8);
  assert_int_equal(params->splits, 8); /* 2 tiles, 16 multiprocessors */
  assert_int_equal(params->partial_rows, 8);
  assert_int_equal(fake_driver.launch.grid[0], 16);
  for (size_t i = 0; i < 16; i++)
    assert_int_equal(params->arrivals[i], 0);
}

static void test_sm90_split__packed_maps_have_five_axes(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(2000);
  uint64_t words[16];
  forward_split(f, &args, STREAM(1));
  memcpy(words, &launched()->q, sizeof words);
  const uint64_t expected[] = {(uintptr_t)address(1), 128, 8, 1, 2, 1, 256, 256, 2048, 256, 64, 8, 8};
  assert_memory_equal(words, expected, 7 * sizeof *words); /* strides of axes of length 1 are any */
  assert_int_equal(words[8], 2048);
  assert_memory_equal(&words[10], &expected[10], 3 * sizeof *words);
  assert_int_equal(words[15], 5);
}

static void test_sm90_split__each_stream_has_memory_of_its_own(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(2000);
  forward_split(f, &args, STREAM(1));
  float *const first = launched()->partials;
  forward_split(f, &args, STREAM(2));
  assert_ptr_not_equal(launched()->partials, first);
  forward_split(f, &args, STREAM(1));
  assert_ptr_equal(launched()->partials, first);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 2);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async), 2);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAllocAsync), 0);
}

/* 16 batch entries take the same kernel on the small card, and more memory. */
static void test_sm90_split__a_larger_launch_gets_more_and_the_old_stays(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = decode_args(2000);
  forward_split(f, &args, STREAM(1));
  float *const small = launched()->partials;
  args = grouped_args(0, 1, 1, 0);
  args.q.shape[0] = args.k.shape[0] = args.v.shape[0] = args.o.shape[0] = 1;
  args.q.shape[1] = args.o.shape[1] = 1280; /* 10 tiles of 128 rows on 16 multiprocessors */
  args.k.shape[1] = args.v.shape[1] = 100000;
  forward_split(f, &args, STREAM(1));
  assert_true(launched()->splits > 1);
  float *const large = launched()->partials;
  assert_ptr_not_equal(large, small);
  args = decode_args(2000);
  forward_split(f, &args, STREAM(1));
  assert_ptr_equal(launched()->partials, large);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 2);
  assert_int_equal(fake_driver_calls_of(FAKE_MemFree), 0);
}

static void test_sm90_split__a_captured_stream_allocates_and_frees_in_its_graph(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(2000);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  for (int n = 1; n <= 2; n++) {
    forward_split(f, &args, STREAM(1));
    assert_int_equal(launched()->splits, 8);
    assert_int_equal(fake_driver_calls_of(FAKE_MemAllocAsync), n);
    assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async), n);
    assert_int_equal(fake_driver_calls_of(FAKE_MemFreeAsync), n);
  }
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 0);
}

/* Whole tiles are right too, only slower. */
static void test_sm90_split__without_memory_nothing_is_split(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(2000);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  fake_driver.fail_call = FAKE_MemAllocAsync;
  forward_split(f, &args, STREAM(1));
  assert_int_equal(launched()->splits, 1);
  assert_null(launched()->partials);
  assert_int_equal(fake_driver.launch.grid[0], 2);
  fake_driver.fail_call = FAKE_MemsetD32Async;
  forward_split(f, &args, STREAM(1));
  assert_int_equal(launched()->splits, 1);
  assert_int_equal(fake_driver_calls_of(FAKE_MemFreeAsync), 1);
}

/* A plan's run finds its stream's memory as a call does. */
static void test_sm90_split__a_plan_splits(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = decode_args(2000);
  const kjit_config config = chosen_by_sm90(&args);
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_OK, kjit_attention_plan_create(&plan, f->runtime, &config, &args, &f->error), &f->error);
  const kjit_status status = kjit_attention_plan_run(plan, STREAM(3), &f->error);
  kjit_attention_plan_destroy(plan);
  assert_status(KJIT_OK, status, &f->error);
  assert_int_equal(launched()->splits, 8);
}

/* 65 rows of four heads that share keys are two tiles of 192, or three of 128; parts of the former are fewer. */
static void test_sm90_choose__parts_of_three_consumers_are_compared(void **state) {
  (void)state;
  const kjit_attention_problem problem = sm90_sized(sm90_problem(9853, 72, 0), 1, 128, 32, 65);
  const kjit_attention_sm90_config config = sm90_chosen(&problem, 132);
  assert_int_equal(config.split, 1);
  assert_int_equal(config.consumers, 3);
  assert_int_equal(config.packed, 4);
}

/* Whole tiles that nearly fill the card stay whole, and causal ones have no such parts. */
static void test_sm90_choose__parts_of_three_consumers_are_of_tiles_that_are_split(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_sized(sm90_problem(9899, 64, 0), 2, 128, 8, 52);
  assert_int_equal(sm90_chosen(&problem, 132).split, 0);
  problem = sm90_sized(sm90_problem(3481, 64, KJIT_ATTENTION_CAUSAL), 3, 6, 6, 435);
  assert_true(sm90_chosen(&problem, 132).consumers < 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_choose__parts_of_three_consumers_are_compared),
      cmocka_unit_test(test_sm90_choose__parts_of_three_consumers_are_of_tiles_that_are_split),
      ATTENTION_TEST(test_sm90_split__short_queries_are_packed_and_split),
      ATTENTION_TEST(test_sm90_split__packed_maps_have_five_axes),
      ATTENTION_TEST(test_sm90_split__each_stream_has_memory_of_its_own),
      ATTENTION_TEST(test_sm90_split__a_larger_launch_gets_more_and_the_old_stays),
      ATTENTION_TEST(test_sm90_split__a_captured_stream_allocates_and_frees_in_its_graph),
      ATTENTION_TEST(test_sm90_split__without_memory_nothing_is_split),
      ATTENTION_TEST(test_sm90_split__a_plan_splits),
  };
  return cmocka_run_group_tests_name("sm90_split", tests, NULL, NULL);
}
