/* An allocator for fuzzers of formats that say how much memory they need: what an input claims beyond the bound is
 * refused, because larger claims are a matter of the bounds' own tests. */
#ifndef KJIT_TESTS_FUZZ_BOUNDED_MEMORY_H
#define KJIT_TESTS_FUZZ_BOUNDED_MEMORY_H

#include <stdlib.h>

#include <kjit/common.h>

static inline void *bounded_allocate(void *user, size_t bytes) {
  const size_t most = (size_t)64 << 20;
  (void)user;
  return bytes <= most ? malloc(bytes) : NULL;
}

static inline void bounded_release(void *user, void *memory) {
  (void)user;
  free(memory);
}

static const kjit_allocator bounded_memory = {bounded_allocate, bounded_release, NULL};

#endif
