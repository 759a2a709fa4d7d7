/* Which of several kernels is the fastest, by timings that scatter. What is timed, and by which clock, is the caller's:
 * nothing here knows of a GPU. */
#ifndef KJIT_TOOLS_TUNE_CONTEST_H
#define KJIT_TOOLS_TUNE_CONTEST_H

#include <kjit/common.h>
#include <stdbool.h>
#include <stdint.h>

/* Timings kept of one entrant: enough for any median. */
#define CONTEST_MOST_RUNS 256

struct contest_ops {
  void *user;
  /* One run. A failure drops the entrant, that of entrant 0 ends the contest. */
  kjit_status (*time)(void *user, size_t entrant, double *microseconds, kjit_error *error);
  /* Is its result right? Asked of entrant 0 first, of others before they can win. */
  kjit_status (*check)(void *user, size_t entrant, bool *right, kjit_error *error);
  /* Must nothing more be begun? */
  bool (*over)(void *user);
};

struct contest_settings {
  size_t warmup;     /* runs of each before the first that counts          */
  size_t first_runs; /* of each in the first round; twice as many in the next */
  size_t final_runs; /* of each finalist, and again of the two in each confirmation */
  size_t finalists;  /* beside entrant 0                                   */
  double margin;     /* a winner is faster by this fraction, twice         */
  uint64_t seed;     /* of the order of runs                               */
};

/* Some 400 runs for 60 entrants. A percent is what a card's clock moves by between two minutes. */
#define CONTEST_SETTINGS_DEFAULT                                                                                       \
  { .warmup = 1, .first_runs = 3, .final_runs = 25, .finalists = 4, .margin = 0.01 }

enum contest_fate {
  CONTEST_SLOWER,      /* left behind in a round, or not faster than the rules in the final */
  CONTEST_FAILED,      /* a run failed                                  */
  CONTEST_WRONG,       /* its result is wrong                           */
  CONTEST_UNCONFIRMED, /* faster in the final, not by the margin when measured again */
  CONTEST_WON
};

struct contest_entry {
  enum contest_fate fate;
  double microseconds; /* in the last round or measurement it was in; 0: none */
  size_t runs;         /* all that were timed, warm-up included         */
};

struct contest_outcome {
  size_t winner;             /* 0: the rules' choice stays */
  double microseconds;       /* of the winner, in the last measurement */
  double rules_microseconds; /* of entrant 0, in the same one */
};

/* Entrant 0 is what the rules choose, and is never left behind. Rounds: every entrant once, in shuffled order, as often
 * as the round says; then the slower half goes, by the least times, until `finalists` are left. They and entrant 0 are
 * measured afresh; whoever was faster by the margin, by medians, is right, and is so again when measured against
 * entrant 0 alone, in turns, has won; the fastest first. `entries` has `count` items. KJIT_ERR_CANCELLED when over()
 * said so: there is no outcome. KJIT_ERR_INTERNAL when entrant 0 is wrong. */
kjit_status contest_run(const struct contest_ops *ops, const struct contest_settings *settings, size_t count,
                        struct contest_entry *entries, struct contest_outcome *outcome, kjit_error *error);

#endif
