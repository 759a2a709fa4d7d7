/* Calls at the edges, over a fake driver and compiler: more heads and batch entries than a grid has blocks in y and z,
 * and tensors without elements. */
#include "support/test.h"

#include <math.h>

#include <kjit/attention.h>

#include "flash_forward/params.h"
#include "unit/runtime/fixture.h"

enum { HEAD_DIM = 64, LAUNCHES_MAX = 16 };

/* What reached the driver, launch by launch. */
static struct {
  struct flash_forward_params params;
  unsigned int heads, batch;
} launches[LAUNCHES_MAX];
static int launch_count;

static CUresult record_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                              unsigned int block_x, unsigned int block_y, unsigned int block_z,
                              unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
  (void)function, (void)grid_x, (void)block_x, (void)block_y, (void)block_z, (void)shared_bytes, (void)stream;
  (void)extra;
  assert_true(launch_count < LAUNCHES_MAX);
  memcpy(&launches[launch_count].params, parameters[0], sizeof launches[0].params);
  launches[launch_count].heads = grid_y;
  launches[launch_count++].batch = grid_z;
  return CUDA_SUCCESS;
}

static int setup(void **state) {
  static struct driver_api driver;
  driver = fake_driver_api;
  driver.LaunchKernel = record_launch;
  launch_count = 0;
  if (fixture_setup_closed(state) != 0) return -1;
  fake_nvrtc.entry = "flash_forward";
  fake_driver.parameter_bytes = sizeof launches[0].params;
  if (fixture_open_over(*state, &driver) != KJIT_OK) return -1;
  fake_driver_set_current(1); /* sm_80, for which flash_forward is chosen */
  return 0;
}

#define EDGE_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

/* Never read: the fake driver launches nothing. */
static char *address(uintptr_t number) {
  return (char *)(number << 40);
}

static kjit_attention_args args_of(int64_t batch, int64_t heads_q, int64_t heads_kv) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, 1, batch, 16, heads_q, HEAD_DIM);
  args.k = kjit_tensor_bshd(address(2), KJIT_FP16, 1, batch, 32, heads_kv, HEAD_DIM);
  args.v = kjit_tensor_bshd(address(3), KJIT_FP16, 1, batch, 32, heads_kv, HEAD_DIM);
  args.o = kjit_tensor_bshd(address(4), KJIT_FP16, 1, batch, 16, heads_q, HEAD_DIM);
  return args;
}

static kjit_tensor lse_of(void *data, int64_t batch, int64_t heads, int64_t seq) {
  return (kjit_tensor){.data = data,
                       .dtype = KJIT_FP32,
                       .device = 1,
                       .rank = 3,
                       .shape = {batch, heads, seq},
                       .stride = {heads * seq, seq, 1}};
}

static void forward(struct fixture *f, const kjit_attention_args *args) {
  assert_status(KJIT_OK, kjit_attention_forward(f->runtime, NULL, args, NULL, &f->error), &f->error);
}

static void expect_launch(int index, unsigned int heads, unsigned int batch) {
  assert_true(index < launch_count);
  assert_int_equal(launches[index].heads, heads);
  assert_int_equal(launches[index].batch, batch);
}

/* ---- More than a grid ---- */

static void test_attention_forward__many_batch_entries_are_several_launches(void **state) {
  kjit_attention_args args = args_of(65537, 2, 2);
  args.lse = lse_of(address(5), 65537, 2, 16);
  forward(*state, &args);
  assert_int_equal(launch_count, 2);
  expect_launch(0, 2, 65535);
  expect_launch(1, 2, 2);
  const struct flash_forward_params *rest = &launches[1].params;
  assert_ptr_equal(rest->q, address(1) + INT64_C(65535) * 16 * 2 * HEAD_DIM * 2);
  assert_ptr_equal(rest->k, address(2) + INT64_C(65535) * 32 * 2 * HEAD_DIM * 2);
  assert_ptr_equal(rest->v, address(3) + INT64_C(65535) * 32 * 2 * HEAD_DIM * 2);
  assert_ptr_equal(rest->o, address(4) + INT64_C(65535) * 16 * 2 * HEAD_DIM * 2);
  assert_ptr_equal(rest->lse, address(5) + INT64_C(65535) * 2 * 16 * 4);
}

