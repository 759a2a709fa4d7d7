/* The kernel sources inside the library: a table that cmake/embed_sources.cmake writes from kernel_src/ when the
 * library is built, sorted by name. With KJIT_EMBED_SOURCES off a text has its #include lines alone, from which the
 * closure is found, and the whole text's digest stands beside it: keys are the same, so bundles and caches answer. */
#ifndef KJIT_JIT_SOURCE_EMBEDDED_SOURCES_H
#define KJIT_JIT_SOURCE_EMBEDDED_SOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

struct embedded_source {
  const char *name;   /* "flash_forward/flash_forward.cu" */
  size_t offset;      /* of the text, NUL-terminated, among the unpacked ones */
  size_t bytes;       /* without the NUL */
  const char *digest; /* hex; NULL: that of the text */
};

extern const struct embedded_source embedded_sources[]; /* one more than the count: {NULL, NULL, 0} */
extern const size_t embedded_source_count;

/* All texts, one after the other, as one zstd stream: they are a quarter of their size so. */
extern const unsigned char embedded_texts[];
extern const size_t embedded_texts_packed_bytes;
extern const size_t embedded_texts_bytes; /* unpacked */

/* The source of that name, or NULL. */
const struct embedded_source *embedded_source_find(const char *name, size_t bytes);

/* Unpack all texts into `texts` (embedded_texts_bytes), each NUL-terminated at its offset. `mem` is for what unpacking
 * needs meanwhile. False when out of memory. */
bool embedded_texts_unpack(const struct mem *mem, char *texts);

#endif
