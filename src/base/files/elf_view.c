/* A reader of 64-bit little-endian ELF images: sections by number and by name, and the GNU build-id.
 *
 * The image is a cubin or a shared library that somebody else wrote, so nothing in it is believed: every offset,
 * count and size is compared with the image's size before it is used, with arithmetic that notices overflow. Records
 * are copied out before they are read, because the image may have any alignment. A function that meets damage says
 * that there is no such section or build-id.
 *
 * Nothing is allocated and nothing is kept. A view may be read by any number of threads while its bytes stay as they
 * are. */
#include "base/files/elf_view.h"

#include <elf.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ELF structures are read as the host lays them out");

/* Do `bytes` bytes from `offset` on lie inside the image? */
static bool range_fits(const struct elf_view *elf, uint64_t offset, uint64_t bytes) {
  return offset <= elf->bytes && bytes <= elf->bytes - offset;
}

static bool copy_out(const struct elf_view *elf, uint64_t offset, void *out, size_t bytes) {
  if (!range_fits(elf, offset, bytes)) return false;
  memcpy(out, elf->data + offset, bytes);
  return true;
}

/* Copy entry `index` of a table of `size`-byte records that begins at `table`. */
static bool copy_record(const struct elf_view *elf, uint64_t table, size_t index, void *out, size_t size) {
  uint64_t offset;
  if (__builtin_mul_overflow((uint64_t)index, (uint64_t)size, &offset)) return false;
  if (__builtin_add_overflow(table, offset, &offset)) return false;
  return copy_out(elf, offset, out, size);
}

static Elf64_Ehdr header_of(const struct elf_view *elf) {
  Elf64_Ehdr header;
  memcpy(&header, elf->data, sizeof header); /* elf_view_open() saw that it is there */
  return header;
}

bool elf_view_open(struct elf_view *elf, const void *data, size_t bytes) {
  *elf = (struct elf_view){0};
  if (!data || bytes < sizeof(Elf64_Ehdr)) return false;
  const struct elf_view view = {data, bytes};
  const Elf64_Ehdr header = header_of(&view);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) return false;
  if (header.e_phnum && header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  if (header.e_shnum && header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  *elf = view;
  return true;
}

size_t elf_view_section_count(const struct elf_view *elf) {
  return header_of(elf).e_shnum;
}

static bool section_header(const struct elf_view *elf, size_t index, Elf64_Shdr *section) {
  const Elf64_Ehdr header = header_of(elf);
  return index < header.e_shnum && copy_record(elf, header.e_shoff, index, section, sizeof *section);
}

/* The name at `offset` of the section-name table; NULL when it does not end with a NUL inside the table. */
static const char *section_name(const struct elf_view *elf, uint32_t offset) {
  Elf64_Shdr names;
  if (!section_header(elf, header_of(elf).e_shstrndx, &names)) return NULL;
  if (!range_fits(elf, names.sh_offset, names.sh_size) || offset >= names.sh_size) return NULL;
  const char *name = (const char *)elf->data + names.sh_offset + offset;
  return memchr(name, '\0', names.sh_size - offset) ? name : NULL;
}

bool elf_view_section(const struct elf_view *elf, size_t index, const char **name, struct elf_bytes *content) {
  Elf64_Shdr section;
  if (!section_header(elf, index, &section)) return false;
  *name = section_name(elf, section.sh_name);
  if (!*name) return false;
  *content = (struct elf_bytes){0};
  if (section.sh_type == SHT_NOBITS) return true;
  if (!range_fits(elf, section.sh_offset, section.sh_size)) return false;
  *content = (struct elf_bytes){elf->data + section.sh_offset, section.sh_size};
  return true;
}

bool elf_view_find_section(const struct elf_view *elf, const char *name, struct elf_bytes *content) {
  const size_t count = elf_view_section_count(elf);
  for (size_t i = 0; i < count; i++) {
    const char *found;
    if (elf_view_section(elf, i, &found, content) && !strcmp(found, name)) return true;
  }
  *content = (struct elf_bytes){0};
  return false;
}

/* Notes are {name size, descriptor size, type}, name, descriptor, the last two padded to the alignment. */
static bool find_build_id(const unsigned char *data, size_t bytes, uint64_t alignment, struct elf_bytes *id) {
  const size_t pad = alignment == 8 ? 7 : 3;
  size_t at = 0;
  Elf64_Nhdr note;
  while (at <= bytes && sizeof note <= bytes - at) {
    memcpy(&note, data + at, sizeof note);
    at += sizeof note;
    /* 32-bit sizes cannot overflow a size_t here. */
    const size_t name_bytes = note.n_namesz, descriptor = (at + name_bytes + pad) & ~pad;
    if (descriptor > bytes || note.n_descsz > bytes - descriptor) return false;
    if (note.n_type == NT_GNU_BUILD_ID && name_bytes == 4 && !memcmp(data + at, "GNU", 4) && note.n_descsz > 0) {
      *id = (struct elf_bytes){data + descriptor, note.n_descsz};
      return true;
    }
    at = (descriptor + note.n_descsz + pad) & ~pad;
  }
  return false;
}

static bool build_id_in_segments(const struct elf_view *elf, struct elf_bytes *id) {
  const Elf64_Ehdr header = header_of(elf);
  for (size_t i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    if (!copy_record(elf, header.e_phoff, i, &segment, sizeof segment)) return false;
    if (segment.p_type != PT_NOTE || !range_fits(elf, segment.p_offset, segment.p_filesz)) continue;
    if (find_build_id(elf->data + segment.p_offset, segment.p_filesz, segment.p_align, id)) return true;
  }
  return false;
}

static bool build_id_in_sections(const struct elf_view *elf, struct elf_bytes *id) {
  const size_t count = elf_view_section_count(elf);
  for (size_t i = 0; i < count; i++) {
    Elf64_Shdr section;
    if (!section_header(elf, i, &section)) return false;
    if (section.sh_type != SHT_NOTE || !range_fits(elf, section.sh_offset, section.sh_size)) continue;
    if (find_build_id(elf->data + section.sh_offset, section.sh_size, section.sh_addralign, id)) return true;
  }
  return false;
}

bool elf_view_build_id(const struct elf_view *elf, struct elf_bytes *id) {
  *id = (struct elf_bytes){0};
  return build_id_in_segments(elf, id) || build_id_in_sections(elf, id);
}
