/* Finding the variables of a cubin that nothing uses.
 *
 * The PTX says what uses what: code reaches a variable by its name there, and so does another variable's initial value.
 * A name that stands in it once stands where it is declared, and nowhere else. Candidates are variables with a mangled
 * name, which are those of namespaces, classes and templates. NVRTC makes all of a module local, so neither cubin nor
 * PTX tells a static variable from one that the program means to look up; but who looks one up by a plain name declared
 * it outside of all namespaces, and who looks up another asks for it by a name expression, and then it stays. A
 * variable that a relocation of anything but a constant bank refers to stays as well. One thread. */
#include "jit/cubin/unused.h"

#include <string.h>

#include "base/files/elf_view.h"
#include "jit/cubin/cubin_image.h"
#include "jit/cubin/name_uses.h"

/* With less than this to be gained, the cubin stays as the compiler made it. */
#define LEAST_GAIN_BYTES 4096

static bool is_candidate(const struct cubin_image *image, size_t number) {
  const Elf64_Sym *const symbol = &image->symbols[number];
  if (ELF64_ST_BIND(symbol->st_info) != STB_LOCAL || ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT) return false;
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= image->section_count) return false;
  const char *const section = cubin_image_section_name(image, symbol->st_shndx);
  const bool holds_variables = !strcmp(section, ".nv.global") || !strcmp(section, ".nv.global.init") ||
                               cubin_image_is_constants(image, symbol->st_shndx);
  const char *const name = cubin_image_symbol_name(image, number);
  return holds_variables && !strncmp(name, "_Z", 2);
}

/* The candidates' names, with how often each stands in the PTX. One that is to be kept counts as used twice, as does
 * one that two symbols have. */
static bool count_uses(struct name_uses *uses, const struct cubin_image *image, const char *ptx, size_t ptx_bytes,
                       unused_keep keep, void *user) {
  size_t bytes;
  if (!name_uses_init(uses, image->mem, image->symbol_count)) return false;
  for (size_t i = 0; i < image->symbol_count; i++) {
    if (!is_candidate(image, i)) continue;
    const char *const name = cubin_image_symbol_name(image, i);
    struct name_use *const use = name_uses_find(uses, name, strlen(name));
    if (use)
      use->count += 2;
    else
      name_uses_add(uses, name, strlen(name));
  }
  for (const char *name; (name = keep(user, &bytes));) {
    struct name_use *const use = name_uses_find(uses, name, bytes);
    if (use) use->count += 2;
  }
  name_uses_count(uses, ptx, ptx_bytes);
  return true;
}

static bool keep_referred(void *user, size_t offset, uint32_t symbol) {
  struct cubin_image *const image = user;
  (void)offset;
  image->dropped[symbol] = false;
  return true;
}

/* Mark what may go, and say how much that is in the tables of symbols, strings and relocations. */
static size_t mark(struct cubin_image *image, const struct name_uses *uses) {
  size_t gain = 0;
  for (size_t i = 0; i < image->symbol_count; i++) {
    const char *const name = cubin_image_symbol_name(image, i);
    const struct name_use *const use = is_candidate(image, i) ? name_uses_find(uses, name, strlen(name)) : NULL;
    image->dropped[i] = use && use->count == 1;
  }
  (void)cubin_image_visit_symbols(image, keep_referred, image);
  for (size_t i = 0; i < image->symbol_count; i++)
    if (image->dropped[i])
      gain += sizeof(Elf64_Sym) + sizeof(Elf64_Rela) + image->symbols[i].st_size +
              strlen(cubin_image_symbol_name(image, i));
  return gain;
}

/* Each variable has a slot of eight bytes in the bank of addresses, or a place in the data. */
bool unused_is_likely(const void *cubin, size_t bytes) {
  struct elf_view elf;
  struct elf_bytes content;
  if (!elf_view_open(&elf, cubin, bytes)) return false;
  if (elf_view_find_section(&elf, ".nv.constant4", &content) && content.bytes >= 64) return true;
  return elf_view_find_section(&elf, ".nv.global.init", &content) && content.bytes >= LEAST_GAIN_BYTES / 2;
}

size_t unused_drop(const struct mem *mem, void *cubin, size_t bytes, const char *ptx, size_t ptx_bytes,
                   unused_keep keep, void *user) {
  struct cubin_image image;
  struct name_uses uses = {0};
  size_t written = 0;
  unsigned char *out = NULL;
  if (cubin_image_open(&image, mem, cubin, bytes) != KJIT_OK) goto done;
  if (!count_uses(&uses, &image, ptx, ptx_bytes, keep, user)) goto done;
  if (mark(&image, &uses) >= LEAST_GAIN_BYTES) out = mem_alloc(mem, bytes);
  if (out) written = cubin_image_write(&image, out);
  if (written) memcpy(cubin, out, written);

done:
  mem_free(mem, out);
  name_uses_finish(&uses, mem);
  cubin_image_finish(&image);
  return written ? written : bytes;
}
