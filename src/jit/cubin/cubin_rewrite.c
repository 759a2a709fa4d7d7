/* Writing a cubin without some of its symbols.
 *
 * 1. The image is copied, and every number of a symbol in the copy becomes the new one.
 * 2. The sections' new sizes are found: of the symbol table, its strings, the relocations of constant banks, and of
 * data at whose end dropped variables lay. What stays keeps its place within its section, because code may reach it by
 *    other ways than its symbol.
 * 3. The sections are moved down over the gaps, in the order of their numbers, then both tables of headers. A segment's
 *    extent follows from its sections; where the compiler's own extents do not, the image is left alone.
 *
 * One thread. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "jit/cubin/cubin_image.h"

/* A bank or section of variables keeps so many bytes, because an empty one is nothing that a compiler makes. */
#define LEAST_BYTES 8

struct rewrite {
  const struct cubin_image *image;
  unsigned char *out;
  uint32_t *numbers; /* of each symbol, the new one */
  size_t kept;
  Elf64_Shdr *sections; /* as they will be */
  size_t string_bytes;
};

/* -- Numbers ------------------------------------------------------------------------------------------------------ */

static bool renumber(void *user, size_t offset, uint32_t symbol) {
  struct rewrite *const rewrite = user;
  uint32_t value;
  if (rewrite->image->dropped[symbol]) return false;
  /* The byte above a code section's symbol is not part of the number. */
  memcpy(&value, rewrite->out + offset, sizeof value);
  value = value - symbol + rewrite->numbers[symbol];
  memcpy(rewrite->out + offset, &value, sizeof value);
  return true;
}

static void number_symbols(struct rewrite *rewrite) {
  for (size_t i = 0; i < rewrite->image->symbol_count; i++)
    rewrite->numbers[i] = rewrite->image->dropped[i] ? 0 : (uint32_t)rewrite->kept++;
}

/* -- Contents ----------------------------------------------------------------------------------------------------- */

/* Symbols and their strings, over the old ones. The first byte of the strings is the empty name. */
static void write_symbols(struct rewrite *rewrite) {
  const struct cubin_image *const image = rewrite->image;
  Elf64_Shdr *const table = &rewrite->sections[image->symbol_table];
  unsigned char *const strings = rewrite->out + rewrite->sections[image->string_table].sh_offset;
  size_t bytes = 1, locals = 0;
  strings[0] = '\0';
  for (size_t i = 0; i < image->symbol_count; i++) {
    if (image->dropped[i]) continue;
    Elf64_Sym symbol = image->symbols[i];
    const char *const name = cubin_image_symbol_name(image, i);
    const size_t name_bytes = strlen(name);
    symbol.st_name = name_bytes ? (uint32_t)bytes : 0;
    if (name_bytes) memcpy(strings + bytes, name, name_bytes + 1);
    if (name_bytes) bytes += name_bytes + 1;
    memcpy(rewrite->out + table->sh_offset + rewrite->numbers[i] * sizeof symbol, &symbol, sizeof symbol);
    if (i < table->sh_info) locals++;
  }
  table->sh_info = (uint32_t)locals;
  table->sh_size = rewrite->kept * sizeof(Elf64_Sym);
  rewrite->sections[image->string_table].sh_size = bytes;
}

/* The names that stay never take more room than before, unless the compiler let two symbols share one. */
static bool strings_fit(const struct cubin_image *image) {
  uint64_t bytes = 1;
  for (size_t i = 0; i < image->symbol_count; i++)
    if (!image->dropped[i]) bytes += strlen(cubin_image_symbol_name(image, i)) + 1;
  return bytes <= image->sections[image->string_table].sh_size;
}

/* Take the relocations of dropped variables out, and cut the bank behind the last one that stays if only those lay
 * there: a slot is eight bytes. */
static void write_bank(struct rewrite *rewrite, Elf64_Shdr *table) {
  const struct cubin_image *const image = rewrite->image;
  Elf64_Shdr *const bank = &rewrite->sections[table->sh_info];
  unsigned char *const entries = rewrite->out + table->sh_offset;
  size_t kept = 0, end = LEAST_BYTES, slots = 0;
  for (size_t at = 0; at < table->sh_size; at += table->sh_entsize) {
    Elf64_Rel old;
    memcpy(&old, image->data + table->sh_offset + at, sizeof old);
    slots++;
    if (image->dropped[ELF64_R_SYM(old.r_info)]) continue;
    if (old.r_offset < bank->sh_size && old.r_offset + 8 > end) end = old.r_offset + 8;
    memmove(entries + kept, entries + at, table->sh_entsize);
    kept += table->sh_entsize;
  }
  table->sh_size = kept;
  /* With a slot for each relocation and nothing else, what lies behind `end` was slots of dropped variables. */
  if (slots * 8 == bank->sh_size && end < bank->sh_size) bank->sh_size = end;
}

