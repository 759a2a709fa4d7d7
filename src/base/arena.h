/* Memory that is taken in small pieces and given back at once. For work whose pieces all live equally long. */
#ifndef KJIT_BASE_ARENA_H
#define KJIT_BASE_ARENA_H

#include <stdbool.h>

#include "base/mem.h"

struct arena_block;

struct arena {
  const struct mem *mem;
  struct arena_block *blocks; /* the newest first */
  size_t used, capacity;      /* of the newest block, in bytes */
  size_t bytes, limit;        /* of all pieces; no piece is given beyond the limit */
  bool failed; /* out of memory, or past the limit; stays set, so that it can be tested once at the end */
};

/* No limit: for work whose inputs are capped elsewhere. */
#define ARENA_UNLIMITED (SIZE_MAX / 4)

/* `limit` in bytes, at most ARENA_UNLIMITED. `mem` must outlive the arena. */
void arena_init(struct arena *arena, const struct mem *mem, size_t limit);
void arena_finish(struct arena *arena); /* frees every piece */

/* Zeroed memory, aligned for any object; NULL when it failed. Zero bytes give a pointer. */
void *arena_alloc(struct arena *arena, size_t bytes);

/* The same for `count` elements of `size` bytes; it also fails when count * size overflows. */
void *arena_alloc_array(struct arena *arena, size_t count, size_t size);

/* As mem_grow(): room for one more element in an array that begins as NULL with a capacity of 0. The old array stays in
 * the arena, so the pieces of an array take at most twice its room. NULL when it failed. */
void *arena_grow(struct arena *arena, void *array, size_t count, size_t *capacity, size_t size);

/* A copy with a NUL behind it; NULL when it failed. */
char *arena_copy(struct arena *arena, const char *text, size_t bytes);

/* Formatted text; NULL when it failed. */
char *arena_printf(struct arena *arena, const char *format, ...) KJIT_PRINTF(2, 3);

#endif
