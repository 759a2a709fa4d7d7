/* An open bundle: a mapped file, or bytes in the caller's memory.
 *
 * Opening: map the file, copy its head and table into memory, check them (bundle_format.h), check the signature if
 * there is one, and with trusted keys the digest of every part. Reading a kernel: copy its frame, compare the
 * frame's digest with the table, unpack it with the dictionary of its architecture, check the entry inside, and
 * compare the entry's request and architecture with what the table promised.
 *
 * A mapped file can change under us, so bytes are copied first and only the checked copy is used. A file that was
 * cut in place would raise SIGBUS when a page behind its end is touched; was_cut() notices that before each read.
 *
 * After opening, a bundle changes only by its dictionaries: the first thread that needs one unpacks it and publishes
 * the pointer by compare-and-swap. So any number of threads may read; closing must wait for them. */
#include "jit/bundle/bundle.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/frame.h"
#include "base/threads/push.h"
#include "jit/key/key_reader.h"

/* An unpacked dictionary. The first thread that needs it makes it. */
struct dictionary {
  size_t bytes;
  uint8_t data[];
};

struct bundle {
  const struct mem *mem;
  char *name;
  struct file_map map; /* closed for a bundle in memory */
  const uint8_t *data; /* of the map, or the caller's */
  uint64_t bytes;
  uint8_t *copy; /* the table's own memory, because a mapped file can change; NULL for a bundle in memory */
  struct bundle_table table;
  uint8_t signature[BUNDLE_SIGNATURE_BYTES];
  bool is_signed;
  struct push_place *dictionaries; /* one for each group: struct dictionary */
};

const char *bundle_name(const struct bundle *bundle) {
  return bundle->name;
}

const struct bundle_table *bundle_table(const struct bundle *bundle) {
  return &bundle->table;
}

uint64_t bundle_file_bytes(const struct bundle *bundle) {
  return bundle->bytes;
}

const uint8_t *bundle_signature(const struct bundle *bundle) {
  return bundle->is_signed ? bundle->signature : NULL;
}

/* Was the mapped file cut in place, as by a copy over it that is under way? Touching a page behind its end would raise
 * SIGBUS. A file that was replaced by a rename still has all its pages and is not cut. */
static bool was_cut(const struct bundle *bundle) {
  struct file_identity now;
  const struct file_identity *then = &bundle->map.identity;
  return bundle->map.data && file_identify(bundle->name, &now) && now.device == then->device &&
         now.inode == then->inode && now.bytes < then->bytes;
}

static kjit_status damaged(const struct bundle *bundle, const char *damage, kjit_error *error) {
  return error_set(error, KJIT_ERR_CORRUPT, "%s: %s", bundle->name, damage);
}

/* ---- Opening ---- */

static kjit_status open_data(struct bundle *bundle, const struct bundle_source *source, kjit_error *error) {
  kjit_status status = KJIT_OK;
  bundle->name = mem_strdup(bundle->mem, source->path ? source->path : "the bundle in memory");
  if (!bundle->name) return error_no_memory(error);
  if (source->path)
    status = file_map_open(&bundle->map, source->path, BUNDLE_MAX_BYTES + BUNDLE_SIGNATURE_BYTES, error);
  bundle->data = source->path ? bundle->map.data : source->data;
  bundle->bytes = source->path ? bundle->map.bytes : source->bytes;
  if (status == KJIT_OK && (!bundle->data || bundle->bytes < BUNDLE_HEAD_BYTES))
    status = damaged(bundle, "shorter than an empty bundle", error);
  return status;
}

static kjit_status open_table(struct bundle *bundle, kjit_error *error) {
  uint8_t head[BUNDLE_HEAD_BYTES];
  memcpy(head, bundle->data, sizeof head);
  const char *damage = bundle_head_check(head, bundle->bytes, &bundle->table);
  if (damage) return damaged(bundle, damage, error);
  const uint8_t *table = bundle->data;
  if (bundle->map.data) {
    table = bundle->copy = mem_alloc(bundle->mem, bundle->table.bytes);
    if (!bundle->copy) return error_no_memory(error);
    memcpy(bundle->copy, bundle->data, bundle->table.bytes);
    if (memcmp(head, bundle->copy, sizeof head)) return damaged(bundle, "it is being written to", error);
  }
  damage = bundle_table_check(&bundle->table, table);
  return damage ? damaged(bundle, damage, error) : KJIT_OK;
}

