#include "jit/custom_request.h"

#include "base/error.h"
#include "support/test.h"

static struct failing_allocator allocator;
static struct mem mem;

struct fixture {
  struct temp_folder folder;
  kjit_build_request request;
  struct custom_request custom;
  kjit_error error;
};

static int setup(void **state) {
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  struct fixture *fixture = calloc(1, sizeof *fixture);
  *state = fixture;
  if (!fixture || !mem_init(&mem, &hooks) || temp_folder_create(&fixture->folder)) return -1;
  fixture->request = kjit_build_request_default();
  fixture->request.arch = "sm_80";
  fixture->request.entry = "k";
  fixture->request.source = (kjit_source){"main.cu", "__global__ void k() {}\n", 0};
  return 0;
}

static int teardown(void **state) {
  struct fixture *fixture = *state;
  custom_request_finish(&fixture->custom);
  temp_folder_remove(&fixture->folder);
  free(fixture);
  return atomic_load(&allocator.live) ? -1 : 0;
}

static kjit_status make(struct fixture *f) {
  error_clear(&f->error);
  custom_request_finish(&f->custom);
  return custom_request_init(&f->custom, &mem, &f->request, NULL, &f->error);
}

static void assert_made(struct fixture *f) {
  assert_status(KJIT_OK, make(f), &f->error);
}

static void assert_refused(struct fixture *f, kjit_status status, const char *part) {
  assert_status(status, make(f), &f->error);
  assert_contains(f->error.message, part);
  assert_null(f->custom.storage);
}

/* The names of the closure, main first: "main.cu a.h b.h". */
static const char *names(const struct fixture *f) {
  static char text[4096];
  const struct source_set *set = f->custom.request.sources;
  text[0] = '\0';
  for (size_t i = 0; i < set->count; i++) {
    strcat(text, i ? " " : "");
    strcat(text, set->files[i].name);
  }
  return text;
}

static const char *text_of(const struct fixture *f, const char *name) {
  const struct source_set *set = f->custom.request.sources;
  for (size_t i = 0; i < set->count; i++) {
    if (!strcmp(set->files[i].name, name)) return set->files[i].text;
  }
  return NULL;
}

static void set_source(struct fixture *f, const char *text) {
  f->request.source = (kjit_source){"main.cu", text, 0};
}

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
  assert_string_equal("-lineinfo", request->options[1]);
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

/* -- The closure ----------------------------------------------------------------------------------------------------
 */

static void test_custom_request__unused_headers_are_left_out(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"z.h", "int z;\n", 0}, {"a.h", "#include <z.h>\n", 0}, {"unused.h", "", 0}};
  f->request.headers = headers;
  f->request.header_count = 3;
  set_source(f, "#include \"a.h\"\n");
  assert_made(f);
  assert_string_equal("main.cu a.h z.h", names(f));
}

static void test_custom_request__a_changed_header_changes_the_digest(void **state) {
  struct fixture *f = *state;
  kjit_source headers[] = {{"a.h", "#include \"b.h\"\n", 0}, {"b.h", "int b = 1;\n", 0}, {"unused.h", "1", 0}};
  f->request.headers = headers;
  f->request.header_count = 3;
  set_source(f, "#include \"a.h\"\n");
  assert_made(f);
  const struct digest before = f->custom.request.sources->digest;
  headers[2].text = "2";
  assert_made(f);
  assert_true(digest_equal(&before, &f->custom.request.sources->digest));
  headers[1].text = "int b = 2;\n";
  assert_made(f);
  assert_false(digest_equal(&before, &f->custom.request.sources->digest));
}

