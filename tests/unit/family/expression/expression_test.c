#include "family/expression/expression.h"

#include "support/test.h"

#include <inttypes.h>
#include <string.h>

/* Fields, derived constants and parameters of no family, for the language alone. */
static const char *const fields[] = {"a", "b", "dtype", "mode"};
static const char *const derived[] = {"twice"};
static const char *const parameters[] = {"m", NULL};
static const struct expression_label labels[] = {{"none", 3, 0}, {"bias", 3, 1}, {"none", 1, 7}};
static const int32_t field_values[] = {12, -5, 15, 1};
static const int64_t derived_values[] = {24};
static const int64_t parameter_values[] = {1000, 0};
static const int64_t limits[LIMIT_COUNT] = {90, 1, 132, 232448};
static const struct expression_values values = {field_values, derived_values, parameter_values, limits};

struct outcome {
  kjit_status parsed, evaluated;
  int64_t value;
  struct expression expression;
  kjit_error error;
};

static struct outcome run(const char *text, unsigned may) {
  const struct expression_scope scope = {.fields = fields,
                                         .field_count = 4,
                                         .derived = derived,
                                         .derived_count = 1,
                                         .parameters = parameters,
                                         .parameter_count = 2,
                                         .labels = labels,
                                         .label_count = 3,
                                         .dtype_fields = 1u << 2,
                                         .may = may};
  const struct expression_source source = {text, "rules[0]", "toy.yaml", 7, 12};
  struct outcome outcome = {0};
  struct mem mem;
  struct arena arena;
  (void)mem_init(&mem, NULL);
  arena_init(&arena, &mem, ARENA_UNLIMITED);
  outcome.parsed = expression_parse(&outcome.expression, &arena, &scope, &source, &outcome.error);
  if (outcome.parsed == KJIT_OK)
    outcome.evaluated = expression_evaluate(&outcome.expression, &values, &outcome.value, &outcome.error);
  arena_finish(&arena);
  return outcome;
}

static void check_value(const char *text, int64_t expected) {
  const struct outcome outcome = run(text, EXPRESSION_MAY_CALL | EXPRESSION_MAY_PLACE);
  if (outcome.parsed != KJIT_OK || outcome.evaluated != KJIT_OK || outcome.value != expected)
    print_error("%s = %" PRId64 ", expected %" PRId64 " %s\n", text, outcome.value, expected, outcome.error.message);
  assert_int_equal(outcome.parsed, KJIT_OK);
  assert_int_equal(outcome.evaluated, KJIT_OK);
  assert_true(outcome.value == expected);
}

static void check_refusal(const char *text, const char *part) {
  const struct outcome outcome = run(text, 0);
  if (outcome.parsed != KJIT_ERR_PARSE) print_error("%s was taken\n", text);
  assert_int_equal(outcome.parsed, KJIT_ERR_PARSE);
  assert_contains(outcome.error.message, part);
}

static void check_failure(const char *text, const char *part) {
  const struct outcome outcome = run(text, EXPRESSION_MAY_CALL);
  assert_status(KJIT_OK, outcome.parsed, &outcome.error);
  assert_int_equal(outcome.evaluated, KJIT_ERR_INVALID_CONFIG);
  assert_true(outcome.value == 0);
  assert_contains(outcome.error.message, part);
}

static void test_expression__names_have_their_values(void **state) {
  (void)state;
  check_value("a", 12);
  check_value("b", -5);
  check_value("twice", 24);
  check_value("m", 1000);
  check_value("sm", 90);
  check_value("arch_specific", 1);
  check_value("sm_count", 132);
  check_value("shared_per_block", 232448);
  check_value("true + false", 1);
  check_value("mode == bias", 1);
  check_value("mode.none", 0);
  check_value("b.none", 7);
  check_value("bf16", 15);
  check_value("dtype == bf16", 1);
}

