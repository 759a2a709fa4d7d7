#include "jit/source/condition.h"

#include <stdbool.h>

#include "support/test.h"

struct asked {
  char names[256];
};

static bool has_x(void *user, const char *name, size_t bytes, bool angled, bool next) {
  struct asked *asked = user;
  const size_t used = strlen(asked->names);
  snprintf(asked->names + used, sizeof asked->names - used, "%s%c%.*s ", next ? "next" : "", angled ? '<' : '"',
           (int)bytes, name);
  return bytes == 3 && !memcmp(name, "x.h", 3);
}

static const char *const defines[] = {
    "ONE 1",
    "EMPTY",
    "SELF SELF + 1",
    "ID(x) x",
    "CAT(a, b) a##b",
    "INDIRECT(a, b) CAT(a, b)",
    "COUNT(...) COUNT_(__VA_ARGS__, 3, 2, 1, 0)",
    "COUNT_(a, b, c, n, ...) n",
    "HAS(x) __has_include(x)",
    "IS_ONE defined(ONE)",
    "VERSION_12_9 1209",
    "AT_LEAST(v, ...) (v >= CAT_2(VERSION_, __VA_ARGS__))",
    "CAT_2(a, b, c) a##b##_##c",
    "OPT(x, ...) x __VA_OPT__(+ 1)",
    "XNAME <x.h>",
};

static bool holds(const char *expression, struct asked *asked) {
  struct mem mem;
  struct arena arena;
  struct macro_table table;
  assert_true(mem_init(&mem, NULL));
  arena_init(&arena, &mem, 1 << 20);
  macro_table_init(&table, &mem, &arena);
  for (size_t i = 0; i < sizeof defines / sizeof *defines; i++)
    macro_define(&table, defines[i], strlen(defines[i]));
  asked->names[0] = '\0';
  struct macro_expansion expansion = {&table, has_x, asked, 100000};
  const bool value = condition_holds(&expansion, expression, strlen(expression));
  assert_false(arena.failed);
  macro_table_finish(&table);
  arena_finish(&arena);
  return value;
}

static void assert_all(bool expected, const char *const *expressions, size_t count) {
  struct asked asked;
  for (size_t i = 0; i < count; i++)
    if (holds(expressions[i], &asked) != expected) fail_msg("%s: not %d", expressions[i], expected);
}

static void test_condition__arithmetic_is_that_of_c(void **state) {
  (void)state;
  static const char *const yes[] = {"1",
                                    "2 + 3 * 4 == 14",
                                    "(1 ? 2 : 3) == 2",
                                    "-1 < 0",
                                    "-1 > 0u",
                                    "!0 && ~0",
                                    "1 << 3 == 8",
                                    "7 % 4 == 3",
                                    "'a' == 97",
                                    "0x1F == 31",
                                    "1'000 > 999",
                                    "0b101 == 5 && 010==8",
                                    "'\\n' == 10",
                                    "not 0 and 1",
                                    "true",
                                    "-8 >> 1 == -4",
                                    "0 || 1 && 1",
                                    "5 - 3 - 1 == 1",
                                    "'\\x41' == 65"};
  static const char *const no[] = {"", "0", "UNKNOWN", "false", "1 +", "(1", "1 / 0", "1 2", "\"x\"", "1 ? 0"};
  assert_all(1, yes, sizeof yes / sizeof *yes);
  assert_all(0, no, sizeof no / sizeof *no);
}

static void test_condition__macros_are_expanded(void **state) {
  (void)state;
  static const char *const yes[] = {"ONE",
                                    "ID(ONE) == 1",
                                    "CAT(O, NE)",
                                    "INDIRECT(O, NE)",
                                    "COUNT(a, b) == 2 && COUNT(a) == 1",
                                    "AT_LEAST(1300, 12, 9)",
                                    "OPT(1) == 1 && OPT(1, 2) == 2",
                                    "SELF == 1",
                                    "ID(EMPTY) + 1"};
  static const char *const no[] = {"EMPTY", "ID", "AT_LEAST(1200, 12, 9)", "ID(ONE"};
  assert_all(1, yes, sizeof yes / sizeof *yes);
  assert_all(0, no, sizeof no / sizeof *no);
}

static void test_condition__defined_asks_for_the_name_itself(void **state) {
  (void)state;
  static const char *const yes[] = {"defined ONE", "defined(ONE) && defined ( EMPTY )", "!defined NONE", "IS_ONE",
                                    "ID(defined(ONE))"};
  static const char *const no[] = {"defined NONE", "defined", "defined(", "defined(ONE"};
  assert_all(1, yes, sizeof yes / sizeof *yes);
  assert_all(0, no, sizeof no / sizeof *no);
}

static void test_condition__has_include_asks_the_caller(void **state) {
  (void)state;
  struct asked asked;
  assert_true(holds("__has_include(<x.h>) && !__has_include(\"y.h\")", &asked));
  assert_string_equal("<x.h \"y.h ", asked.names);
  assert_true(holds("__has_include_next(<x.h>)", &asked));
  assert_string_equal("next<x.h ", asked.names);
  assert_true(holds("HAS(<x.h>) && __has_include(XNAME)", &asked));
  assert_string_equal("<x.h <x.h ", asked.names);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_condition__arithmetic_is_that_of_c),
      cmocka_unit_test(test_condition__macros_are_expanded),
      cmocka_unit_test(test_condition__defined_asks_for_the_name_itself),
      cmocka_unit_test(test_condition__has_include_asks_the_caller),
  };
  return cmocka_run_group_tests_name("condition", tests, NULL, NULL);
}
