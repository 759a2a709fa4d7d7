/* Reads an entry image, from a cache folder or a bundle, without trusting it:
 *
 * 1. the header: magic, format version, sizes;
 * 2. the checksum over everything, so that a flipped bit is found before anything inside is used;
 * 3. the body: every length and offset is bounded again, because a checksum shows that nothing was damaged, not that
 *    the writer was right.
 *
 * The result points into the image. NULL means sound; otherwise the damage in words. Pure; any thread. */
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "jit/cache/entry_layout.h"
#include "jit/compile/symbols.h"
#include "jit/key/key_reader.h"

static const char *check_header(const uint8_t *image, uint64_t bytes) {
  if (bytes < ENTRY_HEADER_BYTES + ENTRY_CHECKSUM_BYTES) return "shorter than an empty entry";
  if (bytes > ENTRY_MAX_BYTES) return "larger than an entry may be";
  if (memcmp(image, ENTRY_MAGIC, ENTRY_MAGIC_BYTES)) return "does not begin as an entry does";
  if (bytes_get_u32(image + ENTRY_AT_VERSION) != KEY_FORMAT_VERSION) return "another format version";
  if (bytes_get_u32(image + ENTRY_AT_HEADER_BYTES) != ENTRY_HEADER_BYTES) return "wrong header size";
  if (bytes_get_u64(image + ENTRY_AT_FILE_BYTES) != bytes) return "size differs from the one that it states";
  return NULL;
}

/* Step 2. */
static const char *check_checksum(const uint8_t *image, size_t bytes) {
  const size_t covered = bytes - ENTRY_CHECKSUM_BYTES;
  const struct hash_128 checksum = hash_128(image, covered);
  if (bytes_get_u64(image + covered) != checksum.low || bytes_get_u64(image + covered + 8) != checksum.high)
    return "checksum differs";
  return NULL;
}

/* Read the texts, each with its length in the header and a NUL behind it. Returns the offset behind the last one, or 0
 * when a text does not fit. */
static uint64_t read_texts(const uint8_t *image, uint64_t end, struct entry *out) {
  struct entry_text *const texts[ENTRY_TEXT_COUNT] = {&out->key_text, &out->family, &out->label,
                                                      &out->message,  &out->log,    &out->symbols};
  uint64_t at = ENTRY_HEADER_BYTES;
  for (int i = 0; i < ENTRY_TEXT_COUNT; i++) {
    const uint64_t length = bytes_get_u32(image + ENTRY_AT_TEXT_BYTES + 4 * i);
    if (length >= end - at) return 0;
    const char *data = (const char *)image + at;
    if (memchr(data, 0, length + 1) != data + length) return 0;
    *texts[i] = (struct entry_text){data, length};
    at += length + 1;
  }
  return at;
}

static void read_figures(const uint8_t *image, struct entry_figures *figures) {
  figures->compile_ns = bytes_get_u64(image + ENTRY_AT_COMPILE_NS);
  figures->registers = bytes_get_u32(image + ENTRY_AT_REGISTERS);
  figures->spill_bytes = bytes_get_u32(image + ENTRY_AT_SPILL_BYTES);
  figures->local_bytes = bytes_get_u32(image + ENTRY_AT_LOCAL_BYTES);
  figures->shared_bytes = bytes_get_u32(image + ENTRY_AT_SHARED_BYTES);
  figures->max_threads = bytes_get_u32(image + ENTRY_AT_MAX_THREADS);
}

/* Step 3. */
static const char *check_body(const uint8_t *image, uint64_t bytes, struct entry *out) {
  const uint64_t end = bytes - ENTRY_CHECKSUM_BYTES;
  const uint64_t cubin_bytes = bytes_get_u64(image + ENTRY_AT_CUBIN_BYTES);
  const uint64_t texts_end = read_texts(image, end, out);
  if (!texts_end) return "a text does not fit, or holds a NUL";
  const uint64_t cubin_at = entry_align(texts_end, ENTRY_CUBIN_ALIGN);
  if (cubin_at > end || cubin_bytes > end - cubin_at) return "the cubin does not fit";
  const uint64_t cubin_end = cubin_at + cubin_bytes;
  out->cubin = image + cubin_at;
  out->cubin_bytes = cubin_bytes;
  if (entry_image_bytes(out) != bytes) return "bytes that belong to nothing, or a part beyond its bound";
  if (!bytes_all_zero(image + ENTRY_AT_RESERVED, ENTRY_HEADER_BYTES - ENTRY_AT_RESERVED))
    return "a reserved field is set";
  if (!bytes_all_zero(image + texts_end, cubin_at - texts_end) || !bytes_all_zero(image + cubin_end, end - cubin_end))
    return "padding is not zero";
  if (!key_is_sound(out->key_text.data, out->key_text.bytes)) return "the key text breaks its grammar";
  if (!symbols_are_sound(out->symbols.data, out->symbols.bytes)) return "the symbols break their grammar";
  if (!cubin_bytes != (out->message.bytes != 0)) return "neither a kernel nor a failure";
  read_figures(image, &out->figures);
  return NULL;
}

const char *entry_read(const void *image, size_t bytes, struct entry *out) {
  *out = (struct entry){0};
  const char *damage = check_header(image, bytes);
  if (!damage) damage = check_checksum(image, bytes);
  if (!damage) damage = check_body(image, bytes, out);
  return damage;
}
