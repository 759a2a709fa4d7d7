/* Reading a cubin for rewriting it: sections, segments and symbols, and every place that holds a symbol's number.
 *
 * Such numbers stand in relocations, in the figures that .nv.info holds for the driver, in the call graph and in the
 * headers of code sections. NVIDIA documents none of the last three; the forms below were read off cubins whose symbols
 * are known, and cuobjdump shows them by the same names. An image with any other section type or record is refused, so
 * that nothing is renumbered by guess. Nothing in the image is believed before it is checked. One thread. */
#include "jit/cubin/cubin_image.h"

#include <string.h>

/* Section types of NVIDIA's. */
#define SECTION_INFO       (SHT_LOPROC + 0x0)
#define SECTION_CALL_GRAPH (SHT_LOPROC + 0x1)
#define SECTION_ACTIONS    (SHT_LOPROC + 0xb)
#define SECTION_COMPAT     (SHT_LOPROC + 0x86)

/* A cubin's machine number. */
#define MACHINE_CUDA 190

/* In the call graph, numbers from here on stand for no function. */
#define NO_FUNCTION 0xfffffff0u

/* A code section's sh_info: the kernel's symbol, and above it, from older compilers, its registers. */
#define INFO_SYMBOL 0xffffffu

const char *cubin_image_section_name(const struct cubin_image *image, size_t section) {
  const Elf64_Shdr *const names = &image->sections[image->head.e_shstrndx];
  return (const char *)image->data + names->sh_offset + image->sections[section].sh_name;
}

const char *cubin_image_symbol_name(const struct cubin_image *image, size_t symbol) {
  const Elf64_Shdr *const strings = &image->sections[image->string_table];
  return (const char *)image->data + strings->sh_offset + image->symbols[symbol].st_name;
}

bool cubin_image_has_relocations(const Elf64_Shdr *section) {
  return section->sh_type == SHT_RELA || section->sh_type == SHT_REL;
}

bool cubin_image_is_constants(const struct cubin_image *image, size_t section) {
  static const char prefix[] = ".nv.constant";
  const char *const name = cubin_image_section_name(image, section);
  const size_t bytes = sizeof prefix - 1;
  return !strncmp(name, prefix, bytes) && name[bytes] >= '1' && name[bytes] <= '9';
}

static bool fits(const struct cubin_image *image, uint64_t offset, uint64_t bytes) {
  return offset <= image->bytes && bytes <= image->bytes - offset;
}

/* Copy a table of `count` records out, whatever its alignment. NULL when it is out of bounds or memory is short. */
static void *copy_table(const struct cubin_image *image, uint64_t offset, size_t count, size_t size, bool *sound) {
  *sound = count <= image->bytes / size && fits(image, offset, count * size);
  void *const table = *sound ? mem_alloc_array(image->mem, count, size) : NULL;
  if (table) memcpy(table, image->data + offset, count * size);
  return table;
}

/* The strings of a table end within it, and `at` is one of them. */
static bool is_string(const struct cubin_image *image, const Elf64_Shdr *strings, uint64_t at) {
  return strings->sh_type == SHT_STRTAB && at < strings->sh_size &&
         !image->data[strings->sh_offset + strings->sh_size - 1];
}

static bool section_type_is_known(uint32_t type) {
  static const uint32_t known[] = {SHT_NULL,     SHT_PROGBITS,       SHT_SYMTAB,      SHT_STRTAB,
                                   SHT_NOTE,     SHT_NOBITS,         SHT_RELA,        SHT_REL,
                                   SECTION_INFO, SECTION_CALL_GRAPH, SECTION_ACTIONS, SECTION_COMPAT};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (type == known[i]) return true;
  return false;
}

/* Sections lie one behind the other in the order of their numbers, so that writing them is one pass. */
static bool sections_are_sound(struct cubin_image *image) {
  uint64_t end = sizeof(Elf64_Ehdr);
  if (image->head.e_shstrndx >= image->section_count) return false;
  for (size_t i = 1; i < image->section_count; i++) {
    const Elf64_Shdr *const section = &image->sections[i];
    const bool in_file = section->sh_type != SHT_NOBITS;
    const uint64_t alignment = section->sh_addralign;
    if (!section_type_is_known(section->sh_type) || section->sh_link >= image->section_count) return false;
    if (section->sh_offset < end || !fits(image, section->sh_offset, in_file ? section->sh_size : 0)) return false;
    if (alignment > 4096 || (alignment & (alignment - 1))) return false;
    if (in_file) end = section->sh_offset + section->sh_size;
    if (section->sh_type != SHT_SYMTAB) continue;
    if (image->symbol_table) return false;
    image->symbol_table = i;
    image->string_table = section->sh_link;
  }
  if (!image->symbol_table || image->string_table == image->head.e_shstrndx) return false;
  for (size_t i = 0; i < image->section_count; i++) {
    const Elf64_Shdr *const section = &image->sections[i];
    if (!is_string(image, &image->sections[image->head.e_shstrndx], section->sh_name)) return false;
    if (cubin_image_has_relocations(section) &&
        (section->sh_link != image->symbol_table || section->sh_info >= image->section_count))
      return false;
  }
  return true;
}

