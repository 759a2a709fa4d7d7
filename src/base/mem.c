/* Allocation through the caller's hooks, by default malloc() and free(). What mem_alloc() gives is zeroed, so that a
 * struct that was made half way can be destroyed like a whole one. Sizes are multiplied with a check, so that a
 * product that overflows is a failed allocation and not a small one. The hooks must be thread-safe, as malloc() is. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The room of an array that grows for the first time: small enough for the many arrays that stay short. */
#define FIRST_ELEMENTS 16

static void *heap_allocate(void *user, size_t bytes) {
  (void)user;
  return malloc(bytes);
}

static void heap_release(void *user, void *memory) {
  (void)user;
  free(memory);
}

bool mem_init(struct mem *mem, const kjit_allocator *hooks) {
  mem->hooks = (kjit_allocator){heap_allocate, heap_release, NULL};
  if (!hooks || (!hooks->allocate && !hooks->release)) return true;
  if (!hooks->allocate || !hooks->release) return false;
  mem->hooks = *hooks;
  return true;
}

void *mem_alloc(const struct mem *mem, size_t bytes) {
  /* malloc(0) may give NULL, which would read as a failure. */
  const size_t asked = bytes ? bytes : 1;
  void *memory = mem->hooks.allocate(mem->hooks.user, asked);
  if (memory) memset(memory, 0, asked);
  return memory;
}

void *mem_alloc_array(const struct mem *mem, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  return mem_alloc(mem, bytes);
}

void *mem_grow(const struct mem *mem, void *array, size_t count, size_t *capacity, size_t size) {
  if (count < *capacity) return array;
  if (*capacity > SIZE_MAX / 2) return NULL;
  const size_t wanted = *capacity ? 2 * *capacity : FIRST_ELEMENTS;
  void *const grown = mem_alloc_array(mem, wanted, size);
  if (!grown) return NULL;
  if (count) memcpy(grown, array, count * size);
  mem_free(mem, array);
  *capacity = wanted;
  return grown;
}

void *mem_duplicate(const struct mem *mem, const void *data, size_t bytes) {
  if (bytes == SIZE_MAX) return NULL;
  char *copy = mem->hooks.allocate(mem->hooks.user, bytes + 1);
  if (!copy) return NULL;
  if (bytes) memcpy(copy, data, bytes);
  copy[bytes] = '\0';
  return copy;
}

char *mem_strdup(const struct mem *mem, const char *text) {
  return text ? mem_duplicate(mem, text, strlen(text)) : NULL;
}

void mem_free(const struct mem *mem, void *memory) {
  if (memory) mem->hooks.release(mem->hooks.user, memory);
}
