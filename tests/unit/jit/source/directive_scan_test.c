#include "jit/source/directive_scan.h"

#include "support/test.h"
#include <stdbool.h>

/* The includes, one letter each for quoted, angled and computed, with their lines: "q x.h:1 a y.h:2 c MACRO:3". */
struct found {
  char text[512];
};

static void note(struct found *found, const struct directive *directive) {
  const size_t used = strlen(found->text);
  const char *name;
  size_t bytes;
  bool angled;
  char kind = 'c';
  if (directive_header(directive->args, directive->args_bytes, &name, &bytes, &angled)) {
    kind = angled ? 'a' : 'q';
  } else {
    name = directive->args;
    bytes = directive->args_bytes;
    while (bytes && *name == ' ') {
      name++;
      bytes--;
    }
  }
  snprintf(found->text + used, sizeof found->text - used, "%s%c %.*s:%zu", used ? " " : "", kind, (int)bytes, name,
           directive->line);
}

/* The text in memory of its own size, so that the sanitizer sees a byte too many. */
static struct found scan_bytes(const char *text, size_t bytes) {
  struct found found = {""};
  struct directive_list list;
  struct arena arena;
  struct mem mem;
  assert_true(mem_init(&mem, NULL));
  arena_init(&arena, &mem, 1 << 20);
  char *copy = malloc(bytes ? bytes : 1);
  memcpy(copy, text, bytes);
  assert_true(directive_scan(&list, copy, bytes, &arena));
  for (size_t i = 0; i < list.count; i++) {
    assert_true(list.items[i].begin <= list.items[i].end && list.items[i].end <= bytes);
    if (list.items[i].kind == DIRECTIVE_INCLUDE) note(&found, &list.items[i]);
  }
  arena_finish(&arena);
  free(copy);
  return found;
}

static void assert_found(const char *expected, const char *text) {
  const struct found found = scan_bytes(text, strlen(text));
  assert_string_equal(expected, found.text);
}

static void test_directive_scan__both_forms_are_found_with_their_lines(void **state) {
  (void)state;
  assert_found("q a.h:1 a b/c.cuh:3", "#include \"a.h\"\nint x;\n#include <b/c.cuh>\n");
  assert_found("q a.h:1", "#include \"a.h\"");
}

static void test_directive_scan__blanks_and_comments_may_stand_anywhere(void **state) {
  (void)state;
  assert_found("q a.h:1", " \t# \t include\t\"a.h\"");
  assert_found("q a.h:2", "/* x\n */ # /* y */ include /* z */ \"a.h\"");
  assert_found("a a.h:1", "#include<a.h>");
  assert_found("q a.h:1", "%:include \"a.h\"\n");
}

static void test_directive_scan__comments_hide_directives(void **state) {
  (void)state;
  assert_found("", "// #include \"a.h\"\n/*\n#include \"b.h\"\n*/\n/* #include <c.h>");
  assert_found("q b.h:2", "// ends in a backslash \\\\ x\n#include \"b.h\"\n");
  assert_found("", "// goes on \\\n#include \"b.h\"\n");
}

/* Comments without a backslash are skipped by another way than those with one: both count lines and find the end. */
static void test_directive_scan__lines_in_comments_are_counted(void **state) {
  (void)state;
  assert_found("q a.h:4", "/* one\n * two\n */\n#include \"a.h\"\n");
  assert_found("q a.h:4", "/* one\\\n * two\n */\n#include \"a.h\"\n");
  assert_found("q a.h:3", "// one\\\n#include \"b.h\"\n#include \"a.h\"\n");
  assert_found("q a.h:3", "/* one *\\\n/\n#include \"a.h\"\n");
  assert_found("q a.h:2", "/\\\n* one */ #include \"a.h\"\n");
  assert_found("q a.h:2", "//\n#include \"a.h\"\n//");
  assert_found("q a.h:1", "/**/#include \"a.h\"\n/*/ #include \"b.h\"\n");
  assert_found("", "/* one\n#include \"a.h\"\n");
}

