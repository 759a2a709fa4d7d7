/* Unused variables in cubins of the real NVRTC: what goes, what stays, and that code is the same. */
#include "base/files/elf_view.h"
#include "jit/cubin/cubin_image.h"
#include "jit/real_nvrtc.h"

/* A hundred variables that nothing uses, of some hundred bytes each in a cubin, and some that are used or asked for. */
static const char source[] =
    "#pragma nv_diag_suppress 177\n"
    "#define ONE(n) constexpr int value_that_no_kernel_ever_asks_for_number_##n = 1##n;\n"
    "#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) "
    "ONE(n##9)\n"
    "namespace n {\n"
    "TEN(0) TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)\n"
    "static __device__ float used[4] = {1, 2, 3, 4};\n"
    "static __device__ int asked_for;\n"
    "}\n"
    "__device__ int seen_by_all;\n"
    "extern \"C\" __global__ void k(float *p) { p[threadIdx.x] *= n::used[threadIdx.x & 3]; }\n";

static bool has_symbol(const struct real_nvrtc *real, const char *part) {
  struct cubin_image image;
  bool found = false;
  assert_int_equal(KJIT_OK, cubin_image_open(&image, &real->mem, real->result.cubin, real->result.cubin_bytes));
  for (size_t i = 0; i < image.symbol_count; i++)
    found |= strstr(cubin_image_symbol_name(&image, i), part) != NULL;
  cubin_image_finish(&image);
  return found;
}

static struct elf_bytes section_of(const void *cubin, size_t bytes, const char *name) {
  struct elf_view elf;
  struct elf_bytes content;
  assert_true(elf_view_open(&elf, cubin, bytes));
  assert_true(elf_view_find_section(&elf, name, &content));
  return content;
}

static void test_unused__variables_go_and_code_stays(void **state) {
  static const char *const same[] = {".text.k", ".nv.constant0.k"};
  struct real_nvrtc *const real = real_nvrtc_or_skip(state, NULL);
  real->request.flags = KJIT_BUILD_KEEP_UNUSED;
  assert_status(KJIT_OK, real_nvrtc_compile(real, source), &real->error);
  assert_true(has_symbol(real, "value_that_no_kernel"));
  const size_t whole_bytes = real->result.cubin_bytes;
  void *const whole = real_nvrtc_copy_cubin(real);
  real->request.flags = 0;
  assert_status(KJIT_OK, real_nvrtc_compile(real, source), &real->error);
  assert_true(real->result.cubin_bytes + 4096 < whole_bytes);
  assert_false(has_symbol(real, "value_that_no_kernel"));
  for (size_t i = 0; i < 2; i++) {
    const struct elf_bytes before = section_of(whole, whole_bytes, same[i]);
    const struct elf_bytes after = section_of(real->result.cubin, real->result.cubin_bytes, same[i]);
    assert_int_equal(before.bytes, after.bytes);
    assert_memory_equal(before.data, after.data, after.bytes);
  }
  assert_true(real->result.registers > 0);
  free(whole);
}

static void test_unused__what_is_used_stays(void **state) {
  struct real_nvrtc *const real = real_nvrtc_or_skip(state, NULL);
  assert_status(KJIT_OK, real_nvrtc_compile(real, source), &real->error);
  assert_true(has_symbol(real, "used"));
  assert_false(has_symbol(real, "asked_for"));
}

static void test_unused__what_others_can_see_stays(void **state) {
  struct real_nvrtc *const real = real_nvrtc_or_skip(state, NULL);
  assert_status(KJIT_OK, real_nvrtc_compile(real, source), &real->error);
  assert_true(has_symbol(real, "seen_by_all"));
}

static void test_unused__what_is_asked_for_by_name_stays(void **state) {
  static const char *const names[] = {"&n::asked_for"};
  struct real_nvrtc *const real = real_nvrtc_or_skip(state, NULL);
  real->request.names = names;
  real->request.name_count = 1;
  assert_status(KJIT_OK, real_nvrtc_compile(real, source), &real->error);
  assert_true(has_symbol(real, "asked_for"));
  assert_false(has_symbol(real, "value_that_no_kernel"));
}

static void test_unused__few_are_left_alone(void **state) {
  static const char few[] = "namespace n { static __device__ int spare; }\n"
                            "#pragma nv_diag_suppress 177\n"
                            "extern \"C\" __global__ void k(float *p) { *p = 1; }\n";
  struct real_nvrtc *const real = real_nvrtc_or_skip(state, NULL);
  assert_status(KJIT_OK, real_nvrtc_compile(real, few), &real->error);
  const size_t bytes = real->result.cubin_bytes;
  void *const dropped = real_nvrtc_copy_cubin(real);
  real->request.flags = KJIT_BUILD_KEEP_UNUSED;
  assert_status(KJIT_OK, real_nvrtc_compile(real, few), &real->error);
  assert_int_equal(bytes, real->result.cubin_bytes);
  assert_memory_equal(dropped, real->result.cubin, bytes);
  free(dropped);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      REAL_NVRTC_TEST(test_unused__variables_go_and_code_stays),
      REAL_NVRTC_TEST(test_unused__what_is_used_stays),
      REAL_NVRTC_TEST(test_unused__what_others_can_see_stays),
      REAL_NVRTC_TEST(test_unused__what_is_asked_for_by_name_stays),
      REAL_NVRTC_TEST(test_unused__few_are_left_alone),
  };
  return cmocka_run_group_tests_name("unused", tests, NULL, NULL);
}
