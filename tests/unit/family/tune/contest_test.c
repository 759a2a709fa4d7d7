/* The contest of `kjit tune` over kernels that do not exist: times by a table, noise by a random generator. */
#include "support/test.h"

#include <kjit/contest.h>

#include <math.h>
#include <stdbool.h>

#include "support/random.h"

#define MOST_ENTRANTS 96
#define NEVER         SIZE_MAX

struct arena {
  double microseconds[MOST_ENTRANTS]; /* what each really takes */
  double noise;                       /* a run takes up to this fraction longer */
  double spike;                       /* and every tenth this fraction more */
  double drift;                       /* grows by this fraction with every run of anyone */
  size_t fails, wrong;                /* entrants, or NEVER */
  size_t over_after;                  /* runs */
  struct random random;
  size_t runs, checks;
  size_t runs_of[MOST_ENTRANTS];
};

static struct arena arena_of(size_t count, double microseconds) {
  struct arena arena = {.fails = NEVER, .wrong = NEVER, .over_after = NEVER, .random = {7}};
  for (size_t i = 0; i < count; i++)
    arena.microseconds[i] = microseconds;
  return arena;
}

static double uniform(struct arena *arena) {
  return (double)(random_next(&arena->random) >> 11) * 0x1p-53;
}

static kjit_status arena_time(void *user, size_t entrant, double *microseconds, kjit_error *error) {
  struct arena *arena = user;
  arena->runs++;
  arena->runs_of[entrant]++;
  if (entrant == arena->fails) {
    snprintf(error->message, sizeof error->message, "no launch");
    error->status = KJIT_ERR_DRIVER;
    return KJIT_ERR_DRIVER;
  }
  const double spike = random_below(&arena->random, 10) == 0 ? arena->spike : 0;
  *microseconds = arena->microseconds[entrant] * (1 + arena->noise * uniform(arena) + spike) *
                  (1 + arena->drift * (double)arena->runs);
  return KJIT_OK;
}

static kjit_status arena_check(void *user, size_t entrant, int *right, kjit_error *error) {
  struct arena *arena = user;
  (void)error;
  arena->checks++;
  *right = entrant != arena->wrong;
  return KJIT_OK;
}

static int arena_over(void *user) {
  const struct arena *arena = user;
  return arena->runs >= arena->over_after;
}

struct result {
  kjit_status status;
  kjit_error error;
  kjit_contest_outcome outcome;
  kjit_contest_entry entries[MOST_ENTRANTS];
};

static struct result hold(struct arena *arena, size_t count, uint64_t seed) {
  const kjit_contest_ops ops = {arena, arena_time, arena_check, arena_over};
  kjit_contest_settings settings = kjit_contest_settings_default();
  struct result result = {.status = KJIT_OK};
  settings.seed = seed;
  result.status = kjit_contest_run(&ops, &settings, count, result.entries, &result.outcome, &result.error);
  return result;
}

static void test_contest__the_fastest_wins_through_noise(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    struct arena arena = arena_of(60, 100);
    for (size_t i = 1; i < 60; i++)
      arena.microseconds[i] = 96 + (double)(i * 7 % 60);
    arena.microseconds[41] = 90;
    arena.noise = 0.03;
    arena.spike = 0.5;
    const struct result result = hold(&arena, 60, seed);
    assert_status(KJIT_OK, result.status, &result.error);
    assert_int_equal(result.outcome.winner, 41);
    assert_int_equal(result.entries[41].fate, KJIT_CONTEST_WON);
    assert_true(fabs(result.outcome.microseconds / result.outcome.first_microseconds - 0.9) < 0.02);
  }
}

static void test_contest__equals_leave_it_to_the_rules(void **state) {
  (void)state;
  size_t others = 0;
  for (uint64_t seed = 1; seed <= 100; seed++) {
    struct arena arena = arena_of(60, 100);
    arena.noise = 0.05;
    arena.random.state = seed;
    const struct result result = hold(&arena, 60, seed);
    assert_status(KJIT_OK, result.status, &result.error);
    others += result.outcome.winner != 0;
  }
  assert_true(others <= 2);
}

static void test_contest__less_than_the_margin_is_no_win(void **state) {
  (void)state;
  struct arena arena = arena_of(2, 100);
  arena.microseconds[1] = 99.2;
  struct result result = hold(&arena, 2, 1);
  assert_int_equal(result.outcome.winner, 0);
  assert_true(result.outcome.microseconds == 100 && result.outcome.first_microseconds == 100);
  arena.microseconds[1] = 98.8;
  result = hold(&arena, 2, 1);
  assert_int_equal(result.outcome.winner, 1);
}

static void test_contest__a_card_that_slows_down_favours_nobody(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    struct arena arena = arena_of(30, 100);
    arena.noise = 0.01;
    arena.drift = 0.001; /* twice as slow in the end */
    const struct result result = hold(&arena, 30, seed);
    assert_int_equal(result.outcome.winner, 0);
  }
}

