/* A cache of values that were computed last, for readers that wait for nobody. It has a fixed number of slots; a key's
 * hash selects one, and a value for another key of the same slot replaces the older one.
 *
 * Life cycle: recent_create(); then any number of threads call recent_get() and, after a miss, compute the value and
 * call recent_put(); recent_destroy() when no thread uses it any more.
 *
 * Keys and values are arrays of 64-bit words without padding, because they are compared and copied word by word. */
#ifndef KJIT_BASE_RECENT_H
#define KJIT_BASE_RECENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

struct recent;

/* `slots` is a power of two; the sizes are in bytes and multiples of 8. NULL when out of memory. `mem` must outlive it.
 */
struct recent *recent_create(const struct mem *mem, size_t slots, size_t key_bytes, size_t value_bytes);

/* No thread may be using it. Accepts NULL. */
void recent_destroy(const struct mem *mem, struct recent *recent);

/* Copy the key's value into `value`. False when there is none; `value` is then undefined. Thread-safe. */
bool recent_get(struct recent *recent, const void *key, void *value);

/* Keep a value for the key. The value is dropped when another thread is writing to the same slot. Thread-safe. */
void recent_put(struct recent *recent, const void *key, const void *value);

#endif
