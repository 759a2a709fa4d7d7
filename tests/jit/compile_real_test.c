/* Sources through the real NVRTC: what comes out, what it may see, what it says. */
#include <stdatomic.h>
#include <stdbool.h>

#include "base/files/elf_view.h"
#include "jit/cubin/cubin.h"
#include "jit/real_nvrtc.h"

static const char scale_kernel[] = "#include \"math/scale.cuh\"\n"
                                   "extern \"C\" __global__ void __launch_bounds__(192) k(float *p) {\n"
                                   "  __shared__ float s[64];\n"
                                   "  s[threadIdx.x % 64] = p[threadIdx.x];\n"
                                   "  __syncthreads();\n"
                                   "  p[threadIdx.x] = scale(s[63 - threadIdx.x % 64]);\n"
                                   "}\n";
static const kjit_source scale_header = {"math/scale.cuh",
                                         "__device__ inline float scale(float x) { return x * FACTOR; }\n", 0};
static const kjit_define factor = {"FACTOR", "3.0f"};

static void use_scale(struct real_nvrtc *real) {
  real->request.headers = &scale_header;
  real->request.header_count = 1;
  real->request.defines = &factor;
  real->request.define_count = 1;
}

static void test_compile_real__defines_header_and_source_become_a_cubin(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  use_scale(real);
  assert_status(KJIT_OK, real_nvrtc_compile(real, scale_kernel), &real->error);
  struct elf_view elf;
  struct elf_bytes code;
  assert_true(elf_view_open(&elf, real->result.cubin, real->result.cubin_bytes));
  assert_true(elf_view_find_section(&elf, ".text.k", &code));
  assert_true(code.bytes > 0);
  assert_string_equal("", real->result.log);
}

/* EIATTR_REGCOUNT, attribute 0x2f of .nv.info: {symbol, registers}. One kernel, so the first record. */
static uint32_t registers_in(const struct compile_result *result) {
  struct elf_view elf;
  struct elf_bytes info;
  assert_true(elf_view_open(&elf, result->cubin, result->cubin_bytes));
  assert_true(elf_view_find_section(&elf, ".nv.info", &info));
  for (size_t at = 0; at + 12 <= info.bytes; at += 4) {
    uint32_t words[3];
    memcpy(words, info.data + at, sizeof words);
    if (words[0] == 0x00082f04) return words[2];
  }
  fail_msg("the cubin states no registers");
  return 0;
}

static void test_compile_real__figures_are_those_of_the_cubin(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  use_scale(real);
  assert_status(KJIT_OK, real_nvrtc_compile(real, scale_kernel), &real->error);
  assert_int_equal(registers_in(&real->result), real->result.registers);
  assert_true(real->result.registers > 0);
  assert_int_equal(256, real->result.shared_bytes);
  assert_int_equal(0, real->result.spill_bytes);
  assert_int_equal(192, real->result.max_threads);
  assert_true(real->result.compile_ns > 0);
}

static void test_compile_real__cubin_tells_its_parameters(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  struct cubin_kernel kernel;
  assert_status(KJIT_OK,
                real_nvrtc_compile(real, "struct args { double a[5]; };\n"
                                         "extern \"C\" __global__ void k(const __grid_constant__ args x, double *p) {\n"
                                         "  *p = x.a[4];\n"
                                         "}\n"),
                &real->error);
  assert_true(cubin_find_kernel(real->result.cubin, real->result.cubin_bytes, "k", &kernel));
  assert_true(kernel.has_info);
  assert_int_equal(2, kernel.parameter_count);
  uint32_t sizes[2];
  assert_true(cubin_parameter_sizes(real->result.cubin, real->result.cubin_bytes, "k", sizes, 2));
  assert_int_equal(40, sizes[0]);
  assert_int_equal(8, sizes[1]);
}

static void test_compile_real__spills_are_counted_for_the_entry_alone(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  static const char text[] = "extern \"C\" __global__ void k(float *p) { *p = 1; }\n"
                             "extern \"C\" __global__ void heavy(float *p, int n) {\n"
                             "  float a[60];\n"
                             "  for (int i = 0; i < 60; i++) a[i] = p[i * n];\n"
                             "  for (int j = 0; j < n; j++)\n"
                             "    for (int i = 0; i < 60; i++) a[i] = a[i] * a[(i + 7) % 60] + a[(i * 3) % 60];\n"
                             "  for (int i = 0; i < 60; i++) p[i * n] = a[i];\n"
                             "}\n";
  const char *const options[] = {"--maxrregcount=32"};
  real->request.options = options;
  real->request.option_count = 1;
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  assert_int_equal(0, real->result.spill_bytes);
  real->request.entry = "heavy";
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  assert_true(real->result.spill_bytes > 0);
  assert_true(real->result.local_bytes > 0);
  assert_true(real->result.registers <= 32);
}

