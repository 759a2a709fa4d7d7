/* A list of blocks. A piece is cut from the newest block, or gets a new block when it does not fit there. Blocks start
 * small and double, because a family needs a few kilobytes and an include closure some megabytes.
 *
 * Threads: an arena belongs to one thread while it is filled, because nothing in it is locked; what it holds may be
 * read by any thread afterwards. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BLOCK_BYTES   ((size_t)4 << 10)
#define LARGEST_BLOCK_BYTES ((size_t)64 << 10)
#define FIRST_ELEMENTS      32
#define ALIGNMENT           _Alignof(max_align_t)

struct arena_block {
  struct arena_block *next;
  _Alignas(max_align_t) char data[];
};

void arena_init(struct arena *arena, const struct mem *mem, size_t limit) {
  *arena = (struct arena){.mem = mem, .limit = limit};
}

void arena_finish(struct arena *arena) {
  while (arena->blocks) {
    struct arena_block *next = arena->blocks->next;
    mem_free(arena->mem, arena->blocks);
    arena->blocks = next;
  }
  arena->used = arena->capacity = 0;
}

static bool add_block(struct arena *arena, size_t bytes) {
  size_t usual = arena->capacity ? arena->capacity * 2 : FIRST_BLOCK_BYTES;
  if (usual > LARGEST_BLOCK_BYTES) usual = LARGEST_BLOCK_BYTES;
  const size_t capacity = bytes > usual ? bytes : usual;
  struct arena_block *block = mem_alloc(arena->mem, sizeof *block + capacity);
  if (!block) return false;
  block->next = arena->blocks;
  arena->blocks = block;
  arena->capacity = capacity;
  arena->used = 0;
  return true;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
  if (bytes > arena->limit - arena->bytes) arena->failed = 1;
  if (arena->failed) return NULL;
  const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const bool room = arena->blocks && padded <= arena->capacity - arena->used;
  if (!room && !add_block(arena, padded)) {
    arena->failed = 1;
    return NULL;
  }
  void *piece = arena->blocks->data + arena->used;
  arena->used += padded;
  arena->bytes += bytes;
  return piece;
}

void *arena_alloc_array(struct arena *arena, size_t count, size_t size) {
  if (size && count > ARENA_UNLIMITED / size) arena->failed = 1;
  return arena_alloc(arena, arena->failed ? 0 : count * size);
}

void *arena_grow(struct arena *arena, void *array, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) return array;
  const size_t wanted = *capacity ? 2 * *capacity : FIRST_ELEMENTS;
  void *const grown = arena_alloc_array(arena, wanted, size);
  if (!grown) return NULL;
  if (count) memcpy(grown, array, count * size);
  *capacity = wanted;
  return grown;
}

char *arena_copy(struct arena *arena, const char *text, size_t bytes) {
  char *copy = arena_alloc(arena, bytes + 1);
  if (copy && bytes) memcpy(copy, text, bytes);
  return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = length < 0 ? NULL : arena_alloc(arena, (size_t)length + 1);
  if (!text) return NULL;
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}