static void test_custom_request__memory_comes_before_folders_and_folders_in_order(void **state) {
  struct fixture *f = *state;
  char one[TEMP_PATH_BYTES], two[TEMP_PATH_BYTES];
  temp_folder_path(&f->folder, "one", one);
  temp_folder_path(&f->folder, "two", two);
  temp_folder_write_text(&f->folder, "one/a.h", "// one a\n");
  temp_folder_write_text(&f->folder, "one/b.h", "// one b\n");
  temp_folder_write_text(&f->folder, "two/b.h", "// two b\n");
  temp_folder_write_text(&f->folder, "two/c.h", "// two c\n");
  const char *const dirs[] = {one, two};
  const kjit_source headers[] = {{"a.h", "// memory a\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 1;
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 2;
  set_source(f, "#include \"a.h\"\n#include <b.h>\n#include <c.h>\n");
  assert_made(f);
  assert_string_equal("// memory a\n", text_of(f, "a.h"));
  assert_string_equal("// one b\n", text_of(f, "b.h"));
  assert_string_equal("// two c\n", text_of(f, "c.h"));
}

static void test_custom_request__quoted_names_are_looked_for_beside_the_file_on_disk(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  temp_folder_write_text(&f->folder, "sub/a.h", "#include \"b.h\"\n#include \"../c.h\"\n");
  temp_folder_write_text(&f->folder, "sub/b.h", "// sub b\n");
  temp_folder_write_text(&f->folder, "b.h", "// b\n");
  temp_folder_write_text(&f->folder, "c.h", "// c\n");
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <sub/a.h>\n");
  assert_made(f);
  assert_string_equal("main.cu ../c.h b.h sub/a.h", names(f));
  assert_string_equal("// sub b\n", text_of(f, "b.h"));
}

static void test_custom_request__quoted_names_are_looked_for_beside_the_file_in_memory(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"sub/a.h", "#include \"b.h\"\n#include \"../c.h\"\n#include \"./x/../d.h\"\n", 0},
                                 {"sub/b.h", "// sub b\n", 0},
                                 {"c.h", "// c\n", 0},
                                 {"sub/d.h", "// sub d\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 4;
  set_source(f, "#include \"sub/a.h\"\n");
  assert_made(f);
  assert_string_equal("// sub b\n", text_of(f, "b.h"));
  assert_string_equal("// c\n", text_of(f, "../c.h"));
  assert_string_equal("// sub d\n", text_of(f, "./x/../d.h"));
}

static void test_custom_request__no_path_of_the_machine_is_in_the_set(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  temp_folder_write_text(&f->folder, "a.h", "");
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <a.h>\n");
  assert_made(f);
  assert_lacks(names(f), f->folder.path);
  assert_lacks(f->custom.request.prologue, f->folder.path);
}

static void test_custom_request__one_name_for_two_files_is_refused(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  temp_folder_write_text(&f->folder, "one/a.h", "#include \"b.h\"\n");
  temp_folder_write_text(&f->folder, "one/b.h", "// one\n");
  temp_folder_write_text(&f->folder, "two/a.h", "#include \"b.h\"\n");
  temp_folder_write_text(&f->folder, "two/b.h", "// two\n");
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <one/a.h>\n#include <two/a.h>\n");
  assert_refused(f, KJIT_ERR_INVALID_ARG, "two/a.h:1: #include \"b.h\": means another file");
  temp_folder_write_text(&f->folder, "two/b.h", "// one\n");
  assert_made(f);
}

static void test_custom_request__cycles_end(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"a.h", "#pragma once\n#include \"b.h\"\n", 0}, {"b.h", "#include \"a.h\"\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 2;
  set_source(f, "#include \"a.h\"\n#include \"b.h\"\n");
  assert_made(f);
  assert_string_equal("main.cu a.h b.h", names(f));
}

/* -- What cannot be found -------------------------------------------------------------------------------------------
 */

static void test_custom_request__missing_header_is_named_with_file_and_line(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"a.h", "#ifndef A_H\n#define A_H\n\n#include <none.h>\n#endif\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 1;
  set_source(f, "#include \"a.h\"\n");
  assert_refused(f, KJIT_ERR_NOT_FOUND, "a.h:4: #include <none.h>");
}

static void test_custom_request__missing_header_under_a_condition_is_left_to_the_compiler(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"a.h", "#include <none.h>\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 1;
  set_source(f, "#ifdef X\n#include \"a.h\"\n#include \"other.h\"\n#endif\n#if __has_include(<y.h>)\n#endif\n");
  assert_made(f);
  assert_string_equal("main.cu a.h", names(f));
}

static void test_custom_request__file_reached_both_ways_is_required(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {
      {"a.h", "#include <none.h>\n", 0}, {"b.h", "#include \"c.h\"\n", 0}, {"c.h", "#include \"a.h\"\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 3;
  set_source(f, "#if X\n#include \"a.h\"\n#endif\n#include \"b.h\"\n");
  assert_refused(f, KJIT_ERR_NOT_FOUND, "a.h:1");
}

static void test_custom_request__absolute_names_are_refused(void **state) {
  struct fixture *f = *state;
  set_source(f, "#if X\n#include \"/etc/hosts\"\n#endif\n");
  assert_refused(f, KJIT_ERR_INVALID_ARG, "main.cu:2: #include \"/etc/hosts\"");
  set_source(f, "#if __has_include(</etc/hosts>)\n#endif\n");
  assert_refused(f, KJIT_ERR_INVALID_ARG, "relative");
}

static void test_custom_request__computed_names_are_refused(void **state) {
  struct fixture *f = *state;
  set_source(f, "#define H \"a.h\"\n#include H\n");
  assert_refused(f, KJIT_ERR_INVALID_ARG, "main.cu:2: #include H: write the name out");
}

/* -- Bounds ---------------------------------------------------------------------------------------------------------
 */

static void test_custom_request__too_many_files_are_refused(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  char *text = calloc(5000, 24), name[16], *to = text;
  for (int i = 0; i < 4200; i++) {
    snprintf(name, sizeof name, "h%d", i);
    temp_folder_write_text(&f->folder, name, "");
    to += sprintf(to, "#include <%s>\n", name);
  }
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, text);
  const kjit_status status = make(f);
  free(text);
  assert_status(KJIT_ERR_INVALID_ARG, status, &f->error);
  assert_contains(f->error.message, "4096 files");
}

static void test_custom_request__too_deep_nesting_is_refused(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  for (int i = 0; i < 210; i++) {
    char name[16], text[64];
    snprintf(name, sizeof name, "h%d", i);
    snprintf(text, sizeof text, "#include <h%d>\n", i + 1);
    temp_folder_write_text(&f->folder, name, text);
  }
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <h0>\n");
  assert_refused(f, KJIT_ERR_INVALID_ARG, "200 levels");
}

static void test_custom_request__too_much_text_is_refused(void **state) {
  struct fixture *f = *state;
  const size_t bytes = ((size_t)33 << 20) + 1;
  char *text = malloc(bytes);
  memset(text, ' ', bytes);
  memcpy(text, "#include \"a.h\"\n", 15);
  const kjit_source headers[] = {{"a.h", text + 15, bytes - 15}};
  f->request.headers = headers;
  f->request.header_count = 1;
  f->request.source = (kjit_source){"main.cu", text, bytes};
  const kjit_status status = make(f);
  free(text);
  assert_status(KJIT_ERR_INVALID_ARG, status, &f->error);
  assert_contains(f->error.message, "64 MiB");
}

static void test_custom_request__nul_bytes_are_refused(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  f->request.source = (kjit_source){"main.cu", "int\0x", 5};
  assert_refused(f, KJIT_ERR_INVALID_ARG, "a NUL at byte 3");
  temp_folder_write(&f->folder, "a.h", "a\0b", 3);
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <a.h>\n");
  assert_refused(f, KJIT_ERR_INVALID_ARG, "NUL");
}

/* -- Malformed requests ---------------------------------------------------------------------------------------------
 */

static void test_custom_request__names_are_checked(void **state) {
  struct fixture *f = *state;
  static const char *const entries[] = {NULL, "", "1k", "a-b", "k(int)", "k\n"};
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    f->request.entry = entries[i];
    assert_refused(f, KJIT_ERR_INVALID_ARG, "entry: ");
  }
  f->request.entry = "_Z1kv";
  assert_made(f);
  static const char *const files[] = {NULL, "", "/abs/k.cu", "a\"b.cu", "a\\b.cu", "a\nb.cu"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    f->request.source.name = files[i];
    assert_refused(f, KJIT_ERR_INVALID_ARG, "source.name: ");
  }
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
  assert_refused(f, KJIT_ERR_INVALID_ARG, "headers: missing");
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
      TEST(unused_headers_are_left_out),
      TEST(a_changed_header_changes_the_digest),
      TEST(memory_comes_before_folders_and_folders_in_order),
      TEST(quoted_names_are_looked_for_beside_the_file_on_disk),
      TEST(quoted_names_are_looked_for_beside_the_file_in_memory),
      TEST(no_path_of_the_machine_is_in_the_set),
      TEST(one_name_for_two_files_is_refused),
      TEST(cycles_end),
      TEST(missing_header_is_named_with_file_and_line),
      TEST(missing_header_under_a_condition_is_left_to_the_compiler),
      TEST(file_reached_both_ways_is_required),
      TEST(absolute_names_are_refused),
      TEST(computed_names_are_refused),
      TEST(too_many_files_are_refused),
      TEST(too_deep_nesting_is_refused),
      TEST(too_much_text_is_refused),
      TEST(nul_bytes_are_refused),
      TEST(names_are_checked),
      TEST(defines_are_checked),
      TEST(comment_opened_after_a_closed_one_is_refused),
      TEST(headers_are_checked),
      TEST(options_and_flags_are_checked),
      TEST(every_failed_allocation_is_no_memory_and_leaks_nothing),
  };
  return cmocka_run_group_tests_name("custom_request", tests, NULL, NULL);
}
