/* Finds the fastest of several kernels by timings that scatter, without knowing what is timed or on what.
 *
 * 1. Entrant 0, which the others are compared with, is checked; a wrong result ends the contest.
 * 2. Elimination: in each round every entrant that is still in runs equally often, in shuffled order. The slower half
 *    is dropped by least times, and the next round has twice as many runs, until `finalists` are left beside entrant 0.
 * 3. Final: they are timed afresh and ranked by medians.
 * 4. Confirmation: the fastest one that beats entrant 0 by the margin is checked and timed again against entrant 0
 *    alone. If the margin holds it wins; otherwise the next one tries, and if none is left entrant 0 wins.
 *
 * Two measurements are asked for because the fastest of many noisy medians is fast partly by luck. One thread. */
#include <kjit/contest.h>

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/struct_intake.h"

/* Most entrants: more than any list of candidates has. */
#define ENTRANTS_MAX 100000

struct samples {
  double values[KJIT_CONTEST_RUNS_MAX];
  size_t count;
};

struct contest {
  const kjit_contest_ops *ops;
  const kjit_contest_settings *settings;
  uint64_t random; /* state of the shuffles */
  kjit_contest_entry *entries;
  struct samples *samples; /* indexed by entrant */
  size_t *standing;        /* entrants that are still in; entrant 0 always is */
  size_t *order;           /* the shuffled order of one pass; room for every entrant */
  size_t standing_count;
};

/* SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), below a bound above 0. */
static size_t random_below(uint64_t *state, size_t bound) {
  uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (size_t)((z ^ z >> 31) % bound);
}

/* ---- Runs ---- */

static void drop(struct contest *contest, size_t entrant, kjit_contest_fate fate) {
  size_t kept = 0;
  for (size_t i = 0; i < contest->standing_count; i++)
    if (contest->standing[i] != entrant) contest->standing[kept++] = contest->standing[i];
  contest->standing_count = kept;
  contest->entries[entrant].fate = (int32_t)fate;
}

/* Run one entrant once and keep its time when `counts` is set. A failure drops the entrant; only that of entrant 0
 * fails the contest, because nothing can be compared without it. */
static kjit_status run_once(struct contest *contest, size_t entrant, bool counts, kjit_error *error) {
  struct samples *samples = &contest->samples[entrant];
  double microseconds = 0;
  kjit_error reason = {0};
  if (contest->ops->over && contest->ops->over(contest->ops->user))
    return error_set(error, KJIT_ERR_CANCELLED, "not measured: interrupted");
  contest->entries[entrant].runs++;
  const kjit_status status = contest->ops->time(contest->ops->user, entrant, &microseconds, &reason);
  if (status != KJIT_OK) {
    if (entrant == 0) return error_set(error, status, "%s", reason.message);
    drop(contest, entrant, KJIT_CONTEST_FAILED);
    return KJIT_OK;
  }
  if (counts && samples->count < KJIT_CONTEST_RUNS_MAX) samples->values[samples->count++] = microseconds;
  return KJIT_OK;
}

/* Run each of the given entrants once, in a freshly shuffled order, so that slow changes of the card's clock or
 * temperature hit all of them alike. */
static kjit_status pass(struct contest *contest, const size_t *who, size_t count, bool counts, kjit_error *error) {
  size_t *order = contest->order;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < count; i++) {
    const size_t other = random_below(&contest->random, i + 1);
    order[i] = order[other];
    order[other] = who[i];
  }
  for (size_t i = 0; status == KJIT_OK && i < count; i++)
    if (contest->entries[order[i]].fate == KJIT_CONTEST_SLOWER) status = run_once(contest, order[i], counts, error);
  return status;
}

/* Run every entrant that is still in `runs` times. */
static kjit_status passes(struct contest *contest, size_t runs, bool counts, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < runs && status == KJIT_OK; i++)
    status = pass(contest, contest->standing, contest->standing_count, counts, error);
  return status;
}

/* ---- Rounds ---- */

/* The samples in ascending order. There are few, and they are nearly in order when a round adds to them. */
static void sort(struct samples *samples) {
  for (size_t i = 1; i < samples->count; i++) {
    const double value = samples->values[i];
    size_t at = i;
    for (; at > 0 && samples->values[at - 1] > value; at--)
      samples->values[at] = samples->values[at - 1];
    samples->values[at] = value;
  }
}

/* Set and return an entrant's time: the median, or the least. The least is better for the few runs of a round, because
 * a disturbance only ever makes a run longer. */
