#include "base/files/elf_view.h"

#include "support/fake_elf.h"
#include "support/test.h"
#include <stdbool.h>

static const unsigned char build_id[20] = {0xde, 0xad, 0xbe, 0xef, 1,  2,  3,  4,  5,  6,
                                           7,    8,    9,    10,   11, 12, 13, 14, 15, 16};

/* The image in memory of its own size, so that the sanitizer sees a byte too many. */
static bool find_build_id(const void *data, size_t bytes) {
  unsigned char *copy = malloc(bytes ? bytes : 1);
  memcpy(copy, data, bytes);
  struct elf_view elf;
  struct elf_bytes id = {0};
  const bool found = elf_view_open(&elf, copy, bytes) && elf_view_build_id(&elf, &id);
  const bool right = found && id.bytes == sizeof build_id && !memcmp(id.data, build_id, sizeof build_id);
  free(copy);
  return right;
}

static void make_section_notes(struct fake_elf *elf) {
  unsigned char notes[256];
  size_t bytes = fake_note(notes, "stapsdt", 3, "probe", 5);
  bytes += fake_note(notes + bytes, "GNU", NT_GNU_BUILD_ID, build_id, sizeof build_id);
  const struct fake_section sections[] = {{".text", SHT_PROGBITS, "code", 4},
                                          {".note.gnu.build-id", SHT_NOTE, notes, bytes}};
  fake_elf_begin(elf);
  fake_elf_add_sections(elf, sections, 2);
}

static void test_elf_view__build_id_in_a_segment_is_found(void **state) {
  (void)state;
  struct fake_elf elf;
  fake_elf_library(&elf, build_id, sizeof build_id);
  assert_true(find_build_id(elf.data, elf.bytes));
}

static void test_elf_view__build_id_in_a_section_is_found(void **state) {
  (void)state;
  struct fake_elf elf;
  make_section_notes(&elf);
  assert_true(find_build_id(elf.data, elf.bytes));
}

static void test_elf_view__build_id_in_notes_aligned_to_8_is_found(void **state) {
  (void)state;
  unsigned char notes[256];
  struct fake_elf elf;
  /* {4, 16, 5} "GNU\0" and 16 bytes: 32, a multiple of 8 already; then the build-id. */
  size_t bytes = fake_note(notes, "GNU", 5, "0123456789abcdef", 16);
  bytes += fake_note(notes + bytes, "GNU", NT_GNU_BUILD_ID, build_id, sizeof build_id);
  fake_elf_begin(&elf);
  fake_elf_add_segment(&elf, notes, bytes, 8);
  assert_true(find_build_id(elf.data, elf.bytes));
}

static void test_elf_view__other_notes_are_no_build_id(void **state) {
  (void)state;
  unsigned char notes[256];
  struct fake_elf elf;
  size_t bytes = fake_note(notes, "GNU", 1, build_id, sizeof build_id);
  bytes += fake_note(notes + bytes, "XYZ", NT_GNU_BUILD_ID, build_id, sizeof build_id);
  fake_elf_begin(&elf);
  fake_elf_add_segment(&elf, notes, bytes, 4);
  assert_false(find_build_id(elf.data, elf.bytes));
}

static void test_elf_view__truncation_at_every_length_is_survived(void **state) {
  (void)state;
  struct fake_elf elf;
  fake_elf_library(&elf, build_id, sizeof build_id);
  for (size_t bytes = 0; bytes < elf.bytes; bytes++)
    assert_false(find_build_id(elf.data, bytes)); /* the program header is last */
  make_section_notes(&elf);
  for (size_t bytes = 0; bytes < elf.bytes; bytes++)
    (void)find_build_id(elf.data, bytes);
}