static bool symbols_are_sound(const struct cubin_image *image) {
  for (size_t i = 0; i < image->symbol_count; i++) {
    const Elf64_Sym *const symbol = &image->symbols[i];
    if (!is_string(image, &image->sections[image->string_table], symbol->st_name)) return false;
    if (symbol->st_shndx >= image->section_count && symbol->st_shndx < SHN_LORESERVE) return false;
  }
  return true;
}

static kjit_status open_tables(struct cubin_image *image) {
  bool sound;
  memcpy(&image->head, image->data, sizeof image->head);
  const Elf64_Ehdr *const head = &image->head;
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
      head->e_machine != MACHINE_CUDA || head->e_type != ET_EXEC || head->e_shentsize != sizeof(Elf64_Shdr) ||
      (head->e_phnum && head->e_phentsize != sizeof(Elf64_Phdr)))
    return KJIT_ERR_UNSUPPORTED;
  image->section_count = head->e_shnum;
  image->segment_count = head->e_phnum;
  image->sections = copy_table(image, head->e_shoff, image->section_count, sizeof *image->sections, &sound);
  if (!image->sections) return sound ? KJIT_ERR_NO_MEMORY : KJIT_ERR_UNSUPPORTED;
  image->segments = copy_table(image, head->e_phoff, image->segment_count, sizeof *image->segments, &sound);
  if (!image->segments) return sound ? KJIT_ERR_NO_MEMORY : KJIT_ERR_UNSUPPORTED;
  if (!image->section_count || !sections_are_sound(image)) return KJIT_ERR_UNSUPPORTED;
  const Elf64_Shdr *const table = &image->sections[image->symbol_table];
  image->symbol_count = table->sh_size / sizeof(Elf64_Sym);
  image->symbols = copy_table(image, table->sh_offset, image->symbol_count, sizeof *image->symbols, &sound);
  if (!image->symbols) return sound ? KJIT_ERR_NO_MEMORY : KJIT_ERR_UNSUPPORTED;
  image->dropped = mem_alloc_array(image->mem, image->symbol_count, sizeof *image->dropped);
  if (!image->dropped) return KJIT_ERR_NO_MEMORY;
  return image->symbol_count && symbols_are_sound(image) ? KJIT_OK : KJIT_ERR_UNSUPPORTED;
}

static bool is_known(void *user, size_t offset, uint32_t symbol) {
  const struct cubin_image *const image = user;
  (void)offset;
  return symbol < image->symbol_count;
}

kjit_status cubin_image_open(struct cubin_image *image, const struct mem *mem, const void *data, size_t bytes) {
  *image = (struct cubin_image){.mem = mem, .data = data, .bytes = bytes};
  if (bytes < sizeof(Elf64_Ehdr)) return KJIT_ERR_UNSUPPORTED;
  const kjit_status status = open_tables(image);
  if (status != KJIT_OK) return status;
  return cubin_image_visit_symbols(image, is_known, image) ? KJIT_OK : KJIT_ERR_UNSUPPORTED;
}

void cubin_image_finish(struct cubin_image *image) {
  mem_free(image->mem, image->sections);
  mem_free(image->mem, image->segments);
  mem_free(image->mem, image->symbols);
  mem_free(image->mem, image->dropped);
}

/* -- Numbers of symbols ------------------------------------------------------------------------------------------- */

static uint32_t read_u32(const struct cubin_image *image, size_t offset) {
  uint32_t value;
  memcpy(&value, image->data + offset, sizeof value);
  return value;
}

/* Where the record of an attribute holds symbols: in its first word, in every word or in none. Attributes that are not
 * listed are not known. */
enum holds { HOLDS_UNKNOWN, HOLDS_NONE, HOLDS_FIRST, HOLDS_ALL };

