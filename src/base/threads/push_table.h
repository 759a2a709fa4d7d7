/* A table from bytes to a value that only ever grows, for what every launch looks up and nothing takes out: loaded
 * kernels by their config, device memory by stream. Entries stay where they are until the table ends.
 *
 * It is a tree over the bits of a key's hash: the first bits choose one of ROOTS places, each further three bits one
 * of a node's eight children. A place is filled once (push.h) and never changes again. So readers take no lock and
 * write nothing, and a writer waits for nobody. */
#ifndef KJIT_BASE_PUSH_TABLE_H
#define KJIT_BASE_PUSH_TABLE_H

#include "base/mem.h"
#include "base/threads/push.h"

/* 8 KiB of roots: ten thousand resident configs are then 1.9 steps deep in the mean, and each step may wait for memory.
 * With 64 roots and four children they were 4.3 deep. */
enum { PUSH_TABLE_ROOT_BITS = 10, PUSH_TABLE_ROOTS = 1 << PUSH_TABLE_ROOT_BITS };

struct push_table_entry;

struct push_table {
  const struct mem *mem;
  size_t value_bytes;
  struct push_place roots[PUSH_TABLE_ROOTS]; /* struct push_table_entry */
};

/* `mem` must outlive the table. Values are copied, aligned for any type, and never change. */
void push_table_init(struct push_table *table, const struct mem *mem, size_t value_bytes);

/* Nobody may be using the table. Accepts a table that is all zero. */
void push_table_finish(struct push_table *table);

/* The value of a key of `bytes` bytes without padding, or NULL. Keys of different lengths are different. Thread-safe.
 */
const void *push_table_find(const struct push_table *table, const void *key, size_t bytes);

/* Add a value, and return it as the table keeps it: the one that is there already when another thread was faster. NULL
 * when out of memory. Thread-safe. */
const void *push_table_add(struct push_table *table, const void *key, size_t bytes, const void *value);

#endif
