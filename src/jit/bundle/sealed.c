/* An open sealed program.
 *
 * Opening: read the file, check the head, the signature where there is one or one is asked for, and the digests of
 * both frames; unpack the index and read it (sealed_index.c). The texts stay packed until a kernel must be compiled.
 * Then they are unpacked for that one compile, and each text of the unit is compared with the digest that the key was
 * made of, so that no program can put one text's kernel under another's key.
 *
 * An open program does not change, so any number of threads may use it. */
#include "jit/bundle/sealed.h"

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/frame.h"

struct sealed_block {
  struct sealed_block *next;
  _Alignas(16) char data[];
};

void *sealed_alloc(struct sealed *sealed, size_t count, size_t size) {
  if (size && count > (SIZE_MAX - sizeof(struct sealed_block)) / size) return NULL;
  struct sealed_block *block = mem_alloc(sealed->mem, sizeof *block + count * size);
  if (!block) return NULL;
  block->next = sealed->blocks;
  sealed->blocks = block;
  return block->data;
}

static const char *check_head(const struct sealed *sealed, size_t *packed, size_t *index_bytes) {
  const uint8_t *const at = sealed->data;
  if (sealed->bytes < SEALED_HEAD_BYTES || memcmp(at, SEALED_MAGIC, SEALED_MAGIC_BYTES))
    return "does not begin as a sealed program does";
  if (bytes_get_u32(at + SEALED_AT_VERSION) != SEALED_VERSION) return "another format version";
  if (bytes_get_u32(at + SEALED_AT_HEAD_BYTES) != SEALED_HEAD_BYTES) return "wrong size of the head";
  const uint64_t body = bytes_get_u64(at + SEALED_AT_BODY_BYTES);
  *packed = bytes_get_u32(at + SEALED_AT_INDEX_PACKED);
  *index_bytes = bytes_get_u32(at + SEALED_AT_INDEX_BYTES);
  if (body > SEALED_MAX_BYTES) return "larger than a sealed program may be";
  if (body != sealed->bytes && body + BUNDLE_SIGNATURE_BYTES != sealed->bytes)
    return "size differs from the one that it states";
  if (body < SEALED_HEAD_BYTES || *packed > body - SEALED_HEAD_BYTES) return "the index does not fit";
  return *index_bytes > SEALED_MAX_INDEX_BYTES ? "the index is larger than it may be" : NULL;
}

static size_t body_bytes(const struct sealed *sealed) {
  return (size_t)bytes_get_u64(sealed->data + SEALED_AT_BODY_BYTES);
}

static struct frame_bytes packed_index(const struct sealed *sealed) {
  return (struct frame_bytes){sealed->data + SEALED_HEAD_BYTES, bytes_get_u32(sealed->data + SEALED_AT_INDEX_PACKED)};
}

static struct frame_bytes packed_texts(const struct sealed *sealed) {
  const size_t at = SEALED_HEAD_BYTES + bytes_get_u32(sealed->data + SEALED_AT_INDEX_PACKED);
  return (struct frame_bytes){sealed->data + at, body_bytes(sealed) - at};
}

bool sealed_has_texts(const struct sealed *sealed) {
  return packed_texts(sealed).bytes > 0;
}

static const char *check_digests(const struct sealed *sealed) {
  const struct frame_bytes index = packed_index(sealed), texts = packed_texts(sealed);
  struct digest digest;
  digest_of(&digest, index.data, index.bytes);
  if (memcmp(digest.bytes, sealed->data + SEALED_AT_INDEX_DIGEST, DIGEST_BYTES))
    return "the digest of its index differs";
  if (!texts.bytes)
    return bytes_all_zero(sealed->data + SEALED_AT_TEXTS_DIGEST, DIGEST_BYTES) ? NULL : "its texts are missing";
  digest_of(&digest, texts.data, texts.bytes);
  return memcmp(digest.bytes, sealed->data + SEALED_AT_TEXTS_DIGEST, DIGEST_BYTES) ? "the digest of its texts differs"
                                                                                   : NULL;
}

static kjit_status damaged(const struct sealed *sealed, const char *damage, kjit_error *error) {
  return error_set(error, KJIT_ERR_CORRUPT, "%s: %s", sealed->name, damage);
}

static kjit_status read_index(struct sealed *sealed, size_t bytes, kjit_error *error) {
  bool no_memory = false;
  sealed->index = mem_alloc(sealed->mem, bytes + 1);
  if (!sealed->index) return error_no_memory(error);
  const char *damage =
      frame_unpack(sealed->mem, packed_index(sealed), (struct frame_bytes){NULL, 0}, sealed->index, bytes, &no_memory);
  if (!damage && !no_memory) damage = sealed_index_read(sealed, bytes, &no_memory);
  if (no_memory) return error_no_memory(error);
  mem_free(sealed->mem, sealed->index);
  sealed->index = NULL;
  return damage ? damaged(sealed, damage, error) : KJIT_OK;
}

