/* The language of variants: what texts mean, what is refused and with which words, and what decides the digest. */
#include "variant_fixture.h"

#include <stdio.h>
#include <stdlib.h>

static double score_of(const char *text, double score, int b, int h, int q, int k) {
  struct variant_made made = variant_must_make(text, NULL);
  const struct variant_place place = {b, h, q, k};
  const double value = variant_score_at(made.variant, &made.arguments, score, &place);
  kjit_attention_variant_free(made.variant);
  return value;
}

static void check(const char *text, double expected) {
  const double value = score_of(text, 0.5, 1, 2, 7, 10);
  if (value != expected) fail_msg("%s = %.17g, expected %.17g", text, value, expected);
}

static void refuse(const char *score, const char *mask, const char *place, const char *part) {
  struct variant_made made = variant_make(score, mask);
  if (made.status == KJIT_OK) fail_msg("%s / %s was taken", score ? score : "", mask ? mask : "");
  assert_int_equal(KJIT_ERR_PARSE, made.status);
  assert_null(made.variant);
  assert_contains(made.error.message, place);
  assert_contains(made.error.message, part);
}

static void test_variant_language__arithmetic_rounds_down_and_wraps(void **state) {
  (void)state;
  check("float((q - k) // 2)", -2);
  check("float((q - k) % 5)", 2);
  check("float(-7 // 2) + float(-7 % 2)", -4 + 1);
  check("float(q // (k - 10))", 7); /* a divisor below 1 counts as 1 */
  check("float(2147483647 + q)", -2147483642);
  check("float((q << 30) * 4 + q)", 7);
  check("float(q << (k + 24))", 28); /* by 34 modulo 32 */
  check("float((q - k) >> 1)", -2);
  check("float(q & 5) + float(q | 8) + float(q ^ 1) + float(~q)", 5 + 15 + 6 - 8);
  check("(0.0 - 7.0) // 2.0", -4);
  check("-7.5 % 2 + 0.0 * score", 0.5);
}

static void test_variant_language__operators_bind_as_in_python(void **state) {
  (void)state;
  check("2 + 3 * 4.0", 14);
  check("-2.0 ** 2", -4);
  check("2.0 ** 3.0 ** 0.0", 2);
  check("float(1 | 2 & 3 << 1)", 3);
  check("where(q >= 7 and not k < 10 or false, 1.0, 0.0)", 1);
  check("q > 3 ? k > 20 ? 1.0 : 2.0 : 3.0", 2);
  check("where((q == 7) & (k != 7) ^ (q > 100), 1, 0)", 1);
}

static void test_variant_language__functions_have_their_values(void **state) {
  (void)state;
  check("abs(q - k) + abs(0.0 - score)", 3.5);
  check("min(q, k, 3) + max(score, 0.25, -1.0)", 3.5);
  check("clamp(q, 8, 9) + clamp(score, 0.75, 1)", 8.75);
  check("relu(score) + relu(-score) + floor(score) + sqrt(score * 0.5)", 1);
  check("exp2(score * 4) + log2(score) + pow(score, 2)", 3.25);
  check("exp(0.0) + log(1.0) + tanh(0.0) + tanh_exact(0.0) + sigmoid(0.0) + erf(0.0) + rsqrt(4.0)", 2);
  check("gelu(0.0) + int(2.9) + int(-2.9) + float(bool(q)) + float(q > 3)", 2);
  check("where(any(i, 4, q == i + 5), 1, 0) + where(all(i, 4, q > i + 5), 1, 0)", 1);
}

static void test_variant_language__names_are_those_of_the_problem(void **state) {
  (void)state;
  check("b + 10 * h + 100.0 * q + 1000 * k", 1 + 20 + 700 + 10000);
  check("seq_q + seq_kv + heads_q + heads_kv + hk + 0.0", SEQ + SEQ + HEADS + 1 + 0);
  check("let d = q - k; let e = d * d; e + d + 0.0", 6);
  check("C / W + P + OFF", 30.0 / 20 + 30 + 13);
}

static void test_variant_language__indices_chain_and_are_clamped(void **state) {
  (void)state;
  check("bias[b, h, q, k]", data.bias[2][7][10]);
  check("bias[b][h][q, k]", data.bias[2][7][10]);
  check("t[q - 100] + t[k + 1000]", data.t[0] + data.t[SEQ - 1]);
  check("float(iv[img[k]][0])", data.iv[data.img[10]][0]);
  check("t[off[doc[q]]] + float(g[q])", (double)data.t[0] + 1);
}

