/* Kernels of serving attention with one mistake each, which the emulator must not find right. */
#ifndef KJIT_TESTS_EMULATOR_SERVING_MUTATION_H
#define KJIT_TESTS_EMULATOR_SERVING_MUTATION_H

#include <stddef.h>

#include "serving_trial.h"

/* `before` stands in the kernel source `file` exactly once, and becomes `after`. */
struct mutation {
  const char *what, *file, *before, *after;
};

/* Run the case once for each mistake, or for every second one by default. Fails when the result is right. */
void assert_caught(void **state, const struct serving_case *c, const struct mutation *mutations, size_t count);

#endif
