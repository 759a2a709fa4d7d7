#include "unit/attention/arguments.h"

#include <math.h>
#include <stdio.h>

#include "unit/attention/configs.h"

static void test_flash_arguments__contiguous_tensors_pass(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  expect_ok(&args);
  args = args_with_lse();
  expect_ok(&args);
}

static void test_flash_arguments__reserved_must_be_zero(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.reserved = 1;
  expect_refused(&args, "k.reserved is 1: must be 0");
}

static void test_flash_arguments__unknown_flags_are_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.flags = 4;
  expect_refused(&args, "args.flags: only KJIT_ATTENTION_* may be set");
}

static kjit_attention_problem problem_of(const kjit_attention_args *args) {
  kjit_attention_problem problem;
  attention_arguments_problem(args, &problem);
  return problem;
}

static kjit_status match(const kjit_attention_problem *problem, const kjit_flash_config *config, kjit_error *error) {
  struct flash_variant variant = flash_variant_plain(config);
  return flash_fit(problem, &variant, error);
}

static kjit_status check_problem_of(int64_t head_dim, int64_t head_dim_v, kjit_error *error) {
  const kjit_attention_args args = good_args();
  const struct family_place place = {"sm_90", 132, 232448, {0}};
  kjit_attention_problem problem = problem_of(&args);
  struct flash_variant chosen;
  problem.head_dim = head_dim;
  problem.head_dim_v = head_dim_v;
  error_clear(error);
  return flash_choose(&problem, &place, &chosen, error);
}

static void test_flash_arguments__head_sizes_are_multiples_of_8_up_to_256(void **state) {
  (void)state;
  kjit_error error;
  assert_status(KJIT_OK, check_problem_of(8, 256, &error), &error);
  assert_status(KJIT_OK, check_problem_of(256, 8, &error), &error);
  assert_status(KJIT_ERR_UNSUPPORTED, check_problem_of(44, 64, &error), &error);
  assert_string_equal(error.message, "head_dim is 44: flash_forward takes multiples of 8 up to 256");
  assert_status(KJIT_ERR_UNSUPPORTED, check_problem_of(64, 264, &error), &error);
  assert_string_equal(error.message, "head_dim_v is 264: flash_forward takes multiples of 8 up to 256");
  assert_status(KJIT_ERR_UNSUPPORTED, check_problem_of(0, 64, &error), &error);
}

static void test_flash_arguments__null_data_is_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.v.data = NULL;
  expect_refused(&args, "v.data is NULL: must be memory of device 1");
  args = good_args();
  args.o.data = NULL;
  expect_refused(&args, "o.data is NULL: must be memory of device 1");
}

static void test_flash_arguments__host_memory_is_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q.device = KJIT_DEVICE_HOST;
  expect_refused(&args, "q.device is the host: must be the current device, 1");
}

static void test_flash_arguments__other_device_is_refused_for_each_tensor(void **state) {
  (void)state;
  static const char *const names[] = {"q", "k", "v", "o", "lse"};
  for (size_t i = 0; i < 5; i++) {
    kjit_attention_args args = args_with_lse();
    kjit_tensor *const tensors[] = {&args.q, &args.k, &args.v, &args.o, &args.lse};
    char message[96];
    tensors[i]->device = 0;
    snprintf(message, sizeof message, "%s.device is 0: must be the current device, 1", names[i]);
    expect_refused(&args, message);
  }
}

static void test_flash_arguments__fp32_is_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q.dtype = args.k.dtype = args.v.dtype = args.o.dtype = KJIT_FP32;
  expect_refused(&args, "q.dtype is FP32 (6): must be FP16 (5) or BF16 (15)");
  args.q.dtype = 99;
  expect_refused(&args, "q.dtype is no dtype (99): must be FP16 (5) or BF16 (15)");
}

static void test_flash_arguments__dtypes_must_agree(void **state) {
  (void)state;
  static const char *const names[] = {"k", "v", "o"};
  for (size_t i = 0; i < 3; i++) {
    kjit_attention_args args = good_args();
    kjit_tensor *const tensors[] = {&args.k, &args.v, &args.o};
    char message[96];
    tensors[i]->dtype = KJIT_BF16;
    snprintf(message, sizeof message, "%s.dtype is BF16 (15): must be FP16 (5), as q's", names[i]);
    expect_refused(&args, message);
  }
}

static void test_flash_arguments__rank_must_be_4(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.o.rank = 3;
  expect_refused(&args, "o.rank is 3: must be 4");
  args.o.rank = 5;
  expect_refused(&args, "o.rank is 5: must be 4");
}

static void test_flash_arguments__columns_must_have_an_element_and_no_axis_fewer_than_none(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.q.shape[3] = args.k.shape[3] = 0;
  expect_refused(&args, "q.shape[3] (head_dim) is 0: must be at least 1");
  args = good_args();
  args.v.shape[0] = -1;
  expect_refused(&args, "v.shape[0] (batch) is -1: must be at least 0");
}