struct range {
  uint64_t from, to;
  bool stays;
};

static int compare_ranges(const void *a, const void *b) {
  const struct range *const left = a, *const right = b;
  return (left->from > right->from) - (left->from < right->from);
}

/* Where the data that stays in a section of variables ends: behind the last symbol that stays, if symbols cover all of
 * the section but what alignment asks for between them. Otherwise all of it stays. */
static uint64_t data_end(const struct cubin_image *image, size_t section) {
  const uint64_t bytes = image->sections[section].sh_size;
  const uint64_t alignment = image->sections[section].sh_addralign ? image->sections[section].sh_addralign : 1;
  struct range *const ranges = mem_alloc_array(image->mem, image->symbol_count, sizeof *ranges);
  uint64_t end = LEAST_BYTES, covered = 0;
  size_t count = 0;
  for (size_t i = 0; ranges && i < image->symbol_count; i++) {
    const Elf64_Sym *const symbol = &image->symbols[i];
    if (symbol->st_shndx != section || ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT) continue;
    if (symbol->st_value <= bytes && symbol->st_size <= bytes - symbol->st_value)
      ranges[count++] = (struct range){symbol->st_value, symbol->st_value + symbol->st_size, !image->dropped[i]};
  }
  if (count) qsort(ranges, count, sizeof *ranges, compare_ranges);
  bool whole = count > 0;
  for (size_t i = 0; i < count; i++) {
    whole = whole && ranges[i].from < covered + alignment;
    if (ranges[i].to > covered) covered = ranges[i].to;
    if (ranges[i].stays && ranges[i].to > end) end = ranges[i].to;
  }
  mem_free(image->mem, ranges);
  return whole && bytes < covered + alignment ? end : bytes;
}

static bool is_reached_by_section(const struct cubin_image *image, size_t section) {
  for (size_t i = 1; i < image->section_count; i++) {
    const Elf64_Shdr *const table = &image->sections[i];
    if (!cubin_image_has_relocations(table)) continue;
    for (size_t at = 0; at < table->sh_size; at += table->sh_entsize) {
      Elf64_Rel entry;
      memcpy(&entry, image->data + table->sh_offset + at, sizeof entry);
      const Elf64_Sym *const symbol = &image->symbols[ELF64_R_SYM(entry.r_info)];
      if (ELF64_ST_TYPE(symbol->st_info) == STT_SECTION && symbol->st_shndx == section) return true;
    }
  }
  return false;
}

static void cut_data(struct rewrite *rewrite, size_t section) {
  const uint64_t end = data_end(rewrite->image, section);
  if (end < rewrite->sections[section].sh_size && !is_reached_by_section(rewrite->image, section))
    rewrite->sections[section].sh_size = end;
}

/* -- Places ------------------------------------------------------------------------------------------------------- */

/* Whether a section lies in a segment: by its place and by what may be done with it. */
static bool belongs(const Elf64_Shdr *section, const Elf64_Phdr *segment) {
  const bool writes = section->sh_flags & SHF_WRITE, runs = section->sh_flags & SHF_EXECINSTR;
  const uint64_t end = section->sh_offset + (section->sh_type == SHT_NOBITS ? 0 : section->sh_size);
  if (!(section->sh_flags & SHF_ALLOC) || !section->sh_size) return false;
  if (writes != !!(segment->p_flags & PF_W) || (runs && !(segment->p_flags & PF_X))) return false;
  return section->sh_offset >= segment->p_offset && end <= segment->p_offset + segment->p_filesz;
}

static uint64_t align_to(uint64_t value, uint64_t alignment) {
  return alignment ? (value + alignment - 1) & ~(alignment - 1) : value;
}

/* The extent of a segment that holds the sections which lay in `old`, as they lie in `sections`. Those without bytes in
 * the file follow each other behind the others. */
static Elf64_Phdr extent(const struct cubin_image *image, const Elf64_Shdr *sections, const Elf64_Phdr *old) {
  Elf64_Phdr segment = *old;
  bool found = false;
  segment.p_filesz = segment.p_memsz = 0;
  for (size_t i = 1; i < image->section_count; i++) {
    const Elf64_Shdr *const section = &sections[i];
    if (!belongs(&image->sections[i], old)) continue;
    if (!found) segment.p_offset = section->sh_offset;
    found = true;
    const uint64_t at = section->sh_offset - segment.p_offset;
    const bool in_file = section->sh_type != SHT_NOBITS;
    segment.p_filesz = at + (in_file ? section->sh_size : 0);
    segment.p_memsz = (in_file ? at : align_to(segment.p_memsz, section->sh_addralign)) + section->sh_size;
  }
  return segment;
}

