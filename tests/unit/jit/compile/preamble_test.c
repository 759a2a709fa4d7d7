#include "jit/compile/preamble.h"

#include <stdbool.h>

#include "support/test.h"

struct made {
  struct source_file files[2];
  struct source_set set;
  struct jit_request request;
  struct mem mem;
  struct text whole;
  char header[PREAMBLE_LEAST_BYTES + 1];
};

static int setup(void **state) {
  struct made *made = calloc(1, sizeof *made);
  *state = made;
  if (!made) return -1;
  mem_init(&made->mem, NULL);
  memset(made->header, ' ', PREAMBLE_LEAST_BYTES);
  text_init(&made->whole, &made->mem, 1 << 20);
  return 0;
}

static int teardown(void **state) {
  struct made *made = *state;
  text_finish(&made->whole);
  free(made);
  return 0;
}

static void make(struct made *made, const char *text) {
  text_finish(&made->whole);
  text_init(&made->whole, &made->mem, 1 << 20);
  memset(made->files, 0, sizeof made->files);
  made->files[0] = (struct source_file){.name = "k.cu", .text = text, .bytes = strlen(text)};
  made->files[1] = (struct source_file){.name = "a.h", .text = made->header, .bytes = PREAMBLE_LEAST_BYTES};
  assert_true(source_set_seal(&made->set, made->files, 2, &made->mem));
  made->request = (struct jit_request){.prologue = "#define N 1\n#line 1 \"k.cu\"\n", .sources = &made->set};
}

static void assert_written(struct made *made, const char *text, const char *expected) {
  make(made, text);
  assert_true(preamble_write(&made->request, 0, &made->whole));
  assert_string_equal(expected, made->whole.data);
}

static void assert_none(struct made *made, const char *text) {
  make(made, text);
  assert_false(preamble_write(&made->request, 0, &made->whole));
}

static void test_preamble__comments_go_and_lines_keep_their_numbers(void **state) {
  assert_written(*state, "/* a\n b */\n// c\n#include <a.h> // why\n\nint x;\n",
                 "#define N 1\n#include <a.h> \n#pragma nv_hdrstop\n#line 5 \"k.cu\"\n\nint x;\n");
}

static void test_preamble__ends_behind_the_last_include(void **state) {
  assert_written(*state, "#include <a.h>\n#define B 2\n#include \"b.h\"\n#define C 3\nint x;\n",
                 "#define N 1\n#include <a.h>\n#define B 2\n#include \"b.h\"\n#pragma nv_hdrstop\n"
                 "#line 4 \"k.cu\"\n#define C 3\nint x;\n");
}

static void test_preamble__what_is_hard_to_judge_ends_it(void **state) {
  assert_none(*state, "#if 1\n#include <a.h>\n#endif\n");
  assert_none(*state, "#define A \\\n#include <a.h>\n");
  assert_none(*state, "// goes on \\\n#include <a.h>\n");
  assert_none(*state, "#define A /* begins\n#include <a.h> */\n");
  assert_none(*state, "#include <a//b.h>\n");
  assert_none(*state, "int x;\n#include <a.h>\n");
  assert_none(*state, "/* no end\n#include <a.h>\n");
}

static bool identify(struct made *made, struct digest *digest) {
  return preamble_identify(&made->request, "nvrtc-1", digest);
}

static void test_preamble__headers_content_changes_the_digest(void **state) {
  struct made *made = *state;
  struct digest before, after;
  make(made, "#include <a.h>\nint x;\n");
  assert_true(identify(made, &before));
  make(made, "// another comment\n#include <a.h>\nint y;\n");
  assert_true(identify(made, &after));
  assert_true(digest_equal(&before, &after)); /* comments and what follows do not */
  made->header[7] = 'x';
  make(made, "#include <a.h>\nint x;\n");
  assert_true(identify(made, &after));
  assert_false(digest_equal(&before, &after));
}

static void test_preamble__options_target_and_compiler_change_the_digest(void **state) {
  struct made *made = *state;
  static const char *const option[] = {"--use_fast_math"};
  struct digest before, after;
  make(made, "#include <a.h>\nint x;\n");
  assert_true(identify(made, &before));
  assert_true(preamble_identify(&made->request, "nvrtc-2", &after));
  assert_false(digest_equal(&before, &after));
  strcpy(made->request.target.name, "sm_90");
  assert_true(identify(made, &after));
  assert_false(digest_equal(&before, &after));
  made->request.target.name[0] = '\0';
  made->request.options = option;
  made->request.option_count = 1;
  assert_true(identify(made, &after));
  assert_false(digest_equal(&before, &after));
}

static void test_preamble__line_info_has_none(void **state) {
  struct made *made = *state;
  static const char *const option[] = {"--generate-line-info"};
  struct digest digest;
  make(made, "#include <a.h>\nint x;\n");
  made->request.options = option;
  made->request.option_count = 1;
  assert_false(identify(made, &digest));
}

static void test_preamble__note_is_taken_out_of_the_log(void **state) {
  char log[] = "\"k.cu\": using precompiled header file \"/p\"\n\nk.cu(3): warning\n", other[] = "k.cu(3): warning\n";
  (void)state;
  assert_true(preamble_take_note(log));
  assert_string_equal("k.cu(3): warning\n", log);
  assert_false(preamble_take_note(other));
}

#define PREAMBLE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      PREAMBLE_TEST(test_preamble__comments_go_and_lines_keep_their_numbers),
      PREAMBLE_TEST(test_preamble__ends_behind_the_last_include),
      PREAMBLE_TEST(test_preamble__what_is_hard_to_judge_ends_it),
      PREAMBLE_TEST(test_preamble__headers_content_changes_the_digest),
      PREAMBLE_TEST(test_preamble__options_target_and_compiler_change_the_digest),
      PREAMBLE_TEST(test_preamble__line_info_has_none),
      PREAMBLE_TEST(test_preamble__note_is_taken_out_of_the_log),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
