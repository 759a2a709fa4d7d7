/* Many small pieces of memory that live and die together: what an object is built of once and then only reads. */
#ifndef KJIT_BASE_ARENA_H
#define KJIT_BASE_ARENA_H

#include "base/mem.h"

struct arena_chunk;

struct arena {
  const struct mem *mem;
  struct arena_chunk *newest;
  _Bool failed; /* a piece could not be had; sticky, so that a builder may ask once at its end */
};

/* `mem` must outlive it. */
void arena_init(struct arena *arena, const struct mem *mem);
void arena_finish(struct arena *arena); /* frees every piece */

/* Zeroed, aligned for any type; NULL when out of memory or when count * size overflows. Zero bytes give a pointer. */
void *arena_alloc(struct arena *arena, size_t count, size_t size);

/* A copy with a NUL behind it. */
char *arena_copy(struct arena *arena, const char *text, size_t bytes);

/* Formatted text. NULL when out of memory. */
char *arena_printf(struct arena *arena, const char *format, ...) KJIT_PRINTF(2, 3);

#endif
