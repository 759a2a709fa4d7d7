/* Checking a bundle's head and table, and finding a record in it.
 *
 * bundle_head_check() reads the first 96 bytes and learns how long the table is. bundle_table_check() compares the
 * table's digest, then goes through its rows in order: each part must begin exactly where the one before it ends,
 * and the last must end where the file's body does. So no two parts overlap, no byte is unaccounted for, and equal
 * kernels give equal bytes. Afterwards the rows are read without further checks. A record is found by binary search,
 * because the rows are sorted by the request's digest.
 *
 * Everything works on bytes that the caller owns; any thread may call. */
#include "jit/bundle/bundle_format.h"

#include <string.h>

#include "base/bytes.h"
#include "base/target.h"

const char *bundle_head_check(const void *head, uint64_t file_bytes, struct bundle_table *table) {
  const uint8_t *const at = head;
  *table = (struct bundle_table){0};
  if (memcmp(at, BUNDLE_MAGIC, BUNDLE_MAGIC_BYTES)) return "does not begin as a bundle does";
  if (bytes_get_u32(at + BUNDLE_AT_VERSION) != BUNDLE_VERSION) return "another format version";
  if (bytes_get_u32(at + BUNDLE_AT_HEAD_BYTES) != BUNDLE_HEAD_BYTES) return "wrong size of the head";
  if (!bytes_all_zero(at + BUNDLE_AT_HEAD_RESERVED, BUNDLE_HEAD_BYTES - BUNDLE_AT_HEAD_RESERVED))
    return "a reserved field of the head is set";
  table->body_bytes = bytes_get_u64(at + BUNDLE_AT_BODY_BYTES);
  table->group_count = bytes_get_u32(at + BUNDLE_AT_GROUPS);
  table->record_count = bytes_get_u32(at + BUNDLE_AT_RECORDS);
  if (table->body_bytes > BUNDLE_MAX_BYTES) return "larger than a bundle may be";
  if (table->body_bytes != file_bytes && table->body_bytes + BUNDLE_SIGNATURE_BYTES != file_bytes)
    return "size differs from the one that it states";
  if (table->group_count > BUNDLE_MAX_GROUPS) return "more architectures than a bundle may have";
  if (table->record_count > BUNDLE_MAX_RECORDS) return "more kernels than a bundle may have";
  table->bytes = BUNDLE_HEAD_BYTES + (uint64_t)BUNDLE_GROUP_BYTES * table->group_count +
                 (uint64_t)BUNDLE_RECORD_BYTES * table->record_count;
  return table->bytes > table->body_bytes ? "the index does not fit" : NULL;
}

static const uint8_t *group_at(const struct bundle_table *table, uint32_t index) {
  return table->data + BUNDLE_HEAD_BYTES + (size_t)BUNDLE_GROUP_BYTES * index;
}

static const uint8_t *record_at(const struct bundle_table *table, uint32_t index) {
  return group_at(table, table->group_count) + (size_t)BUNDLE_RECORD_BYTES * index;
}

void bundle_table_group(const struct bundle_table *table, uint32_t index, struct bundle_group *group) {
  const uint8_t *const at = group_at(table, index);
  memcpy(group->arch, at + GROUP_AT_ARCH, sizeof group->arch);
  memcpy(group->digest.bytes, at + GROUP_AT_DIGEST, sizeof group->digest.bytes);
  group->offset = bytes_get_u64(at + GROUP_AT_OFFSET);
  group->packed_bytes = bytes_get_u32(at + GROUP_AT_PACKED);
  group->bytes = bytes_get_u32(at + GROUP_AT_BYTES);
}

void bundle_table_record(const struct bundle_table *table, uint32_t index, struct bundle_record *record) {
  const uint8_t *const at = record_at(table, index);
  memcpy(record->request.bytes, at + RECORD_AT_REQUEST, sizeof record->request.bytes);
  memcpy(record->digest.bytes, at + RECORD_AT_DIGEST, sizeof record->digest.bytes);
  record->offset = bytes_get_u64(at + RECORD_AT_OFFSET);
  record->packed_bytes = bytes_get_u32(at + RECORD_AT_PACKED);
  record->bytes = bytes_get_u32(at + RECORD_AT_BYTES);
  record->group = bytes_get_u32(at + RECORD_AT_GROUP);
}