static void test_attention_forward__many_heads_are_launched_in_whole_groups(void **state) {
  const kjit_attention_args args = args_of(1, 131072, 32768);
  forward(*state, &args);
  assert_int_equal(launch_count, 3);
  expect_launch(0, 65532, 1);
  expect_launch(1, 65532, 1);
  expect_launch(2, 8, 1);
  assert_ptr_equal(launches[1].params.q, address(1) + INT64_C(65532) * HEAD_DIM * 2);
  assert_ptr_equal(launches[1].params.k, address(2) + INT64_C(65532) / 4 * HEAD_DIM * 2);
}

static void test_attention_forward__group_larger_than_a_grid_is_cut(void **state) {
  const kjit_attention_args args = args_of(1, 140000, 2);
  forward(*state, &args);
  assert_int_equal(launch_count, 4);
  expect_launch(0, 65535, 1);
  expect_launch(1, 4465, 1);
  expect_launch(2, 65535, 1);
  expect_launch(3, 4465, 1);
  assert_ptr_equal(launches[1].params.k, address(2));
  assert_ptr_equal(launches[2].params.k, address(2) + HEAD_DIM * 2);
  assert_ptr_equal(launches[2].params.q, address(1) + INT64_C(70000) * HEAD_DIM * 2);
}

static void test_attention_forward__a_variant_of_more_than_a_grid_is_unsupported(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = args_of(65536, 1, 1);
  args.softcap = 20;
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_string_equal(f->error.message,
                      "batch is 65536 and heads 1: flash_forward with a variant takes at most 65535 of each");
  assert_int_equal(launch_count, 0);
}

/* ---- Tensors without elements ---- */

static void test_attention_forward__batch_of_none_launches_nothing(void **state) {
  kjit_attention_args args = args_of(0, 2, 2);
  args.q.data = args.k.data = args.v.data = args.o.data = NULL;
  forward(*state, &args);
  args = args_of(3, 2, 2);
  args.q.shape[1] = args.o.shape[1] = 0;
  args.q.data = args.o.data = NULL;
  forward(*state, &args);
  args = args_of(3, 0, 0);
  forward(*state, &args);
  assert_int_equal(launch_count, 0);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async) + fake_driver_calls_of(FAKE_MemsetD2D32Async), 0);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 0);
}

enum { BATCH = 3, ROWS = 5, HEADS = 2, COLUMNS = 8, O_ELEMENTS = BATCH * ROWS * HEADS * COLUMNS };

static void fill_with_ones(uint16_t *o, size_t count, float *lse) {
  for (size_t i = 0; i < count; i++)
    o[i] = 0x3c00;
  for (size_t i = 0; i < BATCH * HEADS * ROWS; i++)
    lse[i] = 1;
}

/* No key: k and v are NULL, o and lse are this program's memory. */
static kjit_attention_args without_keys(uint16_t *o, float *lse) {
  kjit_attention_args args = args_of(BATCH, HEADS, HEADS);
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, 1, BATCH, ROWS, HEADS, COLUMNS);
  args.k = args.v = kjit_tensor_bshd(NULL, KJIT_FP16, 1, BATCH, 0, HEADS, COLUMNS);
  args.o = kjit_tensor_bshd(o, KJIT_FP16, 1, BATCH, ROWS, HEADS, COLUMNS);
  args.lse = lse_of(lse, BATCH, HEADS, ROWS);
  return args;
}

static void expect_minus_infinity(const float *lse) {
  for (size_t i = 0; i < BATCH * HEADS * ROWS; i++)
    assert_true(isinf(lse[i]) && lse[i] < 0);
}

