/* Reads what kjit needs to know from a cubin, which is an ELF file: which kernels are in it, how many threads a block
 * may have, and the kernel's parameters.
 *
 * A kernel's machine code is in section .text.<name>, and what the driver must know of it in .nv.info.<name>: records
 * of a format byte, an attribute byte and 16 bits, which are the value or, in format 4, the number of bytes that
 * follow. None of this is documented by NVIDIA; the names below are those that cuobjdump prints. A section that is
 * damaged or has an unknown form is treated as absent, and the driver decides. Pure; any thread. */
#include "jit/cubin/cubin.h"

#include <string.h>

#include "base/bytes.h"
#include "base/files/elf_view.h"

#define FORMAT_SIZED_VALUE    4
#define ATTRIBUTE_MAX_THREADS 0x05 /* EIATTR_MAX_THREADS: x, y, z */
#define ATTRIBUTE_PARAMETER   0x17 /* EIATTR_KPARAM_INFO: index, ordinal and offset, size in the bits from 18 on */
#define ATTRIBUTE_PARAMETER_2 0x45 /* EIATTR_KPARAM_INFO_V2: index, ordinal and offset, size; beyond 4 KiB in all */

#define TEXT_PREFIX ".text."
#define BANK_PREFIX ".nv.constant0."

/* Longest name that a section is looked for under; an entry's own limit is below it. */
#define SECTION_NAME_BYTES 20000

bool cubin_is_readable(const void *cubin, size_t bytes) {
  struct elf_view elf;
  return elf_view_open(&elf, cubin, bytes) && elf_view_section_count(&elf) > 0;
}

/* One kernel's info being read; `sizes` NULL: nobody asks for those of its parameters. */
struct kernel_reader {
  struct cubin_kernel kernel;
  uint32_t *sizes;
  size_t capacity, sizes_read;
};

/* The product of the three limits, 0 if it is absurd. */
static uint32_t max_threads_of(const unsigned char *limits) {
  const uint64_t x = bytes_get_u32(limits), y = bytes_get_u32(limits + 4), z = bytes_get_u32(limits + 8);
  return x <= 1024 && y <= 1024 && z <= 1024 && x * y * z <= 1024 ? (uint32_t)(x * y * z) : 0;
}

/* Sizes go where the reader of parameters wants them. */
static void read_parameter(uint32_t attribute, const unsigned char *value, struct kernel_reader *reader) {
  const uint32_t ordinal = bytes_get_u32(value + 4) & 0xffff, size = bytes_get_u32(value + 8);
  if (reader->sizes && ordinal < reader->capacity) {
    reader->sizes[ordinal] = attribute == ATTRIBUTE_PARAMETER ? size >> 18 : size;
    reader->sizes_read++;
  }
  reader->kernel.parameter_count++;
}

static void read_record(uint32_t attribute, const unsigned char *value, size_t bytes, struct kernel_reader *reader) {
  if (attribute == ATTRIBUTE_MAX_THREADS && bytes >= 12) reader->kernel.max_threads = max_threads_of(value);
  if ((attribute == ATTRIBUTE_PARAMETER || attribute == ATTRIBUTE_PARAMETER_2) && bytes >= 12)
    read_parameter(attribute, value, reader);
}

/* All or nothing: a damaged section says nothing. */
static bool read_info(const struct elf_bytes *info, struct kernel_reader *reader) {
  reader->kernel = (struct cubin_kernel){.has_info = true};
  size_t at = 0;
  while (info->bytes - at >= 4) {
    const unsigned char *record = info->data + at;
    const size_t payload = record[0] == FORMAT_SIZED_VALUE ? (size_t)(record[2] | record[3] << 8) : 0;
    at += 4;
    if (payload > info->bytes - at) return false;
    read_record(record[1], record + 4, payload, reader);
    at += payload;
  }
  return true;
}

static bool find_section_of(const struct elf_view *elf, const char *prefix, const char *entry,
                            struct elf_bytes *content) {
  char name[SECTION_NAME_BYTES];
  const size_t prefix_bytes = strlen(prefix), entry_bytes = strlen(entry);
  if (prefix_bytes + entry_bytes >= sizeof name) return false;
  memcpy(name, prefix, prefix_bytes);
  memcpy(name + prefix_bytes, entry, entry_bytes + 1);
  return elf_view_find_section(elf, name, content);
}

bool cubin_find_kernel(const void *cubin, size_t bytes, const char *entry, struct cubin_kernel *kernel) {
  struct elf_view elf;
  struct elf_bytes code, info;
  *kernel = (struct cubin_kernel){0};
  if (!elf_view_open(&elf, cubin, bytes) || !find_section_of(&elf, TEXT_PREFIX, entry, &code)) return false;
  struct kernel_reader reader = {.sizes = NULL};
  if (find_section_of(&elf, ".nv.info.", entry, &info) && read_info(&info, &reader)) *kernel = reader.kernel;
  return true;
}

bool cubin_parameter_sizes(const void *cubin, size_t bytes, const char *entry, uint32_t *sizes, size_t capacity) {
  struct elf_view elf;
  struct elf_bytes info;
  struct kernel_reader reader = {.sizes = sizes, .capacity = capacity};
  if (!elf_view_open(&elf, cubin, bytes) || !find_section_of(&elf, ".nv.info.", entry, &info)) return false;
  for (size_t i = 0; i < capacity; i++)
    sizes[i] = 0;
  if (!read_info(&info, &reader) || reader.sizes_read != reader.kernel.parameter_count) return false;
  for (size_t i = 0; i < reader.kernel.parameter_count; i++)
    if (!sizes[i]) return false; /* one was named twice and another not at all */
  return true;
}

/* Only kernels have a bank of parameters; functions that were not inlined have code but no bank. An image without any
 * bank comes from no compiler that we know: all its code then counts as kernels'. */
static bool has_banks(const struct elf_view *elf) {
  const size_t count = elf_view_section_count(elf);
  for (size_t i = 0; i < count; i++) {
    const char *name;
    struct elf_bytes content;
    if (elf_view_section(elf, i, &name, &content) && !strncmp(name, BANK_PREFIX, strlen(BANK_PREFIX))) return true;
  }
  return false;
}

const char *cubin_next_kernel(const void *cubin, size_t bytes, size_t *at) {
  struct elf_view elf;
  struct elf_bytes content;
  if (!elf_view_open(&elf, cubin, bytes)) return NULL;
  const size_t count = elf_view_section_count(&elf);
  const bool banks = has_banks(&elf);
  while (*at < count) {
    const char *name;
    if (!elf_view_section(&elf, (*at)++, &name, &content) || strncmp(name, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
      continue;
    name += strlen(TEXT_PREFIX);
    if (!banks || find_section_of(&elf, BANK_PREFIX, name, &content)) return name;
  }
  return NULL;
}

void cubin_list_kernels(const void *cubin, size_t bytes, struct text *out) {
  const size_t before = out->bytes;
  size_t at = 0;
  for (const char *name; (name = cubin_next_kernel(cubin, bytes, &at));)
    text_appendf(out, "%s%s", out->bytes == before ? "" : ", ", name);
  if (out->bytes == before) text_append(out, "none");
}
