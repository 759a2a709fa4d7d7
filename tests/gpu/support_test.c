/* The arithmetic that the GPU tests and benchmarks rely on. No GPU. */
#include <math.h>
#include <string.h>

#include "support/check_sources.h"
#include "support/half.h"
#include "support/problem.h"
#include "support/random.h"
#include "support/statistics.h"
#include "support/test.h"

static void test_half__every_value_survives_the_round_trip(void **state) {
  (void)state;
  static const int32_t dtypes[] = {KJIT_FP16, KJIT_BF16};
  for (size_t t = 0; t < 2; t++)
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
      const float value = half_to_float(dtypes[t], (uint16_t)bits);
      if (!isnan(value)) assert_int_equal(bits, half_from_float(dtypes[t], value));
    }
}

static void test_half__known_values_are_those_of_the_formats(void **state) {
  (void)state;
  assert_true(half_to_float(KJIT_FP16, 0x3C01) == 1.0f + 0x1p-10f);
  assert_true(half_to_float(KJIT_FP16, 0x0001) == 0x1p-24f);
  assert_true(half_to_float(KJIT_BF16, 0x3F81) == 1.0f + 0x1p-7f);
  assert_int_equal(0x7C00, half_from_float(KJIT_FP16, 65520.0f));
  assert_int_equal(0x7BFF, half_from_float(KJIT_FP16, 65519.0f));
}

static void test_half__ties_go_to_even(void **state) {
  (void)state;
  assert_int_equal(0x3C00, half_from_float(KJIT_FP16, 1.0f + 0x1p-11f));
  assert_int_equal(0x3C02, half_from_float(KJIT_FP16, 1.0f + 3 * 0x1p-11f));
}

static void test_half__rounding_error_is_half_the_spacing(void **state) {
  (void)state;
  assert_true(half_rounding_error(KJIT_FP16, 1.5) == 0x1p-11);
  assert_true(half_rounding_error(KJIT_BF16, 0.3) == 0x1p-10);
  assert_true(half_rounding_error(KJIT_FP16, 0) == 0x1p-25);
}

static void test_statistics__median_of_even_and_odd_counts(void **state) {
  (void)state;
  double odd[] = {5, 1, 3}, even[] = {4, 1, 2, 10};
  assert_true(statistics_of(odd, 3).median == 3);
  assert_true(statistics_of(even, 4).median == 3);
  assert_true(statistics_of(even, 4).least == 1 && statistics_of(even, 4).most == 10);
  assert_true(statistics_of(NULL, 0).count == 0);
}

static void test_random__same_seed_gives_the_same_numbers(void **state) {
  (void)state;
  struct random a = {42}, b = {42}, c = {43};
  assert_true(random_next(&a) == random_next(&b));
  assert_true(random_next(&a) != random_next(&c));
}

static void test_problem__shape_with_and_without_key_length_is_read(void **state) {
  (void)state;
  struct trial_problem problem = {0};
  kjit_error error = {0};
  assert_status(KJIT_OK, problem_parse_shape("16,2048,8,128", &problem, &error), &error);
  assert_true(problem.asked.batch == 16 && problem.asked.seq_q == 2048 && problem.asked.seq_kv == 2048 &&
              problem.asked.heads_q == 8 && problem.asked.head_dim == 128);
  assert_status(KJIT_OK, problem_parse_shape("1,1,1,32,77", &problem, &error), &error);
  assert_true(problem.asked.seq_q == 1 && problem.asked.seq_kv == 77);
}

static void test_problem__malformed_shapes_are_refused(void **state) {
  (void)state;
  static const char *const shapes[] = {"",        "1,2,3",    "1,2,3,4,5,6", "1,2,3,",  "1,2,3,4,",
                                       "0,2,3,4", "-1,2,3,4", "1, 2,3,4",    "1,2,x,4", "1,2,3,99999999999999999999"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    struct trial_problem problem = {0};
    kjit_error error = {0};
    assert_status(KJIT_ERR_PARSE, problem_parse_shape(shapes[i], &problem, &error), &error);
  }
}

