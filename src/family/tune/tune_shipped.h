/* The tables of cache/tuned, carried inside the library. */
#ifndef KJIT_FAMILY_TUNE_TUNE_SHIPPED_H
#define KJIT_FAMILY_TUNE_TUNE_SHIPPED_H

#include "base/mem.h"
#include "jit/source/embedded_sources.h"

/* Written by cmake/embed_sources.cmake, as the kernel sources are. */
extern const struct embedded_source tuned_sources[];
extern const size_t tuned_source_count;
extern const unsigned char tuned_texts[];
extern const size_t tuned_texts_packed_bytes;
extern const size_t tuned_texts_bytes;

/* Texts in one zstd frame, each with a NUL behind it. */
struct tune_shipped {
  const struct embedded_source *files;
  size_t count;
  const void *packed;
  size_t packed_bytes, bytes;
};

/* The tables that the library carries. */
struct tune_shipped tune_shipped_embedded(void);

/* Unpack all texts (mem_free). NULL when out of memory. */
char *tune_shipped_unpack(const struct tune_shipped *shipped, const struct mem *mem);

#endif
