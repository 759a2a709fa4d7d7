/* The entry format, version 2: what one compile made as one run of bytes. Written grammar in cache/README.md.
 *
 *   header (128 bytes) | key text | family | label | message | log | symbols | zeros | cubin | zeros | XXH3-128
 *
 * Every text is followed by a NUL, the cubin starts at a multiple of 64, the checksum covers all before it. Integers
 * are little-endian. There is one way to write an entry: what the format does not use is zero and checked to be. */
#ifndef KJIT_JIT_CACHE_ENTRY_H
#define KJIT_JIT_CACHE_ENTRY_H

#include <kjit/common.h>

#include "jit/key/key_reader.h"

#define ENTRY_HEADER_BYTES   128
#define ENTRY_CHECKSUM_BYTES 16

/* The largest single-kernel cubins known are some tens of MB; a length beyond this is damage, not data. */
#define ENTRY_MAX_BYTES ((uint64_t)256 << 20)

/* Label, family and message are single lines. A compiler's log is cut to its bound by the writer's caller. */
#define ENTRY_LINE_MAX_BYTES 4096
#define ENTRY_LOG_MAX_BYTES  ((size_t)4 << 20)

/* NUL-terminated; `bytes` does not count the NUL. */
struct entry_text {
  const char *data;
  size_t bytes;
};

/* What ptxas said of a kernel. */
struct entry_figures {
  uint32_t registers, spill_bytes, local_bytes, shared_bytes, max_threads;
  uint64_t compile_ns;
};

/* A view: points into an image that was read, or at the parts of one to be written. */
struct entry {
  struct entry_text key_text, family, label;
  struct entry_text message; /* of a failed compile; else "" */
  struct entry_text log;
  struct entry_text symbols; /* kernels with their figures, and names: jit/compile/symbols.h */
  const void *cubin;
  size_t cubin_bytes;           /* 0 for a failed compile, and only then */
  struct entry_figures figures; /* of the kernel that the key names as entry; without one, of the first */
};

/* Size of the entry's image; 0 when it breaks one of the bounds above. */
size_t entry_image_bytes(const struct entry *entry);

/* Write it into `image`, which has entry_image_bytes() bytes. */
void entry_write(const struct entry *entry, void *image);

/* Check everything and point `out` into the image. NULL when sound; else what is wrong, in static storage. */
const char *entry_read(const void *image, size_t bytes, struct entry *out);

#endif
