/* Serving cases with a mistake in a kernel: what the mutation tests of serving share. */
#ifndef KJIT_TESTS_EMULATOR_SERVING_MUTATION_H
#define KJIT_TESTS_EMULATOR_SERVING_MUTATION_H

#include <stddef.h>

#include "emulator_fixture.h"
#include "serving_trial.h"

/* One mistake, made by replacing a piece of a kernel's source. The piece must stand in the source exactly once;
 * otherwise the compile fails, and the test with it. */
struct mutation {
  const char *what, *file, *before, *after;
};

/* The setup of a group of tests: the emulator, which does not print what it complains of. */
int serving_mutation_setup(void **state);

/* Fails unless the emulator stops each of the mistakes or finds the case's result wrong, and, with
 * KJIT_TEST_ALL_CONFIGS=1, the case is right without a mistake. */
void assert_caught(void **state, const struct serving_case *c, const struct mutation *mutations, size_t count);

/* Of mistakes that are a long compile each, the first, or all with KJIT_TEST_ALL_CONFIGS=1. */
size_t first_or_all(size_t all);

#endif