static void test_compile_real__messages_name_the_sources_own_lines(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  static const kjit_define many[] = {{"A", "1"}, {"B", "2"}, {"C", "3"}};
  real->request.defines = many;
  real->request.define_count = 3;
  assert_status(KJIT_ERR_COMPILE, real_nvrtc_compile(real, "\n\nextern \"C\" __global__ void k() { none(); }\n"),
                &real->error);
  assert_contains(real->error.message, "main.cu(3): error");
  assert_contains(real->result.log, "main.cu(3): error");
  assert_null(real->result.cubin);
}

static void test_compile_real__messages_name_the_headers_own_lines(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  static const kjit_source header = {"sub/h.cuh", "\n__device__ int f() { return none; }\n", 0};
  real->request.headers = &header;
  real->request.header_count = 1;
  assert_status(KJIT_ERR_COMPILE, real_nvrtc_compile(real, "#include \"sub/h.cuh\"\n"), &real->error);
  assert_contains(real->error.message, "sub/h.cuh(2): error");
}

static void test_compile_real__warnings_stay_in_the_log(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  assert_status(KJIT_OK, real_nvrtc_compile(real, "extern \"C\" __global__ void k() { int unused; }\n"), &real->error);
  assert_contains(real->result.log, "main.cu(1): warning");
  assert_lacks(real->result.log, "ptxas info");
}

static void test_compile_real__missing_entry_is_told_with_what_is_there(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  assert_status(KJIT_ERR_COMPILE, real_nvrtc_compile(real, "__global__ void k(int *p) { *p = 1; }\n"), &real->error);
  assert_contains(real->error.message, "_Z1kPi");
}

/* -- What it may see -------------------------------------------------------------------------------------------------
 */

/* Quoted includes are what NVRTC would look for beside the source, that is in the working directory. */
static const char curious_kernel[] = "#if __has_include(\"decoy.h\")\n"
                                     "#include \"decoy.h\"\n"
                                     "#else\n"
                                     "#define N 1\n"
                                     "#endif\n"
                                     "extern \"C\" __global__ void k(int *p) { *p = N; }\n";

static void test_compile_real__working_directory_changes_nothing(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  char *before = getcwd(NULL, 0);
  assert_status(KJIT_OK, real_nvrtc_compile(real, curious_kernel), &real->error);
  void *cubin = real_nvrtc_copy_cubin(real);
  const size_t bytes = real->result.cubin_bytes;
  temp_folder_write_text(&real->folder, "decoy.h", "#error the working directory was read\n");
  assert_int_equal(0, chdir(real->folder.path));
  const kjit_status status = real_nvrtc_compile(real, curious_kernel);
  assert_int_equal(0, chdir(before));
  free(before);
  assert_status(KJIT_OK, status, &real->error);
  assert_int_equal(bytes, real->result.cubin_bytes);
  assert_memory_equal(cubin, real->result.cubin, bytes);
  free(cubin);
}

static void test_compile_real__headers_of_folders_are_given_in_memory(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  const char *const dirs[] = {real->folder.path};
  temp_folder_write_text(&real->folder, "lib/a.h", "#pragma once\n#include \"b.h\"\n#include \"../top.h\"\n");
  temp_folder_write_text(&real->folder, "lib/b.h", "#define B 2\n");
  temp_folder_write_text(&real->folder, "top.h", "#include <lib/a.h>\n#define TOP 3\n");
  real->request.include_dirs = dirs;
  real->request.include_dir_count = 1;
  assert_status(
      KJIT_OK,
      real_nvrtc_compile(real, "#include <lib/a.h>\nextern \"C\" __global__ void k(int *p) { *p = B + TOP; }\n"),
      &real->error);
}

static void test_compile_real__changed_header_changes_digest_and_code(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  kjit_source header = {"n.h", "#define N 1\n", 0};
  static const char text[] = "#include \"n.h\"\nextern \"C\" __global__ void k(int *p) { *p = N; }\n";
  real->request.headers = &header;
  real->request.header_count = 1;
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  const struct digest digest = real->custom.request.sources->digest;
  void *cubin = real_nvrtc_copy_cubin(real);
  const size_t bytes = real->result.cubin_bytes;
  header.text = "#define N 2\n";
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  const bool same = bytes == real->result.cubin_bytes && !memcmp(cubin, real->result.cubin, bytes);
  free(cubin);
  assert_false(same);
  assert_false(digest_equal(&digest, &real->custom.request.sources->digest));
}

static void test_compile_real__equal_requests_give_equal_bytes(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  use_scale(real);
  assert_status(KJIT_OK, real_nvrtc_compile(real, scale_kernel), &real->error);
  void *cubin = real_nvrtc_copy_cubin(real);
  const size_t bytes = real->result.cubin_bytes;
  assert_status(KJIT_OK, real_nvrtc_compile(real, scale_kernel), &real->error);
  assert_int_equal(bytes, real->result.cubin_bytes);
  assert_memory_equal(cubin, real->result.cubin, bytes);
  free(cubin);
}

/* -- Refusals and stopping -------------------------------------------------------------------------------------------
 */

