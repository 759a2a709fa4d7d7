#include "jit/request/custom_request.h"

#include "custom_fixture.h"

/* -- What comes out ------------------------------------------------------------------------------------------------ */

static void test_custom_request__fields_are_taken_over(void **state) {
  struct fixture *f = *state;
  const char *const options[] = {"--maxrregcount=64", "-lineinfo"};
  f->request.options = options;
  f->request.option_count = 2;
  f->request.flags = KJIT_BUILD_NO_COMPILE;
  f->request.timeout_ms = 7;
  assert_made(f);
  const struct jit_request *request = &f->custom.request;
  assert_string_equal("custom", request->family);
  assert_string_equal("main.cu", request->label);
  assert_string_equal("sm_80", request->target.name);
  assert_string_equal("k", request->entry);
  assert_int_equal(2, request->option_count);
  assert_string_equal("--maxrregcount=64", request->options[0]);
  assert_string_equal("--generate-line-info", request->options[1]);
  assert_int_equal(KJIT_BUILD_NO_COMPILE, request->flags);
  assert_int_equal(7, request->timeout_ms);
}

static void test_custom_request__prologue_has_the_defines_in_order_and_the_line(void **state) {
  struct fixture *f = *state;
  const kjit_define defines[] = {{"B", "2"}, {"A", NULL}, {"C", ""}};
  f->request.defines = defines;
  f->request.define_count = 3;
  f->request.source.name = "dir/main.cu";
  assert_made(f);
  assert_string_equal("#define B 2\n#define A 1\n#define C \n#line 1 \"dir/main.cu\"\n", f->custom.request.prologue);
}

static void test_custom_request__nothing_of_the_callers_is_kept(void **state) {
  struct fixture *f = *state;
  char name[] = "main.cu", text[] = "#include \"a.h\"\n", header[] = "a.h", inside[] = "int a;\n", entry[] = "k";
  const kjit_source headers[] = {{header, inside, 0}};
  f->request.source = (kjit_source){name, text, 0};
  f->request.headers = headers;
  f->request.header_count = 1;
  f->request.entry = entry;
  assert_made(f);
  name[0] = text[0] = header[0] = inside[0] = entry[0] = 'X';
  assert_string_equal("main.cu a.h", names(f));
  assert_string_equal("int a;\n", text_of(f, "a.h"));
  assert_string_equal("k", f->custom.request.entry);
}

static void test_custom_request__arch_is_the_default_where_the_request_has_none(void **state) {
  struct fixture *f = *state;
  f->request.arch = NULL;
  assert_status(KJIT_OK, custom_request_init(&f->custom, &mem, &f->request, "sm_90a", &f->error), &f->error);
  assert_string_equal("sm_90a", f->custom.request.target.name);
  assert_refused(f, KJIT_ERR_INVALID_ARG, "arch: missing");
}

static void test_custom_request__sized_text_need_not_end_in_nul(void **state) {
  struct fixture *f = *state;
  const char text[] = {'i', 'n', 't', ' ', 'x', ';'};
  f->request.source = (kjit_source){"main.cu", text, sizeof text};
  assert_made(f);
  assert_string_equal("int x;", f->custom.request.sources->files[0].text);
  assert_int_equal(6, f->custom.request.sources->files[0].bytes);
}

/* -- Malformed requests ---------------------------------------------------------------------------------------------
 */

static void test_custom_request__names_are_checked(void **state) {
  struct fixture *f = *state;
  static const char *const entries[] = {"", "k\n", "n::k<\x7f>"};
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    f->request.entry = entries[i];
    assert_refused(f, KJIT_ERR_INVALID_ARG, "entry: ");
  }
  f->request.entry = "_Z1kv";
  assert_made(f);
  assert_int_equal(0, f->custom.request.name_count);
  static const char *const files[] = {NULL, "", "/abs/k.cu", "a\"b.cu", "a\\b.cu", "a\nb.cu"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    f->request.source.name = files[i];
    assert_refused(f, KJIT_ERR_INVALID_ARG, "source.name: ");
  }
}

static void test_custom_request__entry_that_is_no_identifier_is_asked_of_the_compiler(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"&n::count", "n::k<float, 4>"};
  f->request.entry = "n::k<float, 4>";
  f->request.names = names;
  f->request.name_count = 2;
  assert_made(f);
  assert_string_equal("n::k<float, 4>", f->custom.request.entry);
  assert_int_equal(2, f->custom.request.name_count);
  assert_string_equal("n::k<float, 4>", f->custom.request.names[0]);
  assert_string_equal("&n::count", f->custom.request.names[1]);
  f->request.entry = NULL;
  assert_made(f);
  assert_string_equal("", f->custom.request.entry);
}

static void test_custom_request__name_that_is_missing_is_named(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"k", ""};
  f->request.names = names;
  f->request.name_count = 2;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "names[1]: is empty");
}