static void test_expression__precedence_is_as_documented(void **state) {
  (void)state;
  check_value("2 + 3 * 4", 14);
  check_value("(2 + 3) * 4", 20);
  check_value("20 - 5 - 3", 12);
  check_value("100 / 10 / 2", 5);
  check_value("1 << 2 + 1", 8);
  check_value("6 & 3 == 2", 1);
  check_value("1 | 2 ^ 3 & 1", 3);
  check_value("not 1 == 2", 1);
  check_value("!1 == 0", 1);
  check_value("not not 5", 1);
  check_value("1 or 0 and 0", 1);
  check_value("0 ? 1 : 0 ? 2 : 3", 3);
  check_value("1 ? 2 : 0 ? 2 : 3", 2);
  check_value("1 < 2 ? 5 : 6", 5);
  check_value("- 3 * - 2", 6);
  check_value("~0", -1);
  check_value("1 && 2", 1);
  check_value("0 || 7", 1);
  check_value("1 < 2 and 2 < 3", 1);
  check_value("0x1F", 31);
}

static void test_expression__functions_compute(void **state) {
  (void)state;
  check_value("min(3, 1, 2)", 1);
  check_value("max(3, 1, 2)", 3);
  check_value("divup(7, 4)", 2);
  check_value("divup(8, 4)", 2);
  check_value("divup(-7, 4)", -1);
  check_value("roundup(7, 4)", 8);
  check_value("roundup(-7, 4)", -4);
  check_value("abs(b)", 5);
  check_value("is_pow2(64) + is_pow2(0) + is_pow2(-2) + is_pow2(6)", 1);
  check_value("log2(1) + log2(64) + log2(65)", 12);
  check_value("sizeof(dtype)", 2);
  check_value("sizeof(fp32) + sizeof(int8)", 5);
}

static void test_expression__division_truncates_as_in_c(void **state) {
  (void)state;
  check_value("-7 / 2", -3);
  check_value("-7 % 2", -1);
  check_value("(-9223372036854775807 - 1) % -1", 0);
  check_value("-8 >> 1", -4);
  check_value("-1 >> 63", -1);
  check_value("-1 << 63", INT64_MIN);
}

static void test_expression__what_does_not_decide_is_not_evaluated(void **state) {
  (void)state;
  check_value("0 and 1 / 0", 0);
  check_value("1 or 1 / 0", 1);
  check_value("1 ? 2 : 1 / 0", 2);
  check_value("0 ? 1 / 0 : 3", 3);
}

static void test_expression_evaluate__what_has_no_value_is_an_error(void **state) {
  (void)state;
  check_failure("1 / (a - 12)", "toy.yaml:7:14: rules[0]: 1 / 0 is a division by zero");
  check_failure("1 % 0", "division by zero");
  check_failure("9223372036854775807 + 1", "9223372036854775807 + 1 does not fit 64 bits");
  check_failure("-9223372036854775807 - 2", "does not fit 64 bits");
  check_failure("9223372036854775807 * 2", "does not fit 64 bits");
  check_failure("-(-9223372036854775807 - 1)", "does not fit 64 bits");
  check_failure("abs(-9223372036854775807 - 1)", "does not fit 64 bits");
  check_failure("(-9223372036854775807 - 1) / -1", "does not fit 64 bits");
  check_failure("1 << 64", "shifts are by 0 to 63");
  check_failure("1 << -1", "shifts are by 0 to 63");
  check_failure("1 << 63", "does not fit 64 bits");
  check_failure("log2(0)", "numbers of at least 1");
  check_failure("divup(1, 0)", "the unit must be at least 1");
  check_failure("roundup(9223372036854775807, 2)", "does not fit 64 bits");
}

