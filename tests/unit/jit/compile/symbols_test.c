#include "jit/compile/symbols.h"
#include "support/test.h"

static const char sample[] = "kernel 32 4 8 1024 256 k\n"
                             "name _ZN1n1kILi4EEEvv n::k< 4 >\n";

static void test_symbols__what_is_written_reads_back(void **state) {
  (void)state;
  struct mem mem;
  struct text text;
  struct symbols symbols;
  struct symbol symbol;
  const struct kernel_figures figures = {32, 4, 8, 1024, 256};
  mem_init(&mem, NULL);
  text_init(&text, &mem, 1000);
  symbols_put_kernel(&text, "k and more", 1, &figures);
  symbols_put_name(&text, "_ZN1n1kILi4EEEvv", "n::k< 4 >");
  assert_string_equal(sample, text.data);
  symbols_init(&symbols, text.data, text.bytes);
  assert_true(symbols_next(&symbols, &symbol));
  assert_true(symbol.is_kernel);
  assert_memory_equal(&figures, &symbol.figures, sizeof figures);
  assert_int_equal(1, symbol.linkage_bytes);
  assert_true(symbols_next(&symbols, &symbol));
  assert_false(symbol.is_kernel);
  assert_int_equal(9, symbol.expression_bytes);
  assert_memory_equal("n::k< 4 >", symbol.expression, 9);
  assert_false(symbols_next(&symbols, &symbol));
  assert_true(symbols.sound);
  text_finish(&text);
}

static void test_symbols__malformed_lines_are_unsound(void **state) {
  (void)state;
  static const char *const wrong[] = {"x\n",
                                      "kernel 1 2 3 4 5 k",
                                      "kernel 1 2 3 4 5\n",
                                      "kernel 1 2 3 4 5 \n",
                                      "kernel 1 2 3 4 5 a b\n",
                                      "kernel 01 2 3 4 5 a\n",
                                      "kernel 4294967296 2 3 4 5 a\n",
                                      "kernel -1 2 3 4 5 a\n",
                                      "name a\n",
                                      "name a \n",
                                      "name  a\n"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(symbols_are_sound(wrong[i], strlen(wrong[i])));
  assert_true(symbols_are_sound("", 0));
}

static void test_symbols__every_cut_is_survived(void **state) {
  (void)state;
  for (size_t bytes = 0; bytes < sizeof sample; bytes++) {
    char *const copy = malloc(bytes ? bytes : 1);
    memcpy(copy, sample, bytes);
    (void)symbols_are_sound(copy, bytes);
    free(copy);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_symbols__what_is_written_reads_back),
      cmocka_unit_test(test_symbols__malformed_lines_are_unsound),
      cmocka_unit_test(test_symbols__every_cut_is_survived),
  };
  return cmocka_run_group_tests_name("symbols", tests, NULL, NULL);
}
