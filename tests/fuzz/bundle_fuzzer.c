/* Any bytes as a bundle: refused with one sentence, or every kernel that is read is a whole entry of its request. The
 * same once more with sizes and digests made right, or nothing would ever get past them. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "fuzz/bounded_memory.h"
#include "fuzz/require.h"
#include "jit/bundle/bundle.h"
#include "jit/key/key_reader.h"

static void require_sentence(const kjit_error *error) {
  require(error->message[0] != '\0' && !strchr(error->message, '\n'));
}

static void check_kernel(struct bundle *bundle, const struct mem *mem, uint32_t index) {
  struct entry_image image;
  struct bundle_record record;
  struct digest request;
  kjit_error error = {0};
  const kjit_status status = bundle_read(bundle, index, &image, &error);
  if (status != KJIT_OK) {
    require(status == KJIT_ERR_CORRUPT || status == KJIT_ERR_NO_MEMORY);
    require_sentence(&error);
    return;
  }
  const struct entry_text *text = &image.entry.key_text;
  input_is_taken();
  bundle_table_record(bundle_table(bundle), index, &record);
  digest_of(&request, text->data, key_request_part(text->data, text->bytes));
  require(digest_equal(&request, &record.request) && image.entry.cubin_bytes > 0);
  entry_image_finish(&image, mem);
}

static void check(const uint8_t *data, size_t size) {
  static const struct trust nobody;
  const struct bundle_source source = {NULL, data, size};
  struct mem mem;
  struct bundle *bundle;
  kjit_error error = {0};
  require(mem_init(&mem, &bounded_memory));
  const kjit_status status = bundle_open(&bundle, &mem, &source, &nobody, &error);
  if (status != KJIT_OK) {
    require(bundle == NULL);
    require_sentence(&error);
    return;
  }
  for (uint32_t i = 0; i < bundle_table(bundle)->record_count; i++)
    check_kernel(bundle, &mem, i);
  bundle_close(bundle);
}

/* The digest of a part, if it lies inside. */
static void seal_part(uint8_t *data, size_t size, uint64_t offset, uint32_t bytes, uint8_t *at) {
  struct digest digest;
  if (offset > size || bytes > size - offset) return;
  digest_of(&digest, data + offset, bytes);
  memcpy(at, digest.bytes, sizeof digest.bytes);
}

static void seal(uint8_t *data, size_t size) {
  struct bundle_table table;
  bytes_put_u64(data + BUNDLE_AT_BODY_BYTES, size);
  if (bundle_head_check(data, size, &table)) return;
  uint8_t *row = data + BUNDLE_HEAD_BYTES;
  for (uint32_t i = 0; i < table.group_count; i++, row += BUNDLE_GROUP_BYTES)
    if (bytes_get_u32(row + GROUP_AT_PACKED))
      seal_part(data, size, bytes_get_u64(row + GROUP_AT_OFFSET), bytes_get_u32(row + GROUP_AT_PACKED),
                row + GROUP_AT_DIGEST);
  for (uint32_t i = 0; i < table.record_count; i++, row += BUNDLE_RECORD_BYTES)
    seal_part(data, size, bytes_get_u64(row + RECORD_AT_OFFSET), bytes_get_u32(row + RECORD_AT_PACKED),
              row + RECORD_AT_DIGEST);
  seal_part(data, size, BUNDLE_HEAD_BYTES, (uint32_t)(table.bytes - BUNDLE_HEAD_BYTES), data + BUNDLE_AT_TABLE_DIGEST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  check(data, size);
  if (size < BUNDLE_HEAD_BYTES) return 0;
  uint8_t *sealed = malloc(size);
  require(sealed != NULL);
  memcpy(sealed, data, size);
  seal(sealed, size);
  check(sealed, size);
  free(sealed);
  return 0;
}