static double judge(struct contest *contest, size_t entrant, bool by_median) {
  struct samples *samples = &contest->samples[entrant];
  const size_t count = samples->count;
  sort(samples);
  const double least = count ? samples->values[0] : 0;
  const double median = count ? (samples->values[count / 2] + samples->values[(count - 1) / 2]) / 2 : 0;
  return contest->entries[entrant].microseconds = by_median ? median : least;
}

/* Drop the timings of everybody who is still in, so that the final does not mix with the rounds. */
static void forget(struct contest *contest) {
  for (size_t i = 0; i < contest->standing_count; i++)
    contest->samples[contest->standing[i]].count = 0;
}

/* Sort the entrants that are still in, the fastest first. A tie goes to the lower number, which is nearer to the rules'
 * choice. */
static void rank(struct contest *contest, bool by_median) {
  for (size_t i = 0; i < contest->standing_count; i++) {
    const size_t entrant = contest->standing[i];
    const double time = judge(contest, entrant, by_median);
    size_t at = i;
    for (; at > 0; at--) {
      const size_t before = contest->standing[at - 1];
      const double its = contest->entries[before].microseconds;
      if (its < time || (its == time && before < entrant)) break;
      contest->standing[at] = before;
    }
    contest->standing[at] = entrant;
  }
}

/* Keep entrant 0 and the first `most` of the others in the order of rank(). */
static void leave_behind(struct contest *contest, size_t most) {
  size_t kept = 0, others = 0;
  for (size_t i = 0; i < contest->standing_count; i++) {
    const size_t entrant = contest->standing[i];
    if (entrant == 0 || others++ < most) contest->standing[kept++] = entrant;
  }
  contest->standing_count = kept;
}

/* Step 2, elimination. */
static kjit_status halve(struct contest *contest, kjit_error *error) {
  const size_t finalists = contest->settings->finalists;
  kjit_status status = passes(contest, contest->settings->warmup, false, error);
  for (size_t runs = contest->settings->first_runs; status == KJIT_OK && contest->standing_count > finalists + 1;) {
    status = passes(contest, runs, true, error);
    if (status != KJIT_OK) break;
    rank(contest, false);
    const size_t half = contest->standing_count / 2;
    leave_behind(contest, half > finalists ? half : finalists);
    runs = 2 * runs;
  }
  return status;
}

/* ---- The end ---- */

static bool is_faster(const struct contest *contest, double microseconds, double than) {
  return microseconds < than * (1 - contest->settings->margin);
}

/* Step 4, confirmation: time `entrant` and entrant 0 in turns, afresh, and compare their medians. */
static kjit_status confirm(struct contest *contest, size_t entrant, kjit_contest_outcome *outcome, kjit_error *error) {
  const size_t pair[2] = {0, entrant};
  kjit_status status = KJIT_OK;
  contest->samples[0].count = contest->samples[entrant].count = 0;
  for (size_t i = 0; i < contest->settings->final_runs && status == KJIT_OK; i++)
    status = pass(contest, pair, 2, true, error);
  if (status != KJIT_OK || contest->entries[entrant].fate == KJIT_CONTEST_FAILED) return status;
  const double rules = judge(contest, 0, true), its = judge(contest, entrant, true);
  const bool won = is_faster(contest, its, rules);
  contest->entries[entrant].fate = won ? KJIT_CONTEST_WON : KJIT_CONTEST_UNCONFIRMED;
  if (won) *outcome = (kjit_contest_outcome){entrant, its, rules};
  return KJIT_OK;
}

static kjit_status ask(const struct contest *contest, size_t entrant, bool *right, kjit_error *error) {
  int answer = !contest->ops->check;
  const kjit_status status =
      contest->ops->check ? contest->ops->check(contest->ops->user, entrant, &answer, error) : KJIT_OK;
  *right = status == KJIT_OK && answer;
  return status;
}

/* Confirm an entrant whose result is right; a wrong result takes it out. */
static kjit_status try_to_win(struct contest *contest, size_t entrant, kjit_contest_outcome *outcome,
                              kjit_error *error) {
  kjit_error reason = {0};
  bool right = false;
  if (ask(contest, entrant, &right, &reason) == KJIT_OK && right) return confirm(contest, entrant, outcome, error);
  contest->entries[entrant].fate = KJIT_CONTEST_WRONG;
  return KJIT_OK;
}

