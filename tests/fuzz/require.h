/* What must hold for every input: otherwise the process ends, and the fuzzer tells of the input. */
#ifndef KJIT_TESTS_FUZZ_REQUIRE_H
#define KJIT_TESTS_FUZZ_REQUIRE_H

#include <stdlib.h>

static inline void require(int truth) {
  if (!truth) abort();
}

#endif
