/* The fixture of the emulator's tests: points kjit and the GPU tests' own driver table at the stand-ins for NVRTC and
 * libcuda, so that the GPU tests' cases run on the emulator. */
#include "emulator_fixture.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static void set(const char *name, const char *value) {
  assert_int_equal(0, setenv(name, value, 1));
}

void emulator_choose(void) {
  set("KJIT_NVRTC", EMULATED_NVRTC);
  set("KJIT_LIBCUDA", EMULATED_CUDA);
  set("KJIT_CACHE_DIR", EMULATOR_CACHE);
  /* A few blocks that walk over many tiles show more than many that have one each. */
  set("KJIT_EMULATOR_MULTIPROCESSORS", "4");
}

int emulator_setup(void **state) {
  emulator_choose();
  if (!getenv("KJIT_SEED")) set("KJIT_SEED", "1");
  return gpu_setup(state);
}

/* POSIX, not C, says that a function's address fits a data pointer. */
static void *find(const struct card *card, const char *name) {
  void *symbol = dlsym(card->library, name);
  assert_non_null(symbol);
  return symbol;
}

const char *emulator_complaint(const struct card *card) {
  const char *(*complaint)(void);
  void *symbol = find(card, "kjit_emulator_complaint");
  memcpy(&complaint, &symbol, sizeof symbol);
  return complaint();
}

void emulator_clear_complaint(const struct card *card) {
  void (*clear)(void);
  void *symbol = find(card, "kjit_emulator_clear_complaint");
  memcpy(&clear, &symbol, sizeof symbol);
  clear();
}
