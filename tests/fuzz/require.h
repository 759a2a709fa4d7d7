/* What every fuzzer says of its inputs. */
#ifndef KJIT_TESTS_FUZZ_REQUIRE_H
#define KJIT_TESTS_FUZZ_REQUIRE_H

#include <stdlib.h>

/* What must hold for every input: otherwise the process ends, and the fuzzer tells of the input. */
static inline void require(int truth) {
  if (!truth) abort();
}

/* How many inputs were taken, and not refused. driver.c wants one of the corpus to be, because mutations of files that
 * are refused at their first line, as after a change of a format, reach nothing. */
__attribute__((weak)) size_t fuzz_taken;

static inline void input_is_taken(void) {
  fuzz_taken++;
}

#endif
