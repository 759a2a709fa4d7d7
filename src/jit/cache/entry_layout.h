/* Where things stand in an entry's header: shared by entry_write.c and entry_read.c. */
#ifndef KJIT_JIT_CACHE_ENTRY_LAYOUT_H
#define KJIT_JIT_CACHE_ENTRY_LAYOUT_H

#include "jit/cache/entry.h"

/* As PNG's: a first byte above 127 and line ends that a text transfer would change. */
#define ENTRY_MAGIC       "\x89KJIT\r\n\x1a"
#define ENTRY_MAGIC_BYTES 8

enum entry_offset {
  ENTRY_AT_VERSION = 8,       /* u32 */
  ENTRY_AT_HEADER_BYTES = 12, /* u32 */
  ENTRY_AT_FILE_BYTES = 16,   /* u64 */
  ENTRY_AT_CUBIN_BYTES = 24,  /* u64 */
  ENTRY_AT_COMPILE_NS = 32,   /* u64 */
  ENTRY_AT_REGISTERS = 40,    /* u32, as all below */
  ENTRY_AT_SPILL_BYTES = 44,
  ENTRY_AT_LOCAL_BYTES = 48,
  ENTRY_AT_SHARED_BYTES = 52,
  ENTRY_AT_MAX_THREADS = 56,
  ENTRY_AT_TEXT_BYTES = 60, /* six: key text, family, label, message, log, symbols */
  ENTRY_AT_RESERVED = 84    /* zero to the header's end */
};

#define ENTRY_TEXT_COUNT  6
#define ENTRY_CUBIN_ALIGN 64 /* a cache line; ELF needs 8 */

static inline uint64_t entry_align(uint64_t at, uint64_t to) {
  return (at + to - 1) / to * to;
}

#endif
