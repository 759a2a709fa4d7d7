/* What was computed last for a key, for readers that wait for nobody: a fixed number of places, a key's by its hash,
 * each taken over by whoever computed something for another key of it. Keys and values are whole words without padding.
 */
#ifndef KJIT_BASE_RECENT_H
#define KJIT_BASE_RECENT_H

#include <stddef.h>

#include "base/mem.h"

struct recent;

/* Sizes in bytes, multiples of 8; `places` a power of two. NULL when out of memory. `mem` must outlive it. */
struct recent *recent_create(const struct mem *mem, size_t places, size_t key_bytes, size_t value_bytes);

/* Nobody may be using it. Accepts NULL. */
void recent_destroy(const struct mem *mem, struct recent *recent);

/* Whether there is a value for the key; else what is in `value` means nothing. Thread-safe. */
_Bool recent_get(struct recent *recent, const void *key, void *value);

/* Nothing when another thread is writing at the same place. Thread-safe. */
void recent_put(struct recent *recent, const void *key, const void *value);

#endif