static void test_compile_real__unknown_architecture_is_refused_in_a_sentence(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  real->request.arch = "sm_999";
  assert_status(KJIT_ERR_UNSUPPORTED, real_nvrtc_compile(real, "extern \"C\" __global__ void k() {}\n"), &real->error);
  assert_contains(real->error.message, "does not compile for sm_999, but for sm_");
  assert_contains(real->error.message, "sm_80");
  real->request.arch = "sm_9999";
  assert_status(KJIT_ERR_INVALID_ARG, real_nvrtc_compile(real, ""), &real->error);
  assert_contains(real->error.message, "\"sm_9999\" is not an architecture");
}

static void test_compile_real__architectures_with_a_suffix_compile(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  real->request.arch = "sm_90a";
  assert_status(KJIT_OK,
                real_nvrtc_compile(real, "extern \"C\" __global__ void k() {\n#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n"
                                         "#error not sm_90a\n#endif\n}\n"),
                &real->error);
}

static void test_compile_real__option_that_nvrtc_does_not_know_is_named(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  static const char *const options[] = {"--no-such-option"};
  assert_status(KJIT_OK, real_nvrtc_compile(real, "extern \"C\" __global__ void k() {}\n"), &real->error);
  struct jit_request request = real->custom.request;
  request.options = options;
  request.option_count = 1;
  compile_result_finish(&real->result, &real->mem);
  assert_status(KJIT_ERR_INVALID_ARG,
                compile_run(real->nvrtc, &request, &real->mem, NULL, NULL, &real->result, &real->error), &real->error);
  assert_contains(real->error.message, "--no-such-option");
}

/* Lets the check before the compile pass, and stops the compile itself. */
static bool stop_after_the_first(void *user) {
  return atomic_fetch_add((atomic_int *)user, 1) > 0;
}

static void test_compile_real__a_compile_under_way_is_stopped(void **state) {
  int version;
  atomic_int asked = 0;
  struct real_nvrtc *real = real_nvrtc_or_skip(state, &version);
  if (version < 1208) skip();
  use_scale(real);
  assert_status(KJIT_OK, real_nvrtc_compile(real, scale_kernel), &real->error);
  compile_result_finish(&real->result, &real->mem);
  assert_status(KJIT_ERR_CANCELLED,
                compile_run(real->nvrtc, &real->custom.request, &real->mem, stop_after_the_first, &asked, &real->result,
                            &real->error),
                &real->error);
  assert_true(atomic_load(&asked) > 1);
  assert_null(real->result.cubin);
}

/* -- Real headers ----------------------------------------------------------------------------------------------------
 */

static void test_compile_real__toolkit_headers_are_found_in_their_folder(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  static const char *const dirs[] = {CUDA_INCLUDE_DIR};
  if (access(CUDA_INCLUDE_DIR "/cuda_fp16.h", R_OK)) skip();
  real->request.include_dirs = dirs;
  real->request.include_dir_count = 1;
  assert_status(KJIT_OK,
                real_nvrtc_compile(real, "#include <cuda_fp16.h>\n"
                                         "extern \"C\" __global__ void k(__half *p) { *p = __hadd(p[1], p[2]); }\n"),
                &real->error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      REAL_NVRTC_TEST(test_compile_real__defines_header_and_source_become_a_cubin),
      REAL_NVRTC_TEST(test_compile_real__figures_are_those_of_the_cubin),
      REAL_NVRTC_TEST(test_compile_real__cubin_tells_its_parameters),
      REAL_NVRTC_TEST(test_compile_real__spills_are_counted_for_the_entry_alone),
      REAL_NVRTC_TEST(test_compile_real__messages_name_the_sources_own_lines),
      REAL_NVRTC_TEST(test_compile_real__messages_name_the_headers_own_lines),
      REAL_NVRTC_TEST(test_compile_real__warnings_stay_in_the_log),
      REAL_NVRTC_TEST(test_compile_real__missing_entry_is_told_with_what_is_there),
      REAL_NVRTC_TEST(test_compile_real__working_directory_changes_nothing),
      REAL_NVRTC_TEST(test_compile_real__headers_of_folders_are_given_in_memory),
      REAL_NVRTC_TEST(test_compile_real__changed_header_changes_digest_and_code),
      REAL_NVRTC_TEST(test_compile_real__equal_requests_give_equal_bytes),
      REAL_NVRTC_TEST(test_compile_real__unknown_architecture_is_refused_in_a_sentence),
      REAL_NVRTC_TEST(test_compile_real__architectures_with_a_suffix_compile),
      REAL_NVRTC_TEST(test_compile_real__option_that_nvrtc_does_not_know_is_named),
      REAL_NVRTC_TEST(test_compile_real__a_compile_under_way_is_stopped),
      REAL_NVRTC_TEST(test_compile_real__toolkit_headers_are_found_in_their_folder),
  };
  return cmocka_run_group_tests_name("compile_real", tests, NULL, NULL);
}
