#include "base/log.h"
#include "support/test.h"

struct heard {
  int lines;
  kjit_log_level level;
  char line[2048];
};

static void hear(void *user, kjit_log_level level, const char *line) {
  struct heard *heard = user;
  heard->lines++;
  heard->level = level;
  snprintf(heard->line, sizeof heard->line, "%s", line);
}

static void test_log__line_reaches_the_callback(void **state) {
  (void)state;
  struct heard heard = {0};
  const struct log log = {hear, &heard, KJIT_LOG_DEBUG};
  log_write(&log, KJIT_LOG_WARNING, "%s is %d", "x", 3);
  assert_int_equal(1, heard.lines);
  assert_int_equal(KJIT_LOG_WARNING, heard.level);
  assert_string_equal("x is 3", heard.line);
}

static void test_log__lines_above_the_level_are_dropped(void **state) {
  (void)state;
  struct heard heard = {0};
  const struct log log = {hear, &heard, KJIT_LOG_WARNING};
  log_write(&log, KJIT_LOG_INFO, "dropped");
  assert_int_equal(0, heard.lines);
  log_write(&log, KJIT_LOG_ERROR, "kept");
  assert_int_equal(1, heard.lines);
}

static void test_log__silence_needs_no_callback(void **state) {
  (void)state;
  const struct log silent = {0};
  log_write(&silent, KJIT_LOG_ERROR, "nobody hears it");
  log_write(NULL, KJIT_LOG_ERROR, "nobody hears it");
}

static void test_log__newlines_become_spaces(void **state) {
  (void)state;
  struct heard heard = {0};
  const struct log log = {hear, &heard, KJIT_LOG_DEBUG};
  log_write(&log, KJIT_LOG_ERROR, "a\nb");
  assert_string_equal("a b", heard.line);
}

static void test_log__long_line_is_cut(void **state) {
  (void)state;
  struct heard heard = {0};
  const struct log log = {hear, &heard, KJIT_LOG_DEBUG};
  log_write(&log, KJIT_LOG_ERROR, "%01500d", 1);
  assert_int_equal(1023, strlen(heard.line));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_log__line_reaches_the_callback),
      cmocka_unit_test(test_log__lines_above_the_level_are_dropped),
      cmocka_unit_test(test_log__silence_needs_no_callback),
      cmocka_unit_test(test_log__newlines_become_spaces),
      cmocka_unit_test(test_log__long_line_is_cut),
  };
  return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
