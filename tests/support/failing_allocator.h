/* An allocator that counts the allocations that are not freed yet, fills new memory with a pattern so that a test does
 * not depend on zeros, and fails at a call that the test chooses. Thread-safe. */
#ifndef KJIT_TESTS_SUPPORT_FAILING_ALLOCATOR_H
#define KJIT_TESTS_SUPPORT_FAILING_ALLOCATOR_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <kjit/common.h>

#define FAIL_NEVER (-1)

struct failing_allocator {
  atomic_long calls;   /* allocations asked for, failed ones included */
  atomic_long live;    /* handed out and not given back */
  atomic_long fail_at; /* index of the first call to fail, FAIL_NEVER for none */
  atomic_int once;     /* nonzero: only call `fail_at` fails; else all from there on */
};

static inline void *failing_allocate(void *user, size_t bytes) {
  struct failing_allocator *state = user;
  const long call = atomic_fetch_add(&state->calls, 1), fail_at = atomic_load(&state->fail_at);
  if (fail_at >= 0 && (atomic_load(&state->once) ? call == fail_at : call >= fail_at)) return NULL;
  void *memory = malloc(bytes);
  if (!memory) return NULL;
  memset(memory, 0xA5, bytes);
  atomic_fetch_add(&state->live, 1);
  return memory;
}

static inline void failing_release(void *user, void *memory) {
  struct failing_allocator *state = user;
  if (memory) atomic_fetch_sub(&state->live, 1);
  free(memory);
}

/* Start counting anew, and fail from call `fail_at` on; FAIL_NEVER only counts. */
static inline void failing_allocator_reset(struct failing_allocator *state, long fail_at) {
  atomic_store(&state->calls, 0);
  atomic_store(&state->live, 0);
  atomic_store(&state->fail_at, fail_at);
  atomic_store(&state->once, 0);
}

/* The hooks to pass to kjit_runtime_options or mem_init(). */
static inline kjit_allocator failing_allocator_hooks(struct failing_allocator *state) {
  return (kjit_allocator){failing_allocate, failing_release, state};
}

#endif
