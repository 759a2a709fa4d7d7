/* Listing a bundle: each kernel is read, checked and shown to the caller's visitor as kjit_cache_entry, as an entry
 * of a cache folder is. A damaged kernel is shown with the reason and with the digest of its request in place of its
 * key, because the key is inside what cannot be read. Runs on the calling thread; the bundle may be read by others
 * meanwhile. */
#include "jit/bundle/bundle_visit.h"

#include "base/error.h"
#include "jit/key/key_reader.h"

static char *copy_field(const struct mem *mem, const struct entry *entry, const char *tag) {
  struct key_field field = {"", "", 0, 0, 0};
  (void)key_find(entry->key_text.data, entry->key_text.bytes, tag, &field);
  return mem_duplicate(mem, field.value, field.value_bytes);
}

static void fill_figures(kjit_cache_entry *shown, const struct entry *entry) {
  shown->cubin = entry->cubin;
  shown->cubin_bytes = entry->cubin_bytes;
  shown->registers = entry->figures.registers;
  shown->spill_bytes = entry->figures.spill_bytes;
  shown->shared_bytes = entry->figures.shared_bytes;
}

/* Show one kernel. `damage` is NULL when its image is sound. 1 when the visitor asks to stop, else 0; -1 when out of
 * memory.
 */
static int show(const struct mem *mem, const struct bundle_record *record, const char *arch,
                const struct entry_image *image, const char *damage, kjit_cache_visit visit, void *user) {
  static const struct entry none = {.key_text = {"", 0}, .family = {"", 0}, .label = {"", 0}, .log = {"", 0}};
  const struct entry *const entry = damage ? &none : &image->entry;
  struct digest key = record->request;
  char hex[DIGEST_HEX_BYTES];
  char *const name = copy_field(mem, entry, KEY_TAG_ENTRY);
  if (!name) return -1;
  if (!damage) digest_of(&key, entry->key_text.data, entry->key_text.bytes);
  digest_to_hex(&key, hex);
  kjit_cache_entry shown = {.struct_size = sizeof shown, .key = hex, .key_text = entry->key_text.data};
  shown.family = entry->family.data;
  shown.label = entry->label.data;
  shown.arch = arch;
  shown.entry = name;
  shown.log = entry->log.data;
  shown.bytes = record->packed_bytes;
  shown.origin = KJIT_ORIGIN_BUNDLE;
  shown.status = damage ? KJIT_ERR_CORRUPT : KJIT_OK;
  shown.damage = damage ? damage : "";
  fill_figures(&shown, entry);
  const int stop = visit(user, &shown);
  mem_free(mem, name);
  return stop ? 1 : 0;
}

kjit_status bundle_visit(struct bundle *bundle, const struct mem *mem, kjit_cache_visit visit, void *user,
                         kjit_error *error) {
  const struct bundle_table *const table = bundle_table(bundle);
  int stop = 0;
  for (uint32_t i = 0; i < table->record_count && !stop; i++) {
    struct bundle_record record;
    struct bundle_group group;
    struct entry_image image;
    kjit_error damage = {0};
    bundle_table_record(table, i, &record);
    bundle_table_group(table, record.group, &group);
    const kjit_status status = bundle_read(bundle, i, &image, &damage);
    if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
    stop = show(mem, &record, group.arch, &image, status == KJIT_OK ? NULL : damage.message, visit, user);
    entry_image_finish(&image, mem);
  }
  return stop < 0 ? error_no_memory(error) : KJIT_OK;
}