/* Step 3, the final, and step 4 for each finalist until one wins. */
static kjit_status decide(struct contest *contest, kjit_contest_outcome *outcome, kjit_error *error) {
  forget(contest);
  kjit_status status = passes(contest, contest->settings->final_runs, true, error);
  if (status != KJIT_OK) return status;
  rank(contest, true);
  const double rules = contest->entries[0].microseconds;
  *outcome = (kjit_contest_outcome){0, rules, rules};
  for (size_t i = 0; status == KJIT_OK && i < contest->standing_count && outcome->winner == 0; i++) {
    const size_t entrant = contest->standing[i];
    if (entrant == 0 || !is_faster(contest, contest->entries[entrant].microseconds, rules)) break;
    status = try_to_win(contest, entrant, outcome, error);
  }
  if (status == KJIT_OK && outcome->winner == 0) contest->entries[0].fate = KJIT_CONTEST_WON;
  return status;
}

static kjit_status check_first(struct contest *contest, kjit_error *error) {
  bool right = false;
  const kjit_status status = ask(contest, 0, &right, error);
  if (status != KJIT_OK || right) return status;
  return error_set(error, KJIT_ERR_INTERNAL,
                   "what the rules choose gives a wrong result: nothing can be compared with it");
}

static kjit_status run(struct contest *contest, kjit_contest_outcome *outcome, kjit_error *error) {
  kjit_status status = check_first(contest, error);
  if (status == KJIT_OK) status = halve(contest, error);
  return status == KJIT_OK ? decide(contest, outcome, error) : status;
}

static kjit_status check_settings(const kjit_contest_settings *settings, kjit_error *error) {
  if (!settings->first_runs || settings->first_runs > KJIT_CONTEST_RUNS_MAX)
    return error_invalid(error, "settings.first_runs", "must be from 1 to KJIT_CONTEST_RUNS_MAX");
  if (!settings->final_runs || settings->final_runs > KJIT_CONTEST_RUNS_MAX)
    return error_invalid(error, "settings.final_runs", "must be from 1 to KJIT_CONTEST_RUNS_MAX");
  if (!settings->finalists) return error_invalid(error, "settings.finalists", "must be at least 1");
  return settings->margin >= 0 && settings->margin <= 0.5 ? KJIT_OK
                                                          : error_invalid(error, "settings.margin", "must be 0 to 0.5");
}

static kjit_status run_with(const kjit_contest_ops *ops, const kjit_contest_settings *settings, size_t count,
                            kjit_contest_entry *entries, kjit_contest_outcome *outcome, kjit_error *error) {
  struct mem mem;
  (void)mem_init(&mem, NULL);
  struct samples *samples = mem_alloc_array(&mem, count, sizeof *samples);
  size_t *numbers = mem_alloc_array(&mem, 2 * count, sizeof *numbers);
  struct contest contest = {.ops = ops,
                            .settings = settings,
                            .random = settings->seed,
                            .entries = entries,
                            .samples = samples,
                            .standing = numbers,
                            .standing_count = count};
  kjit_status status = KJIT_ERR_NO_MEMORY;
  if (!samples || !numbers) {
    error_no_memory(error);
    goto done;
  }
  contest.order = numbers + count;
  for (size_t i = 0; i < count; i++)
    numbers[i] = i;
  status = run(&contest, outcome, error);
  if (status != KJIT_OK) *outcome = (kjit_contest_outcome){0};

done:
  mem_free(&mem, samples);
  mem_free(&mem, numbers);
  return status;
}

kjit_status kjit_contest_run(const kjit_contest_ops *ops, const kjit_contest_settings *settings, size_t count,
                             kjit_contest_entry *entries, kjit_contest_outcome *outcome, kjit_error *error) {
  kjit_contest_settings known = kjit_contest_settings_default();
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!outcome) return error_invalid(error, "outcome", "must not be NULL");
  *outcome = (kjit_contest_outcome){0};
  if (!ops || !ops->time) return error_invalid(error, "ops", "must not be NULL, and neither its time()");
  if (!count || count > ENTRANTS_MAX || !entries)
    return error_invalid(error, "entries", "must not be NULL, and there are from 1 to 100,000");
  memset(entries, 0, count * sizeof *entries);
  kjit_status status = KJIT_OK;
  if (settings) status = struct_intake(&known, sizeof known, settings, sizeof known, "settings", error);
  if (status == KJIT_OK) status = check_settings(&known, error);
  return status == KJIT_OK ? run_with(ops, &known, count, entries, outcome, error) : status;
}
