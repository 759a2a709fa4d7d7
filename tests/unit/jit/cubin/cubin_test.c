#include "jit/cubin/cubin.h"

#include "support/fake_elf.h"
#include "support/test.h"
#include <stdbool.h>

/* {format, attribute, size} and what follows, as in a cubin of CUDA 13.0. */
static const unsigned char info_k[] = {
    0x04, 0x37, 4,    0, 0x82, 0, 0, 0,                         /* API version                        */
    0x03, 0x1b, 0xff, 0,                                        /* a value of 16 bits, nothing behind */
    0x04, 0x05, 12,   0, 128,  0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, /* 128 x 2 x 1 threads     */
};

static void make_cubin(struct fake_elf *elf, const void *info, size_t info_bytes) {
  const struct fake_section sections[] = {{".text.k", SHT_PROGBITS, "code", 4},
                                          {".nv.info", 0x70000000, "", 0},
                                          {".nv.info.k", 0x70000000, info, info_bytes},
                                          {".text.plain", SHT_PROGBITS, "code", 4}};
  fake_elf_begin(elf);
  fake_elf_add_sections(elf, sections, 4);
}

static uint32_t max_threads(const struct fake_elf *elf, size_t bytes, const char *entry) {
  struct cubin_kernel kernel;
  unsigned char *copy = malloc(bytes ? bytes : 1);
  memcpy(copy, elf->data, bytes);
  const bool found = cubin_find_kernel(copy, bytes, entry, &kernel);
  free(copy);
  return found ? kernel.max_threads : UINT32_MAX;
}

static void test_cubin__launch_bounds_are_read(void **state) {
  (void)state;
  struct fake_elf elf;
  make_cubin(&elf, info_k, sizeof info_k);
  assert_int_equal(256, max_threads(&elf, elf.bytes, "k"));
}

static void test_cubin__kernel_without_bounds_states_none(void **state) {
  (void)state;
  struct fake_elf elf;
  make_cubin(&elf, info_k, sizeof info_k);
  assert_int_equal(0, max_threads(&elf, elf.bytes, "plain"));
}

static void test_cubin__parameters_are_counted(void **state) {
  (void)state;
  struct fake_elf elf;
  struct cubin_kernel kernel;
  static const unsigned char info[] = {
      0x04, 0x17, 12, 0, 0, 0, 0, 0, 1, 0, 0x28, 0, 0, 0, 0x10, 0, /* the second: 4 bytes at offset 40 */
      0x04, 0x17, 12, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0xa0, 0, /* the first: 40 bytes */
  };
  make_cubin(&elf, info, sizeof info);
  assert_true(cubin_find_kernel(elf.data, elf.bytes, "k", &kernel));
  assert_true(kernel.has_info);
  assert_int_equal(2, kernel.parameter_count);
  uint32_t sizes[4];
  assert_true(cubin_parameter_sizes(elf.data, elf.bytes, "k", sizes, 4));
  assert_int_equal(40, sizes[0]);
  assert_int_equal(4, sizes[1]);
  assert_false(cubin_parameter_sizes(elf.data, elf.bytes, "k", sizes, 1));
  assert_true(cubin_find_kernel(elf.data, elf.bytes, "plain", &kernel));
  assert_false(kernel.has_info);
}

/* What the compiler writes where all parameters together have more than 4 KiB. */
static void test_cubin__large_parameters_are_read(void **state) {
  (void)state;
  struct fake_elf elf;
  uint32_t sizes[2];
  static const unsigned char info[] = {
      0x04, 0x45, 12, 0, 0, 0, 0, 0, 1, 0, 0x28, 0x4e, 8,    0,    0, 0, /* the second: 8 bytes at offset 20008 */
      0x04, 0x45, 12, 0, 0, 0, 0, 0, 0, 0, 0,    0,    0x20, 0x4e, 0, 0, /* the first: 20000 bytes */
  };
  make_cubin(&elf, info, sizeof info);
  assert_true(cubin_parameter_sizes(elf.data, elf.bytes, "k", sizes, 2));
  assert_int_equal(20000, sizes[0]);
  assert_int_equal(8, sizes[1]);
}

static void test_cubin__missing_kernel_is_not_found(void **state) {
  (void)state;
  struct fake_elf elf;
  make_cubin(&elf, info_k, sizeof info_k);
  assert_int_equal(UINT32_MAX, max_threads(&elf, elf.bytes, "kk"));
  char *name = malloc(100000);
  memset(name, 'k', 99999);
  name[99999] = '\0';
  assert_int_equal(UINT32_MAX, max_threads(&elf, elf.bytes, name));
  free(name);
}

static void test_cubin__absurd_bounds_are_no_bounds(void **state) {
  (void)state;
  struct fake_elf elf;
  static const unsigned char info[] = {0x04, 0x05, 12, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0};
  make_cubin(&elf, info, sizeof info);
  assert_int_equal(0, max_threads(&elf, elf.bytes, "k"));
}

static void test_cubin__damage_is_survived(void **state) {
  (void)state;
  struct fake_elf elf;
  make_cubin(&elf, info_k, sizeof info_k);
  for (size_t bytes = 0; bytes < elf.bytes; bytes++)
    (void)max_threads(&elf, bytes, "k");
  for (size_t bit = 0; bit < 8 * elf.bytes; bit++) {
    elf.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    (void)max_threads(&elf, elf.bytes, "k");
    elf.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
  }
}

static void test_cubin__info_cut_at_every_length_is_survived(void **state) {
  (void)state;
  for (size_t bytes = 0; bytes < sizeof info_k; bytes++) {
    struct fake_elf elf;
    make_cubin(&elf, info_k, bytes);
    assert_int_equal(0, max_threads(&elf, elf.bytes, "k"));
  }
}

static void test_cubin__kernels_are_listed(void **state) {
  (void)state;
  struct mem mem;
  struct text text;
  struct fake_elf elf;
  make_cubin(&elf, info_k, sizeof info_k);
  assert_true(mem_init(&mem, NULL));
  text_init(&text, &mem, 1000);
  text_append(&text, "> ");
  cubin_list_kernels(elf.data, elf.bytes, &text);
  text_append(&text, "; ");
  cubin_list_kernels("no cubin", 8, &text);
  assert_string_equal("> k, plain; none", text.data);
  text_finish(&text);
}

static void test_cubin__other_images_are_not_readable(void **state) {
  (void)state;
  struct fake_elf elf;
  make_cubin(&elf, info_k, sizeof info_k);
  assert_true(cubin_is_readable(elf.data, elf.bytes));
  assert_false(cubin_is_readable("not an ELF image, but as long as a header would be, and then some more", 64));
  fake_elf_begin(&elf);
  assert_false(cubin_is_readable(elf.data, elf.bytes));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cubin__launch_bounds_are_read),
      cmocka_unit_test(test_cubin__kernel_without_bounds_states_none),
      cmocka_unit_test(test_cubin__parameters_are_counted),
      cmocka_unit_test(test_cubin__large_parameters_are_read),
      cmocka_unit_test(test_cubin__missing_kernel_is_not_found),
      cmocka_unit_test(test_cubin__absurd_bounds_are_no_bounds),
      cmocka_unit_test(test_cubin__damage_is_survived),
      cmocka_unit_test(test_cubin__info_cut_at_every_length_is_survived),
      cmocka_unit_test(test_cubin__kernels_are_listed),
      cmocka_unit_test(test_cubin__other_images_are_not_readable),
  };
  return cmocka_run_group_tests_name("cubin", tests, NULL, NULL);
}
