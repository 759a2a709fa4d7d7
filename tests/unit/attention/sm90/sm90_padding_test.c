/* Copies of K and V in rows of whole lines: for which problems they pay, and what reaches a fake driver. */
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_padding.h"
#include "attention_padding/params.h"
#include "unit/attention/attention_fixture.h"

/* ---- When ---- */

struct shape {
  int64_t batch, heads_q, heads_kv, length, head_dim;
  uint32_t flags;
};

/* On a card whose memory is an H100's. */
static bool pays(const struct shape *shape) {
  const struct family_figures figures = {.l2_bytes = 50u << 20, .memory_gb_s = 3352, .load_mhz = 1600};
  const struct sm90_card card = sm90_card_of(132, &figures);
  const kjit_attention_problem problem = {.dtype = KJIT_BF16,
                                          .flags = shape->flags,
                                          .batch = shape->batch,
                                          .heads_q = shape->heads_q,
                                          .heads_kv = shape->heads_kv,
                                          .seq_q = shape->length,
                                          .seq_kv = shape->length,
                                          .head_dim = shape->head_dim,
                                          .head_dim_v = shape->head_dim};
  kjit_attention_sm90_config config;
  kjit_error error;
  assert_status(KJIT_OK, sm90_choose(&problem, &card, &config, &error), &error);
  return sm90_padding_pays(&problem, &config, &card);
}

/* What an H100 took, in us, as the tensors were, and copied by PyTorch: 1209 and 971, 840 and 704. */
static void test_sm90_padding__pays_where_it_was_measured_to(void **state) {
  (void)state;
  assert_true(pays(&(struct shape){1, 8, 4, 10116, 216, 0}));
  assert_true(pays(&(struct shape){1, 16, 16, 6000, 200, 0}));
}

/* 1823 and 1942; and tiles of three consumers took 2532 where those of two took 2840 with a copy. */
static void test_sm90_padding__does_not_pay_where_it_was_measured_not_to(void **state) {
  (void)state;
  assert_false(pays(&(struct shape){13, 20, 10, 3359, 104, 0}));
  assert_false(pays(&(struct shape){3, 24, 24, 6078, 168, 0}));
}

static void test_sm90_padding__few_query_tiles_do_not_pay_for_a_copy(void **state) {
  (void)state;
  assert_false(pays(&(struct shape){1, 16, 16, 2000, 200, 0}));
  assert_true(pays(&(struct shape){1, 16, 1, 2000, 200, 0})); /* whose heads share the keys */
}

static void test_sm90_padding__whole_lines_are_never_copied(void **state) {
  (void)state;
  for (int64_t columns = 64; columns <= 256; columns += 64)
    assert_false(pays(&(struct shape){1, 32, 1, 32768, columns, 0}));
}

static void test_sm90_padding__copies_are_bounded(void **state) {
  (void)state;
  assert_true(pays(&(struct shape){1, 32, 32, 8192, 200, 0}));
  assert_false(pays(&(struct shape){2, 32, 32, 8192, 200, 0}));
}

static void test_sm90_padding__split_tiles_are_not_copied_for(void **state) {
  kjit_attention_sm90_config config = {.head_dim = 200, .head_dim_v = 200};
  int32_t values[1];
  (void)state;
  assert_true(sm90_padding_is_possible(&config, values));
  config.split = 1;
  assert_false(sm90_padding_is_possible(&config, values));
}

/* ---- What is launched ---- */

/* Two kernels with arguments of different sizes; the fake driver keeps the bytes of the one that it is told of. */
static CUresult launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                              unsigned int x, unsigned int y, unsigned int z, unsigned int shared, CUstream stream,
                              void **parameters, void **extra) {
  fake_driver.parameter_bytes =
      x == PADDING_THREADS ? sizeof(struct attention_padding_params) : sizeof(struct attention_sm90_params);
  return fake_driver_api.LaunchKernel(function, grid_x, grid_y, grid_z, x, y, z, shared, stream, parameters, extra);
}

static int setup_two(void **state) {
  static const char *const entries[] = {"attention_padding", "attention_sm90", NULL};
  static struct driver_api driver;
  driver = fake_driver_api;
  driver.PointerGetAttributes = any_pointer;
  driver.LaunchKernel = launch_kernel;
  if (fixture_setup_closed(state) != 0) return -1;
  fake_nvrtc.entries = entries;
  return fixture_open_over(*state, &driver) != KJIT_OK;
}

#define PADDING_TEST(test) cmocka_unit_test_setup_teardown(test, setup_two, fixture_teardown)

/* A copy of 2 x 2 heads of 5000 keys, on 16 multiprocessors. */
static kjit_attention_args long_args(int64_t head_dim, int64_t head_dim_v) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, 5000, 4, head_dim);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, 5000, 2, head_dim);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 2, 5000, 2, head_dim_v);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 2, 5000, 4, head_dim_v);
  return args;
}

