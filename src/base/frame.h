/* Payloads and dictionaries of a bundle: one zstd frame each, with its size in front. The library unpacks; it packs by
 * the caller's function, or not at all: a frame may hold its content as it is. */
#ifndef KJIT_BASE_FRAME_H
#define KJIT_BASE_FRAME_H

#include "base/mem.h"

/* Borrowed bytes. */
struct frame_bytes {
  const void *data;
  size_t bytes;
};

/* Unpack a frame of exactly `bytes` bytes content into `out`. NULL; what is wrong, in static storage; `no_memory` when
 * there was none (64 KiB to 1 MiB, for zstd's state). `dictionary` has 0 bytes when there is none. */
const char *frame_unpack(const struct mem *mem, struct frame_bytes packed, struct frame_bytes dictionary, void *out,
                         size_t bytes, _Bool *no_memory);

/* The same for what this library was built with: the frame need not state its size. False when out of memory. */
_Bool frame_inflate(const struct mem *mem, struct frame_bytes packed, void *out, size_t bytes);

/* Bytes that frame_store() writes for a content of `bytes` bytes. */
size_t frame_stored_bytes(size_t bytes);
void frame_store(const void *data, size_t bytes, void *out);

#endif
