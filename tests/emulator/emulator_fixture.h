/* The GPU tests' fixture (gpu_fixture.h), running on the emulator. */
#ifndef KJIT_TESTS_EMULATOR_FIXTURE_H
#define KJIT_TESTS_EMULATOR_FIXTURE_H

#include "gpu_fixture.h"

/* Point kjit and the tests at the stand-ins, with a cache of their own; call before anything else of either. */
void emulator_choose(void);

/* Group setup: emulator_choose(), then gpu_setup() with inputs that are the same in every run. */
int emulator_setup(void **state);

/* What the emulator has to say of the last launch that it stopped, "" if nothing; and forget it. */
const char *emulator_complaint(const struct card *card);
void emulator_clear_complaint(const struct card *card);

#endif