/* The fake driver keeps the last launch, which is attention_sm90's; what its maps of K and V are made of. */
struct row {
  uint64_t address, columns, stride;
};
static struct row row_of(const struct attention_tensor_map *map) {
  uint64_t words[16];
  memcpy(words, map, sizeof words);
  return (struct row){words[0], words[1], words[6]};
}

static void test_sm90_padding__maps_are_those_of_copies(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = long_args(136, 200);
  const long launches = fake_driver_calls_of(FAKE_LaunchKernel);
  forward(f, &args, STREAM(1));
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel) - launches, 2);
  const struct row k = row_of(&launched()->k), v = row_of(&launched()->v), q = row_of(&launched()->q);
  assert_int_equal(q.address, (uintptr_t)address(1));
  assert_int_not_equal(k.address, (uintptr_t)address(2));
  assert_int_equal(k.columns, 136);
  assert_int_equal(k.stride, 384);
  assert_int_equal(v.columns, 200);
  assert_int_equal(v.stride, 512);
  assert_int_equal(v.address - k.address, INT64_C(2) * 2 * 5000 * 384);
}

/* Rows that the caller has padded are read where they are. */
static void test_sm90_padding__whole_rows_are_left_where_they_are(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = long_args(200, 200);
  for (size_t axis = 0; axis < 3; axis++) {
    args.k.stride[axis] = args.k.stride[axis] / 200 * 256;
    args.v.stride[axis] = args.v.stride[axis] / 200 * 256;
  }
  const long launches = fake_driver_calls_of(FAKE_LaunchKernel);
  forward(f, &args, STREAM(1));
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel) - launches, 1);
  assert_int_equal(row_of(&launched()->k).address, (uintptr_t)address(2));
}

static void test_sm90_padding__calls_without_memory_read_the_tensors(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = long_args(200, 200);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  fake_driver.fail_call = FAKE_MemAllocAsync;
  forward(f, &args, STREAM(1));
  assert_int_equal(row_of(&launched()->k).address, (uintptr_t)address(2));
}

/* A graph owns the memory of its copies. */
static void test_sm90_padding__a_captured_stream_allocates_and_frees_in_its_graph(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = long_args(200, 200);
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  forward(f, &args, STREAM(1));
  assert_int_equal(row_of(&launched()->k).stride, 512);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAllocAsync), 1);
  assert_int_equal(fake_driver_calls_of(FAKE_MemFreeAsync), 1);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 0);
}

/* The copies' maps are kept as the tensors' are, and so is the stream's memory. */
static void test_sm90_padding__later_calls_encode_no_map(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = long_args(200, 200);
  forward(f, &args, STREAM(1));
  const struct row first = row_of(&launched()->k);
  const long maps = fake_driver_calls_of(FAKE_TensorMapEncodeTiled);
  for (int i = 0; i < 4; i++) {
    forward(f, &args, STREAM(1));
    assert_int_equal(row_of(&launched()->k).address, first.address);
  }
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), maps);
  forward(f, &args, STREAM(2)); /* which has memory of its own */
  assert_int_not_equal(row_of(&launched()->k).address, first.address);
}

static void test_sm90_padding__plans_copy_at_each_run(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = long_args(200, 200);
  kjit_attention_plan *plan;
  assert_status(KJIT_OK, kjit_attention_plan_create(&plan, f->runtime, NULL, &args, &f->error), &f->error);
  const long launches = fake_driver_calls_of(FAKE_LaunchKernel);
  for (int i = 0; i < 3; i++)
    assert_status(KJIT_OK, kjit_attention_plan_run(plan, STREAM(1), &f->error), &f->error);
  assert_int_equal(fake_driver_calls_of(FAKE_LaunchKernel) - launches, 6);
  assert_int_equal(row_of(&launched()->k).stride, 512);
  kjit_attention_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_padding__pays_where_it_was_measured_to),
      cmocka_unit_test(test_sm90_padding__does_not_pay_where_it_was_measured_not_to),
      cmocka_unit_test(test_sm90_padding__few_query_tiles_do_not_pay_for_a_copy),
      cmocka_unit_test(test_sm90_padding__whole_lines_are_never_copied),
      cmocka_unit_test(test_sm90_padding__copies_are_bounded),
      cmocka_unit_test(test_sm90_padding__split_tiles_are_not_copied_for),
      PADDING_TEST(test_sm90_padding__maps_are_those_of_copies),
      PADDING_TEST(test_sm90_padding__whole_rows_are_left_where_they_are),
      PADDING_TEST(test_sm90_padding__calls_without_memory_read_the_tensors),
      PADDING_TEST(test_sm90_padding__a_captured_stream_allocates_and_frees_in_its_graph),
      PADDING_TEST(test_sm90_padding__later_calls_encode_no_map),
      PADDING_TEST(test_sm90_padding__plans_copy_at_each_run),
  };
  return cmocka_run_group_tests_name("padded keys and values", tests, NULL, NULL);
}
