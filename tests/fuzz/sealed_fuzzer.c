/* Any bytes as a sealed program: refused with one sentence, or every text that is read is that of its digest. The same
 * bytes once more as an index inside a program whose head is right, because no input would get past the digests. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/files/frame.h"
#include "fuzz/bounded_memory.h"
#include "fuzz/require.h"
#include "jit/bundle/sealed.h"

static void check_unit(const struct sealed *sealed, const struct mem *mem, const struct sealed_unit *unit) {
  struct sealed_texts texts;
  kjit_error error = {0};
  require(unit->entry_count > 0 && unit->set.count > 0 && unit->set.withheld);
  input_is_taken();
  if (!sealed_has_texts(sealed)) return;
  const kjit_status status = sealed_texts_read(&texts, sealed, unit, &error);
  for (size_t i = 0; status == KJIT_OK && i < texts.set.count; i++) {
    struct digest digest;
    digest_of(&digest, texts.set.files[i].text, texts.set.files[i].bytes);
    require(digest_equal(&digest, &texts.set.files[i].digest));
  }
  require(status == KJIT_OK || error.message[0]);
  sealed_texts_finish(&texts, mem);
}

static void check(const uint8_t *data, size_t size) {
  static const struct trust nobody;
  struct mem mem;
  struct sealed *sealed;
  kjit_error error = {0};
  require(mem_init(&mem, &bounded_memory));
  const kjit_status status = sealed_open(&sealed, &mem, NULL, data, size, &nobody, &error);
  if (status != KJIT_OK) {
    require(sealed == NULL && error.message[0] && !strchr(error.message, '\n'));
    return;
  }
  for (size_t i = 0; i < sealed->unit_count; i++)
    check_unit(sealed, &mem, &sealed->units[i]);
  sealed_close(sealed);
}

static void check_index(const uint8_t *index, size_t size) {
  struct digest digest;
  const size_t packed = frame_stored_bytes(size), bytes = SEALED_HEAD_BYTES + packed;
  uint8_t *data = calloc(1, bytes);
  require(data != NULL);
  memcpy(data, SEALED_MAGIC, SEALED_MAGIC_BYTES);
  bytes_put_u32(data + SEALED_AT_VERSION, SEALED_VERSION);
  bytes_put_u32(data + SEALED_AT_HEAD_BYTES, SEALED_HEAD_BYTES);
  bytes_put_u64(data + SEALED_AT_BODY_BYTES, bytes);
  bytes_put_u32(data + SEALED_AT_INDEX_PACKED, (uint32_t)packed);
  bytes_put_u32(data + SEALED_AT_INDEX_BYTES, (uint32_t)size);
  frame_store(index, size, data + SEALED_HEAD_BYTES);
  digest_of(&digest, data + SEALED_HEAD_BYTES, packed);
  memcpy(data + SEALED_AT_INDEX_DIGEST, digest.bytes, sizeof digest.bytes);
  check(data, bytes);
  free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  check(data, size);
  check_index(data, size);
  return 0;
}
