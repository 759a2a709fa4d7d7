/* What the tests of simple decoding calls share on a GPU and on the emulator: how many multiprocessors there are, how
 * many of a list of cases run, and a plain case. */
#ifndef KJIT_TESTS_GPU_SERVING_FEW_TILES_H
#define KJIT_TESTS_GPU_SERVING_FEW_TILES_H

#include <stdlib.h>

#include "gpu_fixture.h"
#include "serving_run.h"
#include "support/test.h"

#ifdef KJIT_ON_EMULATOR
#include "emulator_fixture.h"

/* So many that a batch of some sequences gets four blocks of threads for each tile. */
#define MULTIPROCESSORS 12
#define teardown        gpu_teardown
/* Every n-th of a list of cases, so that the program takes less than 5 s of processor time, or all. */
#define STEP(n) (getenv("KJIT_TEST_ALL_CONFIGS") ? 1 : (n))

static inline int setup(void **state) {
  emulator_choose();
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "12", 1));
  assert_int_equal(0, setenv("KJIT_SEED", "1", 0));
  return gpu_setup(state);
}
#else
#define MULTIPROCESSORS 132
#define setup           NULL
#define teardown        NULL
#define STEP(n)         1
#endif

/* Paged, with a workspace of its own, so that what is left of counters by one launch is seen by the next. */
static inline struct serving_case plain_case(int batch, const int *rows, const int *keys) {
  struct serving_case c = serving_plain_case();
  serving_set_lengths(&c, batch, rows, keys);
  c.cache = SERVING_PAGED;
  c.group = 4;
  c.workspace = true;
  return c;
}

#endif
