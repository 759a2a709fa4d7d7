/* zstd frames, as the payloads and dictionaries of a bundle and the embedded kernel sources are stored. The library
 * only unpacks, because a compressor would double its size; frame_store() writes a frame that holds its content as it
 * is. */
#ifndef KJIT_BASE_FRAME_H
#define KJIT_BASE_FRAME_H

#include <stdbool.h>

#include "base/mem.h"

/* Borrowed bytes. */
struct frame_bytes {
  const void *data;
  size_t bytes;
};

/* Unpack a frame whose content has exactly `bytes` bytes into `out`. Returns NULL for success, else what is wrong with
 * the frame, in static storage. *no_memory is set, and NULL returned, when there was no memory for zstd's state (64 KiB
 * to 1 MiB). A `dictionary` of 0 bytes means that the frame was made without one. */
const char *frame_unpack(const struct mem *mem, struct frame_bytes packed, struct frame_bytes dictionary, void *out,
                         size_t bytes, bool *no_memory);

/* Unpack a frame that was compiled into this library, so that it need not be checked. False when out of memory. */
bool frame_inflate(const struct mem *mem, struct frame_bytes packed, void *out, size_t bytes);

/* Bytes that frame_store() writes for a content of `bytes` bytes. */
size_t frame_stored_bytes(size_t bytes);
void frame_store(const void *data, size_t bytes, void *out);

#endif