static enum holds attribute_holds(uint8_t attribute) {
  static const uint8_t holds[256] = {
      [0x0a] = HOLDS_FIRST, /* PARAM_CBANK: the bank's section */
      [0x0f] = HOLDS_ALL,   /* EXTERNS */
      [0x11] = HOLDS_FIRST, /* FRAME_SIZE, and the next three: of a function */
      [0x12] = HOLDS_FIRST, /* MIN_STACK_SIZE */
      [0x23] = HOLDS_FIRST, /* MAX_STACK_SIZE */
      [0x2f] = HOLDS_FIRST, /* REGCOUNT */
      [0x05] = HOLDS_NONE,  /* MAX_THREADS */
      [0x10] = HOLDS_NONE,  /* REQNTID */
      [0x17] = HOLDS_NONE,  /* KPARAM_INFO */
      [0x1c] = HOLDS_NONE,  /* EXIT_INSTR_OFFSETS; offsets of instructions, as are the next three */
      [0x1d] = HOLDS_NONE,  /* S2RCTAID_INSTR_OFFSETS */
      [0x25] = HOLDS_NONE,  /* LD_CACHEMOD_INSTR_OFFSETS */
      [0x28] = HOLDS_NONE,  /* COOP_GROUP_INSTR_OFFSETS */
      [0x1e] = HOLDS_NONE,  /* CRS_STACK_SIZE */
      [0x29] = HOLDS_NONE,  /* COOP_GROUP_MASK_REGIDS */
      [0x31] = HOLDS_NONE,  /* INT_WARP_WIDE_INSTR_OFFSETS */
      [0x34] = HOLDS_NONE,  /* INDIRECT_BRANCH_TARGETS: offsets */
      [0x36] = HOLDS_NONE,  /* SW_WAR */
      [0x37] = HOLDS_NONE,  /* CUDA_API_VERSION */
      [0x39] = HOLDS_NONE,  /* MBARRIER_INSTR_OFFSETS */
      [0x3d] = HOLDS_NONE,  /* CTA_PER_CLUSTER */
      [0x44] = HOLDS_NONE,  /* UNUSED_LOAD_BYTE_OFFSET */
      [0x45] = HOLDS_NONE,  /* KPARAM_INFO_V2 */
      [0x46] = HOLDS_NONE,  /* SYSCALL_OFFSETS */
  };
  return (enum holds)holds[attribute];
}

/* Records of a format byte, an attribute byte and 16 bits, which are the value or, in format 4, the bytes of one that
 * follows. Only the latter has room for a symbol. */
static bool visit_info(const struct cubin_image *image, const Elf64_Shdr *section, cubin_symbol_visit visit,
                       void *user) {
  size_t at = section->sh_offset;
  const size_t end = at + section->sh_size;
  while (end - at >= 4) {
    const unsigned char *const record = image->data + at;
    const size_t payload = record[0] == 4 ? (size_t)(record[2] | record[3] << 8) : 0;
    const enum holds holds = record[0] == 4 ? attribute_holds(record[1]) : HOLDS_NONE;
    at += 4;
    if (payload > end - at || record[0] < 1 || record[0] > 4 || holds == HOLDS_UNKNOWN) return false;
    const size_t last = holds == HOLDS_ALL ? payload : holds == HOLDS_FIRST ? 4 : 0;
    if (last > payload) return false;
    for (size_t i = 0; i + 4 <= last; i += 4)
      if (!visit(user, at + i, read_u32(image, at + i))) return false;
    at += payload;
  }
  return at == end;
}

static bool visit_relocations(const struct cubin_image *image, const Elf64_Shdr *section, cubin_symbol_visit visit,
                              void *user) {
  const size_t size = section->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
  if (section->sh_entsize != size || section->sh_size % size) return false;
  for (size_t at = section->sh_offset; at < section->sh_offset + section->sh_size; at += size) {
    const size_t place = at + offsetof(Elf64_Rel, r_info) + 4; /* the upper half, in little-endian order */
    const uint32_t symbol = read_u32(image, place);
    if (symbol >= image->symbol_count) return false;
    const bool goes = cubin_image_is_constants(image, section->sh_info) && image->dropped[symbol];
    if (!goes && !visit(user, place, symbol)) return false;
  }
  return true;
}

static bool visit_call_graph(const struct cubin_image *image, const Elf64_Shdr *section, cubin_symbol_visit visit,
                             void *user) {
  for (size_t at = section->sh_offset; at + 4 <= section->sh_offset + section->sh_size; at += 4) {
    const uint32_t symbol = read_u32(image, at);
    if (symbol < NO_FUNCTION && !visit(user, at, symbol)) return false;
  }
  return true;
}

/* Of code, sh_info names the function's symbol; of what has the flag for it, a section; of the symbol table, where the
 * local symbols end. Of all others it must be 0. */
static bool visit_header(const struct cubin_image *image, size_t number, cubin_symbol_visit visit, void *user) {
  const Elf64_Shdr *const section = &image->sections[number];
  const uint32_t symbol = section->sh_info & INFO_SYMBOL;
  if (number == image->symbol_table || section->sh_flags & SHF_INFO_LINK || cubin_image_has_relocations(section))
    return true;
  if (!(section->sh_flags & SHF_EXECINSTR)) return !section->sh_info;
  if (symbol >= image->symbol_count || image->symbols[symbol].st_shndx != number) return false;
  return visit(user, image->head.e_shoff + number * sizeof *section + offsetof(Elf64_Shdr, sh_info), symbol);
}

bool cubin_image_visit_symbols(const struct cubin_image *image, cubin_symbol_visit visit, void *user) {
  bool done = true;
  for (size_t i = 1; i < image->section_count && done; i++) {
    const Elf64_Shdr *const section = &image->sections[i];
    done = visit_header(image, i, visit, user);
    if (done && section->sh_type == SECTION_INFO) done = visit_info(image, section, visit, user);
    if (done && cubin_image_has_relocations(section)) done = visit_relocations(image, section, visit, user);
    if (done && section->sh_type == SECTION_CALL_GRAPH) done = visit_call_graph(image, section, visit, user);
  }
  return done;
}
