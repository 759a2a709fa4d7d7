/* Running cases of serving attention, as a test of theirs does it: on a GPU shared among processes (gpu_shares.h), on
 * the emulator in this one. */
#ifndef KJIT_TESTS_GPU_SERVING_RUN_H
#define KJIT_TESTS_GPU_SERVING_RUN_H

#include "gpu_fixture.h"
#include "serving_trial.h"

/* Runs every `step`-th of the cases several times. Fails the calling test unless all are right, with the same bits each
 * time; those that are not are printed. `state` is the test's, which is read on the emulator alone. */
void expect_every(void **state, const struct serving_case *cases, size_t count, size_t step);

#endif
