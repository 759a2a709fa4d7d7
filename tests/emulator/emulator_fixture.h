/* The GPU tests' fixture (gpu_fixture.h), running on the emulator. */
#ifndef KJIT_TESTS_EMULATOR_FIXTURE_H
#define KJIT_TESTS_EMULATOR_FIXTURE_H

#include "gpu_fixture.h"

#include <stdbool.h>

/* Point kjit and the tests at the stand-ins, with a cache of their own; call before anything else of either. */
void emulator_choose(void);

/* Group setup: emulator_choose(), then gpu_setup() with inputs that are the same in every run. */
int emulator_setup(void **state);

/* What the emulator has to say of the last launch that it stopped, "" if nothing; and forget it. */
const char *emulator_complaint(const struct card *card);
void emulator_clear_complaint(const struct card *card);

/* Put a mistake into every kernel that is compiled from now on: in `file`, a path below kernel_src, the text `before`
 * is replaced by `after`. */
void emulator_mutate(const char *file, const char *before, const char *after);

/* Of a list of mistakes every so many are made: 2, or all (1) with KJIT_TEST_ALL_CONFIGS=1. */
size_t emulator_mutation_step(void);

/* A runtime without a cache, which compiles anew what others have compiled. */
kjit_runtime *emulator_runtime_anew(kjit_error *error);

/* End emulator_mutate(). Did the emulator stop the launch whose status this is? Then its complaint is printed after
 * `what`, the mistake in words, and forgotten. A kernel that did not even compile fails the test. */
bool emulator_stopped_mutation(const struct card *card, const char *what, kjit_status status, const kjit_error *error);

#endif
