/* zstd frames: unpacking them, and writing a frame that holds its content uncompressed.
 *
 * zstd's decompressor needs 64 KiB to 1 MiB of state. It gets memory from the caller's allocator, by
 * ZSTD_initStaticDCtx(), so that no allocation of the library bypasses struct mem. Writing needs no compressor: a
 * "raw" block of a zstd frame is its content with three bytes in front, so frame_store() writes frames that every
 * zstd can read.
 *
 * A frame may come from anybody. Its magic, its stated size and its end are checked before zstd sees its blocks. No
 * state outlives a call; any thread may call. */
#include "base/files/frame.h"

#include <string.h>

/* ZSTD_initStaticDCtx() is not in zstd's stable interface. The library links the archive of one version, so the
 * interface cannot change under it. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "base/bytes.h"

/* RFC 8878, 3.1.1: magic, a descriptor (content size of 8 bytes, single segment), the content size, blocks. */
static const uint8_t frame_magic[] = {0x28, 0xB5, 0x2F, 0xFD};
#define FRAME_HEAD_BYTES       13
#define FRAME_DESCRIPTOR       0xE0
#define FRAME_BLOCK_HEAD_BYTES 3
#define FRAME_BLOCK_BYTES      ((size_t)128 << 10)

/* Check the frame and unpack it. NULL, or what is wrong with the frame. */
static const char *unpack_with(ZSTD_DCtx *state, struct frame_bytes packed, struct frame_bytes dictionary, void *out,
                               size_t bytes) {
  if (packed.bytes < sizeof frame_magic || memcmp(packed.data, frame_magic, sizeof frame_magic))
    return "it is not a zstd frame";
  if (ZSTD_getFrameContentSize(packed.data, packed.bytes) != bytes) return "its frame states another size";
  if (ZSTD_findFrameCompressedSize(packed.data, packed.bytes) != packed.bytes) return "it is not one zstd frame";
  const size_t done = ZSTD_decompress_usingDict(state, out, bytes, packed.data, packed.bytes,
                                                dictionary.bytes ? dictionary.data : NULL, dictionary.bytes);
  if (ZSTD_isError(done) || done != bytes) return "its frame cannot be unpacked";
  return NULL;
}

const char *frame_unpack(const struct mem *mem, struct frame_bytes packed, struct frame_bytes dictionary, void *out,
                         size_t bytes, bool *no_memory) {
  const size_t state_bytes = ZSTD_estimateDCtxSize();
  void *const memory = mem_alloc(mem, state_bytes);
  ZSTD_DCtx *const state = memory ? ZSTD_initStaticDCtx(memory, state_bytes) : NULL;
  *no_memory = !state;
  const char *const damage = state ? unpack_with(state, packed, dictionary, out, bytes) : NULL;
  mem_free(mem, memory);
  return damage;
}

bool frame_inflate(const struct mem *mem, struct frame_bytes packed, void *out, size_t bytes) {
  const size_t state_bytes = ZSTD_estimateDCtxSize();
  void *const memory = mem_alloc(mem, state_bytes);
  ZSTD_DCtx *const state = memory ? ZSTD_initStaticDCtx(memory, state_bytes) : NULL;
  const bool whole = state && ZSTD_decompressDCtx(state, out, bytes, packed.data, packed.bytes) == bytes;
  mem_free(mem, memory);
  return whole;
}

static size_t block_count(size_t bytes) {
  return bytes ? (bytes + FRAME_BLOCK_BYTES - 1) / FRAME_BLOCK_BYTES : 1;
}

size_t frame_stored_bytes(size_t bytes) {
  return FRAME_HEAD_BYTES + block_count(bytes) * FRAME_BLOCK_HEAD_BYTES + bytes;
}

void frame_store(const void *data, size_t bytes, void *out) {
  uint8_t *at = out;
  const uint8_t *from = data;
  memcpy(at, frame_magic, sizeof frame_magic);
  at[sizeof frame_magic] = FRAME_DESCRIPTOR;
  bytes_put_u64(at + sizeof frame_magic + 1, bytes);
  at += FRAME_HEAD_BYTES;
  for (size_t left = block_count(bytes); left > 0; left--) {
    const size_t block = left > 1 ? FRAME_BLOCK_BYTES : bytes;
    /* A block begins with 24 bits: bit 0 says that it is the last, bits 1 and 2 are its type (0: raw), then its size.
     */
    const uint32_t head = (uint32_t)(block << 3) | (left == 1);
    for (int i = 0; i < FRAME_BLOCK_HEAD_BYTES; i++)
      *at++ = (uint8_t)(head >> (8 * i));
    if (block) memcpy(at, from, block);
    at += block;
    from += block;
    bytes -= block;
  }
}
