/* Any bytes as an entry: refused with a reason, or every part lies inside and writing it again gives the same bytes.
 * The same once more with size and checksum made right, or nothing would ever get past them. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "jit/cache/entry_layout.h"
#include "jit/key/key_reader.h"

static void require_inside(const uint8_t *image, size_t size, const void *part, size_t bytes) {
  const uint8_t *at = part;
  require(at >= image && at <= image + size && bytes <= (size_t)(image + size - at));
}

static void require_text(const uint8_t *image, size_t size, const struct entry_text *text) {
  require_inside(image, size, text->data, text->bytes + 1);
  require(strlen(text->data) == text->bytes);
}

static void check(const uint8_t *image, size_t size) {
  struct entry entry;
  const char *damage = entry_read(image, size, &entry);
  if (damage) {
    require(*damage != '\0' && !strchr(damage, '\n'));
    return;
  }
  input_is_taken();
  require_text(image, size, &entry.key_text);
  require_text(image, size, &entry.family);
  require_text(image, size, &entry.label);
  require_text(image, size, &entry.message);
  require_text(image, size, &entry.log);
  require_inside(image, size, entry.cubin, entry.cubin_bytes);
  require(key_is_sound(entry.key_text.data, entry.key_text.bytes));
  require(entry_image_bytes(&entry) == size);
  uint8_t *again = malloc(size);
  require(again != NULL);
  entry_write(&entry, again);
  require(!memcmp(again, image, size));
  free(again);
}

static void seal(uint8_t *image, size_t size) {
  for (int i = 0; i < 8; i++)
    image[ENTRY_AT_FILE_BYTES + i] = (uint8_t)((uint64_t)size >> (8 * i));
  const XXH128_hash_t sum = XXH3_128bits(image, size - ENTRY_CHECKSUM_BYTES);
  for (size_t i = 0; i < 8; i++) {
    image[size - 16 + i] = (uint8_t)(sum.low64 >> (8 * i));
    image[size - 8 + i] = (uint8_t)(sum.high64 >> (8 * i));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  check(data, size);
  if (size < ENTRY_HEADER_BYTES + ENTRY_CHECKSUM_BYTES) return 0;
  uint8_t *sealed = malloc(size);
  require(sealed != NULL);
  memcpy(sealed, data, size);
  seal(sealed, size);
  check(sealed, size);
  free(sealed);
  return 0;
}
