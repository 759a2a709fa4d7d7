/* A table from some bytes and a device to a value, for what every launch looks up and nothing ever takes out: kernels
 * that are loaded and ready by the config as callers write it, streams. Entries stay, where they are, until the table
 * ends. */
#ifndef KJIT_ATTENTION_ATTENTION_TABLE_H
#define KJIT_ATTENTION_ATTENTION_TABLE_H

#include <kjit/kernel.h>

#include "base/mem.h"

struct attention_table;

/* NULL when out of memory. `mem` must outlive the table. Keys are structs without padding of at most 76 bytes; values
 * are copied, aligned for any type, and never change. */
struct attention_table *attention_table_create(const struct mem *mem, size_t key_bytes, size_t value_bytes);

/* Nobody may be using the table. Accepts NULL. */
void attention_table_destroy(struct attention_table *table);

/* The value, or NULL. Thread-safe: readers do not contend with each other. */
const void *attention_table_find(struct attention_table *table, const void *bytes, int32_t device);

/* Add a value, and return it as the table keeps it: the one that is there already when another thread was faster. NULL
 * when out of memory. Thread-safe. */
const void *attention_table_add(struct attention_table *table, const void *bytes, int32_t device, const void *value);

#endif
