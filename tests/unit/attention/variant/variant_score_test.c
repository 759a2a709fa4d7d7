/* Score functions: what they are made of, their affine form, and their derivative beside differences of the score. */
#include "variant_fixture.h"

#include <math.h>

static const struct score_case {
  const char *text;
  bool is_affine, is_pointwise;
  uint32_t terms;
} cases[] = {
    {"score", true, false, 0},
    {"score + (k - q) * exp2(-(h + 1) * 8.0 / heads_q)", true, false, KJIT_VARIANT_TERM_KEY | KJIT_VARIANT_TERM_ROW},
    {"score + slope[h] * (k - q)", true, false, KJIT_VARIANT_TERM_KEY | KJIT_VARIANT_TERM_ROW},
    {"score - slope[h] * abs(q + OFF - k)", true, false, KJIT_VARIANT_TERM_DISTANCE},
    {"score + 2 * h", true, false, KJIT_VARIANT_TERM_ROW},
    {"score + t[k]", true, false, KJIT_VARIANT_TERM_KEY},
    {"score + t[q] - half[k]", true, false, KJIT_VARIANT_TERM_KEY | KJIT_VARIANT_TERM_ROW},
    {"score * slope[h] + t[q]", true, true, KJIT_VARIANT_TERM_ROW},
    {"score + emb[min(int(log(float(max(abs(k - q), 1))) * 4), 31), h]", true, false, KJIT_VARIANT_TERM_DISTANCE},
    {"score + t[q - k + 80] * slope[h]", true, false, KJIT_VARIANT_TERM_DISTANCE},
    {"score + bias[b, h, q, k]", true, false, KJIT_VARIANT_TERM_TILE},
    {"score + 0.5 * bias[b][h][q][k]", true, false, KJIT_VARIANT_TERM_TILE},
    {"score + emb[sel[q // 20, k % 4], h]", true, false, KJIT_VARIANT_TERM_GATHER},
    {"C * tanh(score / C)", false, true, 0},
    {"C * tanh_exact(score / C) + slope[h] * (k - q)", false, true, KJIT_VARIANT_TERM_KEY | KJIT_VARIANT_TERM_ROW},
    {"log(gelu(score) + 1.5)", false, true, 0},
    {"log(relu(score) + 0.1)", false, true, 0},
    {"log(sigmoid(score) + 0.1)", false, true, 0},
    {"2 * score", true, true, 0},
    {"score * score", false, true, 0},
    {"score ** 3.0 + sqrt(abs(score) + 1)", false, true, 0},
    {"where(abs(q - k) <= 8, 2 * score, score)", false, false, KJIT_VARIANT_TERM_OTHER},
    {"score + float((q ^ k) & 255) * 0.01", true, false, KJIT_VARIANT_TERM_OTHER},
    {"clamp(score, -0.4, 0.6) + exp(score) * exp2(-score) + log2(score + 3)", false, true, 0},
    {"min(score, 0.2 * score) / (1 + score * score) + floor(score * 4) + score % 0.3", false, true, 0},
};

#define CASE_COUNT (sizeof cases / sizeof *cases)

static void test_variant_score__classes_are_found(void **state) {
  (void)state;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    struct variant_made made = variant_must_make(cases[i].text, NULL);
    const struct variant_score_class *const class = &made.variant->class;
    if (class->is_affine != cases[i].is_affine || class->is_pointwise != cases[i].is_pointwise ||
        class->terms != cases[i].terms)
      fail_msg("%s: affine %d, pointwise %d, terms %u", cases[i].text, class->is_affine, class->is_pointwise,
               (unsigned)class->terms);
    kjit_attention_variant_free(made.variant);
  }
}

static double run(const struct variant_made *made, const struct variant_program *program,
                  const struct variant_place *place);

/* Where a walk may begin at the largest term: it is computed without a load for each key, and not linear along a row.
 */
static void test_variant_score__terms_with_a_peak_are_told(void **state) {
  static const struct {
    const char *text;
    bool has_peak;
  } rows[] = {{"score - slope[h] * abs(q + OFF - k)", true},
              {"C * tanh(score / C) - slope[h] * abs(q + OFF - k)", true},
              {"score + 1.0 / (1 + abs(q - k))", true},
              {"score + slope[h] * (k - q)", false},
              {"score + 2 * h", false},
              {"score + t[k]", false},
              {"score + t[q - k + 80] * slope[h]", false},
              {"score + bias[b, h, q, k]", false},
              {"where(abs(q - k) <= 8, 2 * score, score)", false},
              {"C * tanh(score / C)", false}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct variant_made made = variant_must_make(rows[i].text, NULL);
    char text[2000];
    assert_status(KJIT_OK, kjit_attention_variant_explain(made.variant, text, sizeof text, NULL, &made.error),
                  &made.error);
    if (made.variant->class.has_peak != rows[i].has_peak || !strstr(text, "order: outwards") == rows[i].has_peak)
      fail_msg("%s: has a peak: %d; %s", rows[i].text, made.variant->class.has_peak, text);
    kjit_attention_variant_free(made.variant);
  }
}

