#include "unit/attention/tune/tune_fixture.h"

#include <kjit/tune.h>

#include "family/pair_form.h"

static void test_tune_class__short_lengths_end_where_tiles_do(void **state) {
  static const struct {
    int64_t length;
    int32_t bucket;
  } cases[] = {{1, 1},     {2, 8},     {8, 8},     {9, 16},    {17, 32},   {33, 64},   {64, 64},   {65, 128},
               {128, 128}, {129, 192}, {192, 192}, {193, 256}, {256, 256}, {257, 256}, {362, 256}, {363, 512}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(tune_class_length(cases[i].length), cases[i].bucket);
}

static void test_tune_class__odd_lengths_are_with_their_round_neighbour(void **state) {
  (void)state;
  for (int64_t power = 512; power <= 65536; power *= 2) {
    assert_int_equal(tune_class_length(power - 1), power);
    assert_int_equal(tune_class_length(power), power);
    assert_int_equal(tune_class_length(power + 1), power);
    assert_int_equal(tune_class_length(power + power / 2), 2 * power);
  }
  assert_int_equal(tune_class_length(INT32_MAX - 255), 1 << 30);
}

static void test_tune_class__buckets_grow_and_contain_their_name(void **state) {
  (void)state;
  int32_t last_length = 0, last_count = 0;
  for (int64_t value = 1; value < 100000; value++) {
    const int32_t length = tune_class_length(value), count = tune_class_count(value);
    assert_true(length >= last_length && count >= last_count);
    assert_int_equal(tune_class_length(length), length);
    assert_int_equal(tune_class_count(count), count);
    last_length = length;
    last_count = count;
  }
  assert_int_equal(tune_class_count(INT64_C(65535) * 65535), 1 << 30);
}

static kjit_status class_of(const kjit_attention_problem *problem, char *text, size_t capacity, kjit_error *error) {
  const kjit_tune_problem asked = {.attention = *problem};
  return kjit_tune_class(&asked, text, capacity, error);
}

static void test_tune_class__problem_gives_every_field(void **state) {
  (void)state;
  kjit_attention_problem problem = tune_problem(4097, 192);
  char text[KJIT_TUNE_CLASS_TEXT_MAX];
  problem.head_dim_v = 128;
  problem.heads_kv = 4;
  problem.seq_kv = 8190;
  problem.batch = 3;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  assert_status(KJIT_OK, class_of(&problem, text, sizeof text, NULL), NULL);
  assert_string_equal(text, "dtype=bf16,causal=1,head_dim=192,head_dim_v=128,group=4,seq_q=4096,seq_kv=8192,pairs=64");
}

static void test_tune_class__open_defaults_are_filled_in(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  char text[KJIT_TUNE_CLASS_TEXT_MAX];
  kjit_error error;
  problem.dtype = KJIT_FP16;
  problem.seq_q = 1;
  problem.head_dim = 64;
  assert_status(KJIT_OK, class_of(&problem, text, sizeof text, NULL), NULL);
  assert_string_equal(text, "dtype=fp16,causal=0,head_dim=64,head_dim_v=64,group=1,seq_q=1,seq_kv=1,pairs=1");
  assert_status(KJIT_ERR_INVALID_ARG, class_of(&problem, text, 10, &error), &error);
  problem.seq_q = -1;
  assert_status(KJIT_ERR_INVALID_ARG, class_of(&problem, text, sizeof text, &error), &error);
  assert_contains(error.message, "problem.seq_q");
}

static void test_tune_class__only_what_problems_can_be_passes(void **state) {
  (void)state;
  const kjit_attention_problem problem = tune_problem(4096, 128);
  struct tune_class class;
  kjit_error error = {0};
  tune_class_of(&problem, &class);
  assert_status(KJIT_OK, tune_class_check(&class, NULL), NULL);
  for (size_t i = 0; i < tune_class_fields.count; i++) {
    struct tune_class broken = class;
    field_put(&tune_class_fields.fields[i], &broken, -1);
    error = (kjit_error){0};
    assert_status(KJIT_ERR_INVALID_CONFIG, tune_class_check(&broken, &error), &error);
    assert_contains(error.message, tune_class_fields.fields[i].name);
  }
  class.seq_q = 4097;
  error = (kjit_error){0};
  assert_status(KJIT_ERR_INVALID_CONFIG, tune_class_check(&class, &error), &error);
  assert_string_equal(error.message, "seq_q is 4097: must be the name of a bucket");
}

static void test_tune_class__text_holds_the_largest(void **state) {
  (void)state;
  struct tune_class class;
  char text[TUNE_CLASS_TEXT_MAX];
  for (size_t i = 0; i < tune_class_fields.count; i++)
    field_put(&tune_class_fields.fields[i], &class, INT32_MIN);
  struct text out;
  text_init_fixed(&out, text, sizeof text);
  pair_form_print(&tune_class_fields, &class, &out);
  assert_non_null(strstr(text, "pairs=-2147483648"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tune_class__short_lengths_end_where_tiles_do),
      cmocka_unit_test(test_tune_class__odd_lengths_are_with_their_round_neighbour),
      cmocka_unit_test(test_tune_class__buckets_grow_and_contain_their_name),
      cmocka_unit_test(test_tune_class__problem_gives_every_field),
      cmocka_unit_test(test_tune_class__open_defaults_are_filled_in),
      cmocka_unit_test(test_tune_class__only_what_problems_can_be_passes),
      cmocka_unit_test(test_tune_class__text_holds_the_largest),
  };
  return cmocka_run_group_tests_name("tune_class", tests, NULL, NULL);
}