static void test_elf_view__every_flipped_bit_is_survived(void **state) {
  (void)state;
  for (int with_sections = 0; with_sections < 2; with_sections++) {
    struct fake_elf elf;
    if (with_sections)
      make_section_notes(&elf);
    else
      fake_elf_library(&elf, build_id, sizeof build_id);
    for (size_t bit = 0; bit < 8 * elf.bytes; bit++) {
      elf.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
      (void)find_build_id(elf.data, elf.bytes);
      elf.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
  }
}

static void test_elf_view__huge_offsets_and_counts_are_survived(void **state) {
  (void)state;
  struct fake_elf elf;
  fake_elf_library(&elf, build_id, sizeof build_id);
  fake_elf_header(&elf)->e_phoff = UINT64_MAX - 8;
  assert_false(find_build_id(elf.data, elf.bytes));
  fake_elf_library(&elf, build_id, sizeof build_id);
  Elf64_Phdr *segment = (Elf64_Phdr *)(void *)(elf.data + fake_elf_header(&elf)->e_phoff);
  segment->p_filesz = UINT64_MAX;
  assert_false(find_build_id(elf.data, elf.bytes));
  make_section_notes(&elf);
  fake_elf_header(&elf)->e_shnum = UINT16_MAX;
  (void)find_build_id(elf.data, elf.bytes);
  fake_elf_header(&elf)->e_shoff = UINT64_MAX;
  assert_false(find_build_id(elf.data, elf.bytes));
}

static void test_elf_view__other_classes_and_byte_orders_are_refused(void **state) {
  (void)state;
  struct fake_elf elf;
  struct elf_view view;
  fake_elf_library(&elf, build_id, sizeof build_id);
  elf.data[EI_CLASS] = ELFCLASS32;
  assert_false(elf_view_open(&view, elf.data, elf.bytes));
  elf.data[EI_CLASS] = ELFCLASS64;
  elf.data[EI_DATA] = ELFDATA2MSB;
  assert_false(elf_view_open(&view, elf.data, elf.bytes));
  elf.data[EI_DATA] = ELFDATA2LSB;
  assert_true(elf_view_open(&view, elf.data, elf.bytes));
  assert_false(elf_view_open(&view, NULL, 0));
}

static void test_elf_view__sections_are_found_by_name(void **state) {
  (void)state;
  struct fake_elf elf;
  struct elf_view view;
  struct elf_bytes content;
  make_section_notes(&elf);
  assert_true(elf_view_open(&view, elf.data, elf.bytes));
  assert_int_equal(4, elf_view_section_count(&view));
  assert_true(elf_view_find_section(&view, ".text", &content));
  assert_int_equal(4, content.bytes);
  assert_memory_equal("code", content.data, 4);
  assert_false(elf_view_find_section(&view, ".tex", &content));
  assert_null(content.data);
}

static void test_elf_view__section_without_bytes_in_the_image_is_empty(void **state) {
  (void)state;
  const struct fake_section sections[] = {{".bss", SHT_NOBITS, NULL, 0}};
  struct fake_elf elf;
  struct elf_view view;
  struct elf_bytes content;
  fake_elf_begin(&elf);
  fake_elf_add_sections(&elf, sections, 1);
  Elf64_Shdr *bss = (Elf64_Shdr *)(void *)(elf.data + fake_elf_header(&elf)->e_shoff) + 1;
  bss->sh_size = 1 << 30;
  assert_true(elf_view_open(&view, elf.data, elf.bytes));
  assert_true(elf_view_find_section(&view, ".bss", &content));
  assert_int_equal(0, content.bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_elf_view__build_id_in_a_segment_is_found),
      cmocka_unit_test(test_elf_view__build_id_in_a_section_is_found),
      cmocka_unit_test(test_elf_view__build_id_in_notes_aligned_to_8_is_found),
      cmocka_unit_test(test_elf_view__other_notes_are_no_build_id),
      cmocka_unit_test(test_elf_view__truncation_at_every_length_is_survived),
      cmocka_unit_test(test_elf_view__every_flipped_bit_is_survived),
      cmocka_unit_test(test_elf_view__huge_offsets_and_counts_are_survived),
      cmocka_unit_test(test_elf_view__other_classes_and_byte_orders_are_refused),
      cmocka_unit_test(test_elf_view__sections_are_found_by_name),
      cmocka_unit_test(test_elf_view__section_without_bytes_in_the_image_is_empty),
  };
  return cmocka_run_group_tests_name("elf_view", tests, NULL, NULL);
}
