/* The fixture of the emulator's tests: points kjit and the GPU tests' own driver table at the stand-ins for NVRTC and
 * libcuda, so that the GPU tests' cases run on the emulator. */
#include "emulator_fixture.h"

#include <dlfcn.h>
#include <stdio.h>
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

void emulator_mutate(const char *file, const char *before, const char *after) {
  char text[1024];
  const int length = snprintf(text, sizeof text, "%s\n%s\n%s", file, before, after);
  assert_true(length > 0 && length < (int)sizeof text);
  set("KJIT_EMULATOR_MUTATION", text);
}

size_t emulator_mutation_step(void) {
  return getenv("KJIT_TEST_ALL_CONFIGS") ? 1 : 2;
}

kjit_runtime *emulator_runtime_anew(kjit_error *error) {
  kjit_runtime *runtime = NULL;
  set("KJIT_CACHE_MODE", "off");
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, NULL, error), error);
  assert_int_equal(0, unsetenv("KJIT_CACHE_MODE"));
  return runtime;
}

bool emulator_stopped_mutation(const struct card *card, const char *what, kjit_status status, const kjit_error *error) {
  assert_int_equal(0, unsetenv("KJIT_EMULATOR_MUTATION"));
  if (status == KJIT_OK) return false;
  assert_status(KJIT_ERR_DRIVER, status, error); /* it did compile */
  print_message("%s: %s\n", what, emulator_complaint(card));
  emulator_clear_complaint(card);
  return true;
}
