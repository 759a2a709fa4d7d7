/* Memory that is taken in small pieces and given back at once. For work whose pieces all live equally long. */
#ifndef KJIT_BASE_ARENA_H
#define KJIT_BASE_ARENA_H

#include "base/mem.h"

struct arena_block;

struct arena {
  const struct mem *mem;
  struct arena_block *blocks; /* the newest first */
  size_t used, capacity;      /* of the newest block */
  size_t bytes, limit;        /* of all pieces; no piece is given beyond the limit */
  _Bool failed; /* out of memory, or past the limit; stays set, so that it can be tested once at the end */
};

void arena_init(struct arena *arena, const struct mem *mem, size_t limit);
void arena_finish(struct arena *arena); /* frees every piece */

/* Zeroed memory, aligned for any object; NULL when it failed. */
void *arena_alloc(struct arena *arena, size_t bytes);

/* A copy with a NUL behind it; NULL when it failed. */
char *arena_copy(struct arena *arena, const char *text, size_t bytes);

#endif
