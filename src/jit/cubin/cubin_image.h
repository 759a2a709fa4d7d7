/* A cubin taken apart so that it can be written again with fewer symbols. Of unused.c. */
#ifndef KJIT_JIT_CUBIN_CUBIN_IMAGE_H
#define KJIT_JIT_CUBIN_CUBIN_IMAGE_H

#include <elf.h>
#include <stdbool.h>

#include "base/mem.h"

struct cubin_image {
  const struct mem *mem;
  const unsigned char *data;
  size_t bytes;
  Elf64_Ehdr head;
  Elf64_Shdr *sections; /* aligned copies, as are the following */
  Elf64_Phdr *segments;
  Elf64_Sym *symbols;
  size_t section_count, segment_count, symbol_count;
  size_t symbol_table, string_table; /* numbers of sections */
  bool *dropped;                     /* by symbol: to be set before cubin_image_write() */
};

/* KJIT_ERR_UNSUPPORTED: no cubin, damaged, or with a part whose use of symbols is not known. KJIT_ERR_NO_MEMORY. Finish
 * it in every case. The data is borrowed. */
kjit_status cubin_image_open(struct cubin_image *image, const struct mem *mem, const void *data, size_t bytes);
void cubin_image_finish(struct cubin_image *image);

/* Static or borrowed; never NULL. */
const char *cubin_image_section_name(const struct cubin_image *image, size_t section);
const char *cubin_image_symbol_name(const struct cubin_image *image, size_t symbol);

/* Is it one of ".nv.constant4" and the like, ".nv.constant0…" excepted? */
bool cubin_image_is_constants(const struct cubin_image *image, size_t section);

/* With an addend in each entry (SHT_RELA) or in the section that they are for (SHT_REL). Both begin with struct
 * Elf64_Rel.
 */
bool cubin_image_has_relocations(const Elf64_Shdr *section);

/* Call `visit` with each place of the image that holds the number of a symbol, whatever its size: places in relocations
 * of the constant banks, whose entries go with their symbol, are left out. False when `visit` was. */
typedef bool (*cubin_symbol_visit)(void *user, size_t offset, uint32_t symbol);
bool cubin_image_visit_symbols(const struct cubin_image *image, cubin_symbol_visit visit, void *user);

/* Write the image without the dropped symbols into `out`, of at least image->bytes, and return the size. Data at the
 * end of a section that held dropped variables alone goes too. 0 when memory is short. */
size_t cubin_image_write(const struct cubin_image *image, unsigned char *out);

#endif