/* Does the field hold the name of an architecture, and zeros behind it? */
static bool arch_is_sound(const uint8_t *at) {
  struct target target;
  char name[BUNDLE_ARCH_BYTES];
  memcpy(name, at, sizeof name);
  const size_t bytes = strnlen(name, sizeof name);
  if (bytes == sizeof name || !bytes_all_zero(at + bytes, sizeof name - bytes)) return false;
  return target_parse(&target, name, NULL) == KJIT_OK;
}

/* Check one group's row. `*end` is where the part before its dictionary ends, and is moved to where the dictionary
 * ends. */
static const char *check_group(const struct bundle_table *table, uint32_t index, uint64_t *end) {
  struct bundle_group group, before;
  bundle_table_group(table, index, &group);
  if (!arch_is_sound(group_at(table, index) + GROUP_AT_ARCH)) return "an architecture's name is not valid";
  if (index) {
    bundle_table_group(table, index - 1, &before);
    if (strcmp(before.arch, group.arch) >= 0) return "the architectures are not in their order";
  }
  if (group.offset != *end) return "a dictionary is not where the part before it ends";
  if (group.packed_bytes > table->body_bytes - *end) return "a dictionary does not fit";
  if (group.bytes > BUNDLE_MAX_DICTIONARY_BYTES) return "a dictionary is larger than one may be";
  if (!group.packed_bytes != !group.bytes) return "a dictionary is empty";
  if (!group.packed_bytes && !bytes_all_zero(group.digest.bytes, sizeof group.digest.bytes))
    return "a dictionary that is not there has a digest";
  *end += group.packed_bytes;
  return NULL;
}

/* Check one kernel's row, and move `*end` behind its payload. */
static const char *check_record(const struct bundle_table *table, uint32_t index, uint64_t *end) {
  struct bundle_record record;
  const uint8_t *const at = record_at(table, index);
  bundle_table_record(table, index, &record);
  if (index && memcmp(record_at(table, index - 1), at, DIGEST_BYTES) >= 0) return "the kernels are not in their order";
  if (record.group >= table->group_count) return "a kernel belongs to no architecture";
  if (record.offset != *end) return "a kernel is not where the part before it ends";
  if (!record.packed_bytes || record.packed_bytes > table->body_bytes - *end) return "a kernel does not fit";
  if (record.bytes < ENTRY_HEADER_BYTES + ENTRY_CHECKSUM_BYTES) return "a kernel is shorter than an empty entry";
  if (record.bytes > ENTRY_MAX_BYTES) return "a kernel is larger than an entry may be";
  if (!bytes_all_zero(at + RECORD_AT_RESERVED, BUNDLE_RECORD_BYTES - RECORD_AT_RESERVED))
    return "a reserved field of a kernel is set";
  *end += record.packed_bytes;
  return NULL;
}

const char *bundle_table_check(struct bundle_table *table, const void *data) {
  struct digest digest;
  table->data = data;
  digest_of(&digest, table->data + BUNDLE_HEAD_BYTES, (size_t)table->bytes - BUNDLE_HEAD_BYTES);
  if (memcmp(digest.bytes, table->data + BUNDLE_AT_TABLE_DIGEST, DIGEST_BYTES)) return "the index's digest differs";
  uint64_t end = table->bytes;
  const char *damage = NULL;
  for (uint32_t i = 0; i < table->group_count && !damage; i++)
    damage = check_group(table, i, &end);
  for (uint32_t i = 0; i < table->record_count && !damage; i++)
    damage = check_record(table, i, &end);
  if (!damage && end != table->body_bytes) damage = "bytes that belong to nothing";
  return damage;
}

bool bundle_table_find(const struct bundle_table *table, const struct digest *request, uint32_t *index) {
  uint32_t from = 0, to = table->record_count;
  while (from < to) {
    const uint32_t middle = from + (to - from) / 2;
    const int order = memcmp(request->bytes, record_at(table, middle) + RECORD_AT_REQUEST, DIGEST_BYTES);
    if (!order) {
      *index = middle;
      return true;
    }
    if (order < 0)
      to = middle;
    else
      from = middle + 1;
  }
  return false;
}
