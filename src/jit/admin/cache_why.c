/* `kjit cache why`: the entry whose key is nearest to a given one, and the fields in which they differ.
 *
 * Both keys are taken apart into items (key_items.h). A first walk over the folder counts the differing items of
 * every entry and remembers the entry with the fewest; that entry is then read again and each difference is handed
 * to the caller's visitor. Every entry is read, so this is a tool for people and not part of any look-up. Runs on
 * the calling thread without a lock; if the nearest entry is removed between the walk and the second reading, the
 * error says to ask again.
 *
 * Of a source whose text differs, both texts are looked for in the folder (text_store.h), and where both are there the
 * first line that differs is told too. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/admin/admin_common.h"
#include "jit/admin/cache_admin.h"
#include "jit/admin/line_difference.h"
#include "jit/cache/cache_walk.h"
#include "jit/cache/text_store.h"
#include "jit/key/key_items.h"
#include "jit/key/key_reader.h"

/* The entry with the fewest differing items so far. */
struct nearest {
  struct builder *builder;
  const struct key_items *wanted;
  const char *key; /* hex digits of the wanted key, so that its own entry is skipped */
  size_t differences;
  struct entry_name name;
};

static int consider(void *user, int folder, const struct entry_name *name) {
  struct nearest *nearest = user;
  struct disk_cache *cache = &nearest->builder->user;
  struct entry_image image;
  struct stat status;
  const char *damage = NULL;
  (void)folder;
  if (!strcmp(entry_name_key(name), nearest->key)) return 0;
  const int done = disk_cache_read(cache, name, &image, &status, &damage);
  if (done < 0) return done == -ENOMEM ? done : 0;
  struct key_items items;
  const struct entry_text *text = &image.entry.key_text;
  const kjit_status made = key_items_make(&items, cache->mem, text->data, text->bytes);
  const size_t differences = key_items_compare(nearest->wanted, &items, NULL, NULL);
  if (made == KJIT_OK && differences < nearest->differences) {
    nearest->differences = differences;
    nearest->name = *name;
  }
  key_items_finish(&items, cache->mem);
  entry_image_finish(&image, cache->mem);
  return made == KJIT_ERR_NO_MEMORY ? -ENOMEM : 0;
}

/* The caller's visitor, which gets each difference as strings. */
struct telling {
  struct disk_cache *cache;
  kjit_cache_difference_visit visit;
  void *user;
  bool failed;
};

static char *copy(const struct mem *mem, const struct key_slice *slice) {
  return mem_duplicate(mem, slice ? slice->data : "", slice ? slice->bytes : 0);
}

static bool is_source(const struct key_item *item) {
  return item->tag.bytes == strlen(KEY_TAG_SOURCE) && !memcmp(item->tag.data, KEY_TAG_SOURCE, item->tag.bytes);
}

static char *field_name(const struct mem *mem, const struct key_item *item) {
  struct text text;
  text_init(&text, mem, SIZE_MAX - 1);
  text_append_bytes(&text, item->tag.data, item->tag.bytes);
  if (is_source(item)) {
    text_append(&text, " ");
    text_append_bytes(&text, item->identity.data, item->identity.bytes);
  }
  char *name = text_take(&text);
  text_finish(&text);
  return name;
}

/* The first line in which two versions of a source differ; line 0 when a text is not kept, or there is no memory for
 * it.
 */
static void find_line(struct disk_cache *cache, const struct key_item *wanted, const struct key_item *found,
                      struct line_difference *out) {
  char *left = NULL, *right = NULL;
  size_t left_bytes = 0, right_bytes = 0;
  *out = (struct line_difference){0};
  if (!wanted || !found || !is_source(wanted)) return;
  if (text_store_get(cache, wanted->value.data, wanted->value.bytes, &left, &left_bytes) == KJIT_OK &&
      text_store_get(cache, found->value.data, found->value.bytes, &right, &right_bytes) == KJIT_OK)
    line_difference_find(out, left, left_bytes, right, right_bytes);
  mem_free(cache->mem, left);
  mem_free(cache->mem, right);
}

static const char *shown(const struct line_difference *line, const struct line_side *side) {
  return line->line && !side->missing ? side->text : NULL;
}

