/* The fixture of tests of kjit_attention_forward() with a variant: a fake driver and compiler that know attention_sm90
 * and the kernels that find blocks. One test at a time. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_VARIANT_FIXTURE_H
#define KJIT_TESTS_UNIT_ATTENTION_VARIANT_FIXTURE_H

#include "attention/attention_variant_call.h"
#include "attention_variant/list_params.h"
#include "unit/attention/attention_fixture.h"

static inline int variant_setup(void **state) {
  const int result = setup(state);
  fake_driver.parameter_bytes = sizeof(struct attention_sm90_variant_params);
  fake_driver.other_kernels[0] =
      (struct fake_kernel){"attention_block_list", sizeof(struct attention_block_list_params)};
  fake_driver.other_kernels[1] = (struct fake_kernel){"attention_block_map", sizeof(struct attention_block_map_params)};
  return result;
}

#define VARIANT_TEST(test) cmocka_unit_test_setup_teardown(test, variant_setup, fixture_teardown)

/* The parameters of the last launch of attention_sm90 with a variant. */
static inline const struct attention_sm90_variant_params *launched_variant(void) {
  static struct attention_sm90_variant_params params;
  memcpy(&params, fake_driver.launch.args, sizeof params);
  return &params;
}

/* A tensor of so many axes, whose elements follow each other. Strides beyond 64 bits wrap, because the tests of absurd
 * sizes set those that matter themselves. */
static inline kjit_tensor vector(int32_t dtype, uint32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  kjit_tensor tensor = {.data = address(9), .dtype = dtype, .rank = rank, .shape = {a, b, c, d}};
  uint64_t stride = 1;
  for (uint32_t axis = rank; axis-- > 0; stride *= (uint64_t)tensor.shape[axis])
    tensor.stride[axis] = (int64_t)stride;
  return tensor;
}

static inline kjit_attention_args windowed_args(int32_t left) {
  kjit_attention_args args = causal_args();
  args.flags |= KJIT_ATTENTION_WINDOW;
  args.window_left = left;
  args.window_right = -1;
  return args;
}

/* What a launch is told of a score function that reads a tensor `matrix`, and with two of them `factor` too. */
static inline struct attention_variant_launch launch_of(const char *score, const kjit_tensor *tensors, uint32_t count) {
  static const char *const names[] = {"matrix", "factor"};
  kjit_variant_tensor declared[sizeof names / sizeof *names];
  const kjit_attention_variant_text text = {
      .struct_size = sizeof text, .score = score, .tensors = declared, .tensor_count = count};
  struct attention_variant_launch launch;
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = causal_args();
  kjit_error error;
  for (uint32_t i = 0; i < count; i++)
    declared[i] = (kjit_variant_tensor){names[i], tensors[i].dtype, tensors[i].rank};
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &error), &error);
  args.variant = variant;
  args.variant_tensors = tensors;
  assert_status(KJIT_OK, attention_variant_of_args(&launch, &args, 0, &error), &error);
  kjit_attention_variant_free(variant);
  launch.source.header = NULL; /* the variant's */
  return launch;
}

#endif
