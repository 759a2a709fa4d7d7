/* Name expressions and links through the real NVRTC and nvJitLink. */
#include "base/error.h"
#include "jit/compile/symbols.h"
#include "jit/cubin/cubin.h"
#include "jit/real_nvrtc.h"

static const char callee[] = "__device__ float twice(float x) { return 2 * x; }\n";
static const char caller[] = "__device__ float twice(float x);\n"
                             "__device__ int unused[1000];\n"
                             "extern \"C\" __global__ void k(float *p) { *p = twice(*p); }\n";

/* The machine's nvJitLink too, or the end of the test. */
static struct real_nvrtc *linker_or_skip(void **state) {
  struct real_nvrtc *const real = real_nvrtc_or_skip(state, NULL);
  if (!nvrtc_linker_identity(real->nvrtc, &real->error)) {
    print_message("no nvJitLink: %s\n", real->error.message);
    skip();
  }
  return real;
}

static void set_option(struct real_nvrtc *real, const char *const *option) {
  real->request.options = option;
  real->request.option_count = *option ? 1 : 0;
}

/* An object of `text`; the caller frees its bytes. */
static kjit_part make_object(struct real_nvrtc *real, const char *text, uint32_t kind) {
  static const char *const lto = "-dlto", *const relocatable = "-rdc=true";
  const char *const entry = real->request.entry;
  set_option(real, kind == KJIT_PART_LTOIR ? &lto : &relocatable);
  real->request.flags = KJIT_BUILD_OBJECT;
  real->request.entry = NULL;
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  real->request.flags = 0;
  real->request.entry = entry;
  real->request.options = NULL;
  real->request.option_count = 0;
  return (kjit_part){.data = real_nvrtc_copy_cubin(real), .bytes = real->result.cubin_bytes, .kind = kind};
}

static kjit_status link_with(struct real_nvrtc *real, const char *text, const kjit_part *parts, size_t count) {
  real->request.parts = parts;
  real->request.part_count = count;
  const kjit_status status = real_nvrtc_compile(real, text);
  real->request.parts = NULL;
  real->request.part_count = 0;
  return status;
}

static void link_pair(struct real_nvrtc *real, uint32_t kind) {
  const kjit_part part = make_object(real, callee, kind);
  assert_status(KJIT_OK, link_with(real, caller, &part, 1), &real->error);
  struct cubin_kernel kernel;
  assert_true(cubin_find_kernel(real->result.cubin, real->result.cubin_bytes, "k", &kernel));
  assert_int_equal(1, kernel.parameter_count);
  assert_true(real->result.registers > 0);
  assert_string_equal("", real->result.log);
  free((void *)(uintptr_t)part.data);
}

static void test_link_real__ltoir_pair_becomes_one_kernel(void **state) {
  link_pair(linker_or_skip(state), KJIT_PART_LTOIR);
}

static void test_link_real__relocatable_pair_becomes_one_kernel(void **state) {
  link_pair(linker_or_skip(state), KJIT_PART_CUBIN);
}

static void test_link_real__lto_leaves_unused_variables_out(void **state) {
  struct real_nvrtc *real = linker_or_skip(state);
  static const char text[] = "__device__ int unused[1000];\n"
                             "extern \"C\" __global__ void k(float *p) { *p = 1; }\n";
  static const char *const lto = "-dlto";
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  assert_non_null(memmem(real->result.cubin, real->result.cubin_bytes, "unused", 6));
  set_option(real, &lto);
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  assert_null(memmem(real->result.cubin, real->result.cubin_bytes, "unused", 6));
}

static void test_link_real__lto_keeps_the_variables_that_are_named(void **state) {
  struct real_nvrtc *real = linker_or_skip(state);
  static const char *const lto = "-dlto", *const names[] = {"&named", "n::k<int>"};
  set_option(real, &lto);
  real->request.names = names;
  real->request.name_count = 2;
  real->request.entry = NULL;
  assert_status(KJIT_OK,
                real_nvrtc_compile(real, "__device__ int named[16];\n"
                                         "namespace n { template <class T> __global__ void k(T *p) { *p = 1; } }\n"),
                &real->error);
  assert_non_null(memmem(real->result.cubin, real->result.cubin_bytes, "named", 5));
  assert_contains(real->result.symbols, "_ZN1n1kIiEEvPT_\n");
}

