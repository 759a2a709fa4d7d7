/* A key text taken apart for comparing it with another: one item for each thing that can differ. */
#ifndef KJIT_JIT_KEY_KEY_ITEMS_H
#define KJIT_JIT_KEY_KEY_ITEMS_H

#include "base/mem.h"

struct key_slice {
  const char *data;
  size_t bytes;
};

struct key_item {
  struct key_slice tag;      /* of the field */
  struct key_slice identity; /* by which two keys' items are paired: the name of a source or define, an option */
  struct key_slice value;
};

/* Sorted by tag and identity. Slices point into the key text. */
struct key_items {
  struct key_item *items;
  size_t count, capacity;
};

/* KJIT_ERR_PARSE when the text is no key (its compiler may be missing), KJIT_ERR_NO_MEMORY. Finish it in either case.
 */
kjit_status key_items_make(struct key_items *items, const struct mem *mem, const char *text, size_t bytes);
void key_items_finish(struct key_items *items, const struct mem *mem);

/* Go through both keys at once: each call of `differ` gets two paired items that differ, or one and NULL. Returns how
 * many there were, or stops early when `differ` (which may be NULL) returns nonzero. */
typedef int (*key_items_differ)(void *user, const struct key_item *wanted, const struct key_item *found);
size_t key_items_compare(const struct key_items *wanted, const struct key_items *found, key_items_differ differ,
                         void *user);

#endif
