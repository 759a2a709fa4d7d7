#include "jit/compile/ptxas_log.h"
#include "support/test.h"

/* As NVRTC 13.0 gives it, with a warning before and ptxas's remark on wgmma inside. */
static const char two_kernels[] =
    "main.cu(4): warning #177-D: variable \"unused\" was declared but never referenced\n"
    "\n"
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
    "ptxas info    : 0 bytes gmem, 24 bytes cmem[4]\n"
    "ptxas info    : Compiling entry function 'k2' for 'sm_90a'\n"
    "ptxas info    : Function properties for k2\n"
    "ptxas         .     784 bytes stack frame, 1152 bytes spill stores, 1432 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 0 barriers, 784 bytes cumulative stack size, 364 bytes cmem[0]\n"
    "ptxas info    : Compile time = 13.795 ms\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     400 bytes stack frame, 0 bytes spill stores, 8 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 1 barriers, 400 bytes cumulative stack size, 256 bytes smem\n"
    "ptxas info    : Compile time = 10.058 ms\n"
    "ptxas info    : Function properties for _Z6helperPii\n"
    "ptxas         .     16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
    "\n";

static struct ptxas_figures read_log(const char *log, const char *entry, char *rest) {
  struct ptxas_figures figures;
  char *copy = strdup(log);
  ptxas_log_find(copy, entry, &figures);
  ptxas_log_strip(copy);
  if (rest) strcpy(rest, copy);
  free(copy);
  return figures;
}

static void test_ptxas_log__figures_are_those_of_the_entry(void **state) {
  (void)state;
  const struct ptxas_figures k2 = read_log(two_kernels, "k2", NULL), k = read_log(two_kernels, "k", NULL);
  assert_int_equal(32, k2.registers);
  assert_int_equal(1152 + 1432, k2.spill_bytes);
  assert_int_equal(784, k2.local_bytes);
  assert_int_equal(0, k2.shared_bytes);
  assert_int_equal(168, k.registers);
  assert_int_equal(8, k.spill_bytes);
  assert_int_equal(400, k.local_bytes);
  assert_int_equal(256, k.shared_bytes);
}

static void test_ptxas_log__unknown_entry_has_none(void **state) {
  (void)state;
  const struct ptxas_figures none = read_log(two_kernels, "kernel", NULL);
  assert_int_equal(0, none.registers);
  assert_int_equal(0, none.spill_bytes);
}

static void test_ptxas_log__warnings_and_remarks_stay(void **state) {
  (void)state;
  char rest[2048];
  (void)read_log(two_kernels, "k", rest);
  assert_string_equal("main.cu(4): warning #177-D: variable \"unused\" was declared but never referenced\n"
                      "\n"
                      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
                      "serialized\n",
                      rest);
}

static void test_ptxas_log__a_log_of_figures_alone_becomes_empty(void **state) {
  (void)state;
  char rest[2048];
  (void)read_log(strstr(two_kernels, "ptxas info    : 0 bytes"), "k", rest);
  assert_string_equal("", rest);
  (void)read_log("", "k", rest);
  assert_string_equal("", rest);
  (void)read_log("\n \n\n", "k", rest);
  assert_string_equal("", rest);
}

static void test_ptxas_log__last_line_may_lack_its_newline(void **state) {
  (void)state;
  char rest[256];
  (void)read_log("note", "k", rest);
  assert_string_equal("note", rest);
  (void)read_log("note\nptxas info    : 0 bytes gmem", "k", rest);
  assert_string_equal("note\n", rest);
}

static void test_ptxas_log__absurd_numbers_are_clamped(void **state) {
  (void)state;
  const struct ptxas_figures figures = read_log("ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
                                                "ptxas info    : Used 99999999999999999999 registers,  bytes smem\n",
                                                "k", NULL);
  assert_int_equal(UINT32_MAX, figures.registers);
  assert_int_equal(0, figures.shared_bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ptxas_log__figures_are_those_of_the_entry),
      cmocka_unit_test(test_ptxas_log__unknown_entry_has_none),
      cmocka_unit_test(test_ptxas_log__warnings_and_remarks_stay),
      cmocka_unit_test(test_ptxas_log__a_log_of_figures_alone_becomes_empty),
      cmocka_unit_test(test_ptxas_log__last_line_may_lack_its_newline),
      cmocka_unit_test(test_ptxas_log__absurd_numbers_are_clamped),
  };
  return cmocka_run_group_tests_name("ptxas_log", tests, NULL, NULL);
}
