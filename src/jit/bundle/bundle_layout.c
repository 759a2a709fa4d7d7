/* From kernels to a bundle's bytes.
 *
 * Steps: sort the kernels by architecture and label and form a group for each architecture; choose what goes into a
 * group's dictionary; after the writer has packed everything, add up the sizes, allocate the whole bundle once, and
 * fill it in from front to back (groups and dictionaries, then records and payloads, sorted by request, then the
 * head with the table's digest).
 *
 * The result depends on the kernels alone, not on the order in which they came, because both sorts have no ties. A
 * layout belongs to one thread. */
#include "jit/bundle/bundle_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

/* Every fourth kernel goes into the dictionary. With more, the dictionary costs more than it saves; with fewer, the
 * kernels have too little to refer to. 81 kernels of one architecture take 297 KB this way, and 940 KB without a
 * dictionary. */
#define DICTIONARY_STRIDE 4
/* For fewer kernels than this a dictionary costs more than it saves. */
#define DICTIONARY_LEAST_KERNELS 8

static int compare_labels(const void *a, const void *b) {
  const struct bundle_item *left = a, *right = b;
  const int by_arch = strcmp(left->arch, right->arch);
  const int by_family = strcmp(left->entry.family.data, right->entry.family.data);
  const int by_label = strcmp(left->entry.label.data, right->entry.label.data);
  if (by_arch) return by_arch;
  if (by_family) return by_family;
  return by_label ? by_label : memcmp(&left->request, &right->request, sizeof left->request);
}

static int compare_requests(const void *a, const void *b) {
  const struct bundle_item *left = a, *right = b;
  return memcmp(&left->request, &right->request, sizeof left->request);
}

static void sort(struct bundle_layout *layout, int (*compare)(const void *, const void *)) {
  if (layout->count) qsort(layout->items, layout->count, sizeof *layout->items, compare);
}

kjit_status bundle_layout_group(struct bundle_layout *layout, const struct mem *mem, kjit_error *error) {
  sort(layout, compare_labels);
  layout->groups = mem_alloc_array(mem, BUNDLE_MAX_GROUPS, sizeof *layout->groups);
  if (!layout->groups) return error_no_memory(error);
  for (size_t i = 0; i < layout->count; i++) {
    struct bundle_item *const item = &layout->items[i];
    if (!layout->group_count || strcmp(layout->groups[layout->group_count - 1].arch, item->arch)) {
      if (layout->group_count == BUNDLE_MAX_GROUPS)
        return error_set(error, KJIT_ERR_UNSUPPORTED, "a bundle holds at most %d architectures", BUNDLE_MAX_GROUPS);
      layout->groups[layout->group_count++] = (struct bundle_part){.arch = item->arch, .first = i};
    }
    item->group = (uint32_t)layout->group_count - 1;
    layout->groups[item->group].count++;
  }
  return KJIT_OK;
}

void bundle_layout_finish(struct bundle_layout *layout, const struct mem *mem) {
  for (size_t i = 0; i < layout->group_count; i++)
    mem_free(mem, layout->groups[i].packed);
  mem_free(mem, layout->groups);
  *layout = (struct bundle_layout){0};
}

kjit_status bundle_layout_dictionary(const struct bundle_layout *layout, const struct bundle_part *group,
                                     const struct mem *mem, uint8_t **dictionary, size_t *bytes, kjit_error *error) {
  *dictionary = NULL;
  *bytes = 0;
  if (group->count < DICTIONARY_LEAST_KERNELS) return KJIT_OK;
  *dictionary = mem_alloc(mem, BUNDLE_MAX_DICTIONARY_BYTES);
  if (!*dictionary) return error_no_memory(error);
  for (size_t i = DICTIONARY_STRIDE / 2; i < group->count; i += DICTIONARY_STRIDE) {
    const struct bundle_item *const item = &layout->items[group->first + i];
    if (item->image_bytes > BUNDLE_MAX_DICTIONARY_BYTES - *bytes) continue;
    memcpy(*dictionary + *bytes, item->image, item->image_bytes);
    *bytes += item->image_bytes;
  }
  return KJIT_OK;
}

static uint64_t table_bytes(const struct bundle_layout *layout) {
  return BUNDLE_HEAD_BYTES + (uint64_t)BUNDLE_GROUP_BYTES * layout->group_count +
         (uint64_t)BUNDLE_RECORD_BYTES * layout->count;
}

