/* Running serving cases with a mistake in a kernel: serving_mutation.h. One thread. */
#include "serving_mutation.h"

#include <stdbool.h>
#include <stdlib.h>

#include "support/test.h"

int serving_mutation_setup(void **state) {
  (void)setenv("KJIT_EMULATOR_QUIET", "1", 1); /* complaints are what is wanted here */
  return emulator_setup(state);
}

/* Run twice. Is the result right both times? */
static kjit_status run_twice(const struct gpu_fixture *fixture, kjit_runtime *runtime, const struct serving_case *c,
                             bool *right, kjit_error *error) {
  struct serving_trial trial;
  char text[SERVING_TEXT_MAX];
  assert_status(KJIT_OK, serving_trial_create(&trial, runtime, &fixture->card, c, error), error);
  kjit_status status = KJIT_OK;
  *right = true;
  for (int i = 0; i < 2 && status == KJIT_OK && *right; i++) {
    status = serving_trial_reset(&trial, error);
    if (status == KJIT_OK) status = serving_trial_enqueue(&trial, fixture->card.stream, error);
    if (status == KJIT_OK) status = card_synchronize(&fixture->card, fixture->card.stream, error);
    if (status == KJIT_OK) *right = serving_trial_judge(&trial, text, error);
  }
  serving_trial_destroy(&trial);
  return status;
}

/* The same with a runtime that compiles anew. */
static kjit_status run_anew(const struct gpu_fixture *fixture, const struct serving_case *c, bool *right,
                            kjit_error *error) {
  kjit_runtime *const runtime = emulator_runtime_anew(error);
  const kjit_status status = run_twice(fixture, runtime, c, right, error);
  kjit_runtime_destroy(runtime);
  return status;
}

/* Fails unless the case is right without a mistake; otherwise every mistake would be caught. It takes as long as a
 * mistake does, so it is not among what runs by default. */
static void assert_sound(const struct gpu_fixture *fixture, const struct serving_case *c) {
  kjit_error error = {0};
  bool right;
  assert_status(KJIT_OK, run_twice(fixture, fixture->runtime, c, &right, &error), &error);
  if (!right) fail_msg("the result is wrong without a mistake");
}

void assert_caught(void **state, const struct serving_case *c, const struct mutation *mutations, size_t count) {
  const struct gpu_fixture *fixture = gpu_require(state);
  size_t missed = 0;
  if (getenv("KJIT_TEST_ALL_CONFIGS")) assert_sound(fixture, c);
  for (size_t i = 0; i < count; i += emulator_mutation_step()) {
    kjit_error error = {0};
    bool right;
    emulator_mutate(mutations[i].file, mutations[i].before, mutations[i].after);
    const kjit_status status = run_anew(fixture, c, &right, &error);
    if (emulator_stopped_mutation(&fixture->card, mutations[i].what, status, &error)) continue;
    if (!right) {
      print_message("%s: a wrong result\n", mutations[i].what);
    } else {
      print_error("%s, and the result is right\n", mutations[i].what);
      missed++;
    }
  }
  assert_int_equal(0, missed);
}

size_t first_or_all(size_t all) {
  return getenv("KJIT_TEST_ALL_CONFIGS") ? all : 1;
}