static void test_variant_language__errors_say_where_and_what_instead(void **state) {
  (void)state;
  refuse(NULL, "q >= kv_idx", "model.py:10:6: mask: ", "write k");
  refuse(NULL, "q >=\n  k if q else k", "model.py:11:5: mask: ", "expected an operator or the end, found \"if\"");
  refuse(NULL, "if q", "model.py:10:1", "write where(condition, a, b)");
  refuse(NULL, "q < k < 3", "model.py:10:7", "a < b and b < c");
  refuse(NULL, "q - k <= W & (q >= k)", "model.py:10:12", "parentheses");
  refuse(NULL, "score > 0", "model.py:10:1", "score belongs to the score function");
  refuse(NULL, "q - k", "model.py:10:1", "a mask is a condition");
  refuse("q > k", NULL, "model.py:10:1: score: ", "a score is a number");
  refuse("score + slop[h] * slope[h]", NULL, "model.py:10:9", "did you mean slope");
  refuse("score + slope[h, q]", NULL, "model.py:10:18", "no axis left");
  refuse("score + bias[h, q]", NULL, "model.py:10:9", "bias has 4 axes");
  refuse("score + t[score]", NULL, "model.py:10:11", "write int(x)");
  refuse("score + t[-1]", NULL, "model.py:10:11", "indices count from 0");
  refuse("softmax(score)", NULL, "model.py:10:1", "no function is called \"softmax\": there are where, min, max");
  refuse("softmax(score)", NULL, "model.py:10:1", "tanh, tanh_exact, sigmoid");
  refuse("softmax(score)", NULL, "model.py:10:1", "bool, any, all");
  refuse("tahn(score)", NULL, "model.py:10:1", "no function is called \"tahn\": did you mean tanh?");
  refuse("dot(q, k)", NULL, "model.py:10:1", "more columns of q and k");
  refuse("clamp(score, 1)", NULL, "model.py:10:1", "clamp takes 3 values, and here are 2");
  refuse("float(q // 0)", NULL, "model.py:10:12", "a divisor is at least 1");
  refuse("float(q // (0 - 4))", NULL, "model.py:10:13", "a divisor is at least 1, and this is -4");
  refuse("float(q << 32)", NULL, "model.py:10:12", "0 to 31");
  refuse("score + 4294967296 * q", NULL, "model.py:10:9", "does not fit 32 bits");
  refuse("let q = 3; score", NULL, "model.py:10:5", "the name \"q\" is taken");
  refuse("let x = 3 score", NULL, "model.py:10:11", "expected \";\"");
  refuse("score + any(i, 33, q == i)", NULL, "model.py:10:16", "1 to 32");
  refuse("1.5.2", NULL, "model.py:10:4", "second point");
  refuse("1e", NULL, "model.py:10:3", "an exponent has digits");
  refuse("", NULL, "model.py:10:1", "expected a value, found the end");
}

static void test_variant_language__text_of_strangers_injects_nothing(void **state) {
  static const char *const texts[] = {
      "score; } __device__ void f() { asm(\"trap;\"); ",
      "score // */ #include \"/etc/passwd\"",
      "score \\\n#define q 0",
      "__syncthreads()",
      "score + threadIdx.x",
      "asm(\"exit;\")",
      "*(int *)0",
      "(score, printf(1))",
      "score @ 1",
      "score + \"a\"",
      "score ++ 'a'",
      "a.scalars[0]",
      "score = 3",
      "q += 1",
      "t->data",
      "\x80\xff",
  };
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct variant_made made = variant_make(texts[i], NULL);
    if (made.status != KJIT_ERR_PARSE) fail_msg("%s: %s", texts[i], kjit_status_name(made.status));
    assert_null(strchr(made.error.message, '\n'));
  }
}

/* Names of a caller that mean something in the kernel stay out of its text. */
static void test_variant_language__names_of_callers_are_not_printed(void **state) {
  const kjit_variant_scalar scalars[] = {{"lo", KJIT_VARIANT_INT32}, {"asm", KJIT_VARIANT_INT32}};
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  kjit_attention_variant *variant;
  kjit_error error;
  (void)state;
  text.mask = "let trap = q + lo; trap >= k and k != asm";
  text.scalars = scalars;
  text.scalar_count = 2;
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &error), &error);
  assert_lacks(variant->header, "trap");
  assert_lacks(variant->header, "asm");
  kjit_attention_variant_free(variant);
}

