/* Making a bundle from entries.
 *
 * bundle_writer_add_entry() takes a copy of an entry without the time that its compile took, since that differs from
 * one machine to the next. bundle_writer_build() drops all but one answer to each request, groups the kernels, packs
 * a dictionary for each group and every kernel with it, and lays everything out (bundle_layout.h).
 *
 * Compressing is the caller's function, because the library contains only zstd's decompressor. Without that
 * function, or when it gains nothing, an entry is stored uncompressed in a zstd frame. All kernels are in memory
 * until the writer is destroyed. A writer belongs to one thread. */
#include "jit/bundle/bundle_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/frame.h"
#include "jit/bundle/bundle_layout.h"
#include "jit/key/key_reader.h"

struct bundle_writer {
  const struct mem *mem;
  kjit_compress_fn compress;
  void *user;
  struct bundle_item *items;
  size_t count, capacity;
};

struct bundle_writer *bundle_writer_create(const struct mem *mem, kjit_compress_fn compress, void *user) {
  struct bundle_writer *writer = mem_alloc(mem, sizeof *writer);
  if (!writer) return NULL;
  writer->mem = mem;
  writer->compress = compress;
  writer->user = user;
  return writer;
}

static void item_finish(struct bundle_item *item, const struct mem *mem) {
  mem_free(mem, item->image);
  mem_free(mem, item->packed);
  *item = (struct bundle_item){0};
}

void bundle_writer_destroy(struct bundle_writer *writer) {
  if (!writer) return;
  for (size_t i = 0; i < writer->count; i++)
    item_finish(&writer->items[i], writer->mem);
  mem_free(writer->mem, writer->items);
  mem_free(writer->mem, writer);
}

/* Make room for one more kernel. */
static kjit_status grow(struct bundle_writer *writer, kjit_error *error) {
  if (writer->count >= BUNDLE_MAX_RECORDS)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "a bundle holds at most %u kernels", BUNDLE_MAX_RECORDS);
  struct bundle_item *const items =
      mem_grow(writer->mem, writer->items, writer->count, &writer->capacity, sizeof *items);
  if (!items) return error_no_memory(error);
  writer->items = items;
  return KJIT_OK;
}

/* Make an item from an entry, with 0 for the time of the compile. */
static kjit_status item_make(struct bundle_item *item, const struct mem *mem, const struct entry *given,
                             kjit_error *error) {
  struct entry entry = *given;
  struct key_field target;
  *item = (struct bundle_item){0};
  entry.figures.compile_ns = 0;
  const struct entry_text *const text = &entry.key_text;
  if (!entry.cubin_bytes || !key_find(text->data, text->bytes, KEY_TAG_TARGET, &target) ||
      target.value_bytes >= sizeof item->arch)
    return error_invalid(error, "entry", "holds no kernel, and a bundle holds nothing else");
  memcpy(item->arch, target.value, target.value_bytes);
  digest_of(&item->request, text->data, key_request_part(text->data, text->bytes));
  item->image_bytes = entry_image_bytes(&entry);
  if (!item->image_bytes)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "entry: its kernel is larger than an entry may be");
  item->image = mem_alloc(mem, item->image_bytes);
  if (!item->image) return error_no_memory(error);
  entry_write(&entry, item->image);
  if (!entry_read(item->image, item->image_bytes, &item->entry)) return KJIT_OK;
  item_finish(item, mem);
  return error_set(error, KJIT_ERR_INTERNAL, "entry: it was written and cannot be read again");
}

kjit_status bundle_writer_add_entry(struct bundle_writer *writer, const struct entry *entry, kjit_error *error) {
  struct bundle_item item;
  kjit_status status = grow(writer, error);
  if (status == KJIT_OK) status = item_make(&item, writer->mem, entry, error);
  if (status == KJIT_OK) writer->items[writer->count++] = item;
  return status;
}

/* Sort equal requests beside each other, with the greatest key text first, which is the one that stays. */
static int compare_answers(const void *a, const void *b) {
  const struct bundle_item *left = a, *right = b;
  const int order = memcmp(&left->request, &right->request, sizeof left->request);
  return order ? order : strcmp(right->entry.key_text.data, left->entry.key_text.data);
}

/* Of several answers to one request, which differ by the compiler, keep the one with the greatest key text. */
static void drop_repeated(struct bundle_writer *writer) {
  size_t kept = 0;
  if (writer->count) qsort(writer->items, writer->count, sizeof *writer->items, compare_answers);
  for (size_t i = 0; i < writer->count; i++) {
    if (kept && digest_equal(&writer->items[kept - 1].request, &writer->items[i].request))
      item_finish(&writer->items[i], writer->mem);
    else
      writer->items[kept++] = writer->items[i];
  }
  writer->count = kept;
}

/* ---- Packing ---- */

/* Make the frame of one entry or dictionary. An older frame is freed, because a bundle may be built twice. */
static kjit_status pack(const struct bundle_writer *writer, struct frame_bytes dictionary, const void *data,
                        size_t bytes, uint8_t **packed, size_t *packed_bytes, kjit_error *error) {
  const size_t stored = frame_stored_bytes(bytes);
  mem_free(writer->mem, *packed);
  *packed = mem_alloc(writer->mem, stored);
  if (!*packed) return error_no_memory(error);
  *packed_bytes = 0;
  if (writer->compress)
    *packed_bytes = writer->compress(writer->user, dictionary.data, dictionary.bytes, data, bytes, *packed, stored);
  if (*packed_bytes > stored) return error_set(error, KJIT_ERR_INTERNAL, "the compressor wrote past its room");
  if (*packed_bytes) return KJIT_OK;
  /* There is no compressor, or compressing gains nothing. */
  frame_store(data, bytes, *packed);
  *packed_bytes = stored;
  return KJIT_OK;
}

static kjit_status pack_group(struct bundle_writer *writer, struct bundle_layout *layout, struct bundle_part *group,
                              kjit_error *error) {
  uint8_t *dictionary = NULL;
  size_t bytes = 0;
  kjit_status status = KJIT_OK;
  if (writer->compress) status = bundle_layout_dictionary(layout, group, writer->mem, &dictionary, &bytes, error);
  if (status == KJIT_OK && bytes) {
    status =
        pack(writer, (struct frame_bytes){NULL, 0}, dictionary, bytes, &group->packed, &group->packed_bytes, error);
    group->bytes = (uint32_t)bytes;
  }
  for (size_t i = group->first; i < group->first + group->count && status == KJIT_OK; i++) {
    struct bundle_item *const item = &writer->items[i];
    status = pack(writer, (struct frame_bytes){dictionary, bytes}, item->image, item->image_bytes, &item->packed,
                  &item->packed_bytes, error);
  }
  mem_free(writer->mem, dictionary);
  return status;
}

kjit_status bundle_writer_build(struct bundle_writer *writer, void **data, size_t *bytes, kjit_error *error) {
  *data = NULL;
  *bytes = 0;
  drop_repeated(writer);
  struct bundle_layout layout = {.items = writer->items, .count = writer->count};
  kjit_status status = bundle_layout_group(&layout, writer->mem, error);
  for (size_t i = 0; i < layout.group_count && status == KJIT_OK; i++)
    status = pack_group(writer, &layout, &layout.groups[i], error);
  if (status == KJIT_OK) status = bundle_layout_write(&layout, writer->mem, data, bytes, error);
  bundle_layout_finish(&layout, writer->mem);
  return status;
}
