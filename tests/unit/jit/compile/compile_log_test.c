#include "jit/compile/compile_internal.h"
#include "support/test.h"

static void assert_rewritten(const char *log, const char *expected) {
  char *const copy = strdup(log);
  compile_log_rewrite(copy);
  assert_string_equal(expected, copy);
  free(copy);
}

/* As NVRTC 13.0 gives it. */
static void test_compile_log__name_expression_stands_in_for_the_hidden_file(void **state) {
  (void)state;
  assert_rewritten("k.cu(3): warning: careful\n"
                   "\n"
                   "__nv_name_map(2): error: identifier \"nope\" is undefined\n"
                   "  #pragma nv_mangled_name nope\n"
                   "                          ^\n"
                   "\n"
                   "__nv_name_map(2): error: Error in parsing name expression for lowered name lookup. Input name "
                   "expression was: \" nope\"\n"
                   "  #pragma nv_mangled_name nope\n"
                   "                          ^\n"
                   "\n"
                   "2 errors detected in the compilation of \"k.cu\".\n",
                   "k.cu(3): warning: careful\n"
                   "\n"
                   "name expression \"nope\": error: identifier \"nope\" is undefined\n"
                   "2 errors detected in the compilation of \"k.cu\".\n");
}

static void test_compile_log__other_logs_stay(void **state) {
  (void)state;
  assert_rewritten("", "");
  assert_rewritten("a.cu(1): error: x\n  y\n  ^\n\n", "a.cu(1): error: x\n  y\n  ^\n\n");
  assert_rewritten("no newline", "no newline");
}

static void test_compile_log__cut_at_every_length_is_survived(void **state) {
  (void)state;
  static const char log[] = "__nv_name_map(2): error: x\n  #pragma nv_mangled_name n::k<4>\n    ^\n\nend\n";
  for (size_t bytes = 0; bytes < sizeof log; bytes++) {
    char *const copy = calloc(1, bytes + 1);
    memcpy(copy, log, bytes);
    compile_log_rewrite(copy);
    assert_true(strlen(copy) <= bytes);
    free(copy);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compile_log__name_expression_stands_in_for_the_hidden_file),
      cmocka_unit_test(test_compile_log__other_logs_stay),
      cmocka_unit_test(test_compile_log__cut_at_every_length_is_survived),
  };
  return cmocka_run_group_tests_name("compile_log", tests, NULL, NULL);
}
