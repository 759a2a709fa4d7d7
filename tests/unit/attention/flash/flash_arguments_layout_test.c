#include "unit/attention/arguments.h"

static void test_flash_arguments_layout__heads_first_layout_passes(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q = kjit_tensor_bhsd(address(1), KJIT_FP16, DEVICE, BATCH, HEADS, SEQ_Q, HEAD_DIM);
  args.o = kjit_tensor_bhsd(address(4), KJIT_FP16, DEVICE, BATCH, HEADS, SEQ_Q, HEAD_DIM);
  expect_ok(&args);
}

static void test_flash_arguments_layout__packed_qkv_views_pass(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  const int64_t row = 3 * HEADS * HEAD_DIM;
  kjit_tensor *views[] = {&args.q, &args.k, &args.v};
  for (size_t i = 0; i < 3; i++) {
    views[i]->data = (char *)address(1) + i * HEADS * HEAD_DIM * 2;
    views[i]->shape[1] = SEQ_Q;
    views[i]->stride[0] = SEQ_Q * row;
    views[i]->stride[1] = row;
  }
  expect_ok(&args);
}

static void test_flash_arguments_layout__broadcast_keys_pass(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.stride[0] = args.v.stride[0] = 0;
  args.k.stride[2] = args.v.stride[2] = 0;
  expect_ok(&args);
}

static void test_flash_arguments_layout__head_dim_must_be_contiguous(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q.stride[3] = 2;
  expect_refused(&args, "q.stride[3] (head_dim) is 2: must be 1");
}

static void test_flash_arguments_layout__strides_must_be_multiples_of_8(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.stride[1] += 4;
  expect_refused(&args, "k.stride[1] (seq) is 196: must be a multiple, in elements, of 8");
}

static void test_flash_arguments_layout__of_strides_that_follow_from_a_head_size_the_head_size_is_named(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, DEVICE, BATCH, SEQ_Q, HEADS, 300);
  args.k = kjit_tensor_bshd(address(2), KJIT_FP16, DEVICE, BATCH, SEQ_KV, HEADS, 300);
  expect_refused(&args, "q.shape[3] (head_dim) is 300: must be a multiple of 8");
}

static void test_flash_arguments_layout__stride_of_a_single_element_axis_is_ignored(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  resize(&args, 0, 1);
  resize(&args, 2, 1);
  args.q.stride[0] = -3;
  args.o.stride[0] = 0;
  args.o.stride[2] = 1;
  expect_ok(&args);
}

static void test_flash_arguments_layout__negative_strides_are_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.v.stride[1] = -64;
  expect_refused(&args, "v.stride[1] (seq) is -64: must be at least 0");
}

static void test_flash_arguments_layout__output_strides_must_be_positive(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.o.stride[1] = 0;
  expect_refused(&args, "o.stride[1] (seq) is 0: must be at least 1");
}

static void test_flash_arguments_layout__output_elements_must_not_share_memory(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.o.stride[2] = 32;
  expect_refused(&args, "o.stride[2] (heads) is 32: must be large enough to clear the axes inside it: 64");
  args = good_args();
  args.o.stride[0] = args.o.stride[1];
  expect_refused(&args, "o.stride[1] (seq) is 192: must be large enough to clear the axes inside it: 384");
}

static void test_flash_arguments_layout__padded_output_passes(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.o.stride[2] = 72;
  args.o.stride[1] = 1024;
  args.o.stride[0] = 1024 * 128;
  expect_ok(&args);
}

static void test_flash_arguments_layout__reach_beyond_63_bits_is_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q.stride[0] = INT64_MAX / 8 * 8;
  expect_refused(&args, "q: shape and stride reach 2^63 bytes or more");
  args = good_args();
  args.o.stride[0] = INT64_MAX / 16 * 8;
  args.o.stride[1] = INT64_MAX / 16 / (SEQ_Q - 1) * 8;
  expect_refused(&args, "o: shape and stride reach 2^63 bytes or more");
}

static void test_flash_arguments_layout__data_must_be_16_byte_aligned(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.data = (char *)args.k.data + 8;
  expect_refused(&args, "k.data is 0x200008: must be a multiple of 16 bytes");
}

static void test_flash_arguments_layout__output_must_not_be_an_input(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.o.data = args.q.data;
  expect_refused(&args, "o.data is q.data: must be memory of its own");
  args.o.data = args.v.data;
  expect_refused(&args, "o.data is v.data: must be memory of its own");
}

static void test_flash_arguments_layout__inputs_may_be_one_tensor(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.v = args.k;
  expect_ok(&args);
}

static void test_flash_arguments_layout__lse_must_be_contiguous_along_seq(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  args.lse.stride[2] = 2;
  expect_refused(&args, "lse.stride[2] (seq) is 2: must be 1");
}

static void test_flash_arguments_layout__lse_rows_must_not_share_memory(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  args.lse.stride[1] = SEQ_Q - 1;
  expect_refused(&args, "lse.stride[1] (heads) is 99: must be large enough to clear the axes inside it: 100");
  args = args_with_lse();
  args.lse.stride[0] = 0;
  expect_refused(&args, "lse.stride[0] (batch) is 0: must be at least 1");
}

static void test_flash_arguments_layout__lse_must_be_4_byte_aligned_memory_of_its_own(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  args.lse.data = (char *)address(5) + 2;
  expect_refused(&args, "lse.data is 0x500002: must be a multiple of 4 bytes");
  args.lse.data = (char *)address(5) + 4;
  expect_ok(&args);
  args.lse.data = args.o.data;
  expect_refused(&args, "lse.data is o.data: must be memory of its own");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_arguments_layout__heads_first_layout_passes),
      cmocka_unit_test(test_flash_arguments_layout__packed_qkv_views_pass),
      cmocka_unit_test(test_flash_arguments_layout__broadcast_keys_pass),
      cmocka_unit_test(test_flash_arguments_layout__head_dim_must_be_contiguous),
      cmocka_unit_test(test_flash_arguments_layout__strides_must_be_multiples_of_8),
      cmocka_unit_test(test_flash_arguments_layout__of_strides_that_follow_from_a_head_size_the_head_size_is_named),
      cmocka_unit_test(test_flash_arguments_layout__stride_of_a_single_element_axis_is_ignored),
      cmocka_unit_test(test_flash_arguments_layout__negative_strides_are_refused),
      cmocka_unit_test(test_flash_arguments_layout__output_strides_must_be_positive),
      cmocka_unit_test(test_flash_arguments_layout__output_elements_must_not_share_memory),
      cmocka_unit_test(test_flash_arguments_layout__padded_output_passes),
      cmocka_unit_test(test_flash_arguments_layout__reach_beyond_63_bits_is_refused),
      cmocka_unit_test(test_flash_arguments_layout__data_must_be_16_byte_aligned),
      cmocka_unit_test(test_flash_arguments_layout__output_must_not_be_an_input),
      cmocka_unit_test(test_flash_arguments_layout__inputs_may_be_one_tensor),
      cmocka_unit_test(test_flash_arguments_layout__lse_must_be_contiguous_along_seq),
      cmocka_unit_test(test_flash_arguments_layout__lse_rows_must_not_share_memory),
      cmocka_unit_test(test_flash_arguments_layout__lse_must_be_4_byte_aligned_memory_of_its_own),
  };
  return cmocka_run_group_tests_name("flash_arguments_layout", tests, NULL, NULL);
}