kjit_status bundle_check_payloads(const struct bundle *bundle, kjit_error *error) {
  struct digest digest;
  struct bundle_group group;
  struct bundle_record record;
  const struct bundle_table *const table = &bundle->table;
  for (uint32_t i = 0; i < table->group_count; i++) {
    bundle_table_group(table, i, &group);
    digest_of(&digest, bundle->data + group.offset, group.packed_bytes);
    if (group.packed_bytes && !digest_equal(&digest, &group.digest))
      return error_set(error, KJIT_ERR_CORRUPT, "%s: the digest of the dictionary for %s differs", bundle->name,
                       group.arch);
  }
  for (uint32_t i = 0; i < table->record_count; i++) {
    bundle_table_record(table, i, &record);
    digest_of(&digest, bundle->data + record.offset, record.packed_bytes);
    if (!digest_equal(&digest, &record.digest))
      return error_set(error, KJIT_ERR_CORRUPT, "%s: the digest of kernel %u differs", bundle->name, i);
  }
  return KJIT_OK;
}

static kjit_status check_trust(struct bundle *bundle, const struct trust *trust, kjit_error *error) {
  bundle->is_signed = bundle->bytes > bundle->table.body_bytes;
  if (bundle->is_signed) memcpy(bundle->signature, bundle->data + bundle->table.body_bytes, sizeof bundle->signature);
  const kjit_status status = trust_check(trust, bundle->table.data, bundle_signature(bundle), bundle->name, error);
  return status == KJIT_OK && trust->count ? bundle_check_payloads(bundle, error) : status;
}

static kjit_status make_dictionaries(struct bundle *bundle, kjit_error *error) {
  bundle->dictionaries = mem_alloc_array(bundle->mem, bundle->table.group_count, sizeof *bundle->dictionaries);
  return bundle->dictionaries ? KJIT_OK : error_no_memory(error);
}

/* With trusted keys, damage is reported as KJIT_ERR_UNTRUSTED, because an altered bundle is not what was signed. */
static kjit_status report(kjit_status status, const struct trust *trust, const kjit_error *found, kjit_error *error) {
  if (status == KJIT_ERR_CORRUPT && trust->count)
    return error_set(error, KJIT_ERR_UNTRUSTED, "not as it was signed: %.400s", found->message);
  if (error) *error = *found;
  return status;
}

kjit_status bundle_open(struct bundle **out, const struct mem *mem, const struct bundle_source *source,
                        const struct trust *trust, kjit_error *error) {
  kjit_error found = {0};
  *out = NULL;
  struct bundle *bundle = mem_alloc(mem, sizeof *bundle);
  if (!bundle) return error_no_memory(error);
  bundle->mem = mem;
  kjit_status status = open_data(bundle, source, &found);
  if (status == KJIT_OK) status = open_table(bundle, &found);
  if (status == KJIT_OK) status = check_trust(bundle, trust, &found);
  if (status == KJIT_OK) status = make_dictionaries(bundle, &found);
  if (status == KJIT_OK) {
    *out = bundle;
    return KJIT_OK;
  }
  bundle_close(bundle);
  return report(status, trust, &found, error);
}

void bundle_close(struct bundle *bundle) {
  if (!bundle) return;
  for (uint32_t i = 0; bundle->dictionaries && i < bundle->table.group_count; i++)
    mem_free(bundle->mem, push_place_get(&bundle->dictionaries[i]));
  mem_free(bundle->mem, bundle->dictionaries);
  mem_free(bundle->mem, bundle->copy);
  mem_free(bundle->mem, bundle->name);
  file_map_close(&bundle->map);
  mem_free(bundle->mem, bundle);
}

/* ---- Reading ---- */

/* Copy a packed part and compare its digest with the one in the table. NULL, or what is wrong. The caller frees
 * `*copy`, which is NULL for a bundle in memory, because nobody else writes to that. */
static const char *take_packed(const struct bundle *bundle, uint64_t offset, uint32_t bytes,
                               const struct digest *wanted, void **copy, struct frame_bytes *packed, bool *no_memory) {
  struct digest digest;
  *copy = NULL;
  *packed = (struct frame_bytes){bundle->data + offset, bytes};
  if (bundle->map.data) {
    if (was_cut(bundle)) return "the file was cut short while it was in use";
    *copy = mem_alloc(bundle->mem, bytes);
    *no_memory = !*copy;
    if (!*copy) return NULL;
    memcpy(*copy, packed->data, bytes);
    packed->data = *copy;
  }
  digest_of(&digest, packed->data, packed->bytes);
  return digest_equal(&digest, wanted) ? NULL : "its digest differs";
}

