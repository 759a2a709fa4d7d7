/* The push-only table: push_table.h says what it is and why readers need no lock.
 *
 * A look-up hashes the key, takes the root that the hash's top bits choose and walks down three bits at a time until an
 * entry has the same key or a place is empty. An insertion walks the same way and swaps its entry into the empty place;
 * if another thread filled that place first, the walk goes on from there, since that entry may be the same key.
 * Two keys of one hash are told apart by their bytes; when the hash's bits are used up, the walk goes on through first
 * children.
 *
 * Threads: any number may find and add. An entry is complete before the release that publishes it. */
#include "base/threads/push_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/hash.h"

enum { CHILDREN = 8 };

/* A step of a walk reads the hash and one child: both in the first line of memory. */
struct push_table_entry {
  uint64_t hash;
  struct push_place children[CHILDREN]; /* struct push_table_entry */
  size_t key_bytes;
  max_align_t value[]; /* and the key behind it, in the same memory */
};

void push_table_init(struct push_table *table, const struct mem *mem, size_t value_bytes) {
  memset(table, 0, sizeof *table);
  table->mem = mem;
  table->value_bytes = value_bytes;
}

/* Where a walk is: the bits of the hash that are left to choose by, at the top. */
static uint64_t begin(uint64_t hash) {
  return hash << PUSH_TABLE_ROOT_BITS;
}

static size_t take_bits(uint64_t *rest) {
  const size_t child = (size_t)(*rest >> 61);
  *rest <<= 3;
  return child;
}

static char *key_of(const struct push_table *table, const struct push_table_entry *entry) {
  return (char *)(uintptr_t)entry->value + table->value_bytes;
}

static bool is_same(const struct push_table *table, const struct push_table_entry *entry, uint64_t hash,
                    const void *key, size_t bytes) {
  return entry->hash == hash && entry->key_bytes == bytes && memcmp(key_of(table, entry), key, bytes) == 0;
}

const void *push_table_find(const struct push_table *table, const void *key, size_t bytes) {
  const uint64_t hash = hash_64(key, bytes);
  uint64_t rest = begin(hash);
  const struct push_table_entry *entry = push_place_get(&table->roots[hash >> (64 - PUSH_TABLE_ROOT_BITS)]);
  while (entry && !is_same(table, entry, hash, key, bytes))
    entry = push_place_get(&entry->children[take_bits(&rest)]);
  return entry ? entry->value : NULL;
}

static struct push_table_entry *make(const struct push_table *table, uint64_t hash, const void *key, size_t bytes,
                                     const void *value) {
  struct push_table_entry *entry = mem_alloc(table->mem, sizeof *entry + table->value_bytes + bytes);
  if (!entry) return NULL;
  entry->hash = hash;
  entry->key_bytes = bytes;
  memcpy(key_of(table, entry), key, bytes);
  memcpy(entry->value, value, table->value_bytes);
  return entry;
}

const void *push_table_add(struct push_table *table, const void *key, size_t bytes, const void *value) {
  const uint64_t hash = hash_64(key, bytes);
  uint64_t rest = begin(hash);
  struct push_table_entry *const made = make(table, hash, key, bytes, value);
  if (!made) return NULL;
  struct push_place *at = &table->roots[hash >> (64 - PUSH_TABLE_ROOT_BITS)];
  for (;;) {
    struct push_table_entry *const there = push_place_fill(at, made);
    if (there == made) return made->value;
    if (is_same(table, there, hash, key, bytes)) {
      mem_free(table->mem, made);
      return there->value;
    }
    at = &there->children[take_bits(&rest)];
  }
}

/* Recursive: the depth is about log8 of the number of entries, since XXH3 spreads keys evenly. */
static void free_all(const struct mem *mem, struct push_table_entry *entry) {
  if (!entry) return;
  for (size_t i = 0; i < CHILDREN; i++)
    free_all(mem, push_place_get(&entry->children[i]));
  mem_free(mem, entry);
}

void push_table_finish(struct push_table *table) {
  for (size_t i = 0; i < PUSH_TABLE_ROOTS; i++)
    free_all(table->mem, push_place_get(&table->roots[i]));
  memset(table->roots, 0, sizeof table->roots);
}
