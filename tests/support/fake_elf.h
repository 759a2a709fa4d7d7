/* Small ELF images that tests make: with notes as a shared library has, or with sections as a cubin has. */
#ifndef KJIT_TESTS_SUPPORT_FAKE_ELF_H
#define KJIT_TESTS_SUPPORT_FAKE_ELF_H

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_ELF_BYTES 4096

struct fake_elf {
  unsigned char data[FAKE_ELF_BYTES];
  size_t bytes;
};

struct fake_section {
  const char *name;
  uint32_t type;
  const void *data;
  size_t bytes;
};

static inline Elf64_Ehdr *fake_elf_header(struct fake_elf *elf) {
  return (Elf64_Ehdr *)(void *)elf->data;
}

static inline void fake_elf_begin(struct fake_elf *elf) {
  memset(elf, 0, sizeof *elf);
  Elf64_Ehdr *header = fake_elf_header(elf);
  memcpy(header->e_ident, ELFMAG, SELFMAG);
  header->e_ident[EI_CLASS] = ELFCLASS64;
  header->e_ident[EI_DATA] = ELFDATA2LSB;
  header->e_phentsize = sizeof(Elf64_Phdr);
  header->e_shentsize = sizeof(Elf64_Shdr);
  elf->bytes = sizeof *header;
}

static inline size_t fake_elf_append(struct fake_elf *elf, const void *data, size_t bytes) {
  const size_t at = (elf->bytes + 7) & ~(size_t)7;
  if (at + bytes > sizeof elf->data) abort();
  if (bytes) memcpy(elf->data + at, data, bytes);
  elf->bytes = at + bytes;
  return at;
}

/* Write one note into `out`. Returns its size, padded to a multiple of 4. */
static inline size_t fake_note(unsigned char *out, const char *name, uint32_t type, const void *descriptor,
                               size_t bytes) {
  const Elf64_Nhdr note = {(uint32_t)strlen(name) + 1, (uint32_t)bytes, type};
  const size_t name_bytes = (note.n_namesz + 3u) & ~3u, padded = (bytes + 3) & ~(size_t)3;
  memset(out, 0, sizeof note + name_bytes + padded);
  memcpy(out, &note, sizeof note);
  memcpy(out + sizeof note, name, note.n_namesz);
  memcpy(out + sizeof note + name_bytes, descriptor, bytes);
  return sizeof note + name_bytes + padded;
}

/* Add a PT_NOTE segment with these notes. */
static inline void fake_elf_add_segment(struct fake_elf *elf, const void *notes, size_t bytes, uint64_t alignment) {
  const Elf64_Phdr segment = {
      .p_type = PT_NOTE, .p_offset = fake_elf_append(elf, notes, bytes), .p_filesz = bytes, .p_align = alignment};
  fake_elf_header(elf)->e_phoff = fake_elf_append(elf, &segment, sizeof segment);
  fake_elf_header(elf)->e_phnum = 1;
}

/* Add these sections, at most 14, between the null section and the section of names. */
static inline void fake_elf_add_sections(struct fake_elf *elf, const struct fake_section *sections, size_t count) {
  Elf64_Shdr headers[16] = {{0}};
  char names[1024] = "";
  size_t names_bytes = 1;
  for (size_t i = 0; i <= count; i++) {
    const struct fake_section strings = {".shstrtab", SHT_STRTAB, names, sizeof names};
    const struct fake_section *section = i < count ? &sections[i] : &strings;
    headers[i + 1].sh_name = (uint32_t)names_bytes;
    headers[i + 1].sh_type = section->type;
    strcpy(names + names_bytes, section->name);
    names_bytes += strlen(section->name) + 1;
    headers[i + 1].sh_size = i < count ? section->bytes : names_bytes;
    headers[i + 1].sh_offset = fake_elf_append(elf, section->data, headers[i + 1].sh_size);
    headers[i + 1].sh_addralign = 4;
  }
  fake_elf_header(elf)->e_shoff = fake_elf_append(elf, headers, (count + 2) * sizeof *headers);
  fake_elf_header(elf)->e_shnum = (uint16_t)(count + 2);
  fake_elf_header(elf)->e_shstrndx = (uint16_t)(count + 1);
}

/* Make the image of a shared library whose build-id is in a segment. */
static inline void fake_elf_library(struct fake_elf *elf, const void *build_id, size_t bytes) {
  unsigned char notes[256];
  const size_t notes_bytes = fake_note(notes, "GNU", NT_GNU_BUILD_ID, build_id, bytes);
  fake_elf_begin(elf);
  fake_elf_add_segment(elf, notes, notes_bytes, 4);
}

#endif
