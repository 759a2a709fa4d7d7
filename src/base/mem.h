/* Host memory through the caller's hooks. Every allocation of the library goes through a struct mem. */
#ifndef KJIT_BASE_MEM_H
#define KJIT_BASE_MEM_H

#include <stdbool.h>

#include <kjit/common.h>

struct mem {
  kjit_allocator hooks; /* both functions set */
};

/* Take the caller's hooks; all zero means malloc and free. False when only one of the two is set. */
bool mem_init(struct mem *mem, const kjit_allocator *hooks);

/* Zeroed memory, or NULL. Zero bytes give a valid pointer. */
void *mem_alloc(const struct mem *mem, size_t bytes);

/* Zeroed array, NULL also when count * size overflows. */
void *mem_alloc_array(const struct mem *mem, size_t count, size_t size);

/* Room for one more element in an array of `count` elements of `size` bytes: the same array while `count` is below
 * `*capacity`, else a copy with twice the room, whose new elements are zero, and the old array is freed. An array
 * begins as NULL with a capacity of 0. NULL when out of memory or beyond the address space; the old array is then still
 * there.
 */
void *mem_grow(const struct mem *mem, void *array, size_t count, size_t *capacity, size_t size);

/* A copy of `bytes` bytes with a NUL behind them. */
void *mem_duplicate(const struct mem *mem, const void *data, size_t bytes);

/* A copy of a string; NULL gives NULL. */
char *mem_strdup(const struct mem *mem, const char *text);

/* Accepts NULL. */
void mem_free(const struct mem *mem, void *memory);

#endif
