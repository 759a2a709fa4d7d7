/* The plain members of the attention arguments as variants, against the sentences that define them. */
#include "variant_fixture.h"

#include <math.h>
#include <stdlib.h>

enum { SEQ_Q = 30, SEQ_KV = 45 };

struct builtin {
  const kjit_attention_variant *variant;
  struct kjit_variant_arguments arguments;
};

static struct builtin make(const struct variant_builtin_members *members, const struct variant_builtin_values *values) {
  const struct variant_problem problem = {SEQ_Q, SEQ_KV, HEADS, 1};
  struct builtin made;
  int32_t scalars[4];
  kjit_tensor tensors[2];
  kjit_error error = {0};
  assert_status(KJIT_OK, attention_variant_builtin(&made.variant, members, &error), &error);
  if (!made.variant) return made;
  attention_variant_builtin_values(members, values, scalars, tensors);
  assert_status(KJIT_OK, variant_check_tensors(made.variant, scalars, tensors, KJIT_DEVICE_HOST, &error), &error);
  variant_fill_arguments(made.variant, &problem, scalars, tensors, &made.arguments);
  return made;
}

static void test_variant_builtin__masks_mean_what_flash_attention_says(void **state) {
  static const struct variant_builtin_members members[] = {
      {.has_window_left = true},
      {.has_window_right = true},
      {.has_window_left = true, .has_window_right = true},
      {.has_window_left = true, .is_causal = true},
      {.has_chunk = true, .is_causal = true},
      {.has_window_left = true, .has_window_right = true, .has_chunk = true, .is_causal = true},
  };
  const struct variant_builtin_values values = {.window_left = 11, .window_right = 4, .chunk = 16};
  (void)state;
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const struct variant_builtin_members *const m = &members[i];
    struct builtin made = make(m, &values);
    assert_int_equal(1, made.variant->intervals.count);
    for (int q = 0; q < SEQ_Q; q++)
      for (int k = 0; k < SEQ_KV; k++) {
        const struct variant_place place = {0, 0, q, k};
        const int row = q + SEQ_KV - SEQ_Q;
        const bool seen = (!m->has_window_left || row - 11 <= k) && (!m->has_window_right || k <= row + 4) &&
                          (!m->is_causal || k <= row) && (!m->has_chunk || k / 16 == row / 16);
        if (variant_mask_at(made.variant, &made.arguments, &place) != seen) fail_msg("%zu: q %d, k %d", i, q, k);
      }
  }
}

static void test_variant_builtin__scores_are_capped_then_biased(void **state) {
  static const struct variant_builtin_members members = {
      .has_softcap = true, .alibi_rank = 1, .alibi_dtype = 6, .has_bias = true, .bias_dtype = KJIT_FP32};
  const kjit_tensor alibi = {data.slope, 6, KJIT_DEVICE_HOST, 1, 0, {HEADS}, {1}};
  const kjit_tensor bias = {data.bias, 6, KJIT_DEVICE_HOST, 4, 0, {1, HEADS, SEQ_Q, SEQ_KV}, {0, SEQ * SEQ, SEQ, 1}};
  const struct variant_builtin_values values = {.softcap = 20, .alibi = &alibi, .bias = &bias};
  struct builtin made = make(&members, &values);
  (void)state;
  for (int q = 0; q < SEQ_Q; q += 3)
    for (int k = 0; k < SEQ_KV; k += 2) {
      const struct variant_place place = {1, 2, q, k};
      const double expected =
          20 * tanh(35.0 / 20) + (double)data.bias[2][q][k] - (double)data.slope[2] * abs(q + SEQ_KV - SEQ_Q - k);
      assert_true(fabs(variant_score_at(made.variant, &made.arguments, 35, &place) - expected) < 1e-5);
    }
}

static void test_variant_builtin__are_made_once(void **state) {
  static const struct variant_builtin_members none = {.alibi_rank = 0},
                                              causal = {.is_causal = true, .has_softcap = true};
  const kjit_attention_variant *first, *second;
  kjit_error error;
  (void)state;
  assert_int_equal(KJIT_OK, attention_variant_builtin(&first, &none, &error));
  assert_null(first);
  assert_int_equal(KJIT_OK, attention_variant_builtin(&first, &causal, &error));
  assert_int_equal(KJIT_OK, attention_variant_builtin(&second, &causal, &error));
  assert_ptr_equal(first, second);
}

static void test_variant_builtin__types_that_are_not_read_are_refused(void **state) {
  static const struct variant_builtin_members alibi = {.alibi_rank = 1, .alibi_dtype = KJIT_FP16};
  static const struct variant_builtin_members bias = {.has_bias = true, .bias_dtype = 3};
  const kjit_attention_variant *variant;
  kjit_error error = {0};
  (void)state;
  assert_int_equal(KJIT_ERR_INVALID_ARG, attention_variant_builtin(&variant, &alibi, &error));
  assert_contains(error.message, "alibi_slopes");
  memset(&error, 0, sizeof error);
  assert_int_equal(KJIT_ERR_INVALID_ARG, attention_variant_builtin(&variant, &bias, &error));
  assert_contains(error.message, "bias");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_variant_builtin__masks_mean_what_flash_attention_says),
      cmocka_unit_test(test_variant_builtin__scores_are_capped_then_biased),
      cmocka_unit_test(test_variant_builtin__are_made_once),
      cmocka_unit_test(test_variant_builtin__types_that_are_not_read_are_refused),
  };
  return cmocka_run_group_tests(tests, variant_data_setup, NULL);
}