static void test_attention_forward__no_keys_give_zeros_and_minus_infinity(void **state) {
  _Alignas(16) uint16_t o[O_ELEMENTS];
  float lse[BATCH * HEADS * ROWS];
  fill_with_ones(o, O_ELEMENTS, lse);
  const kjit_attention_args args = without_keys(o, lse);
  forward(*state, &args);
  for (size_t i = 0; i < O_ELEMENTS; i++)
    assert_int_equal(o[i], 0);
  expect_minus_infinity(lse);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async), 2);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD2D32Async) + launch_count, 0);
}

static void test_attention_forward__no_keys_leave_what_lies_between_rows_alone(void **state) {
  enum { ROW_STRIDE = HEADS * COLUMNS + 8, BATCH_STRIDE = ROWS * ROW_STRIDE + 16 };
  _Alignas(16) uint16_t o[BATCH * BATCH_STRIDE];
  float lse[BATCH * HEADS * ROWS];
  fill_with_ones(o, sizeof o / sizeof *o, lse);
  kjit_attention_args args = without_keys(o, lse);
  args.o.stride[0] = BATCH_STRIDE, args.o.stride[1] = ROW_STRIDE;
  forward(*state, &args);
  for (int i = 0; i < BATCH * BATCH_STRIDE; i++) {
    const bool inside = i % BATCH_STRIDE < ROWS * ROW_STRIDE && i % BATCH_STRIDE % ROW_STRIDE < HEADS * COLUMNS;
    assert_int_equal(o[i], inside ? 0 : 0x3c00);
  }
  expect_minus_infinity(lse);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD2D32Async), BATCH);
}

static void test_attention_forward__no_keys_with_heads_first_are_one_memset(void **state) {
  _Alignas(16) uint16_t o[O_ELEMENTS];
  float lse[BATCH * HEADS * ROWS];
  fill_with_ones(o, O_ELEMENTS, lse);
  kjit_attention_args args = without_keys(o, lse);
  args.o = kjit_tensor_bhsd(o, KJIT_FP16, 1, BATCH, HEADS, ROWS, COLUMNS);
  args.lse.data = NULL;
  forward(*state, &args);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async), 1);
  assert_int_equal(o[0] | o[O_ELEMENTS / 2] | o[O_ELEMENTS - 1], 0);
}

static void test_attention_forward__a_failed_memset_is_an_error(void **state) {
  struct fixture *f = *state;
  _Alignas(16) uint16_t o[O_ELEMENTS];
  float lse[BATCH * HEADS * ROWS];
  const kjit_attention_args args = without_keys(o, lse);
  fake_driver.fail_call = FAKE_MemsetD32Async;
  assert_status(KJIT_ERR_DRIVER, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "filling 1 rows of 120 words on the device");
}

static void test_attention_forward__lse_beside_sinks_without_keys_is_unsupported(void **state) {
  struct fixture *f = *state;
  _Alignas(16) uint16_t o[O_ELEMENTS];
  float lse[BATCH * HEADS * ROWS];
  const kjit_tensor sinks = {0};
  kjit_attention_args args = without_keys(o, lse);
  args.sinks = &sinks;
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_string_equal(f->error.message, "k.shape[1] (seq) is 0: lse must not be wanted beside sinks");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      EDGE_TEST(test_attention_forward__many_batch_entries_are_several_launches),
      EDGE_TEST(test_attention_forward__many_heads_are_launched_in_whole_groups),
      EDGE_TEST(test_attention_forward__group_larger_than_a_grid_is_cut),
      EDGE_TEST(test_attention_forward__a_variant_of_more_than_a_grid_is_unsupported),
      EDGE_TEST(test_attention_forward__batch_of_none_launches_nothing),
      EDGE_TEST(test_attention_forward__no_keys_give_zeros_and_minus_infinity),
      EDGE_TEST(test_attention_forward__no_keys_leave_what_lies_between_rows_alone),
      EDGE_TEST(test_attention_forward__no_keys_with_heads_first_are_one_memset),
      EDGE_TEST(test_attention_forward__a_failed_memset_is_an_error),
      EDGE_TEST(test_attention_forward__lse_beside_sinks_without_keys_is_unsupported),
  };
  return cmocka_run_group_tests_name("attention at the edges", tests, NULL, NULL);
}