static void test_directive_scan__literals_hide_what_looks_like_comments(void **state) {
  (void)state;
  assert_found("q a.h:2", "const char *s = \"/*\", c = '\"', d = '\\'';\n#include \"a.h\"\n");
  assert_found("q a.h:2", "int n = 1'000'000; // '\n#include \"a.h\"\n");
  assert_found("q a.h:2", "#error don't\n#include \"a.h\"\n");
}

static void test_directive_scan__raw_strings_hide_directives(void **state) {
  (void)state;
  assert_found("q b.h:4", "auto s = R\"x(\n#include \"a.h\"\n)\" )x\";\n#include \"b.h\"\n");
  assert_found("q b.h:3", "auto s = u8R\"(\\\n)\";\n#include \"b.h\"\n");
  assert_found("", "auto s = R\"(\n#include \"a.h\"\n");
}

static void test_directive_scan__only_a_line_start_makes_a_directive(void **state) {
  (void)state;
  assert_found("", "int x; #include \"a.h\"\n#define S #include \"b.h\"\n");
  assert_found("", "#included \"a.h\"\n#inclu \"b.h\"\n#include_next \"c.h\"\n");
}

static void test_directive_scan__spliced_lines_are_joined(void **state) {
  (void)state;
  assert_found("q a.h:1", "#include \\\n\"a.h\"\n");
  assert_found("q a.h:1", "#\\\r\ninclude \"a.h\"\n");
  assert_found("q a.h:3", "#define X \\\n  \"b\n#include \"a.h\"\n");
}

static void test_directive_scan__unbalanced_conditions_are_survived(void **state) {
  (void)state;
  assert_found("q a.h:3", "#endif\n#else\n#include \"a.h\"\n");
  char text[4096] = "";
  for (int i = 0; i < 300; i++)
    strcat(text, "#if X\n");
  strcat(text, "#ifndef G\n#define G\n#include \"a.h\"\n");
  assert_found("q a.h:303", text);
}

static void test_directive_scan__computed_includes_are_told(void **state) {
  (void)state;
  assert_found("c HEADER:1 c CAT(a, b):2", "#include HEADER\n#include CAT(a, b)\n");
}

static void test_directive_scan__malformed_directives_are_left_to_the_compiler(void **state) {
  (void)state;
  assert_found("q b.h:5", "#inclu\n#error \"a.h\n\n\n#include \"b.h\"\n#");
}

static void test_directive_scan__truncation_at_every_length_is_survived(void **state) {
  (void)state;
  static const char text[] =
      "#ifndef G\n#define G\n#include \\\n \"a.h\" // x\n/* y */ auto s = R\"d(z)d\"; char c = '\\'';\n"
      "#if __has_include(<b.h>)\n%:include <c.h>\n#endif\nint n = 0x1'F;\n#endif\\\r\n";
  for (size_t bytes = 0; bytes <= sizeof text - 1; bytes++)
    (void)scan_bytes(text, bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_directive_scan__both_forms_are_found_with_their_lines),
      cmocka_unit_test(test_directive_scan__blanks_and_comments_may_stand_anywhere),
      cmocka_unit_test(test_directive_scan__comments_hide_directives),
      cmocka_unit_test(test_directive_scan__lines_in_comments_are_counted),
      cmocka_unit_test(test_directive_scan__literals_hide_what_looks_like_comments),
      cmocka_unit_test(test_directive_scan__raw_strings_hide_directives),
      cmocka_unit_test(test_directive_scan__only_a_line_start_makes_a_directive),
      cmocka_unit_test(test_directive_scan__spliced_lines_are_joined),
      cmocka_unit_test(test_directive_scan__unbalanced_conditions_are_survived),
      cmocka_unit_test(test_directive_scan__computed_includes_are_told),
      cmocka_unit_test(test_directive_scan__malformed_directives_are_left_to_the_compiler),
      cmocka_unit_test(test_directive_scan__truncation_at_every_length_is_survived),
  };
  return cmocka_run_group_tests_name("directive_scan", tests, NULL, NULL);
}
