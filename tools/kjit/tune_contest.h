/* Which of several kernels is the fastest, by timings that scatter. The caller says through contest_ops how one entrant
 * is timed and checked, so nothing here knows of a GPU and tests can script the timings. */
#ifndef KJIT_TOOLS_TUNE_CONTEST_H
#define KJIT_TOOLS_TUNE_CONTEST_H

#include <kjit/common.h>
#include <stdbool.h>
#include <stdint.h>

/* Most timings that are kept of one entrant: enough for any median. */
#define CONTEST_MOST_RUNS 256

struct contest_ops {
  void *user;
  /* Time one run of an entrant. A failure drops the entrant; a failure of entrant 0 ends the contest. */
  kjit_status (*time)(void *user, size_t entrant, double *microseconds, kjit_error *error);
  /* Say whether an entrant's result is right. Asked of entrant 0 first, and of another before it can win. */
  kjit_status (*check)(void *user, size_t entrant, bool *right, kjit_error *error);
  /* True when no further run may begin: the user interrupted, or the time is up. */
  bool (*over)(void *user);
};

struct contest_settings {
  size_t warmup;     /* runs of each entrant that are not counted, before round 1 */
  size_t first_runs; /* runs of each entrant in round 1; each round doubles it */
  size_t final_runs; /* runs of each finalist, and of both in a confirmation */
  size_t finalists;  /* how many others reach the final with entrant 0 */
  double margin;     /* the winner must be faster than entrant 0 by this fraction, twice */
  uint64_t seed;     /* seed of the shuffled orders */
};

/* About 400 runs for 60 entrants. The margin is one per cent because a card's clock moves by that much between two
 * minutes. */
#define CONTEST_SETTINGS_DEFAULT                                                                                       \
  { .warmup = 1, .first_runs = 3, .final_runs = 25, .finalists = 4, .margin = 0.01 }

enum contest_fate {
  CONTEST_SLOWER,      /* dropped in a round, or not faster than entrant 0 in the final */
  CONTEST_FAILED,      /* one of its runs failed */
  CONTEST_WRONG,       /* check() found its result wrong */
  CONTEST_UNCONFIRMED, /* faster in the final, but not by the margin when measured again */
  CONTEST_WON
};

struct contest_entry {
  enum contest_fate fate;
  double microseconds; /* of its last round or measurement; 0 when it was never timed */
  size_t runs;         /* all its runs, warm-up included */
};

struct contest_outcome {
  size_t winner;             /* index of the winning entrant; 0 is the rules' choice */
  double microseconds;       /* the winner's median in the last measurement */
  double rules_microseconds; /* entrant 0's median in the same measurement */
};

/* Run the contest whose steps tune_contest.c lists. Entrant 0 is the rules' choice and is never dropped; `entries` has
 * `count` items and receives what became of each entrant. KJIT_ERR_CANCELLED when over() returned true; there is no
 * outcome then. KJIT_ERR_INTERNAL when entrant 0's result is wrong. */
kjit_status contest_run(const struct contest_ops *ops, const struct contest_settings *settings, size_t count,
                        struct contest_entry *entries, struct contest_outcome *outcome, kjit_error *error);

#endif
