/**
 * @file
 * Which of several kernels is the fastest, by timings that scatter. The caller says through two functions how one
 * entrant is timed and checked, so that nothing here knows of a GPU. `kjit tune` and kjit_tune_run()
 * measure with it; docs/tune.md says why it is done so.
 *
 * 1. Entrant 0, which all others are compared with, is checked; a wrong result ends the contest.
 * 2. Elimination: in each round every entrant that is still in runs equally often, in shuffled order. The slower half
 *    is dropped by least times, and the next round has twice as many runs, until `finalists` are left beside entrant 0.
 * 3. Final: they are timed afresh and ranked by medians.
 * 4. Confirmation: the fastest one that beats entrant 0 by the margin is checked and timed again against entrant 0
 *    alone. If the margin holds it wins; otherwise the next one tries, and if none is left entrant 0 wins.
 */
#ifndef KJIT_CONTEST_H
#define KJIT_CONTEST_H

#include <kjit/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most timings that are kept of one entrant: enough for any median. */
#define KJIT_CONTEST_RUNS_MAX 256

/** How entrants are run. The functions are called on the thread of kjit_contest_run(), one at a time. */
typedef struct kjit_contest_ops {
  void *user;
  /** Time one run of an entrant. A failure drops the entrant; one of entrant 0 ends the contest. */
  kjit_status (*time)(void *user, size_t entrant, double *microseconds, kjit_error *error);
  /** Say whether an entrant's result is right. Asked of entrant 0 first, and of another before it can win. NULL: it is.
   */
  kjit_status (*check)(void *user, size_t entrant, int *right, kjit_error *error);
  /** Not 0 when no further run may begin: the user interrupted, or the time is up. NULL: never. */
  int (*over)(void *user);
} kjit_contest_ops;

/** How much is measured. kjit_contest_settings_default() is about 400 runs for 60 entrants. */
typedef struct kjit_contest_settings {
  size_t struct_size;
  uint32_t warmup;     /**< runs of each entrant that are not counted, before round 1                      */
  uint32_t first_runs; /**< runs of each entrant in round 1, at least 1; each round doubles it             */
  uint32_t final_runs; /**< runs of each finalist, and of both in a confirmation; 1 to KJIT_CONTEST_RUNS_MAX */
  uint32_t finalists;  /**< how many others reach the final with entrant 0, at least 1                     */
  double margin;       /**< the winner must be faster than entrant 0 by this fraction, twice; 0 to 0.5     */
  uint64_t seed;       /**< of the shuffled orders                                                         */
} kjit_contest_settings;

/** The margin is one per cent because a card's clock moves by that much between two minutes. */
static inline kjit_contest_settings kjit_contest_settings_default(void) {
  kjit_contest_settings settings = KJIT_ZERO;
  settings.struct_size = sizeof settings;
  settings.warmup = 1;
  settings.first_runs = 3;
  settings.final_runs = 25;
  settings.finalists = 4;
  settings.margin = 0.01;
  return settings;
}

/** What became of an entrant. */
typedef enum kjit_contest_fate {
  KJIT_CONTEST_SLOWER = 0,      /**< dropped in a round, or not faster than entrant 0 in the final */
  KJIT_CONTEST_FAILED = 1,      /**< one of its runs failed                                        */
  KJIT_CONTEST_WRONG = 2,       /**< check() found its result wrong                                */
  KJIT_CONTEST_UNCONFIRMED = 3, /**< faster in the final, but not by the margin when measured again */
  KJIT_CONTEST_WON = 4
} kjit_contest_fate;

typedef struct kjit_contest_entry {
  int32_t fate;        /**< a ::kjit_contest_fate                                            */
  uint32_t runs;       /**< all its runs, warm-up included                                   */
  double microseconds; /**< of its last round or measurement; 0 when it was never timed      */
} kjit_contest_entry;

typedef struct kjit_contest_outcome {
  size_t winner;             /**< index of the winning entrant                       */
  double microseconds;       /**< the winner's median in the last measurement        */
  double first_microseconds; /**< entrant 0's median in the same measurement         */
} kjit_contest_outcome;

/**
 * Run a contest.
 * @param      ops      how entrants are run
 * @param      settings NULL: kjit_contest_settings_default()
 * @param      count    entrants, at least 1
 * @param[out] entries  what became of each entrant: `count` of them
 * @param[out] outcome  all 0 after a failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  names the argument
 * @retval KJIT_ERR_CANCELLED    over() returned true
 * @retval KJIT_ERR_INTERNAL     entrant 0's result is wrong
 * @retval KJIT_ERR_NO_MEMORY, and what time() and check() say of entrant 0
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_contest_run(const kjit_contest_ops *ops, const kjit_contest_settings *settings,
                                                     size_t count, kjit_contest_entry *entries,
                                                     kjit_contest_outcome *outcome, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