static void test_contest__slow_ones_cost_little(void **state) {
  (void)state;
  struct arena arena = arena_of(64, 100);
  for (size_t i = 1; i < 64; i++)
    arena.microseconds[i] = 100 + (double)i;
  const struct result result = hold(&arena, 64, 1);
  assert_int_equal(result.outcome.winner, 0);
  assert_int_equal(arena.runs_of[63], 1 + 3); /* warm-up and the first round */
  assert_true(arena.runs < 64 * 16);          /* against 64 * 29 without rounds */
  assert_true(arena.runs_of[1] > 40);
  assert_int_equal(result.entries[63].runs, arena.runs_of[63]);
}

static void test_contest__the_rules_choice_is_never_left_behind(void **state) {
  (void)state;
  struct arena arena = arena_of(40, 50);
  arena.microseconds[0] = 500;
  const struct result result = hold(&arena, 40, 1);
  assert_true(result.outcome.winner != 0);
  assert_true(result.outcome.first_microseconds == 500);
}

static void test_contest__a_wrong_result_never_wins(void **state) {
  (void)state;
  struct arena arena = arena_of(10, 100);
  arena.microseconds[4] = 50;
  arena.microseconds[5] = 80;
  arena.wrong = 4;
  const struct result result = hold(&arena, 10, 1);
  assert_int_equal(result.outcome.winner, 5);
  assert_int_equal(result.entries[4].fate, KJIT_CONTEST_WRONG);
}

static void test_contest__wrong_rules_end_it_before_any_run(void **state) {
  (void)state;
  struct arena arena = arena_of(10, 100);
  arena.wrong = 0;
  const struct result result = hold(&arena, 10, 1);
  assert_status(KJIT_ERR_INTERNAL, result.status, &result.error);
  assert_int_equal(arena.runs, 0);
}

static void test_contest__a_failing_run_drops_its_entrant(void **state) {
  (void)state;
  struct arena arena = arena_of(10, 100);
  arena.microseconds[3] = 10;
  arena.microseconds[7] = 80;
  arena.fails = 3;
  struct result result = hold(&arena, 10, 1);
  assert_int_equal(result.outcome.winner, 7);
  assert_int_equal(result.entries[3].fate, KJIT_CONTEST_FAILED);
  assert_int_equal(arena.runs_of[3], 1);
  arena.fails = 0;
  result = hold(&arena, 10, 1);
  assert_status(KJIT_ERR_DRIVER, result.status, &result.error);
  assert_string_equal(result.error.message, "no launch");
}

static void test_contest__interrupted_at_any_run_has_no_outcome(void **state) {
  (void)state;
  struct arena whole = arena_of(12, 100);
  whole.microseconds[5] = 80;
  assert_status(KJIT_OK, hold(&whole, 12, 1).status, NULL);
  for (size_t after = 0; after < whole.runs; after++) {
    struct arena arena = arena_of(12, 100);
    arena.microseconds[5] = 80;
    arena.over_after = after;
    const struct result result = hold(&arena, 12, 1);
    assert_status(KJIT_ERR_CANCELLED, result.status, &result.error);
    assert_int_equal(result.outcome.winner, 0);
    assert_true(result.outcome.microseconds == 0);
    assert_int_equal(arena.runs, after);
  }
}

static void test_contest__the_same_seed_is_the_same_contest(void **state) {
  (void)state;
  struct arena first = arena_of(30, 100), second = first;
  first.noise = second.noise = 0.2;
  const struct result a = hold(&first, 30, 5), b = hold(&second, 30, 5);
  assert_memory_equal(a.entries, b.entries, 30 * sizeof *a.entries);
  assert_memory_equal(first.runs_of, second.runs_of, sizeof first.runs_of);
}

static void test_contest__alone_the_rules_choice_wins(void **state) {
  (void)state;
  struct arena arena = arena_of(1, 100);
  const struct result result = hold(&arena, 1, 1);
  assert_status(KJIT_OK, result.status, &result.error);
  assert_int_equal(result.entries[0].fate, KJIT_CONTEST_WON);
  assert_true(result.outcome.microseconds == 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_contest__the_fastest_wins_through_noise),
      cmocka_unit_test(test_contest__equals_leave_it_to_the_rules),
      cmocka_unit_test(test_contest__less_than_the_margin_is_no_win),
      cmocka_unit_test(test_contest__a_card_that_slows_down_favours_nobody),
      cmocka_unit_test(test_contest__slow_ones_cost_little),
      cmocka_unit_test(test_contest__the_rules_choice_is_never_left_behind),
      cmocka_unit_test(test_contest__a_wrong_result_never_wins),
      cmocka_unit_test(test_contest__wrong_rules_end_it_before_any_run),
      cmocka_unit_test(test_contest__a_failing_run_drops_its_entrant),
      cmocka_unit_test(test_contest__interrupted_at_any_run_has_no_outcome),
      cmocka_unit_test(test_contest__the_same_seed_is_the_same_contest),
      cmocka_unit_test(test_contest__alone_the_rules_choice_wins),
  };
  return cmocka_run_group_tests_name("tune_contest", tests, NULL, NULL);
}