/* Unpack a part into new memory behind `room` bytes. NULL with `damage` or `no_memory` set. */
static uint8_t *unpack(const struct bundle *bundle, struct frame_bytes packed, struct frame_bytes dictionary,
                       size_t room, size_t bytes, const char **damage, bool *no_memory) {
  uint8_t *const memory = mem_alloc(bundle->mem, room + bytes);
  *no_memory = !memory;
  if (memory) *damage = frame_unpack(bundle->mem, packed, dictionary, memory + room, bytes, no_memory);
  if (memory && !*damage && !*no_memory) return memory;
  mem_free(bundle->mem, memory);
  return NULL;
}

static struct dictionary *make_dictionary(const struct bundle *bundle, const struct bundle_group *group,
                                          const char **damage, bool *no_memory) {
  void *copy = NULL;
  struct frame_bytes packed;
  struct dictionary *made = NULL;
  *damage = take_packed(bundle, group->offset, group->packed_bytes, &group->digest, &copy, &packed, no_memory);
  if (!*damage && !*no_memory)
    made = (void *)unpack(bundle, packed, (struct frame_bytes){NULL, 0}, sizeof *made, group->bytes, damage, no_memory);
  if (made) made->bytes = group->bytes;
  mem_free(bundle->mem, copy);
  return made;
}

/* The dictionary of group `index`. Two threads may unpack it at the same time; then the second result is freed. */
static struct frame_bytes find_dictionary(struct bundle *bundle, uint32_t index, const char **damage, bool *no_memory) {
  struct bundle_group group;
  struct dictionary *known = push_place_get(&bundle->dictionaries[index]);
  bundle_table_group(&bundle->table, index, &group);
  if (!known && group.packed_bytes) {
    struct dictionary *const made = make_dictionary(bundle, &group, damage, no_memory);
    if (made) known = push_place_fill(&bundle->dictionaries[index], made);
    if (known != made) mem_free(bundle->mem, made);
  }
  return known ? (struct frame_bytes){known->data, known->bytes} : (struct frame_bytes){NULL, 0};
}

/* Is the entry the one that the index promises? */
static const char *check_entry(const struct bundle *bundle, const struct bundle_record *record,
                               const struct entry *entry) {
  struct digest request;
  struct bundle_group group;
  struct key_field target;
  const struct entry_text *const text = &entry->key_text;
  bundle_table_group(&bundle->table, record->group, &group);
  digest_of(&request, text->data, key_request_part(text->data, text->bytes));
  if (!digest_equal(&request, &record->request)) return "it is the entry of another request";
  if (!entry->cubin_bytes) return "it holds no kernel";
  if (!key_find(text->data, text->bytes, KEY_TAG_TARGET, &target) || target.value_bytes != strlen(group.arch) ||
      memcmp(target.value, group.arch, target.value_bytes))
    return "it is for another architecture than the index says";
  return NULL;
}

/* Unpack and check one kernel. NULL, or what is wrong with it. */
static const char *read_record(struct bundle *bundle, const struct bundle_record *record, struct entry_image *image,
                               bool *no_memory) {
  void *copy = NULL;
  struct frame_bytes packed;
  const char *damage = NULL;
  const struct frame_bytes dictionary = find_dictionary(bundle, record->group, &damage, no_memory);
  if (damage || *no_memory) return damage ? "the dictionary that it needs is damaged" : NULL;
  damage = take_packed(bundle, record->offset, record->packed_bytes, &record->digest, &copy, &packed, no_memory);
  if (!damage && !*no_memory) image->data = unpack(bundle, packed, dictionary, 0, record->bytes, &damage, no_memory);
  mem_free(bundle->mem, copy);
  if (!image->data) return damage;
  image->bytes = record->bytes;
  damage = entry_read(image->data, image->bytes, &image->entry);
  if (!damage) damage = check_entry(bundle, record, &image->entry);
  if (damage) entry_image_finish(image, bundle->mem);
  return damage;
}

kjit_status bundle_read(struct bundle *bundle, uint32_t index, struct entry_image *image, kjit_error *error) {
  struct bundle_record record;
  struct bundle_group group;
  bool no_memory = false;
  *image = (struct entry_image){0};
  bundle_table_record(&bundle->table, index, &record);
  bundle_table_group(&bundle->table, record.group, &group);
  const char *const damage = read_record(bundle, &record, image, &no_memory);
  if (no_memory) return error_no_memory(error);
  if (!damage) return KJIT_OK;
  return error_set(error, KJIT_ERR_CORRUPT, "%s: kernel %u, for %s: %s", bundle->name, index, group.arch, damage);
}