static void test_flash_arguments__tensors_without_elements_may_be_null(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.shape[1] = args.v.shape[1] = 0;
  args.k.data = args.v.data = NULL;
  expect_ok(&args);
  args.k.shape[1] = args.v.shape[1] = SEQ_KV;
  expect_refused(&args, "k.data is NULL: must be memory of device 1");
  args = args_with_lse();
  resize(&args, 0, 0);
  args.lse.shape[0] = 0;
  args.q.data = args.k.data = args.v.data = args.o.data = NULL;
  args.q.stride[1] = 3; /* of what is never read */
  expect_ok(&args);
}

static void test_flash_arguments__no_key_heads_for_query_heads_are_refused(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.shape[2] = args.v.shape[2] = 0;
  expect_refused(&args, "k.shape[2] (heads) is 0: must divide that of q, 3");
}

static void test_flash_arguments__axes_must_equal_those_of_another_tensor(void **state) {
  (void)state;
  static const char *const axes[] = {"batch", "seq", "heads", "head_dim"};
  static const struct {
    size_t tensor;
    uint32_t axis;
    const char *name, *like;
  } rows[] = {{0, 0, "k", "q"}, {0, 3, "k", "q"}, {1, 0, "v", "q"}, {1, 2, "v", "k"},
              {2, 0, "o", "q"}, {2, 2, "o", "q"}, {2, 3, "o", "v"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_args args = good_args();
    kjit_tensor *const tensors[] = {&args.k, &args.v, &args.o};
    const uint32_t axis = rows[i].axis;
    char message[128];
    tensors[rows[i].tensor]->shape[axis] += 1;
    snprintf(message, sizeof message, "%s.shape[%u] (%s) is %d: must equal that of %s, %d", rows[i].name, axis,
             axes[axis], (int)args.q.shape[axis] + 1, rows[i].like, (int)args.q.shape[axis]);
    expect_refused(&args, message);
  }
}

static void test_flash_arguments__key_heads_must_divide_query_heads(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.k.shape[2] = args.v.shape[2] = 2;
  expect_refused(&args, "k.shape[2] (heads) is 2: must divide that of q, 3");
}

static void test_flash_arguments__sequences_must_pair(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  args.v.shape[1] = SEQ_KV - 1;
  expect_refused(&args, "v.shape[1] (seq) is 69: must equal that of k, 70");
  args = good_args();
  args.o.shape[1] = SEQ_KV;
  expect_refused(&args, "o.shape[1] (seq) is 70: must equal that of q, 100");
}

static void test_flash_arguments__batch_and_heads_must_fit_32_bits(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  resize(&args, 0, 1000000);
  expect_ok(&args);
  resize(&args, 0, INT64_C(1) << 31);
  expect_refused(&args, "q.shape[0] (batch) is 2147483648: must be at most 2147483647");
  args = good_args();
  resize(&args, 2, INT64_C(1) << 31);
  expect_refused(&args, "q.shape[2] (heads) is 2147483648: must be at most 2147483647");
  args = good_args();
  resize(&args, 0, 1 << 20);
  resize(&args, 2, 1 << 12);
  expect_refused(&args, "q.shape: 1048576 batch entries of 4096 heads: must be at most 4294967295 together");
}

static void test_flash_arguments__sequences_must_fit_32_bits(void **state) {
  (void)state;
  kjit_attention_args args = good_args();
  resize(&args, 0, 1);
  args.q.shape[1] = args.o.shape[1] = INT32_MAX - 255;
  expect_ok(&args);
  args.q.shape[1] = args.o.shape[1] = INT32_MAX - 254;
  expect_refused(&args, "q.shape[1] (seq) is 2147483393: must be at most 2147483392");
  args = good_args();
  args.k.shape[1] = args.v.shape[1] = INT64_MAX;
  expect_refused(&args, "k.shape[1] (seq) is 9223372036854775807: must be at most 2147483392");
}

static void test_flash_arguments__scale_must_be_positive_and_finite(void **state) {
  (void)state;
  static const float wrong[] = {-1.0f, INFINITY, -INFINITY, NAN, 3e38f};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    kjit_attention_args args = good_args();
    kjit_error error;
    args.scale = wrong[i];
    error_clear(&error);
    assert_status(KJIT_ERR_INVALID_ARG, attention_arguments_check(&args, DEVICE, &error), &error);
    assert_contains(error.message, "scale is ");
    assert_contains(error.message, "must be positive and at most 1.70141e+38, or 0 for 1/sqrt(head_dim)");
  }
}

static void test_flash_arguments__lse_is_optional(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  args.lse.data = NULL;
  args.lse.rank = 17;
  expect_ok(&args);
}

static void test_flash_arguments__lse_must_be_fp32(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  args.lse.dtype = KJIT_FP16;
  expect_refused(&args, "lse.dtype is FP16 (5): must be FP32 (6)");
}