static void test_custom_request__parts_are_checked(void **state) {
  struct fixture *f = *state;
  kjit_part part = {.data = "x", .bytes = 1, .kind = 9};
  f->request.parts = &part;
  f->request.part_count = 1;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "parts[0].kind: 9");
  part.kind = KJIT_PART_CUBIN;
  part.bytes = 0;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "parts[0].bytes: 0");
  part.bytes = 1;
  assert_made(f);
  f->request.flags = KJIT_BUILD_OBJECT;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "no parts");
  f->request.part_count = 0;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "needs the option -dlto or -rdc=true");
  f->request.part_count = 1;
  f->request.flags = 0;
  f->request.source = (kjit_source){0};
  assert_made(f);
  assert_int_equal(0, f->custom.request.sources->count);
  f->request.entry = "n::k<4>";
  assert_refused(f, KJIT_ERR_INVALID_ARG, "name expression, but the request has no source");
}

static void test_custom_request__defines_are_checked(void **state) {
  struct fixture *f = *state;
  static const kjit_define wrong[] = {{NULL, "1"},   {"", "1"},    {"1A", "1"},   {"F(x)", "x"}, {"A B", "1"},
                                      {"A", "1\n2"}, {"A", "1\\"}, {"A", "/* 1"}, {"A", "a\r"}};
  f->request.define_count = 1;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    f->request.defines = &wrong[i];
    assert_refused(f, KJIT_ERR_INVALID_ARG, "defines[0]");
  }
  static const kjit_define twice[] = {{"A", "1"}, {"B", "/* x */ 2"}, {"A", "1"}};
  f->request.defines = twice;
  f->request.define_count = 2;
  assert_made(f);
  f->request.define_count = 3;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "defines[2].name: A is defined by defines[0]");
}

static void test_custom_request__comment_opened_after_a_closed_one_is_refused(void **state) {
  struct fixture *f = *state;
  static const kjit_define open = {"A", "/* x */ 1 /* y"};
  f->request.defines = &open;
  f->request.define_count = 1;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "comment");
}

static void test_custom_request__headers_are_checked(void **state) {
  struct fixture *f = *state;
  const kjit_source twice[] = {{"a.h", "", 0}, {"b.h", "", 0}, {"a.h", "x", 0}};
  f->request.headers = twice;
  f->request.header_count = 3;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "headers[2].name: \"a.h\" is the name of headers[0]");
  const kjit_source textless[] = {{"a.h", NULL, 0}};
  f->request.headers = textless;
  f->request.header_count = 1;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "text is missing");
  f->request.headers = NULL;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "headers: must not be NULL");
}

static void test_custom_request__options_and_flags_are_checked(void **state) {
  struct fixture *f = *state;
  const char *const options[] = {"-lineinfo", "-I/usr/include"};
  f->request.options = options;
  f->request.option_count = 2;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "options[1]");
  f->request.option_count = 0;
  f->request.flags = 0x80;
  assert_refused(f, KJIT_ERR_UNSUPPORTED, "flags");
  f->request.flags = 0;
  f->request.struct_size = 0;
  assert_refused(f, KJIT_ERR_INVALID_ARG, "request.struct_size");
}

static void test_custom_request__every_failed_allocation_is_no_memory_and_leaks_nothing(void **state) {
  struct fixture *f = *state;
  const kjit_define defines[] = {{"A", "1"}};
  const char *const options[] = {"-lineinfo"}, *const dirs[] = {f->folder.path};
  const kjit_source headers[] = {{"a.h", "#include <b.h>\n", 0}};
  temp_folder_write_text(&f->folder, "b.h", "int b;\n");
  f->request.defines = defines;
  f->request.options = options;
  f->request.include_dirs = dirs;
  f->request.headers = headers;
  f->request.define_count = f->request.option_count = f->request.include_dir_count = f->request.header_count = 1;
  set_source(f, "#include \"a.h\"\n");
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    failing_allocator_reset(&allocator, n);
    status = make(f);
    if (status == KJIT_OK) break;
    assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
    assert_int_equal(0, atomic_load(&allocator.live));
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_custom_request__##name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(fields_are_taken_over),
      TEST(prologue_has_the_defines_in_order_and_the_line),
      TEST(nothing_of_the_callers_is_kept),
      TEST(arch_is_the_default_where_the_request_has_none),
      TEST(sized_text_need_not_end_in_nul),
      TEST(names_are_checked),
      TEST(entry_that_is_no_identifier_is_asked_of_the_compiler),
      TEST(name_that_is_missing_is_named),
      TEST(parts_are_checked),
      TEST(defines_are_checked),
      TEST(comment_opened_after_a_closed_one_is_refused),
      TEST(headers_are_checked),
      TEST(options_and_flags_are_checked),
      TEST(every_failed_allocation_is_no_memory_and_leaks_nothing),
  };
  return cmocka_run_group_tests_name("custom_request", tests, NULL, NULL);
}
