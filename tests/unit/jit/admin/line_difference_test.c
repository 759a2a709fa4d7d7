/* The first line in which two texts differ, as `kjit cache why` shows it. */
#include "jit/admin/line_difference.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static struct line_difference found(const char *left, const char *right) {
  struct line_difference difference;
  line_difference_find(&difference, left, strlen(left), right, strlen(right));
  return difference;
}

static void test_line_difference__equal_texts_have_none(void **state) {
  (void)state;
  assert_int_equal(0, found("a\nb\n", "a\nb\n").line);
  assert_int_equal(0, found("", "").line);
}

static void test_line_difference__is_the_first_line_that_differs(void **state) {
  (void)state;
  const struct line_difference difference = found("a\nsame one\nx\n", "a\nsame two\ny\n");
  assert_int_equal(2, difference.line);
  assert_string_equal("same one", difference.left.text);
  assert_string_equal("same two", difference.right.text);
}

static void test_line_difference__an_end_of_the_file_is_a_missing_line(void **state) {
  (void)state;
  struct line_difference difference = found("a\n", "a\nb\n");
  assert_int_equal(2, difference.line);
  assert_true(difference.left.missing);
  assert_false(difference.right.missing);
  assert_string_equal("b", difference.right.text);
  difference = found("", "x");
  assert_int_equal(1, difference.line);
  assert_true(difference.left.missing);
}

static void test_line_difference__an_empty_line_is_not_missing(void **state) {
  (void)state;
  const struct line_difference difference = found("a\n\n", "a\n");
  assert_int_equal(2, difference.line);
  assert_false(difference.left.missing);
  assert_true(difference.right.missing);
  assert_string_equal("", difference.left.text);
}

static void test_line_difference__the_end_of_the_last_line_is_shown_if_it_alone_differs(void **state) {
  (void)state;
  const struct line_difference difference = found("a\nb", "a\nb\n");
  assert_int_equal(2, difference.line);
  assert_string_equal("b", difference.left.text);
  assert_string_equal("b\\n", difference.right.text);
}

static void test_line_difference__a_very_long_line_is_shown_around_its_difference(void **state) {
  (void)state;
  enum { BYTES = 1 << 20 };
  char *left = malloc(BYTES), *right = malloc(BYTES);
  assert_true(left && right);
  memset(left, 'x', BYTES);
  memset(right, 'x', BYTES);
  right[BYTES / 2] = 'y';
  struct line_difference difference;
  line_difference_find(&difference, left, BYTES, right, BYTES);
  free(left);
  free(right);
  assert_int_equal(1, difference.line);
  assert_true(strlen(difference.left.text) < 2 * LINE_SHOWN_BYTES);
  assert_null(strchr(difference.left.text, 'y'));
  assert_non_null(strchr(difference.right.text, 'y'));
  assert_memory_equal("…x", difference.right.text, strlen("…x"));
  assert_string_equal("x…", difference.right.text + strlen(difference.right.text) - strlen("x…"));
}

static void test_line_difference__binary_bytes_are_escaped(void **state) {
  (void)state;
  const struct line_difference difference = found("\x1b[31m\xff\xc3\xa9\t\r|\x7f", "\x80\xe2\x82");
  assert_string_equal("\\x1b[31m\\xff\xc3\xa9\\t\\x0d|\\x7f", difference.left.text);
  assert_string_equal("\\x80\\xe2\\x82", difference.right.text);
}

/* Whatever the bytes are, what is shown fits, is printable and has a difference in it. */
static void test_line_difference__any_bytes_fit(void **state) {
  (void)state;
  unsigned seed = 1;
  for (int round = 0; round < 2000; round++) {
    char left[700], right[700];
    for (size_t i = 0; i < sizeof left; i++) {
      seed = seed * 1103515245u + 12345u;
      left[i] = (char)((round & 1 ? 0x80 : 0) | (seed >> 16));
    }
    memcpy(right, left, sizeof right);
    right[seed % sizeof right] ^= 0x11;
    struct line_difference difference;
    line_difference_find(&difference, left, sizeof left, right, sizeof right);
    assert_true(difference.line > 0);
    assert_true(strlen(difference.left.text) < LINE_TEXT_BYTES && strlen(difference.right.text) < LINE_TEXT_BYTES);
    assert_string_not_equal(difference.left.text, difference.right.text);
    for (const char *at = difference.left.text; *at; at++)
      assert_true((unsigned char)*at >= 0x20 && *at != 0x7F);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_difference__equal_texts_have_none),
      cmocka_unit_test(test_line_difference__is_the_first_line_that_differs),
      cmocka_unit_test(test_line_difference__an_end_of_the_file_is_a_missing_line),
      cmocka_unit_test(test_line_difference__an_empty_line_is_not_missing),
      cmocka_unit_test(test_line_difference__the_end_of_the_last_line_is_shown_if_it_alone_differs),
      cmocka_unit_test(test_line_difference__a_very_long_line_is_shown_around_its_difference),
      cmocka_unit_test(test_line_difference__binary_bytes_are_escaped),
      cmocka_unit_test(test_line_difference__any_bytes_fit),
  };
  return cmocka_run_group_tests_name("line_difference", tests, NULL, NULL);
}