static void test_flash_arguments__lse_must_have_q_shape(void **state) {
  (void)state;
  kjit_attention_args args = args_with_lse();
  args.lse.rank = 4;
  expect_refused(&args, "lse.rank is 4: must be 3");
  args = args_with_lse();
  args.lse.shape[0] = 1;
  expect_refused(&args, "lse.shape[0] (batch) is 1: must equal that of q, 2");
  args = args_with_lse();
  args.lse.shape[1] = 4;
  expect_refused(&args, "lse.shape[1] (heads) is 4: must equal that of q, 3");
  args = args_with_lse();
  args.lse.shape[2] = SEQ_KV;
  expect_refused(&args, "lse.shape[2] (seq) is 70: must equal that of q, 100");
}

static void test_flash_arguments__config_must_match_the_tensors(void **state) {
  (void)state;
  const kjit_attention_args args = good_args();
  const kjit_attention_problem problem = problem_of(&args);
  kjit_flash_config config = config_base();
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_ERR_INVALID_CONFIG, match(&problem, &config, &error), &error);
  assert_string_equal(error.message, "d_head is 128: must be the tensors' head_dim, 64");
  config.d_head = 64;
  assert_status(KJIT_OK, match(&problem, &config, NULL), NULL);
  config.dtype = KJIT_BF16;
  error_clear(&error);
  assert_status(KJIT_ERR_INVALID_CONFIG, match(&problem, &config, &error), &error);
  assert_string_equal(error.message, "dtype is BF16 (15): must be the tensors', FP16 (5)");
}

static void test_flash_arguments__config_must_have_the_larger_head_size_in_whole_16s(void **state) {
  (void)state;
  static const struct {
    int32_t head_dim, head_dim_v, d_head;
  } sizes[] = {{8, 8, 32}, {16, 32, 32}, {40, 40, 48}, {192, 128, 192}, {64, 72, 80}, {256, 248, 256}};
  const kjit_attention_args args = good_args();
  kjit_attention_problem problem = problem_of(&args);
  kjit_flash_config config = config_base();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    kjit_error error;
    char part[64];
    problem.head_dim = sizes[i].head_dim;
    problem.head_dim_v = sizes[i].head_dim_v;
    config.d_head = sizes[i].d_head;
    assert_status(KJIT_OK, match(&problem, &config, NULL), NULL);
    config.d_head += 16;
    error_clear(&error);
    assert_status(KJIT_ERR_INVALID_CONFIG, match(&problem, &config, &error), &error);
    snprintf(part, sizeof part, "must be %d, the larger of", (int)sizes[i].d_head);
    assert_contains(error.message, part);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_arguments__contiguous_tensors_pass),
      cmocka_unit_test(test_flash_arguments__reserved_must_be_zero),
      cmocka_unit_test(test_flash_arguments__unknown_flags_are_refused),
      cmocka_unit_test(test_flash_arguments__head_sizes_are_multiples_of_8_up_to_256),
      cmocka_unit_test(test_flash_arguments__null_data_is_refused),
      cmocka_unit_test(test_flash_arguments__host_memory_is_refused),
      cmocka_unit_test(test_flash_arguments__other_device_is_refused_for_each_tensor),
      cmocka_unit_test(test_flash_arguments__fp32_is_refused),
      cmocka_unit_test(test_flash_arguments__dtypes_must_agree),
      cmocka_unit_test(test_flash_arguments__rank_must_be_4),
      cmocka_unit_test(test_flash_arguments__columns_must_have_an_element_and_no_axis_fewer_than_none),
      cmocka_unit_test(test_flash_arguments__tensors_without_elements_may_be_null),
      cmocka_unit_test(test_flash_arguments__no_key_heads_for_query_heads_are_refused),
      cmocka_unit_test(test_flash_arguments__axes_must_equal_those_of_another_tensor),
      cmocka_unit_test(test_flash_arguments__key_heads_must_divide_query_heads),
      cmocka_unit_test(test_flash_arguments__sequences_must_pair),
      cmocka_unit_test(test_flash_arguments__batch_and_heads_must_fit_32_bits),
      cmocka_unit_test(test_flash_arguments__sequences_must_fit_32_bits),
      cmocka_unit_test(test_flash_arguments__scale_must_be_positive_and_finite),
      cmocka_unit_test(test_flash_arguments__lse_is_optional),
      cmocka_unit_test(test_flash_arguments__lse_must_be_fp32),
      cmocka_unit_test(test_flash_arguments__lse_must_have_q_shape),
      cmocka_unit_test(test_flash_arguments__config_must_match_the_tensors),
      cmocka_unit_test(test_flash_arguments__config_must_have_the_larger_head_size_in_whole_16s),
  };
  return cmocka_run_group_tests_name("flash_arguments", tests, NULL, NULL);
}
