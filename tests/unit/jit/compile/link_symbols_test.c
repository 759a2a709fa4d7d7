/* Names that two inputs of a link define: found in PTX and in cubins before the linker is asked. */
#include "jit/compile/link_symbols.h"
#include "support/fake_elf.h"
#include "support/test.h"

#include <kjit/build.h>

static kjit_error error;

static kjit_status check(const struct link_input *inputs, size_t count) {
  struct mem mem;
  mem_init(&mem, NULL);
  memset(&error, 0, sizeof error);
  return link_symbols_check(&mem, inputs, count, &error);
}

static struct link_input ptx(const char *name, const char *text) {
  return (struct link_input){name, KJIT_PART_PTX, text, strlen(text)};
}

static void test_link_symbols__function_defined_twice_is_named_with_both_inputs(void **state) {
  (void)state;
  const struct link_input inputs[] = {
      ptx("a", ".version 8.0\n.visible .func  (.param .b32 func_retval0) _Z1ff(\n\t.param .b32 "
               "_Z1ff_param_0\n)\n{\nret;\n}\n"),
      ptx("b", ".visible .func  (.param .b32 func_retval0) _Z1ff(\n\t.param .b32 _Z1ff_param_0\n)\n{\nret;\n}\n")};
  assert_status(KJIT_ERR_COMPILE, check(inputs, 2), &error);
  assert_contains(error.message, "\"_Z1ff\" is defined twice, in a and in b");
}

static void test_link_symbols__kernels_and_variables_count_declarations_do_not(void **state) {
  (void)state;
  static const char kernel[] = ".visible .entry k(\n.param .u64 p\n)\n.maxntid 1, 1, 1\n{\n}\n";
  static const char global[] = ".visible .global .align 4 .b32 table[4] = {1, 2, 3, 4};\n";
  const struct link_input kernels[] = {ptx("a", kernel), ptx("b", kernel)};
  const struct link_input globals[] = {ptx("a", global), ptx("b", global)};
  const struct link_input declared[] = {
      ptx("a", ".visible .func f(.param .b32 x);\n"), ptx("b", ".visible .func f(.param .b32 x)\n{\n}\n"),
      ptx("c", ".extern .func f(.param .b32 x);\n.weak .func w()\n{\n}\n"), ptx("d", ".weak .func w()\n{\n}\n")};
  assert_status(KJIT_ERR_COMPILE, check(kernels, 2), &error);
  assert_contains(error.message, "\"k\"");
  assert_status(KJIT_ERR_COMPILE, check(globals, 2), &error);
  assert_contains(error.message, "\"table\"");
  assert_status(KJIT_OK, check(declared, 4), &error);
}

static void make_cubin(struct fake_elf *elf, unsigned char bind, uint16_t section) {
  const Elf64_Sym symbols[2] = {{0},
                                {.st_name = 1, .st_info = (unsigned char)(bind << 4 | STT_FUNC), .st_shndx = section}};
  const struct fake_section sections[] = {{".symtab", SHT_SYMTAB, symbols, sizeof symbols},
                                          {".strtab", SHT_STRTAB, "\0_Z1ff", 7}};
  fake_elf_begin(elf);
  fake_elf_add_sections(elf, sections, 2);
}

static void test_link_symbols__cubins_are_read_by_their_symbol_tables(void **state) {
  (void)state;
  struct fake_elf global, weak, absent;
  make_cubin(&global, STB_GLOBAL, 1);
  make_cubin(&weak, STB_WEAK, 1);
  make_cubin(&absent, STB_GLOBAL, SHN_UNDEF);
  const struct link_input twice[] = {{"a", KJIT_PART_CUBIN, global.data, global.bytes},
                                     {"b", KJIT_PART_CUBIN, global.data, global.bytes}};
  const struct link_input once[] = {{"a", KJIT_PART_CUBIN, global.data, global.bytes},
                                    {"b", KJIT_PART_CUBIN, weak.data, weak.bytes},
                                    {"c", KJIT_PART_CUBIN, absent.data, absent.bytes},
                                    {"d", KJIT_PART_CUBIN, "no cubin", 8}};
  assert_status(KJIT_ERR_COMPILE, check(twice, 2), &error);
  assert_contains(error.message, "\"_Z1ff\" is defined twice");
  assert_status(KJIT_OK, check(once, 4), &error);
}

static void test_link_symbols__damage_is_survived(void **state) {
  (void)state;
  static const char text[] = ".visible .func (.param .b32 r) f(.param .b32 x)\n{\n}\n.visible .global .b32 g[4];\n";
  for (size_t bytes = 1; bytes < sizeof text; bytes++) {
    char *const copy = malloc(bytes);
    memcpy(copy, text, bytes);
    const struct link_input input = {"a", KJIT_PART_PTX, copy, bytes};
    (void)check(&input, 1);
    free(copy);
  }
  struct fake_elf elf;
  make_cubin(&elf, STB_GLOBAL, 1);
  for (size_t bit = 0; bit < 8 * elf.bytes; bit++) {
    elf.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    const struct link_input input = {"a", KJIT_PART_CUBIN, elf.data, elf.bytes};
    (void)check(&input, 1);
    elf.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_link_symbols__function_defined_twice_is_named_with_both_inputs),
      cmocka_unit_test(test_link_symbols__kernels_and_variables_count_declarations_do_not),
      cmocka_unit_test(test_link_symbols__cubins_are_read_by_their_symbol_tables),
      cmocka_unit_test(test_link_symbols__damage_is_survived),
  };
  return cmocka_run_group_tests_name("link_symbols", tests, NULL, NULL);
}
