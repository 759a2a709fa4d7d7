#include "jit/source/include_closure.h"

#include <stdbool.h>

#include "jit/source/embedded_sources.h"
#include "unit/jit/request/custom_fixture.h"

/* -- The closure ----------------------------------------------------------------------------------------------------
 */

static void test_include_closure__unused_headers_are_left_out(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"z.h", "int z;\n", 0}, {"a.h", "#include <z.h>\n", 0}, {"unused.h", "", 0}};
  f->request.headers = headers;
  f->request.header_count = 3;
  set_source(f, "#include \"a.h\"\n");
  assert_made(f);
  assert_string_equal("main.cu a.h z.h", names(f));
}

static void test_include_closure__a_changed_header_changes_the_digest(void **state) {
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

static void test_include_closure__memory_comes_before_folders_and_folders_in_order(void **state) {
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

static void test_include_closure__quoted_names_are_looked_for_beside_the_file_on_disk(void **state) {
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
  assert_string_equal("main.cu sub/../c.h sub/a.h sub/b.h", names(f));
  assert_string_equal("// sub b\n", text_of(f, "sub/b.h"));
}

static void test_include_closure__quoted_names_are_looked_for_beside_the_file_in_memory(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"sub/a.h", "#include \"b.h\"\n#include \"../c.h\"\n#include \"./x/../d.h\"\n", 0},
                                 {"sub/b.h", "// sub b\n", 0},
                                 {"c.h", "// c\n", 0},
                                 {"sub/d.h", "// sub d\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 4;
  set_source(f, "#include \"sub/a.h\"\n");
  assert_made(f);
  assert_string_equal("main.cu c.h sub/a.h sub/b.h sub/d.h", names(f));
  assert_string_equal("#include \"sub/b.h\"\n#include \"c.h\"\n#include \"sub/d.h\"\n", text_of(f, "sub/a.h"));
}

static void test_include_closure__no_path_of_the_machine_is_in_the_set(void **state) {
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

static void test_include_closure__one_name_for_two_files_means_each(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  temp_folder_write_text(&f->folder, "one/a.h", "#include \"b.h\"\n");
  temp_folder_write_text(&f->folder, "one/b.h", "// one\n");
  temp_folder_write_text(&f->folder, "two/a.h", "#include \"b.h\"\n");
  temp_folder_write_text(&f->folder, "two/b.h", "// two\n");
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <one/a.h>\n#include <two/a.h>\n");
  assert_made(f);
  assert_string_equal("#include \"two/b.h\"\n", text_of(f, "two/a.h"));
  assert_string_equal("// two\n", text_of(f, "two/b.h"));
}

/* Each folder's header hands on to the next one of its name. */
static void test_include_closure__include_next_goes_on_behind_its_folder(void **state) {
  struct fixture *f = *state;
  char one[5000], two[5000];
  snprintf(one, sizeof one, "%s/one", f->folder.path);
  snprintf(two, sizeof two, "%s/two", f->folder.path);
  const char *const dirs[] = {one, two};
  temp_folder_write_text(&f->folder, "one/a.h", "#include_next <a.h>\n// one\n");
  temp_folder_write_text(&f->folder, "two/a.h", "#if __has_include_next(<a.h>)\n#error\n#endif\n");
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 2;
  set_source(f, "#include <a.h>\n");
  assert_made(f);
  assert_string_equal("main.cu a.h a.h@2", names(f));
  assert_string_equal("#include \"a.h@2\"\n// one\n", text_of(f, "a.h"));
  assert_string_equal("#if  0\n#error\n#endif\n", text_of(f, "a.h@2"));
}

static void test_include_closure__pragma_once_knows_the_file_by_any_name(void **state) {
  struct fixture *f = *state;
  const char *const dirs[] = {f->folder.path};
  char target[5000], link_path[5000];
  temp_folder_write_text(&f->folder, "a.h", "#pragma once\n");
  snprintf(target, sizeof target, "%s/a.h", f->folder.path);
  snprintf(link_path, sizeof link_path, "%s/b.h", f->folder.path);
  assert_int_equal(0, symlink(target, link_path));
  f->request.include_dirs = dirs;
  f->request.include_dir_count = 1;
  set_source(f, "#include <a.h>\n#include <b.h>\n#include \"./a.h\"\n");
  assert_made(f);
  assert_string_equal("main.cu a.h", names(f));
  assert_string_equal("#include <a.h>\n#include \"a.h\"\n#include \"a.h\"\n", text_of(f, "main.cu"));
}

static void test_include_closure__only_what_a_condition_reaches_is_read(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"a.h", "// a\n", 0}, {"b.h", "// b\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 2;
  set_source(f, "#define PICK(x) x##_H\n#define A_H 1\n#if PICK(A) && !defined B_H\n#include \"a.h\"\n#else\n"
                "#include \"b.h\"\n#endif\n");
  assert_made(f);
  assert_string_equal("main.cu a.h", names(f));
  assert_contains(text_of(f, "main.cu"), "#include \"kjit-unread:b.h\"\n");
}

static void test_include_closure__cycles_end(void **state) {
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

static void test_include_closure__missing_header_is_named_with_file_and_line(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"a.h", "#ifndef A_H\n#define A_H\n\n#include <none.h>\n#endif\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 1;
  set_source(f, "#include \"a.h\"\n");
  assert_refused(f, KJIT_ERR_NOT_FOUND, "a.h:4: #include <none.h>");
}

static void test_include_closure__missing_header_under_a_condition_is_left_to_the_compiler(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"a.h", "#include <none.h>\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 1;
  set_source(f, "#ifdef X\n#include \"a.h\"\n#include \"other.h\"\n#endif\n#if __has_include(<y.h>)\n#endif\n");
  assert_made(f);
  assert_string_equal("main.cu", names(f));
  set_source(f, "#ifndef X\n#include \"a.h\"\n#endif\n");
  assert_made(f);
  assert_string_equal("main.cu a.h", names(f));
}

static void test_include_closure__file_reached_both_ways_is_required(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {
      {"a.h", "#include <none.h>\n", 0}, {"b.h", "#include \"c.h\"\n", 0}, {"c.h", "#include \"a.h\"\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 3;
  set_source(f, "#if X\n#include \"a.h\"\n#endif\n#include \"b.h\"\n");
  assert_refused(f, KJIT_ERR_NOT_FOUND, "a.h:1");
}

static void test_include_closure__absolute_names_are_read(void **state) {
  struct fixture *f = *state;
  char text[5100], name[5000];
  temp_folder_write_text(&f->folder, "a.h", "// a\n");
  snprintf(name, sizeof name, "%s/a.h", f->folder.path);
  snprintf(text, sizeof text, "#include \"%s\"\n", name);
  set_source(f, text);
  assert_made(f);
  assert_string_equal("// a\n", text_of(f, name));
}

static void test_include_closure__computed_names_are_read(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"x/a.h", "// a\n", 0}, {"b.h", "// b\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 2;
  set_source(f, "#define H(n) <x/n.h>\n#include H(a)\n#define S \"b.h\"\n#include S\n");
  assert_made(f);
  assert_string_equal("main.cu b.h x/a.h", names(f));
}

/* A raw string of several lines in a condition that is rewritten: what is behind it keeps its line. */
static void test_include_closure__rewritten_condition_keeps_the_lines_of_a_raw_string(void **state) {
  struct fixture *f = *state;
  set_source(f, "#if 0 && R\"(\n\n)\" && \\\n __has_include(<a.h>)\n#endif\nint x;\n");
  assert_made(f);
  assert_string_equal("#if 0 && R\"(\n\n)\" &&   0\n\n#endif\nint x;\n", text_of(f, "main.cu"));
}

/* The same directive leads to one file and then to another. */
static void test_include_closure__computed_names_may_vary(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"x.h", "#include H\n", 0}, {"a.h", "// a\n", 0}, {"b.h", "// b\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 3;
  set_source(f, "#define H \"a.h\"\n#include \"x.h\"\n#undef H\n#define H \"b.h\"\n#include \"x.h\"\n");
  assert_made(f);
  assert_string_equal("main.cu a.h b.h x.h", names(f));
  assert_string_equal("#include H\n", text_of(f, "x.h"));
}

static void test_include_closure__std_headers_have_stand_ins(void **state) {
  struct fixture *f = *state;
  set_source(f, "#include <cstdint>\n#if __has_include(<cstdint>)\n#error\n#endif\n");
  assert_made(f);
  assert_contains(text_of(f, "cstdint"), "uint32_t");
  assert_contains(text_of(f, "main.cu"), "#if  0\n");
}

/* -- Bounds ---------------------------------------------------------------------------------------------------------
 */

static void test_include_closure__too_many_files_are_refused(void **state) {
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

static void test_include_closure__too_deep_nesting_is_refused(void **state) {
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

static void test_include_closure__too_much_text_is_refused(void **state) {
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

static void test_include_closure__nul_bytes_are_refused(void **state) {
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

/* False in a build with KJIT_EMBED_SOURCES=OFF. */
static bool embedded_texts_are_here(void) {
  return embedded_source_count && !embedded_sources[0].digest;
}

static void test_include_closure__finds_the_headers_of_kjit_without_a_folder(void **state) {
  struct fixture *f = *state;
  if (!embedded_texts_are_here()) skip();
  set_source(f, "#include <kjit/ptx/ldmatrix.cuh>\n");
  assert_made(f);
  assert_string_equal("main.cu kjit/ptx/ldmatrix.cuh kjit/types.cuh", names(f));
  assert_contains(text_of(f, "kjit/ptx/ldmatrix.cuh"), "ldmatrix_x4(");
}

static void test_include_closure__a_header_given_comes_before_that_of_kjit(void **state) {
  struct fixture *f = *state;
  const kjit_source headers[] = {{"kjit/types.cuh", "// mine\n", 0}};
  f->request.headers = headers;
  f->request.header_count = 1;
  set_source(f, "#include <kjit/types.cuh>\n");
  assert_made(f);
  assert_string_equal("// mine\n", text_of(f, "kjit/types.cuh"));
}

static void test_include_closure__the_kernels_of_the_families_are_no_headers_for_users(void **state) {
  struct fixture *f = *state;
  set_source(f, "#include \"flash_forward/params.h\"\n");
  assert_refused(f, KJIT_ERR_NOT_FOUND, "flash_forward/params.h");
  set_source(f, "#include <kjit/ptx/nothing.cuh>\n");
  assert_refused(f, KJIT_ERR_NOT_FOUND, "kjit/ptx/nothing.cuh");
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_include_closure__##name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(unused_headers_are_left_out),
      TEST(a_changed_header_changes_the_digest),
      TEST(memory_comes_before_folders_and_folders_in_order),
      TEST(quoted_names_are_looked_for_beside_the_file_on_disk),
      TEST(quoted_names_are_looked_for_beside_the_file_in_memory),
      TEST(no_path_of_the_machine_is_in_the_set),
      TEST(one_name_for_two_files_means_each),
      TEST(include_next_goes_on_behind_its_folder),
      TEST(pragma_once_knows_the_file_by_any_name),
      TEST(only_what_a_condition_reaches_is_read),
      TEST(cycles_end),
      TEST(missing_header_is_named_with_file_and_line),
      TEST(missing_header_under_a_condition_is_left_to_the_compiler),
      TEST(file_reached_both_ways_is_required),
      TEST(absolute_names_are_read),
      TEST(computed_names_are_read),
      TEST(rewritten_condition_keeps_the_lines_of_a_raw_string),
      TEST(computed_names_may_vary),
      TEST(std_headers_have_stand_ins),
      TEST(too_many_files_are_refused),
      TEST(too_deep_nesting_is_refused),
      TEST(too_much_text_is_refused),
      TEST(nul_bytes_are_refused),
      TEST(finds_the_headers_of_kjit_without_a_folder),
      TEST(a_header_given_comes_before_that_of_kjit),
      TEST(the_kernels_of_the_families_are_no_headers_for_users),
  };
  return cmocka_run_group_tests_name("include_closure", tests, NULL, NULL);
}
