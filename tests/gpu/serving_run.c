/* Running cases of serving attention: serving_run.h.
 *
 * Threads: one in each process that shares the cases. */
#include "serving_run.h"

#include <stdio.h>

#include "gpu_shares.h"
#include "support/test.h"

#ifdef KJIT_ON_EMULATOR
enum { SERVING_RUNS = 2 };
#else
enum { SERVING_RUNS = 3 };
#endif

/* Run a case several times: right, and the same bits each time. Returns false when it is not. */
static bool run_case(struct gpu_fixture *fixture, const struct serving_case *c) {
  struct serving_trial trial;
  kjit_error error = {0};
  char text[SERVING_TEXT_MAX] = "", what[SERVING_TEXT_MAX];
  uint64_t digest = 0;
  bool right = true;
  if (serving_trial_create(&trial, fixture->runtime, &fixture->card, c, &error) != KJIT_OK) {
    print_message("a case cannot be made: %s\n", error.message);
    return false;
  }
  for (int run = 0; run < SERVING_RUNS && right; run++) {
    kjit_status status = serving_trial_reset(&trial, &error);
    if (status == KJIT_OK) status = serving_trial_enqueue(&trial, fixture->card.stream, &error);
    if (status == KJIT_OK) status = card_synchronize(&fixture->card, fixture->card.stream, &error);
    right = status == KJIT_OK;
    if (right && run == 0) right = serving_trial_judge(&trial, text, &error);
    const uint64_t again = right ? serving_trial_digest(&trial, &error) : 0;
    if (right && run > 0 && again != digest) {
      right = false;
      snprintf(text, sizeof text, "run %d has other bits than the first", run);
    }
    digest = again;
  }
  if (!right) {
    serving_case_print(c, what);
    print_message("%s\n  %s %s\n", what, text, error.message);
  }
  serving_trial_destroy(&trial);
  fixture->cases_run++;
  return right;
}

/* What a test shares among processes. */
static const struct serving_case *shared_cases;
static size_t shared_step;

static bool run_shared(struct gpu_fixture *fixture, size_t index) {
  return run_case(fixture, &shared_cases[index * shared_step]);
}

/* How many of the items are wrong. */
static size_t share(void **state, size_t count) {
#ifdef KJIT_ON_EMULATOR
  size_t wrong = 0;
  for (size_t i = 0; i < count; i++)
    wrong += !run_shared(gpu_require(state), i);
  return wrong;
#else
  (void)state;
  return gpu_share(count, run_shared);
#endif
}

void expect_every(void **state, const struct serving_case *cases, size_t count, size_t step) {
  shared_cases = cases;
  shared_step = step;
  const size_t wrong = share(state, (count + step - 1) / step);
  if (wrong) fail_msg("%zu of %zu cases are wrong", wrong, count);
}