static void test_variant_score__affine_form_is_the_score(void **state) {
  (void)state;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    struct variant_made made = variant_must_make(cases[i].text, NULL);
    for (int q = 0; made.variant->class.is_affine && q < SEQ; q += 7)
      for (int k = 0; k < SEQ; k += 5) {
        const struct variant_place place = {1, q % HEADS, q, k};
        const double slope = run(&made, &made.variant->programs.slope, &place);
        const double term = run(&made, &made.variant->programs.term, &place);
        const double score = variant_score_at(made.variant, &made.arguments, 0.7, &place);
        if (fabs(score - (slope * 0.7 + term)) > 1e-9) fail_msg("%s at q %d, k %d", cases[i].text, q, k);
      }
    kjit_attention_variant_free(made.variant);
  }
}

/* Functions whose values are multiplied and added to: the operation, and whether what is added is linear along a row.
 */
static const struct part_case {
  const char *text;
  int core, linear; /* linear: 2 where it is the same for all keys */
} part_cases[] = {
    {"score", 0, 2},
    {"C * tanh(score / C)", VARIANT_real_tanh, 2},
    {"C * tanh_exact(score / C) + slope[h] * (k - q)", VARIANT_real_tanh_exact, 1},
    {"slope[h] * abs(2 * score) + t[q]", VARIANT_real_absolute, 2},
    {"score - slope[h] * (q + OFF - k) / 2", 0, 1},
    {"score - slope[h] * abs(q + OFF - k)", 0, 0},
    {"score + float(k * k)", 0, 0},
    {"score + float(3 * k)", 0, 0}, /* integers wrap */
    {"score + t[k]", 0, 0},
    {"score + bias[b, h, q, k]", 0, 0},
    {"tanh(score) + tanh(2 * score)", 0, 0},
    {"tanh(score + 1)", 0, 0},
    {"t[k] * tanh(score)", 0, 0},
    {"tanh(score) * score", 0, 0},
};

static double core_of(const struct variant_score_class *class, double x) {
  if (class->core == VARIANT_real_tanh || class->core == VARIANT_real_tanh_exact) return tanh(x);
  return class->core == VARIANT_real_absolute ? fabs(x) : x;
}

static int linear_of(const struct variant_made *made) {
  const variant_node_index step = made->variant->class.step;
  if (step == VARIANT_NONE) return 0;
  return variant_is_real(&made->variant->tree, step, 0) ? 2 : 1;
}

static bool parts_are_the_score(const struct variant_made *made, const struct variant_place *place) {
  const struct variant_score_class *const class = &made->variant->class;
  const struct variant_place next = {place->b, place->h, place->q, place->k + 1};
  const double term = run(made, &made->variant->programs.term, place);
  const double inner = class->core ? run(made, &made->variant->programs.inner, place) : 1;
  const double sum = run(made, &made->variant->programs.slope, place) * core_of(class, inner * 0.7) + term;
  const double score = variant_score_at(made->variant, &made->arguments, 0.7, place);
  if (fabs(score - sum) > 1e-6) return false;
  if (class->step == VARIANT_NONE) return true;
  const double rise = run(made, &made->variant->programs.term, &next) - term;
  return fabs(rise - run(made, &made->variant->programs.step, place)) < 1e-6;
}

static void test_variant_score__parts_that_fold_are_the_score(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof part_cases / sizeof *part_cases; i++) {
    struct variant_made made = variant_must_make(part_cases[i].text, NULL);
    const struct variant_score_class *const class = &made.variant->class;
    if (class->core != part_cases[i].core || linear_of(&made) != part_cases[i].linear)
      fail_msg("%s: core %d, linear %d", part_cases[i].text, class->core, linear_of(&made));
    for (int k = 0; (class->is_affine || class->core) && k < SEQ - 1; k += 3) {
      const struct variant_place place = {1, k % HEADS, (k * 7) % SEQ, k};
      if (!parts_are_the_score(&made, &place)) fail_msg("%s at q %d, k %d", part_cases[i].text, place.q, k);
    }
    kjit_attention_variant_free(made.variant);
  }
}