static void test_problem__limits_are_checked(void **state) {
  (void)state;
  struct trial_problem problem = {
      .asked = PROBLEM_OF(.dtype = KJIT_FP16, .batch = 1, .heads_q = 1, .seq_q = 8, .seq_kv = 9, .head_dim = 64)};
  kjit_error error = {0};
  assert_status(KJIT_OK, problem_check(&problem, &error), &error);
  problem.layout = LAYOUT_PACKED;
  assert_status(KJIT_ERR_INVALID_ARG, problem_check(&problem, &error), &error);
  problem = (struct trial_problem){
      .asked = PROBLEM_OF(.batch = 1024, .heads_q = 64, .seq_q = 1024, .seq_kv = 1, .head_dim = 64)};
  error = (kjit_error){0};
  assert_status(KJIT_ERR_INVALID_ARG, problem_check(&problem, &error), &error);
}

/* No two elements of a tensor share a place, and none lies outside of the allocation. */
static void assert_places_apart(const struct trial_problem *problem, enum problem_tensor tensor, unsigned char *taken) {
  const struct tensor_place place = problem_place(problem, tensor);
  for (int64_t b = 0; b < place.shape[0]; b++)
    for (int64_t s = 0; s < place.shape[1]; s++)
      for (int64_t h = 0; h < place.shape[2]; h++)
        for (int64_t d = 0; d < place.shape[3]; d++) {
          const int64_t at =
              place.first + b * place.stride[0] + s * place.stride[1] + h * place.stride[2] + d * place.stride[3];
          assert_true(at >= 0 && at < place.span);
          assert_int_equal(0, taken[at]++);
        }
}

static void test_problem__places_of_every_layout_are_apart(void **state) {
  (void)state;
  for (int layout = 0; layout < LAYOUT_SHARED_KV; layout++) {
    const struct trial_problem problem = {
        .asked = PROBLEM_OF(.batch = 2, .heads_q = 3, .seq_q = 5, .seq_kv = 5, .head_dim = 16),
        .layout = (enum problem_layout)layout};
    unsigned char taken[TENSOR_COUNT][4096] = {{0}};
    for (enum problem_tensor t = TENSOR_Q; t < TENSOR_COUNT; t++) {
      const struct tensor_place place = problem_place(&problem, t);
      assert_true(place.span <= 4096);
      assert_places_apart(&problem, t, taken[place.owner]);
    }
  }
}

static void test_problem__shared_keys_have_no_stride(void **state) {
  (void)state;
  const struct trial_problem problem = {
      .asked = PROBLEM_OF(.batch = 2, .heads_q = 3, .seq_q = 5, .seq_kv = 7, .head_dim = 16),
      .layout = LAYOUT_SHARED_KV};
  const struct tensor_place place = problem_place(&problem, TENSOR_K);
  assert_true(place.stride[0] == 0 && place.stride[2] == 0 && place.span == 7 * 16);
}

static void test_check_source__every_reference_file_is_carried(void **state) {
  (void)state;
  static const char *const names[] = {
      "attention_reference.cu", "attention_compare.cu", "fill_normal.cu", "census.cu", "element.cuh", "params.h"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const kjit_source source = check_source(names[i]);
    assert_true(source.bytes > 100);
    assert_int_equal(source.bytes, strlen(source.text));
  }
  assert_int_equal(0, check_source("nothing.cu").bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_half__every_value_survives_the_round_trip),
      cmocka_unit_test(test_half__known_values_are_those_of_the_formats),
      cmocka_unit_test(test_half__ties_go_to_even),
      cmocka_unit_test(test_half__rounding_error_is_half_the_spacing),
      cmocka_unit_test(test_statistics__median_of_even_and_odd_counts),
      cmocka_unit_test(test_random__same_seed_gives_the_same_numbers),
      cmocka_unit_test(test_problem__shape_with_and_without_key_length_is_read),
      cmocka_unit_test(test_problem__malformed_shapes_are_refused),
      cmocka_unit_test(test_problem__limits_are_checked),
      cmocka_unit_test(test_problem__places_of_every_layout_are_apart),
      cmocka_unit_test(test_problem__shared_keys_have_no_stride),
      cmocka_unit_test(test_check_source__every_reference_file_is_carried),
  };
  return cmocka_run_group_tests_name("gpu support", tests, NULL, NULL);
}
