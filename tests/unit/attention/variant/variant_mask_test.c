/* Masks by row intervals and on ranges, against a condition in C for every query and key. */
#include "variant_masks.h"

#include <stdio.h>
#include <string.h>

struct mask_case {
  const char *name, *text;
  size_t intervals;
  bool (*seen)(int b, int q, int k);
  bool is_exact;
};

#define FUNCTION(name, text, intervals, condition, exact)                                                              \
  static bool is_seen_##name(int b, int q, int k) {                                                                    \
    (void)b, (void)q, (void)k;                                                                                         \
    return condition;                                                                                                  \
  }
VARIANT_MASKS(FUNCTION)

static const struct mask_case cases[] = {
#define CASE(name, text, intervals, condition, exact) {#name, text, intervals, is_seen_##name, exact},
    VARIANT_MASKS(CASE)};

#define CASE_COUNT (sizeof cases / sizeof *cases)

static void test_variant_mask__agrees_with_its_meaning_everywhere(void **state) {
  (void)state;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    struct variant_made made = variant_must_make(NULL, cases[i].text);
    for (int b = 0; b < BATCH; b++)
      for (int q = 0; q < SEQ; q++)
        for (int k = 0; k < SEQ; k++) {
          const struct variant_place place = {b, 0, q, k};
          const bool seen = cases[i].seen(b, q, k);
          if (variant_mask_at(made.variant, &made.arguments, &place) != seen ||
              variant_mask_tree_at(made.variant, &made.arguments, &place) != seen)
            fail_msg("%s: b %d, q %d, k %d should be %d", cases[i].name, b, q, k, seen);
        }
    kjit_attention_variant_free(made.variant);
  }
}

static void test_variant_mask__has_the_intervals_that_it_can_have(void **state) {
  (void)state;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    struct variant_made made = variant_must_make(NULL, cases[i].text);
    if (made.variant->intervals.count != cases[i].intervals)
      fail_msg("%s: %zu intervals, expected %zu", cases[i].name, made.variant->intervals.count, cases[i].intervals);
    kjit_attention_variant_free(made.variant);
  }
}

/* How many of a block's keys are seen. */
static int count_seen(const struct mask_case *mask, const struct variant_block *block) {
  int count = 0;
  for (int q = block->q0; q < block->q1; q++)
    for (int k = block->k0; k < block->k1; k++)
      count += mask->seen(block->b, q, k);
  return count;
}

static void check_blocks(const struct mask_case *mask, const struct variant_made *made, int rows, int keys) {
  int known = 0, sure = 0;
  for (int b = 0; b < BATCH; b++)
    for (int q = 0; q < SEQ; q += rows)
      for (int k = 0; k < SEQ; k += keys) {
        const struct variant_block block = {
            b, 0, q, q + rows < SEQ ? q + rows : SEQ, k, k + keys < SEQ ? k + keys : SEQ};
        const int seen = count_seen(mask, &block);
        const int all = (block.q1 - block.q0) * (block.k1 - block.k0);
        const int answer = variant_block_at(made->variant, &made->arguments, &block);
        if ((answer == 0 && seen != 0) || (answer == 2 && seen != all))
          fail_msg("%s: block q %d, k %d of %d x %d is said to be %d, and %d of %d keys are seen", mask->name, q, k,
                   rows, keys, answer, seen, all);
        sure += answer != 1;
        known += seen == 0 || seen == all;
      }
  if (mask->is_exact && sure < known && rows >= 16)
    fail_msg("%s: %d of %d empty and full blocks of %d x %d are found", mask->name, sure, known, rows, keys);
}

static void test_variant_mask__blocks_are_never_wrong_and_mostly_found(void **state) {
  static const int sizes[][2] = {{64, 32}, {32, 16}, {16, 16}, {1, 1}, {160, 7}};
  (void)state;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    struct variant_made made = variant_must_make(NULL, cases[i].text);
    for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
      check_blocks(&cases[i], &made, sizes[j][0], sizes[j][1]);
    kjit_attention_variant_free(made.variant);
  }
}

static void test_variant_mask__a_bound_at_the_end_of_the_integers_is_no_bound(void **state) {
  (void)state;
  struct variant_made made = variant_must_make(NULL, "k - q <= W and q - k <= P");
  made.arguments.scalars[0] = made.arguments.scalars[1] = INT32_MAX;
  for (int q = 0; q < SEQ; q++) {
    const struct variant_place row = {0, 0, q, 0};
    int32_t lo, hi;
    variant_interval_at(made.variant, &made.arguments, 0, &row, &lo, &hi);
    assert_int_equal(0, lo);
    assert_int_equal(SEQ, hi);
  }
  kjit_attention_variant_free(made.variant);
}

static void test_variant_mask__minus_infinity_in_a_score_is_a_mask(void **state) {
  static const char *const scores[] = {"where(q >= k, score, -inf)", "score + where(q >= k, 0, -inf)",
                                       "where(k > q, -inf, score)", "q >= k ? score : -inf"};
  (void)state;
  for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) {
    struct variant_made made = variant_must_make(scores[i], NULL);
    assert_true(made.variant->class.is_identity);
    assert_int_equal(1, made.variant->intervals.count);
    kjit_attention_variant_free(made.variant);
  }
  struct variant_made made = variant_must_make("where(q - k <= W, 2 * score, -inf)", "q >= k");
  assert_false(made.variant->class.is_identity);
  assert_true(made.variant->class.is_affine);
  assert_int_equal(1, made.variant->intervals.count);
  kjit_attention_variant_free(made.variant);
}

/* The same sum again and again: each node has two ways to it, and the first one has 2^60. */
static void test_variant_mask__of_parts_that_are_used_again_is_found_once(void **state) {
  char text[4000] = "let x0 = where(q >= k, score, -inf)";
  (void)state;
  for (int i = 0; i < 60; i++)
    sprintf(text + strlen(text), "; let x%d = x%d + x%d", i + 1, i, i);
  strcat(text, "; x60");
  struct variant_made made = variant_must_make(text, NULL);
  assert_true(made.variant->class.is_affine);
  assert_int_equal(1, made.variant->intervals.count);
  kjit_attention_variant_free(made.variant);
}

static void test_variant_mask__that_is_always_true_is_none(void **state) {
  (void)state;
  struct variant_made made = variant_must_make(NULL, "true or q > k");
  assert_int_equal(VARIANT_NONE, made.variant->mask);
  kjit_attention_variant_free(made.variant);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_variant_mask__agrees_with_its_meaning_everywhere),
      cmocka_unit_test(test_variant_mask__has_the_intervals_that_it_can_have),
      cmocka_unit_test(test_variant_mask__blocks_are_never_wrong_and_mostly_found),
      cmocka_unit_test(test_variant_mask__a_bound_at_the_end_of_the_integers_is_no_bound),
      cmocka_unit_test(test_variant_mask__minus_infinity_in_a_score_is_a_mask),
      cmocka_unit_test(test_variant_mask__of_parts_that_are_used_again_is_found_once),
      cmocka_unit_test(test_variant_mask__that_is_always_true_is_none),
  };
  return cmocka_run_group_tests(tests, variant_data_setup, NULL);
}