static void test_variant_score__derivative_is_that_of_differences(void **state) {
  (void)state;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    struct variant_made made = variant_must_make(cases[i].text, NULL);
    for (int step_of_s = 0; step_of_s < 24; step_of_s++) {
      const double s = -2.013 + 0.171 * step_of_s;
      const struct variant_place place = {0, 1, 90, 83};
      const double step = 1e-6;
      const double above = variant_score_at(made.variant, &made.arguments, s + step, &place);
      const double below = variant_score_at(made.variant, &made.arguments, s - step, &place);
      const double grad = variant_score_grad_at(made.variant, &made.arguments, s, &place);
      const double difference = (above - below) / (2 * step);
      if (!isfinite(difference) || fabs(difference) > 1000) continue; /* log of a negative number, a step */
      if (fabs(grad - difference) > 1e-4 * (1 + fabs(difference)))
        fail_msg("%s at s = %g: %g, differences say %g", cases[i].text, s, grad, difference);
    }
    kjit_attention_variant_free(made.variant);
  }
}

static void test_variant_score__public_evaluation_gives_all_three(void **state) {
  struct variant_made made = variant_must_make("C * tanh(score / C)", "q - k <= W and q >= k");
  const float cap = 10;
  int32_t values[] = {3, 0, 0, 0};
  kjit_variant_evaluation at = {.struct_size = sizeof at, .seq_q = 50, .seq_kv = 60, .score = 4, .q = 20, .k = 18};
  kjit_error error;
  (void)state;
  memcpy(&values[3], &cap, sizeof cap);
  at.scalar_values = values;
  assert_status(KJIT_OK, kjit_attention_variant_evaluate(made.variant, &at, &error), &error);
  assert_true(fabs(at.new_score - 10 * tanh(0.4)) < 1e-6);
  assert_true(fabs(at.score_grad - (1 - tanh(0.4) * tanh(0.4))) < 1e-6);
  assert_int_equal(1, at.seen);
  at.k = 16;
  assert_status(KJIT_OK, kjit_attention_variant_evaluate(made.variant, &at, &error), &error);
  assert_int_equal(0, at.seen);
  at.scalar_values = NULL;
  assert_int_equal(KJIT_ERR_INVALID_ARG, kjit_attention_variant_evaluate(made.variant, &at, &error));
  kjit_attention_variant_free(made.variant);
}

static void test_variant_score__explanation_names_everything(void **state) {
  struct variant_made made =
      variant_must_make("50.0 * tanh(score / 50.0) + slope[h] * (k - q)", "q - k <= W and q >= k");
  char text[2000], small[8];
  size_t needed;
  kjit_error error;
  (void)state;
  assert_status(KJIT_OK, kjit_attention_variant_explain(made.variant, text, sizeof text, &needed, &error), &error);
  assert_int_equal(strlen(text) + 1, needed);
  assert_contains(text, "a function of s, plus a row term, plus a key term");
  assert_contains(text, "1 row interval");
  assert_contains(text, "t0: slope");
  assert_contains(text, "s5: 50");
  assert_int_equal(KJIT_ERR_INVALID_ARG,
                   kjit_attention_variant_explain(made.variant, small, sizeof small, &needed, &error));
  assert_status(KJIT_OK, kjit_attention_variant_explain(made.variant, NULL, 0, &needed, &error), &error);
  kjit_variant_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, kjit_attention_variant_get_info(made.variant, &info, &error), &error);
  assert_int_equal(1, info.intervals);
  assert_int_equal(2, info.literal_count);
  assert_contains(text, info.digest);
  kjit_attention_variant_free(made.variant);
}

#include "attention/variant/evaluate.h"

static double run(const struct variant_made *made, const struct variant_program *program,
                  const struct variant_place *place) {
  union variant_value results[VARIANT_RESULTS_MAX];
  variant_run(made->variant, program, &made->arguments, 0, place, results);
  return results[0].real;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_variant_score__classes_are_found),
      cmocka_unit_test(test_variant_score__terms_with_a_peak_are_told),
      cmocka_unit_test(test_variant_score__affine_form_is_the_score),
      cmocka_unit_test(test_variant_score__parts_that_fold_are_the_score),
      cmocka_unit_test(test_variant_score__derivative_is_that_of_differences),
      cmocka_unit_test(test_variant_score__public_evaluation_gives_all_three),
      cmocka_unit_test(test_variant_score__explanation_names_everything),
  };
  return cmocka_run_group_tests(tests, variant_data_setup, NULL);
}