static int tell(void *user, const struct key_item *wanted, const struct key_item *found) {
  struct telling *telling = user;
  const struct mem *mem = telling->cache->mem;
  struct line_difference line;
  char *field = field_name(mem, wanted ? wanted : found);
  char *left = copy(mem, wanted ? &wanted->value : NULL), *right = copy(mem, found ? &found->value : NULL);
  telling->failed = !field || !left || !right;
  int stop = telling->failed;
  if (!stop) {
    find_line(telling->cache, wanted, found, &line);
    const kjit_cache_difference difference = {
        sizeof difference, field, left, right, line.line, 0, shown(&line, &line.left), shown(&line, &line.right)};
    stop = telling->visit(telling->user, &difference);
  }
  mem_free(mem, field);
  mem_free(mem, left);
  mem_free(mem, right);
  return stop;
}

static kjit_status tell_all(struct nearest *nearest, kjit_cache_difference_visit visit, void *user, kjit_error *error) {
  struct disk_cache *cache = &nearest->builder->user;
  struct telling telling = {cache, visit, user, 0};
  struct key_items items = {0};
  struct entry_image image;
  struct stat status;
  const char *damage = NULL;
  if (disk_cache_read(cache, &nearest->name, &image, &status, &damage) < 0)
    return error_set(error, KJIT_ERR_NOT_FOUND, "the nearest entry was removed meanwhile; ask again");
  const struct entry_text *text = &image.entry.key_text;
  kjit_status made = key_items_make(&items, cache->mem, text->data, text->bytes);
  if (made == KJIT_OK) (void)key_items_compare(nearest->wanted, &items, tell, &telling);
  if (telling.failed) made = KJIT_ERR_NO_MEMORY;
  key_items_finish(&items, cache->mem);
  entry_image_finish(&image, cache->mem);
  return made == KJIT_OK ? KJIT_OK : error_no_memory(error);
}

static kjit_status compare_text(struct builder *builder, const char *text, size_t bytes, char nearest_key[65],
                                kjit_cache_difference_visit visit, void *user, kjit_error *error) {
  struct key_items wanted;
  struct digest digest;
  char hex[DIGEST_HEX_BYTES];
  digest_of(&digest, text, bytes);
  digest_to_hex(&digest, hex);
  kjit_status status = key_items_make(&wanted, builder->mem, text, bytes);
  if (status == KJIT_ERR_PARSE) status = error_invalid(error, "key", "begins like a key's text but is not one");
  if (status == KJIT_ERR_NO_MEMORY) status = error_no_memory(error);
  if (status == KJIT_OK) {
    struct nearest nearest = {.builder = builder, .wanted = &wanted, .key = hex, .differences = SIZE_MAX};
    status = admin_failed(builder, "search", cache_walk(&builder->user, consider, &nearest), error);
    if (status == KJIT_OK && nearest.differences == SIZE_MAX)
      status = error_set(error, KJIT_ERR_NOT_FOUND, "the cache holds no other entry to compare with");
    if (status == KJIT_OK) memcpy(nearest_key, entry_name_key(&nearest.name), DIGEST_HEX_BYTES);
    if (status == KJIT_OK) status = tell_all(&nearest, visit, user, error);
  }
  key_items_finish(&wanted, builder->mem);
  return status;
}

kjit_status builder_cache_why(struct builder *builder, const char *key, char nearest[65],
                              kjit_cache_difference_visit visit, void *user, kjit_error *error) {
  struct entry_name name;
  struct entry_image image;
  struct stat file;
  const char *damage = NULL;
  error_clear(error);
  if (!nearest) return error_invalid(error, "nearest", "must not be NULL");
  nearest[0] = '\0';
  if (!key) return error_invalid(error, "key", "must not be NULL");
  if (!visit) return error_invalid(error, "visit", "must not be NULL");
  if (!strncmp(key, KEY_HEAD, strlen(KEY_HEAD)))
    return compare_text(builder, key, strlen(key), nearest, visit, user, error);
  kjit_status status = admin_find(builder, key, &name, error);
  if (status != KJIT_OK) return status;
  const int done = disk_cache_read(&builder->user, &name, &image, &file, &damage);
  if (done == -EBADMSG) return error_set(error, KJIT_ERR_NOT_FOUND, "key %s: its entry is damaged: %s", key, damage);
  if (done == -ENOENT || done == -ESTALE) return admin_gone(key, error);
  if (done < 0) return admin_failed(builder, "read an entry of", done, error);
  const struct entry_text *text = &image.entry.key_text;
  status = compare_text(builder, text->data, text->bytes, nearest, visit, user, error);
  entry_image_finish(&image, builder->mem);
  return status;
}
