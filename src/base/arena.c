/* A list of blocks. A piece is cut from the newest block, or gets a new block when it does not fit there. One arena
 * belongs to one thread at a time, because nothing in it is locked. */
#include "base/arena.h"

#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10)
#define ALIGNMENT   _Alignof(max_align_t)

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

static _Bool add_block(struct arena *arena, size_t bytes) {
  const size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
  struct arena_block *block = mem_alloc(arena->mem, sizeof *block + capacity);
  if (!block) return 0;
  block->next = arena->blocks;
  arena->blocks = block;
  arena->capacity = capacity;
  arena->used = 0;
  return 1;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
  if (bytes > arena->limit - arena->bytes) arena->failed = 1;
  if (arena->failed) return NULL;
  const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (padded > arena->capacity - arena->used && !add_block(arena, padded)) {
    arena->failed = 1;
    return NULL;
  }
  void *piece = arena->blocks->data + arena->used;
  arena->used += padded;
  arena->bytes += bytes;
  return piece;
}

char *arena_copy(struct arena *arena, const char *text, size_t bytes) {
  char *copy = arena_alloc(arena, bytes + 1);
  if (copy && bytes) memcpy(copy, text, bytes);
  return copy;
}
