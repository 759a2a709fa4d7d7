/* Reading 64-bit little-endian ELF images in memory: shared libraries and cubins. Nothing in the image is trusted:
 * every offset and count is checked against its size before use. */
#ifndef KJIT_BASE_ELF_VIEW_H
#define KJIT_BASE_ELF_VIEW_H

#include <stdbool.h>

#include <kjit/common.h>

struct elf_view {
  const unsigned char *data;
  size_t bytes;
};

struct elf_bytes {
  const unsigned char *data;
  size_t bytes;
};

/* False when it does not begin with the header of such an image. `data` is borrowed. */
bool elf_view_open(struct elf_view *elf, const void *data, size_t bytes);

/* Section `index` and its name. False past the end, and for a damaged one. A section without bytes in the image
 * (SHT_NOBITS) has none here. */
bool elf_view_section(const struct elf_view *elf, size_t index, const char **name, struct elf_bytes *content);

/* The first section of that name. */
bool elf_view_find_section(const struct elf_view *elf, const char *name, struct elf_bytes *content);

size_t elf_view_section_count(const struct elf_view *elf);

/* The GNU build-id, from the program headers' notes, else from the sections'. False when there is none. */
bool elf_view_build_id(const struct elf_view *elf, struct elf_bytes *id);

#endif