static void test_variant_language__sizes_are_capped(void **state) {
  char *const text = calloc(1, 200000);
  (void)state;
  strcpy(text, "score");
  for (int i = 0; i < 3000; i++)
    sprintf(text + strlen(text), "+%d.5*q", i);
  refuse(text, NULL, "model.py:10:", "more than 1000 operations");
  memset(text, '(', 5000);
  text[5000] = '\0';
  refuse(text, NULL, "model.py:10:51", "nests more than 100 deep, parentheses counted twice");
  memset(text, ' ', 70000);
  text[70000] = '\0';
  refuse(text, NULL, "model.py:10:1", "longer than 65536 bytes");
  refuse("score + (any(a, 32, any(c, 32, any(d, 32, any(e, 32, q > k)))) ? 1 : 0)", NULL,
         "model.py:10:", "more than 1000 operations");
  free(text);
}

static void assert_same_kernel(const char *one, const char *other, bool same) {
  struct variant_made a = variant_must_make(one, NULL), b = variant_must_make(other, NULL);
  if (digest_equal(&a.variant->digest, &b.variant->digest) != same ||
      (strcmp(a.variant->header, b.variant->header) == 0) != same)
    fail_msg("\"%s\" and \"%s\" should %sbe one kernel", one, other, same ? "" : "not ");
  kjit_attention_variant_free(a.variant);
  kjit_attention_variant_free(b.variant);
}

static void test_variant_language__numbers_and_names_do_not_decide_the_digest(void **state) {
  (void)state;
  assert_same_kernel("30.0 * tanh(score / 30.0)", "50.0 * tanh(score / 50)", true);
  assert_same_kernel("where(q - k <= 512, score, 0)", "where(q - k <= 1000, score, 0)", true);
  assert_same_kernel("let x = q - k; score + x * x", "score + (q - k) * (q - k)", true);
  assert_same_kernel("where(q - k <= 512, score, 0)", "where(q - k < 512, score, 0)", false);
  assert_same_kernel("score + float(q // 16)", "score + float(q // 32)", false);
  assert_same_kernel("score + float(q >> 3)", "score + float(q >> 4)", false);
  assert_same_kernel("score * 2", "score * 3", false);
}

/* The canonical text, read with its own names declared, is the same kernel. */
static void check_canonical(const char *score, const char *mask) {
  static const char *const names[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"};
  static const char *const tensor_names[] = {"t0", "t1", "t2", "t3"};
  struct variant_made made = variant_must_make(score, mask);
  const kjit_attention_variant *const variant = made.variant;
  kjit_variant_scalar scalars[10];
  kjit_variant_tensor tensors[4];
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  kjit_attention_variant *again;
  kjit_error error = {0};
  assert_true(variant->slots.count <= 10 && variant->tensor_count <= 4);
  for (size_t i = 0; i < variant->slots.count; i++)
    scalars[i] =
        (kjit_variant_scalar){names[i], variant->slots.types[i] == TYPE_real ? KJIT_VARIANT_FP32 : KJIT_VARIANT_INT32};
  for (size_t i = 0; i < variant->tensor_count; i++)
    tensors[i] = (kjit_variant_tensor){tensor_names[i], variant->tensor_dtypes[i], variant->tree.tensor_ranks[i]};
  char *const canonical = strdup(strstr(variant->canonical, "score: "));
  char *const line = strstr(canonical, "\nmask: ");
  *line = '\0';
  text.score = canonical + strlen("score: ");
  text.mask = line + strlen("\nmask: ");
  text.scalars = scalars;
  text.scalar_count = variant->slots.count;
  text.tensors = tensors;
  text.tensor_count = variant->tensor_count;
  assert_status(KJIT_OK, kjit_attention_variant_create(&again, &text, &error), &error);
  if (strcmp(again->canonical, variant->canonical) != 0)
    fail_msg("%s\nbecame\n%s", variant->canonical, again->canonical);
  assert_true(digest_equal(&again->digest, &variant->digest));
  assert_string_equal(again->header, variant->header);
  free(canonical);
  kjit_attention_variant_free(again);
  kjit_attention_variant_free(made.variant);
}

static void test_variant_language__canonical_text_is_the_same_variant(void **state) {
  (void)state;
  check_canonical("C * tanh(score / C) + slope[h] * (k - q)", "q - k <= 512 and q >= k");
  check_canonical("score / 2 + where(q > k, -1.0, 0) ** 2", "let d = doc[q]; d == doc[k] or abs(q - k) % 3 == 1");
  check_canonical("log(relu(score) + 0.25) % 3 + floor(score)", "k < P or (q >= k ? g[k] : pad[b, k])");
  check_canonical(NULL, "any(i, 4, (q >> i & 3) == k % 7) and not (q < 5 or (q == k) != (q > 9))");
  check_canonical("score + bias[b][h][q][k] * int(t[clamp(q - k, -3, 2147483647)])", "~q < (k << 3 ^ 255)");
}

static void test_variant_language__declarations_are_checked(void **state) {
  const kjit_variant_scalar good = {"x", KJIT_VARIANT_INT32};
  const struct {
    kjit_variant_scalar scalar;
    const char *part;
  } scalars[] = {{{"score", 1}, "scalars[0].name: \"score\" is a word"},
                 {{"1x", 1}, "identifier"},
                 {{NULL, 1}, "identifier"},
                 {{"a b", 1}, "identifier"},
                 {{"x", 0}, "scalars[0].kind"}};
  const struct {
    kjit_variant_tensor tensor;
    const char *part;
  } tensors[] = {{{"t", 9, 1}, "tensors[0].dtype: 9"}, {{"t", 6, 5}, "rank"}, {{"x", 6, 1}, "declared twice"}};
  kjit_attention_variant *variant;
  kjit_error error;
  (void)state;
  for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
    kjit_attention_variant_text text = kjit_attention_variant_text_default();
    text.scalars = &scalars[i].scalar;
    text.scalar_count = 1;
    assert_int_equal(KJIT_ERR_INVALID_ARG, kjit_attention_variant_create(&variant, &text, &error));
    assert_contains(error.message, scalars[i].part);
  }
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    kjit_attention_variant_text text = kjit_attention_variant_text_default();
    text.scalars = &good;
    text.scalar_count = 1;
    text.tensors = &tensors[i].tensor;
    text.tensor_count = 1;
    assert_int_equal(KJIT_ERR_INVALID_ARG, kjit_attention_variant_create(&variant, &text, &error));
    assert_contains(error.message, tensors[i].part);
  }
}

