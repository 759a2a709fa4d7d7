/* An allocator that counts the allocations that are not freed yet, fills new memory with a pattern so that a test does
 * not depend on zeros, and fails at a call that the test chooses. Thread-safe. A test may prepare memory that is handed
 * out in place of malloc()'s, so that no allocation makes a system call. */
#ifndef KJIT_TESTS_SUPPORT_FAILING_ALLOCATOR_H
#define KJIT_TESTS_SUPPORT_FAILING_ALLOCATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kjit/common.h>

#define FAIL_NEVER (-1)

struct failing_allocator {
  atomic_long calls;   /* allocations asked for, failed ones included */
  atomic_long live;    /* handed out and not given back */
  atomic_long fail_at; /* index of the first call to fail, FAIL_NEVER for none */
  atomic_int once;     /* nonzero: only call `fail_at` fails; else all from there on */
  /* Memory to hand out in place of malloc()'s, aligned as malloc() aligns, or NULL; none of it is taken back. */
  unsigned char *prepared;
  size_t prepared_bytes;
  atomic_size_t prepared_used;
};

static inline void *failing_allocator_take(struct failing_allocator *state, size_t bytes) {
  if (!state->prepared) return malloc(bytes);
  const size_t align = _Alignof(max_align_t), taken = (bytes + align - 1) / align * align;
  const size_t begin = atomic_fetch_add(&state->prepared_used, taken);
  return begin + taken <= state->prepared_bytes ? state->prepared + begin : NULL;
}

static inline bool failing_allocator_prepared(const struct failing_allocator *state, const void *memory) {
  const uintptr_t begin = (uintptr_t)state->prepared, at = (uintptr_t)memory;
  return state->prepared && at >= begin && at < begin + state->prepared_bytes;
}

static inline void *failing_allocate(void *user, size_t bytes) {
  struct failing_allocator *state = user;
  const long call = atomic_fetch_add(&state->calls, 1), fail_at = atomic_load(&state->fail_at);
  if (fail_at >= 0 && (atomic_load(&state->once) ? call == fail_at : call >= fail_at)) return NULL;
  void *memory = failing_allocator_take(state, bytes);
  if (!memory) return NULL;
  memset(memory, 0xA5, bytes);
  atomic_fetch_add(&state->live, 1);
  return memory;
}

static inline void failing_release(void *user, void *memory) {
  struct failing_allocator *state = user;
  if (memory) atomic_fetch_sub(&state->live, 1);
  if (!failing_allocator_prepared(state, memory)) free(memory);
}

/* Start counting anew with malloc()'s memory, and fail from call `fail_at` on; FAIL_NEVER only counts. Whatever was in
 * the structure before does not matter. */
static inline void failing_allocator_reset(struct failing_allocator *state, long fail_at) {
  atomic_store(&state->calls, 0);
  atomic_store(&state->live, 0);
  atomic_store(&state->fail_at, fail_at);
  atomic_store(&state->once, 0);
  atomic_store(&state->prepared_used, 0);
  state->prepared = NULL;
  state->prepared_bytes = 0;
}

/* After the reset: hand out these bytes in place of malloc()'s. */
static inline void failing_allocator_prepare(struct failing_allocator *state, void *memory, size_t bytes) {
  state->prepared = memory;
  state->prepared_bytes = bytes;
}

/* The hooks to pass to kjit_runtime_options or mem_init(). */
static inline kjit_allocator failing_allocator_hooks(struct failing_allocator *state) {
  return (kjit_allocator){failing_allocate, failing_release, state};
}

#endif