static kjit_status read_data(struct sealed *sealed, const char *path, const void *data, size_t bytes,
                             kjit_error *error) {
  sealed->name = mem_strdup(sealed->mem, path ? path : "the program in memory");
  if (!sealed->name) return error_no_memory(error);
  sealed->data = data;
  sealed->bytes = bytes;
  if (!path) return data ? KJIT_OK : damaged(sealed, "does not begin as a sealed program does", error);
  const size_t limit = SEALED_MAX_BYTES + BUNDLE_SIGNATURE_BYTES;
  const kjit_status status = file_read(sealed->mem, path, limit, &sealed->copy, &sealed->bytes, error);
  sealed->data = (const uint8_t *)sealed->copy;
  return status;
}

static kjit_status check(struct sealed *sealed, const struct trust *trust, kjit_error *error) {
  size_t packed, index_bytes;
  const char *damage = check_head(sealed, &packed, &index_bytes);
  if (damage) return damaged(sealed, damage, error);
  const size_t body = body_bytes(sealed);
  const void *signature = sealed->bytes > body ? sealed->data + body : NULL;
  kjit_status status = trust_check(trust, sealed->data, signature, sealed->name, error);
  if (status != KJIT_OK) return status;
  damage = check_digests(sealed);
  return damage ? damaged(sealed, damage, error) : read_index(sealed, index_bytes, error);
}

/* With trusted keys, damage is reported as KJIT_ERR_UNTRUSTED, because an altered program is not what was signed. */
static kjit_status report(kjit_status status, const struct trust *trust, const kjit_error *found, kjit_error *error) {
  if (status == KJIT_ERR_CORRUPT && trust->count)
    return error_set(error, KJIT_ERR_UNTRUSTED, "not as it was signed: %.400s", found->message);
  if (error) *error = *found;
  return status;
}

kjit_status sealed_open(struct sealed **out, const struct mem *mem, const char *path, const void *data, size_t bytes,
                        const struct trust *trust, kjit_error *error) {
  kjit_error found = {0};
  *out = NULL;
  struct sealed *sealed = mem_alloc(mem, sizeof *sealed);
  if (!sealed) return error_no_memory(error);
  sealed->mem = mem;
  kjit_status status = read_data(sealed, path, data, bytes, &found);
  if (status == KJIT_OK) status = check(sealed, trust, &found);
  if (status == KJIT_OK) {
    *out = sealed;
    return KJIT_OK;
  }
  sealed_close(sealed);
  return report(status, trust, &found, error);
}

void sealed_close(struct sealed *sealed) {
  if (!sealed) return;
  for (struct sealed_block *block = sealed->blocks, *next; block; block = next) {
    next = block->next;
    mem_free(sealed->mem, block);
  }
  mem_free(sealed->mem, sealed->index);
  mem_free(sealed->mem, sealed->copy);
  mem_free(sealed->mem, sealed->name);
  mem_free(sealed->mem, sealed);
}

/* ---- Texts ---- */

/* Where each of the unit's texts begins among those of all files. */
static kjit_status place_texts(struct sealed_texts *texts, const struct sealed *sealed, const struct sealed_unit *unit,
                               kjit_error *error) {
  size_t *starts = mem_alloc_array(sealed->mem, sealed->file_count, sizeof *starts);
  if (!starts) return error_no_memory(error);
  for (size_t i = 1; i < sealed->file_count; i++)
    starts[i] = starts[i - 1] + sealed->files[i - 1].bytes + 1;
  for (size_t i = 0; i < unit->set.count; i++)
    texts->list[i].text = texts->memory + starts[unit->numbers[i]];
  mem_free(sealed->mem, starts);
  return KJIT_OK;
}

static kjit_status check_texts(const struct sealed_texts *texts, const struct sealed *sealed, size_t count,
                               kjit_error *error) {
  for (size_t i = 0; i < count; i++) {
    const struct source_file *file = &texts->list[i];
    struct digest digest;
    digest_of(&digest, file->text, file->bytes);
    if (file->text[file->bytes] || !digest_equal(&digest, &file->digest))
      return error_set(error, KJIT_ERR_CORRUPT, "%s: the text of %.160s is not that of its digest", sealed->name,
                       file->name);
  }
  return KJIT_OK;
}

kjit_status sealed_texts_read(struct sealed_texts *texts, const struct sealed *sealed, const struct sealed_unit *unit,
                              kjit_error *error) {
  const size_t count = unit->set.count;
  bool no_memory = false;
  *texts = (struct sealed_texts){.memory = mem_alloc(sealed->mem, sealed->texts_bytes),
                                 .list = mem_alloc_array(sealed->mem, count, sizeof *texts->list)};
  if (!texts->memory || !texts->list) return error_no_memory(error);
  const char *damage = frame_unpack(sealed->mem, packed_texts(sealed), (struct frame_bytes){NULL, 0}, texts->memory,
                                    sealed->texts_bytes, &no_memory);
  if (no_memory) return error_no_memory(error);
  if (damage) return damaged(sealed, damage, error);
  memcpy(texts->list, unit->list, count * sizeof *texts->list);
  texts->set = unit->set;
  texts->set.files = texts->list;
  texts->set.withheld = false;
  const kjit_status status = place_texts(texts, sealed, unit, error);
  return status == KJIT_OK ? check_texts(texts, sealed, count, error) : status;
}

void sealed_texts_finish(struct sealed_texts *texts, const struct mem *mem) {
  mem_free(mem, texts->memory);
  mem_free(mem, texts->list);
  *texts = (struct sealed_texts){0};
}
