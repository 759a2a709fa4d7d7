/* Terms of a variant's scores that lie in a tensor: which of them a tensor map can describe, and the map that reaches
 * the kernel, over a fake driver and compiler; and what is found of a mask's intervals. */
#include "attention/attention_variant_call.h"
#include "unit/attention/variant_fixture.h"

/* Whether a tensor map can describe the terms of a matrix of 1000 queries and so many keys. */
static bool has_boxes(const char *score, int64_t rows, int64_t columns) {
  const kjit_tensor matrix = vector(KJIT_BF16, 2, rows, columns, 0, 0);
  return launch_of(score, &matrix, 1).has_boxes;
}

static void test_attention_terms__boxes_need_queries_that_follow_each_other(void **state) {
  kjit_tensor matrix = vector(KJIT_BF16, 4, 1, 6, 1000, 704);
  (void)state;
  assert_true(has_boxes("score + matrix[q, k]", 1000, 704));
  assert_true(has_boxes("score + matrix[q, k]", 1001, 704));
  assert_false(has_boxes("score + matrix[q, k]", 999, 704));  /* a query beyond the last row has that row's */
  assert_false(has_boxes("score + matrix[q, k]", 1000, 700)); /* rows that begin between 16 bytes */
  assert_false(has_boxes("score + matrix[q + 1, k]", 1001, 704));
  assert_false(has_boxes("score + matrix[h, k]", 1000, 704));
  assert_true(launch_of("score + matrix[b, h // 2, q, k]", &matrix, 1).has_boxes);
  assert_true(launch_of("score + matrix[b, q % 3, q, k]", &matrix, 1).has_chunks);
  assert_false(launch_of("score + matrix[b, q % 3, q, k]", &matrix, 1).has_boxes);
  matrix.stride[2] = 0; /* all queries have one row */
  assert_false(launch_of("score + matrix[b, h, q, k]", &matrix, 1).has_boxes);
  matrix.stride[2] = 704;
  matrix.stride[1] = INT64_C(1) << 39;
  assert_true(launch_of("score + matrix[b, h, q, k]", &matrix, 1).has_chunks);
  assert_false(launch_of("score + matrix[b, h, q, k]", &matrix, 1).has_boxes);
}

/* A bias of one batch entry, expanded over the heads: what of a map the fake driver shows. */
static void test_attention_terms__map_has_one_element_where_all_are_one(void **state) {
  static const uint64_t sizes[] = {704, 1000, 1, 1, 0}, strides[] = {1408, 1408, 1408, 0};
  struct fixture *f = *state;
  const kjit_tensor bias = {
      .data = address(9), .dtype = KJIT_BF16, .rank = 4, .shape = {1, 6, 1000, 704}, .stride = {704 * 1000, 0, 704, 1}};
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, 1000, 6, 64);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, 704, 6, 64);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 2, 704, 6, 64);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 2, 1000, 6, 64);
  args.bias = &bias;
  forward(f, &args, NULL);
  forward(f, &args, NULL);
  assert_int_equal(fake_driver_calls_of(FAKE_TensorMapEncodeTiled), 5);
  uint64_t words[16];
  memcpy(words, &launched_variant()->terms, sizeof words);
  assert_true(words[0] == (uintptr_t)bias.data);
  assert_memory_equal(&words[1], sizes, sizeof sizes);
  assert_memory_equal(&words[6], strides, sizeof strides);
  assert_true(words[10] == 64 && words[11] == 64 && words[12] == 1);
}

static struct attention_variant_source source_of_mask(const char *mask) {
  const kjit_attention_variant_text text = {.struct_size = sizeof text, .mask = mask};
  struct attention_variant_launch launch;
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = causal_args();
  kjit_error error;
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &error), &error);
  args.variant = variant;
  assert_status(KJIT_OK, attention_variant_of_args(&launch, &args, 0, &error), &error);
  kjit_attention_variant_free(variant);
  return launch.source;
}

/* Documents are so too, but their beginnings are loaded. */
static void test_attention_masks__chunks_are_stepped_and_windows_are_not(void **state) {
  (void)state;
  assert_true(source_of_mask("q // 64 == k // 64 and q >= k").is_stepped);
  assert_true(source_of_mask("k >= q // 64 * 64 and q >= k").is_stepped);
  assert_true(source_of_mask("q - k <= 64 and q >= k").is_narrow);
  assert_false(source_of_mask("q - k <= 64 and q >= k").is_stepped);
  assert_false(source_of_mask("q // 64 * 64 >= k").is_stepped); /* not narrow */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      VARIANT_TEST(test_attention_terms__map_has_one_element_where_all_are_one),
      cmocka_unit_test(test_attention_terms__boxes_need_queries_that_follow_each_other),
      cmocka_unit_test(test_attention_masks__chunks_are_stepped_and_windows_are_not),
  };
  return cmocka_run_group_tests_name("terms of attention variants", tests, NULL, NULL);
}