static void test_link_real__ptx_alone_becomes_a_cubin(void **state) {
  struct real_nvrtc *real = linker_or_skip(state);
  static const char text[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                             ".visible .entry k(.param .u64 p)\n{\n ret;\n}\n";
  const kjit_part part = {.data = text, .kind = KJIT_PART_PTX};
  assert_status(KJIT_OK, link_with(real, NULL, &part, 1), &real->error);
  struct cubin_kernel kernel;
  assert_true(cubin_find_kernel(real->result.cubin, real->result.cubin_bytes, "k", &kernel));
  assert_true(real->result.registers > 0);
}

static void test_link_real__wrong_ptx_is_a_sentence(void **state) {
  struct real_nvrtc *real = linker_or_skip(state);
  static const char text[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n nonsense;\n}\n";
  const kjit_part part = {.data = text, .kind = KJIT_PART_PTX};
  assert_status(KJIT_ERR_COMPILE, link_with(real, NULL, &part, 1), &real->error);
  assert_contains(real->error.message, "link: ");
  assert_non_null(real->result.log);
}

static void symbol_defined_twice(struct real_nvrtc *real, uint32_t kind) {
  const kjit_part object = make_object(real, callee, kind), parts[] = {object, object};
  assert_status(KJIT_ERR_COMPILE, link_with(real, caller, parts, 2), &real->error);
  assert_contains(real->error.message, "_Z5twicef");
  free((void *)(uintptr_t)object.data);
}

static void test_link_real__symbol_defined_twice_is_a_sentence(void **state) {
  struct real_nvrtc *real = linker_or_skip(state);
  symbol_defined_twice(real, KJIT_PART_CUBIN);
  assert_contains(real->error.message, "is defined twice, in parts[0] and in parts[1]");
  symbol_defined_twice(real, KJIT_PART_LTOIR);
}

static void test_link_real__missing_function_is_named(void **state) {
  struct real_nvrtc *real = linker_or_skip(state);
  static const char *const lto = "-dlto", *const relocatable = "-rdc=true";
  set_option(real, &lto);
  assert_status(KJIT_ERR_COMPILE, real_nvrtc_compile(real, caller), &real->error);
  assert_contains(real->error.message, "_Z5twicef");
  set_option(real, &relocatable);
  assert_status(KJIT_ERR_COMPILE, real_nvrtc_compile(real, caller), &real->error);
  assert_contains(real->error.message, "_Z5twicef");
}

static const char templates[] = "namespace n {\n"
                                "__constant__ float table[4];\n"
                                "template <class T, int N> __global__ void __launch_bounds__(N) k(T *p) {\n"
                                "  __shared__ T s[N];\n"
                                "  s[threadIdx.x] = p[threadIdx.x] * T(table[1]);\n"
                                "  __syncthreads();\n"
                                "  p[threadIdx.x] = s[N - 1 - threadIdx.x];\n"
                                "}\n"
                                "}\n";

static void test_link_real__name_expressions_give_kernels_with_their_figures(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  static const char *const names[] = {"n::k<double, 128>", "n::table"};
  real->request.entry = "n::k<float,64>";
  real->request.names = names;
  real->request.name_count = 2;
  assert_status(KJIT_OK, real_nvrtc_compile(real, templates), &real->error);
  assert_int_equal(64 * 4, real->result.shared_bytes);
  assert_int_equal(64, real->result.max_threads);
  assert_contains(real->result.symbols, " 1024 128 _ZN1n1kIdLi128EEEvPT_\n");
  assert_contains(real->result.symbols, "name _ZN1n1kIfLi64EEEvPT_ n::k<float,64>\n");
  assert_contains(real->result.symbols, "name _ZN1n5tableE n::table\n");
  assert_true(symbols_are_sound(real->result.symbols, strlen(real->result.symbols)));
}

static void test_link_real__wrong_expression_is_named_and_not_the_hidden_file(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  real->request.entry = "n::k";
  real->request.names = NULL;
  static const char *const names[] = {"n::nothing<3>"};
  real->request.names = names;
  real->request.name_count = 1;
  assert_status(KJIT_ERR_COMPILE, real_nvrtc_compile(real, templates), &real->error);
  assert_contains(real->error.message, "name expression \"n::");
  assert_null(strstr(real->result.log, "__nv_name_map"));
  assert_null(strstr(real->error.message, "__nv_name_map"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      REAL_NVRTC_TEST(test_link_real__ltoir_pair_becomes_one_kernel),
      REAL_NVRTC_TEST(test_link_real__relocatable_pair_becomes_one_kernel),
      REAL_NVRTC_TEST(test_link_real__lto_leaves_unused_variables_out),
      REAL_NVRTC_TEST(test_link_real__lto_keeps_the_variables_that_are_named),
      REAL_NVRTC_TEST(test_link_real__ptx_alone_becomes_a_cubin),
      REAL_NVRTC_TEST(test_link_real__wrong_ptx_is_a_sentence),
      REAL_NVRTC_TEST(test_link_real__symbol_defined_twice_is_a_sentence),
      REAL_NVRTC_TEST(test_link_real__missing_function_is_named),
      REAL_NVRTC_TEST(test_link_real__name_expressions_give_kernels_with_their_figures),
      REAL_NVRTC_TEST(test_link_real__wrong_expression_is_named_and_not_the_hidden_file),
  };
  return cmocka_run_group_tests_name("link_real", tests, NULL, NULL);
}
