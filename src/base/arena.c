/* Memory in chunks: a piece is cut off the newest chunk, and a piece that does not fit gets a chunk of its own size or
 * of CHUNK_BYTES, whichever is more. Nothing is freed alone; arena_finish() frees all chunks.
 *
 * Threads: an arena belongs to one thread while it is filled; what it holds may be read by any afterwards. */
#include "base/arena.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A description of a dozen fields and rules fits one or two. */
#define CHUNK_BYTES 4096

struct arena_chunk {
  struct arena_chunk *older;
  size_t used, capacity;
  max_align_t data[];
};

void arena_init(struct arena *arena, const struct mem *mem) {
  *arena = (struct arena){.mem = mem};
}

void arena_finish(struct arena *arena) {
  while (arena->newest) {
    struct arena_chunk *const chunk = arena->newest;
    arena->newest = chunk->older;
    mem_free(arena->mem, chunk);
  }
}

static _Bool add_chunk(struct arena *arena, size_t bytes) {
  const size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
  struct arena_chunk *chunk = mem_alloc(arena->mem, sizeof *chunk + capacity);
  if (!chunk) return 0;
  chunk->older = arena->newest;
  chunk->capacity = capacity;
  arena->newest = chunk;
  return 1;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size) {
  const size_t unit = sizeof(max_align_t);
  const _Bool fits = !size || count <= (SIZE_MAX / 4) / size;
  const size_t bytes = fits ? (count * size + unit - 1) / unit * unit : 0;
  const _Bool room = arena->newest && bytes <= arena->newest->capacity - arena->newest->used;
  if (!fits || (!room && !add_chunk(arena, bytes))) {
    arena->failed = 1;
    return NULL;
  }
  char *const piece = (char *)arena->newest->data + arena->newest->used;
  arena->newest->used += bytes;
  return piece;
}

char *arena_copy(struct arena *arena, const char *text, size_t bytes) {
  char *copy = arena_alloc(arena, bytes + 1, 1);
  if (copy && bytes) memcpy(copy, text, bytes);
  return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = length < 0 ? NULL : arena_alloc(arena, (size_t)length + 1, 1);
  if (!text) return NULL;
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}