/* 40 numbers: the last eight found no room among the parameters and are part of the kernel. */
static void test_variant_language__more_numbers_than_parameters_are_constants(void **state) {
  char text[1200] = "score";
  double expected = 0.5;
  (void)state;
  for (int i = 0; i < 40; i++) {
    sprintf(text + strlen(text), " + %d.25", i + 3);
    expected += i + 3.25;
  }
  strcat(text, " * score");
  expected += (39 + 3.25) * (0.5 - 1);
  check(text, expected);
}

static void test_variant_language__memory_that_runs_out_is_an_error(void **state) {
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  kjit_attention_variant *variant;
  kjit_error error;
  bool succeeded = false;
  (void)state;
  text.mask = "let d = q - k; d <= 40 and d >= 0 or any(i, 3, q == i)";
  for (long call = 0; !succeeded && call < 2000; call++) {
    struct failing_allocator allocator;
    struct mem mem;
    const kjit_allocator hooks = failing_allocator_hooks(&allocator);
    failing_allocator_reset(&allocator, call);
    memset(&error, 0, sizeof error);
    assert_true(mem_init(&mem, &hooks));
    const kjit_status status = variant_create(&variant, &mem, &text, &error);
    succeeded = status == KJIT_OK;
    if (!succeeded) assert_int_equal(KJIT_ERR_NO_MEMORY, status);
    kjit_attention_variant_free(variant);
    assert_int_equal(0, atomic_load(&allocator.live));
  }
  assert_true(succeeded);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_variant_language__arithmetic_rounds_down_and_wraps),
      cmocka_unit_test(test_variant_language__operators_bind_as_in_python),
      cmocka_unit_test(test_variant_language__functions_have_their_values),
      cmocka_unit_test(test_variant_language__names_are_those_of_the_problem),
      cmocka_unit_test(test_variant_language__indices_chain_and_are_clamped),
      cmocka_unit_test(test_variant_language__errors_say_where_and_what_instead),
      cmocka_unit_test(test_variant_language__text_of_strangers_injects_nothing),
      cmocka_unit_test(test_variant_language__names_of_callers_are_not_printed),
      cmocka_unit_test(test_variant_language__sizes_are_capped),
      cmocka_unit_test(test_variant_language__numbers_and_names_do_not_decide_the_digest),
      cmocka_unit_test(test_variant_language__canonical_text_is_the_same_variant),
      cmocka_unit_test(test_variant_language__declarations_are_checked),
      cmocka_unit_test(test_variant_language__more_numbers_than_parameters_are_constants),
      cmocka_unit_test(test_variant_language__memory_that_runs_out_is_an_error),
  };
  return cmocka_run_group_tests(tests, variant_data_setup, NULL);
}