/* A segment without any section of a size, or the one that holds the segments' own table. */
static bool is_elsewhere(const struct cubin_image *image, const Elf64_Phdr *segment) {
  return segment->p_offset == image->head.e_phoff || !segment->p_memsz;
}

/* Whether extent() gives what the compiler wrote. */
static bool segments_are_understood(const struct cubin_image *image) {
  const Elf64_Ehdr *const head = &image->head;
  if (!image->segment_count) return true;
  if (head->e_phoff != head->e_shoff + image->section_count * sizeof(Elf64_Shdr)) return false;
  for (size_t i = 0; i < image->segment_count; i++) {
    const Elf64_Phdr *const segment = &image->segments[i];
    if (is_elsewhere(image, segment)) continue;
    const Elf64_Phdr again = extent(image, image->sections, segment);
    if (memcmp(&again, segment, sizeof again) != 0) return false;
  }
  return true;
}

/* Move the sections down, and say where each one is now. */
static uint64_t move_sections(const struct rewrite *rewrite) {
  uint64_t end = rewrite->image->sections[1].sh_offset;
  for (size_t i = 1; i < rewrite->image->section_count; i++) {
    Elf64_Shdr *const section = &rewrite->sections[i];
    const uint64_t to = align_to(end, section->sh_addralign);
    if (section->sh_type != SHT_NOBITS) {
      memmove(rewrite->out + to, rewrite->out + section->sh_offset, section->sh_size);
      memset(rewrite->out + end, 0, to - end);
      end = to + section->sh_size;
    }
    section->sh_offset = to;
  }
  return end;
}

/* Both tables of headers, behind the sections. */
static size_t write_tables(const struct rewrite *rewrite, uint64_t end) {
  const struct cubin_image *const image = rewrite->image;
  const size_t section_bytes = image->section_count * sizeof(Elf64_Shdr);
  Elf64_Ehdr head = image->head;
  head.e_shoff = align_to(end, 8);
  head.e_phoff = image->segment_count ? head.e_shoff + section_bytes : 0;
  memset(rewrite->out + end, 0, head.e_shoff - end);
  memcpy(rewrite->out, &head, sizeof head);
  memcpy(rewrite->out + head.e_shoff, rewrite->sections, section_bytes);
  for (size_t i = 0; i < image->segment_count; i++) {
    Elf64_Phdr segment = image->segments[i];
    if (segment.p_offset == image->head.e_phoff)
      segment.p_offset = head.e_phoff;
    else if (!segment.p_memsz)
      segment.p_offset = end;
    else
      segment = extent(image, rewrite->sections, &segment);
    memcpy(rewrite->out + head.e_phoff + i * sizeof segment, &segment, sizeof segment);
  }
  return head.e_shoff + section_bytes + image->segment_count * sizeof(Elf64_Phdr);
}

/* -- All ---------------------------------------------------------------------------------------------------------- */

static bool is_data(const struct cubin_image *image, size_t section) {
  const char *const name = cubin_image_section_name(image, section);
  return !strcmp(name, ".nv.global") || !strcmp(name, ".nv.global.init");
}

static size_t write_all(struct rewrite *rewrite) {
  const struct cubin_image *const image = rewrite->image;
  number_symbols(rewrite);
  memcpy(rewrite->out, image->data, image->bytes);
  if (!cubin_image_visit_symbols(image, renumber, rewrite)) return 0;
  /* Renumbering may have changed headers too. */
  memcpy(rewrite->sections, rewrite->out + image->head.e_shoff, image->section_count * sizeof *rewrite->sections);
  for (size_t i = 1; i < image->section_count; i++) {
    if (cubin_image_has_relocations(&rewrite->sections[i]) &&
        cubin_image_is_constants(image, rewrite->sections[i].sh_info))
      write_bank(rewrite, &rewrite->sections[i]);
    if (is_data(image, i)) cut_data(rewrite, i);
  }
  write_symbols(rewrite);
  return write_tables(rewrite, move_sections(rewrite));
}

size_t cubin_image_write(const struct cubin_image *image, unsigned char *out) {
  struct rewrite rewrite = {.image = image, .out = out};
  size_t bytes = 0;
  if (!segments_are_understood(image) || !strings_fit(image)) return 0;
  rewrite.numbers = mem_alloc_array(image->mem, image->symbol_count, sizeof *rewrite.numbers);
  rewrite.sections = mem_alloc_array(image->mem, image->section_count, sizeof *rewrite.sections);
  if (rewrite.numbers && rewrite.sections) bytes = write_all(&rewrite);
  mem_free(image->mem, rewrite.numbers);
  mem_free(image->mem, rewrite.sections);
  return bytes;
}
