#include "jit/request/compile_options.h"
#include "support/test.h"

static void test_compile_options__what_changes_only_the_code_is_taken(void **state) {
  (void)state;
  static const char *const good[] = {"--maxrregcount=128",
                                     "-maxrregcount=64",
                                     "--use_fast_math",
                                     "-use_fast_math",
                                     "--ftz=true",
                                     "-G",
                                     "-lineinfo",
                                     "--generate-line-info",
                                     "--std=c++20",
                                     "--ptxas-options=-O1",
                                     "-Xptxas=--def-load-cache=cg",
                                     "--diag-suppress=177,550",
                                     "-w",
                                     "--dopt=on",
                                     "--device-as-default-execution-space"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    kjit_error error = {0};
    assert_status(KJIT_OK, compile_option_check(good[i], i, &error), &error);
  }
}

static void assert_refused(const char *option, const char *reason) {
  kjit_error error = {0};
  assert_status(KJIT_ERR_INVALID_ARG, compile_option_check(option, 3, &error), &error);
  assert_contains(error.message, "options[3]: ");
  assert_contains(error.message, reason);
}

static void test_compile_options__what_has_its_own_field_is_refused(void **state) {
  (void)state;
  static const char *const defines[] = {"-DX", "-D", "-DX=1", "--define-macro=X", "-UX", "--undefine-macro=X"};
  for (size_t i = 0; i < sizeof defines / sizeof *defines; i++)
    assert_refused(defines[i], "defines belong");
  static const char *const folders[] = {"-I/usr", "-I", "--include-path=/usr", "-include=x.h", "--pre-include=x.h"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    assert_refused(folders[i], "include_dirs");
  assert_refused("--gpu-architecture=sm_80", "arch");
  assert_refused("-arch=sm_80", "arch");
  assert_refused("-arch", "arch");
}

static void test_compile_options__side_effects_are_refused(void **state) {
  (void)state;
  static const char *const effects[] = {"--create-pch=x",         "--use-pch=x",          "-pch",
                                        "--pch-dir=/tmp",         "--time=/tmp/x",        "-time",
                                        "--fdevice-time-trace=x", "-fdevice-time-trace=x"};
  for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
    assert_refused(effects[i], "files");
}

static void test_compile_options__what_gives_no_loadable_cubin_is_refused(void **state) {
  (void)state;
  assert_refused("--optix-ir", "cubin");
  assert_refused("--fdevice-syntax-only", "cubin");
  assert_refused("-ewp", "linked");
}

static void test_compile_options__what_is_linked_here_is_taken(void **state) {
  (void)state;
  static const char *const taken[] = {"-dlto", "--dlink-time-opt", "-rdc=true", "--relocatable-device-code=false",
                                      "-dc"};
  kjit_error error = {0};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
    assert_status(KJIT_OK, compile_option_check(taken[i], 0, &error), &error);
}

/* NVRTC takes the next option for the value of one that lacks it: "-maxrregcount", "-I/tmp". */
static void test_compile_options__values_stand_in_one_piece(void **state) {
  (void)state;
  assert_refused("--maxrregcount", "in one piece");
  assert_refused("--maxrregcount=", "in one piece");
  assert_refused("-Xptxas", "in one piece");
  assert_refused("32", "no option");
  assert_refused("kernel.cu", "no option");
  assert_refused("--use_fast_math=true", "takes no value");
}

static void test_compile_options__unknown_ones_are_refused(void **state) {
  (void)state;
  assert_refused("--no-such-option", "not among");
  assert_refused("--maxrregcounts=3", "not among");
  assert_refused("-", "not among");
  assert_refused("--", "not among");
  assert_refused("", "empty");
  assert_refused(NULL, "empty");
  assert_refused("--std=c++17\n", "control character");
  assert_refused("--ptxas-options=--output-file=/tmp/x", "ptxas");
  assert_refused("--ptxas-options=O1", "ptxas");
}

static void test_compile_options__length_is_bounded(void **state) {
  (void)state;
  char option[1100] = "--diag-suppress=";
  memset(option + 16, '1', sizeof option - 17);
  assert_refused(option, "1024");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compile_options__what_changes_only_the_code_is_taken),
      cmocka_unit_test(test_compile_options__what_has_its_own_field_is_refused),
      cmocka_unit_test(test_compile_options__side_effects_are_refused),
      cmocka_unit_test(test_compile_options__what_gives_no_loadable_cubin_is_refused),
      cmocka_unit_test(test_compile_options__what_is_linked_here_is_taken),
      cmocka_unit_test(test_compile_options__values_stand_in_one_piece),
      cmocka_unit_test(test_compile_options__unknown_ones_are_refused),
      cmocka_unit_test(test_compile_options__length_is_bounded),
  };
  return cmocka_run_group_tests_name("compile_options", tests, NULL, NULL);
}