static uint64_t body_bytes(const struct bundle_layout *layout) {
  uint64_t bytes = table_bytes(layout);
  for (size_t i = 0; i < layout->group_count; i++)
    bytes += layout->groups[i].packed_bytes;
  for (size_t i = 0; i < layout->count; i++)
    bytes += layout->items[i].packed_bytes;
  return bytes;
}

static void put_digest(uint8_t *at, const void *data, size_t bytes) {
  struct digest digest;
  digest_of(&digest, data, bytes);
  memcpy(at, digest.bytes, sizeof digest.bytes);
}

/* Write one group's row of the table at `row` and its dictionary at `start + end`. Returns where the dictionary ends.
 */
static uint64_t put_group(const struct bundle_part *group, uint8_t *start, uint8_t *row, uint64_t end) {
  memcpy(row + GROUP_AT_ARCH, group->arch, strlen(group->arch));
  bytes_put_u64(row + GROUP_AT_OFFSET, end);
  bytes_put_u32(row + GROUP_AT_PACKED, (uint32_t)group->packed_bytes);
  bytes_put_u32(row + GROUP_AT_BYTES, group->bytes);
  if (!group->packed_bytes) return end;
  put_digest(row + GROUP_AT_DIGEST, group->packed, group->packed_bytes);
  memcpy(start + end, group->packed, group->packed_bytes);
  return end + group->packed_bytes;
}

/* Write one kernel's row of the table at `row` and its payload at `start + end`. Returns where the payload ends. */
static uint64_t put_record(const struct bundle_item *item, uint8_t *start, uint8_t *row, uint64_t end) {
  memcpy(row + RECORD_AT_REQUEST, item->request.bytes, sizeof item->request.bytes);
  put_digest(row + RECORD_AT_DIGEST, item->packed, item->packed_bytes);
  bytes_put_u64(row + RECORD_AT_OFFSET, end);
  bytes_put_u32(row + RECORD_AT_PACKED, (uint32_t)item->packed_bytes);
  bytes_put_u32(row + RECORD_AT_BYTES, (uint32_t)item->image_bytes);
  bytes_put_u32(row + RECORD_AT_GROUP, item->group);
  memcpy(start + end, item->packed, item->packed_bytes);
  return end + item->packed_bytes;
}

static void put_head(const struct bundle_layout *layout, uint8_t *start, uint64_t bytes) {
  memcpy(start, BUNDLE_MAGIC, BUNDLE_MAGIC_BYTES);
  bytes_put_u32(start + BUNDLE_AT_VERSION, BUNDLE_VERSION);
  bytes_put_u32(start + BUNDLE_AT_HEAD_BYTES, BUNDLE_HEAD_BYTES);
  bytes_put_u64(start + BUNDLE_AT_BODY_BYTES, bytes);
  bytes_put_u32(start + BUNDLE_AT_GROUPS, (uint32_t)layout->group_count);
  bytes_put_u32(start + BUNDLE_AT_RECORDS, (uint32_t)layout->count);
  put_digest(start + BUNDLE_AT_TABLE_DIGEST, start + BUNDLE_HEAD_BYTES, table_bytes(layout) - BUNDLE_HEAD_BYTES);
}

kjit_status bundle_layout_write(struct bundle_layout *layout, const struct mem *mem, void **data, size_t *bytes,
                                kjit_error *error) {
  const uint64_t total = body_bytes(layout);
  if (total > BUNDLE_MAX_BYTES)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "%llu bytes; a bundle has at most %llu", (unsigned long long)total,
                     (unsigned long long)BUNDLE_MAX_BYTES);
  uint8_t *const start = mem_alloc(mem, total);
  if (!start) return error_no_memory(error);
  uint8_t *row = start + BUNDLE_HEAD_BYTES;
  uint64_t end = table_bytes(layout);
  for (size_t i = 0; i < layout->group_count; i++, row += BUNDLE_GROUP_BYTES)
    end = put_group(&layout->groups[i], start, row, end);
  sort(layout, compare_requests);
  for (size_t i = 0; i < layout->count; i++, row += BUNDLE_RECORD_BYTES)
    end = put_record(&layout->items[i], start, row, end);
  put_head(layout, start, total);
  *data = start;
  *bytes = total;
  return KJIT_OK;
}
