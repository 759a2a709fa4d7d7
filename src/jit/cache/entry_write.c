/* Writes an entry image into memory: header, texts, cubin, checksum, in the layout of entry_layout.h. The caller asks
 * entry_image_bytes() for the size first; 0 means that a part is larger than an entry may hold. Every byte between the
 * parts is zero, so that equal entries are equal files. Pure; any thread. */
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "jit/cache/entry_layout.h"
#include "jit/compile/symbols.h"

static bool within_bounds(const struct entry *entry) {
  return entry->key_text.bytes <= KEY_MAX_BYTES && entry->family.bytes <= ENTRY_LINE_MAX_BYTES &&
         entry->label.bytes <= ENTRY_LINE_MAX_BYTES && entry->message.bytes <= ENTRY_LINE_MAX_BYTES &&
         entry->log.bytes <= ENTRY_LOG_MAX_BYTES && entry->symbols.bytes <= SYMBOLS_MAX_BYTES &&
         entry->cubin_bytes <= ENTRY_MAX_BYTES / 2;
}

static size_t texts_bytes(const struct entry *entry) {
  return entry->key_text.bytes + entry->family.bytes + entry->label.bytes + entry->message.bytes + entry->log.bytes +
         entry->symbols.bytes + ENTRY_TEXT_COUNT;
}

size_t entry_image_bytes(const struct entry *entry) {
  if (!within_bounds(entry)) return 0;
  const uint64_t cubin = entry_align(ENTRY_HEADER_BYTES + texts_bytes(entry), ENTRY_CUBIN_ALIGN);
  return (size_t)(entry_align(cubin + entry->cubin_bytes, ENTRY_CHECKSUM_BYTES) + ENTRY_CHECKSUM_BYTES);
}

static void put_header(const struct entry *entry, uint8_t *image, size_t bytes) {
  const struct entry_figures *figures = &entry->figures;
  memcpy(image, ENTRY_MAGIC, ENTRY_MAGIC_BYTES);
  bytes_put_u32(image + ENTRY_AT_VERSION, KEY_FORMAT_VERSION);
  bytes_put_u32(image + ENTRY_AT_HEADER_BYTES, ENTRY_HEADER_BYTES);
  bytes_put_u64(image + ENTRY_AT_FILE_BYTES, bytes);
  bytes_put_u64(image + ENTRY_AT_CUBIN_BYTES, entry->cubin_bytes);
  bytes_put_u64(image + ENTRY_AT_COMPILE_NS, figures->compile_ns);
  bytes_put_u32(image + ENTRY_AT_REGISTERS, figures->registers);
  bytes_put_u32(image + ENTRY_AT_SPILL_BYTES, figures->spill_bytes);
  bytes_put_u32(image + ENTRY_AT_LOCAL_BYTES, figures->local_bytes);
  bytes_put_u32(image + ENTRY_AT_SHARED_BYTES, figures->shared_bytes);
  bytes_put_u32(image + ENTRY_AT_MAX_THREADS, figures->max_threads);
}

static uint8_t *put_texts(const struct entry *entry, uint8_t *image) {
  const struct entry_text *const texts[ENTRY_TEXT_COUNT] = {&entry->key_text, &entry->family, &entry->label,
                                                            &entry->message,  &entry->log,    &entry->symbols};
  uint8_t *at = image + ENTRY_HEADER_BYTES;
  for (int i = 0; i < ENTRY_TEXT_COUNT; i++) {
    bytes_put_u32(image + ENTRY_AT_TEXT_BYTES + 4 * i, (uint32_t)texts[i]->bytes);
    if (texts[i]->bytes) memcpy(at, texts[i]->data, texts[i]->bytes);
    at += texts[i]->bytes + 1;
  }
  return at;
}

void entry_write(const struct entry *entry, void *image) {
  uint8_t *const start = image;
  const size_t bytes = entry_image_bytes(entry);
  memset(image, 0, bytes);
  put_header(entry, start, bytes);
  const uint8_t *texts_end = put_texts(entry, start);
  const size_t cubin_at = (size_t)entry_align((uint64_t)(texts_end - start), ENTRY_CUBIN_ALIGN);
  if (entry->cubin_bytes) memcpy(start + cubin_at, entry->cubin, entry->cubin_bytes);
  const struct hash_128 checksum = hash_128(image, bytes - ENTRY_CHECKSUM_BYTES);
  bytes_put_u64(start + bytes - 16, checksum.low);
  bytes_put_u64(start + bytes - 8, checksum.high);
}