static void test_expression_parse__faults_are_sentences(void **state) {
  (void)state;
  check_refusal("", "expected a value, found the end");
  check_refusal("1 +", "expected a value, found the end");
  check_refusal("(1", "expected \")\", found the end");
  check_refusal("1 2", "expected an operator or the end, found \"2\"");
  check_refusal("a = 1", "equality is written ==");
  check_refusal("0 < a < 5", "comparisons do not chain");
  check_refusal("a $ 1", "'$' means nothing in an expression");
  check_refusal("\x01", "byte 0x01");
  check_refusal("1.5", "numbers are whole");
  check_refusal("12abc", "end before a letter");
  check_refusal("0x", "behind 0x");
  check_refusal("9223372036854775808", "does not fit 64 bits");
  check_refusal("min(1)", "min takes 2 to 16 numbers");
  check_refusal("abs(1, 2)", "abs takes one number");
  check_refusal("divup(1, 2, 3)", "divup takes two numbers");
  check_refusal("floor(1)", "no function has this name");
  check_refusal("sizeof(a)", "sizeof takes a dtype field or a dtype");
  check_refusal("1 + not 0", "expected a value, found \"not\"");
}

static void test_expression_parse__error_names_file_line_and_column(void **state) {
  (void)state;
  check_refusal("a + oops", "toy.yaml:7:16: rules[0]: nothing is called \"oops\" here");
}

static void test_expression_parse__misspelt_name_suggests_the_nearest(void **state) {
  (void)state;
  check_refusal("twcie", "did you mean \"twice\"?");
  check_refusal("Dtype", "did you mean \"dtype\"?");
  check_refusal("xyzzy_nothing", "nothing is called");
}

static void test_expression_parse__names_out_of_place_say_why(void **state) {
  (void)state;
  check_refusal("m > 1", "\"m\" is a parameter of the call");
  check_refusal("sm_count > 1", "\"sm_count\" is a number of the card");
  check_refusal("none", "write it as field.value");
  assert_int_equal(run("sm_count", EXPRESSION_MAY_SMS).parsed, KJIT_OK);
  assert_int_equal(run("sm", EXPRESSION_MAY_SMS).parsed, KJIT_ERR_PARSE);
}

static void repeat(char *out, const char *piece, size_t times, const char *end) {
  *out = '\0';
  for (size_t i = 0; i < times; i++)
    strcat(out, piece);
  strcat(out, end);
}

static void test_expression_parse__length_and_depth_are_bounded(void **state) {
  (void)state;
  char text[4096];
  repeat(text, "(", 31, "1");
  for (int i = 0; i < 31; i++)
    strcat(text, ")");
  assert_int_equal(run(text, 0).parsed, KJIT_ERR_PARSE); /* each parenthesis is two levels */
  repeat(text, "(", 14, "1");
  for (int i = 0; i < 14; i++)
    strcat(text, ")");
  check_value(text, 1);
  repeat(text, "-", 500, "1");
  check_refusal(text, "nests more than 32 deep");
  repeat(text, "not ", 400, "1");
  check_refusal(text, "nests more than 32 deep");
  repeat(text, "1+", 200, "1");
  check_refusal(text, "more than 256 operations");
  repeat(text, "1 ", 1500, "");
  check_refusal(text, "longer than 2000 bytes");
}

static void test_expression_parse__uses_are_noted(void **state) {
  (void)state;
  const struct outcome outcome = run("a + twice > 0 or b == m", EXPRESSION_MAY_CALL);
  assert_int_equal(outcome.expression.fields, 3);
  assert_int_equal(outcome.expression.derived, 1);
  assert_int_equal(outcome.expression.parameters, 1);
  assert_int_equal(outcome.expression.limits, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_expression__names_have_their_values),
      cmocka_unit_test(test_expression__precedence_is_as_documented),
      cmocka_unit_test(test_expression__functions_compute),
      cmocka_unit_test(test_expression__division_truncates_as_in_c),
      cmocka_unit_test(test_expression__what_does_not_decide_is_not_evaluated),
      cmocka_unit_test(test_expression_evaluate__what_has_no_value_is_an_error),
      cmocka_unit_test(test_expression_parse__faults_are_sentences),
      cmocka_unit_test(test_expression_parse__error_names_file_line_and_column),
      cmocka_unit_test(test_expression_parse__misspelt_name_suggests_the_nearest),
      cmocka_unit_test(test_expression_parse__names_out_of_place_say_why),
      cmocka_unit_test(test_expression_parse__length_and_depth_are_bounded),
      cmocka_unit_test(test_expression_parse__uses_are_noted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
