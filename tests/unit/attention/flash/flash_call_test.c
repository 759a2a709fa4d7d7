/* What a launch of flash_forward gets of its arguments. */
#include "support/test.h"

#include <math.h>

#include "unit/attention/arguments.h"

static kjit_attention_problem problem_of(const kjit_attention_args *args) {
  kjit_attention_problem problem;
  attention_arguments_problem(args, &problem);
  return problem;
}

static void test_flash_call__parameters_are_the_tensors(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  struct flash_forward_params params;
  args.v = kjit_tensor_bhsd(address(3), KJIT_FP16, DEVICE, BATCH, HEADS, SEQ_KV, HEAD_DIM);
  const kjit_attention_problem problem = problem_of(&args);
  fill_params(&args, &problem, &params);
  assert_ptr_equal(params.q, address(1));
  assert_ptr_equal(params.k, address(2));
  assert_ptr_equal(params.v, address(3));
  assert_ptr_equal(params.o, address(4));
  assert_ptr_equal(params.lse, address(5));
  assert_int_equal(params.q_stride.batch, SEQ_Q * HEADS * HEAD_DIM);
  assert_int_equal(params.k_stride.seq, HEADS * HEAD_DIM);
  assert_int_equal(params.v_stride.head, SEQ_KV * HEAD_DIM);
  assert_int_equal(params.o_stride.head, HEAD_DIM);
  assert_int_equal(params.lse_batch_stride, HEADS * SEQ_Q);
  assert_int_equal(params.lse_head_stride, SEQ_Q);
  assert_int_equal(params.seq_q, SEQ_Q);
  assert_int_equal(params.seq_kv, SEQ_KV);
  assert_int_equal(params.heads_per_kv, 1);
}

static void test_flash_call__groups_are_query_heads_for_each_key_head(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  struct flash_forward_params params;
  args.q.shape[2] = args.o.shape[2] = 12;
  const kjit_attention_problem problem = problem_of(&args);
  fill_params(&args, &problem, &params);
  assert_int_equal(params.heads_per_kv, 4);
  assert_int_equal(params.k_stride.head, HEAD_DIM);
}

static void test_flash_call__one_key_head_for_all_has_stride_zero(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  struct flash_forward_params params;
  args.k.shape[2] = args.v.shape[2] = 1;
  const kjit_attention_problem problem = problem_of(&args);
  fill_params(&args, &problem, &params);
  assert_int_equal(params.k_stride.head, 0);
  assert_int_equal(params.v_stride.head, 0);
}

static void test_flash_call__strides_never_used_are_zero(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  struct flash_forward_params params;
  resize(&args, 0, 1);
  args.q.stride[0] = 3;
  const kjit_attention_problem problem = problem_of(&args);
  fill_params(&args, &problem, &params);
  assert_int_equal(params.q_stride.batch, 0);
  assert_null(params.lse);
  assert_int_equal(params.lse_batch_stride, 0);
}

static void test_flash_call__default_scale_is_by_head_dim(void **state) {
  (void)state;
  const kjit_attention_args args = good_args();
  const kjit_attention_problem problem = problem_of(&args);
  struct flash_forward_params params;
  fill_params(&args, &problem, &params);
  assert_true(params.scale == 0.125f);
  assert_true(params.scale_log2 == (float)(0.125 * 1.4426950408889634));
}

static void test_flash_call__given_scale_is_used(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  struct flash_forward_params params;
  args.scale = 0.7f;
  const kjit_attention_problem problem = problem_of(&args);
  fill_params(&args, &problem, &params);
  assert_true(params.scale == 0.7f);
  assert_true(fabs((double)params.scale_log2 - (double)0.7f * 1.4426950408889634) < 1e-7);
}

static void expect_grid(int64_t seq_q, int64_t heads, int64_t batch, int32_t B_r, uint32_t tiles) {
  const kjit_attention_args args = good_args();
  kjit_attention_problem problem = problem_of(&args);
  const struct flash_variant variant = {.config = {.B_r = B_r}};
  const struct attention_launch launch = {.values = (const int32_t *)&variant, .parts = 1};
  struct flash_call call;
  problem.seq_q = seq_q;
  problem.heads_q = heads;
  problem.batch = batch;
  assert_int_equal(flash_attention.prepare(&call, NULL, &launch, &args, &problem, NULL, NULL), KJIT_OK);
  assert_int_equal(call.grid[0], tiles);
  assert_int_equal(call.grid[1], heads);
  assert_int_equal(call.grid[2], batch);
}

static void test_flash_call__grid_covers_every_row(void **state) {
  (void)state;
  expect_grid(2048, 16, 8, 64, 32);
  expect_grid(1, 3, 1, 64, 1);
  expect_grid(4097, 3, 65535, 128, 33);
  expect_grid(INT32_MAX - 255, 3, 1, 16, (uint32_t)(INT32_MAX - 255 + 15) / 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_call__parameters_are_the_tensors),
      cmocka_unit_test(test_flash_call__groups_are_query_heads_for_each_key_head),
      cmocka_unit_test(test_flash_call__one_key_head_for_all_has_stride_zero),
      cmocka_unit_test(test_flash_call__strides_never_used_are_zero),
      cmocka_unit_test(test_flash_call__default_scale_is_by_head_dim),
      cmocka_unit_test(test_flash_call__given_scale_is_used),
      cmocka_unit_test(test_flash_call__grid_covers_every_row),
  };
  return cmocka_run_group_tests_name("flash_call", tests, NULL, NULL);
}
