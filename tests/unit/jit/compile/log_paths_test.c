#include "jit/compile/log_paths.h"

#include "support/test.h"

static const struct source_file files[] = {
    {.name = "k.cu", .path = "k.cu"},
    {.name = "a.h", .path = "/inc/a.h"},
    {.name = "a.h@2", .path = "/other/a.h"},
    {.name = "b.h", .path = "b.h"},
};

static void assert_shown(const char *expected, const char *log) {
  static const struct source_set set = {.files = files, .count = 4};
  struct mem mem;
  assert_true(mem_init(&mem, NULL));
  char *text = mem_strdup(&mem, log);
  log_paths_show(&text, &set, &mem);
  assert_string_equal(expected, text);
  mem_free(&mem, text);
}

static void test_log_paths__names_in_front_of_a_line_number_become_paths(void **state) {
  (void)state;
  assert_shown("/inc/a.h(3): error: x\n  #include \"q\"\n", "a.h(3): error: x\n  #include \"q\"\n");
  assert_shown("/other/a.h(12): warning", "a.h@2(12): warning");
}

static void test_log_paths__names_of_a_line_told_become_paths(void **state) {
  (void)state;
  assert_shown("  detected at line 4 of /inc/a.h\n", "  detected at line 4 of a.h\n");
}

static void test_log_paths__other_text_stays(void **state) {
  (void)state;
  assert_shown("", "");
  assert_shown("k.cu(1): f(2) of x\nb.h(1): y\na.h: z\na.hh(1)\n(3)\n",
               "k.cu(1): f(2) of x\nb.h(1): y\na.h: z\na.hh(1)\n(3)\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_log_paths__names_in_front_of_a_line_number_become_paths),
      cmocka_unit_test(test_log_paths__names_of_a_line_told_become_paths),
      cmocka_unit_test(test_log_paths__other_text_stays),
  };
  return cmocka_run_group_tests_name("log_paths", tests, NULL, NULL);
}
