/* A key taken apart into items that can be compared with another key's, for `kjit cache why`.
 *
 * Each field becomes an item, with two exceptions: a prologue becomes an item for each line, and a source's name and
 * digest become one item. Items are sorted by field and by what identifies them within it, so that comparing two
 * keys is one pass over both, like a merge. Everything is a slice of the key texts. Any thread may call. */
#include "jit/key/key_items.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "jit/key/key_reader.h"

#define DEFINE "#define "

/* Room for one more item; NULL when out of memory. */
static struct key_item *add(struct key_items *items, const struct mem *mem) {
  struct key_item *const grown = mem_grow(mem, items->items, items->count, &items->capacity, sizeof *grown);
  if (!grown) return NULL;
  items->items = grown;
  return &grown[items->count++];
}

/* Add an item for each line of the prologue. A line "#define NAME VALUE" is identified by "#define NAME", so that it
 * pairs with the other key's line for NAME. */
static bool add_lines(struct key_items *items, const struct mem *mem, const struct key_field *field) {
  const struct key_slice tag = {field->tag, field->tag_bytes};
  const char *end = field->value + field->value_bytes;
  for (const char *line = field->value; line < end;) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    struct key_item *item = add(items, mem);
    if (!item) return false;
    const size_t bytes = (size_t)(stop - line), define = sizeof DEFINE - 1;
    *item = (struct key_item){tag, {line, bytes}, {line, bytes}};
    if (bytes > define && !memcmp(line, DEFINE, define)) {
      const char *space = memchr(line + define, ' ', bytes - define);
      if (space) item->identity.bytes = (size_t)(space - line);
    }
    line = stop + 1;
  }
  return true;
}

static bool add_field(struct key_items *items, const struct mem *mem, const struct key_field *field) {
  if (key_field_is(field, KEY_TAG_PROLOGUE)) return add_lines(items, mem, field);
  /* The digest becomes the value of the item of its source or part, which was added just before. */
  if (key_field_is(field, KEY_TAG_DIGEST)) {
    if (items->count) items->items[items->count - 1].value = (struct key_slice){field->value, field->value_bytes};
    return true;
  }
  struct key_item *item = add(items, mem);
  if (!item) return false;
  const struct key_slice value = {field->value, field->value_bytes}, none = {"", 0};
  const bool repeated = key_field_is(field, KEY_TAG_OPTION) || key_field_is(field, KEY_TAG_SOURCE) ||
                        key_field_is(field, KEY_TAG_NAME) || key_field_is(field, KEY_TAG_PART);
  *item = (struct key_item){{field->tag, field->tag_bytes}, repeated ? value : none, value};
  return true;
}

static int compare_slices(const struct key_slice *a, const struct key_slice *b) {
  const int order = memcmp(a->data, b->data, a->bytes < b->bytes ? a->bytes : b->bytes);
  return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_items(const void *a, const void *b) {
  const struct key_item *left = a, *right = b;
  const int order = compare_slices(&left->tag, &right->tag);
  return order ? order : compare_slices(&left->identity, &right->identity);
}

kjit_status key_items_make(struct key_items *items, const struct mem *mem, const char *text, size_t bytes) {
  struct key_reader reader;
  struct key_field field;
  *items = (struct key_items){0};
  key_reader_init(&reader, text, bytes);
  while (key_reader_next(&reader, &field))
    if (!add_field(items, mem, &field)) return KJIT_ERR_NO_MEMORY;
  if (!reader.sound) return KJIT_ERR_PARSE;
  if (items->count) qsort(items->items, items->count, sizeof *items->items, compare_items);
  return KJIT_OK;
}

void key_items_finish(struct key_items *items, const struct mem *mem) {
  mem_free(mem, items->items);
  *items = (struct key_items){0};
}

size_t key_items_compare(const struct key_items *wanted, const struct key_items *found, key_items_differ differ,
                         void *user) {
  size_t i = 0, j = 0, differences = 0;
  while (i < wanted->count || j < found->count) {
    const struct key_item *left = i < wanted->count ? &wanted->items[i] : NULL;
    const struct key_item *right = j < found->count ? &found->items[j] : NULL;
    const int order = !left ? 1 : !right ? -1 : compare_items(left, right);
    i += order <= 0;
    j += order >= 0;
    if (order == 0 && !compare_slices(&left->value, &right->value)) continue;
    differences++;
    if (differ && differ(user, order <= 0 ? left : NULL, order >= 0 ? right : NULL)) break;
  }
  return differences;
}
