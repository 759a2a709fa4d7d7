/* Tunes one problem.
 *
 * 1. The candidates are listed and judged by rules, then built and judged by the compiler's report.
 * 2. Those that are left are built once more, which finds them in memory, so that the caller has their cubins.
 * 3. They are timed against one another by kjit_contest_run(), through the caller's functions.
 * 4. The outcome is put into the card's table.
 *
 * Threads: everything belongs to the call. */
#include "family/tune/tune_run.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "family/tune/tune_update.h"
#include "runtime/runtime_internal.h"

kjit_status tune_options_take(kjit_tune_options *out, const kjit_tune_options *given, kjit_error *error) {
  const kjit_status status = struct_intake(out, sizeof *out, given, sizeof *out, "options", error);
  if (status != KJIT_OK) return status;
  if (!out->time) return error_invalid(error, "options.time", "must not be NULL");
  return out->flags & ~KJIT_TUNE_NO_PUBLISH ? error_invalid(error, "options.flags", "only KJIT_TUNE_* may be set")
                                            : KJIT_OK;
}

struct running {
  const struct tune_job *job;
  const kjit_tune_options *options;
  kjit_tune_candidates *list;
  kjit_tune_trial *trials;
  size_t count; /* of trials */
  kjit_tune_outcome *outcome;
};

static bool is_over(const kjit_tune_options *options) {
  return options->over && options->over(options->user);
}

/* Steps 1 and 2: trials of those that are worth timing. */
static kjit_status make_trials(struct running *running, kjit_error *error) {
  const kjit_tune_options *const options = running->options;
  const kjit_tune_candidate *candidate;
  size_t all = 0;
  while (kjit_tune_candidates_get(running->list, all))
    all++;
  running->trials = mem_alloc_array(running->job->places->mem, all, sizeof *running->trials);
  if (!running->trials) return error_no_memory(error);
  for (size_t i = 0; (candidate = kjit_tune_candidates_get(running->list, i)) != NULL; i++) {
    kjit_artifact *artifact = NULL;
    if (options->most && running->count == options->most) break;
    if (is_over(options)) return error_set(error, KJIT_ERR_CANCELLED, "not measured: interrupted");
    kjit_status status = kjit_tune_candidates_judge(running->list, running->job->runtime, i, error);
    running->outcome->refused += candidate->refused[0] != '\0';
    if (status == KJIT_OK && candidate->refused[0]) continue;
    if (status == KJIT_OK)
      status = kjit_config_build(running->job->runtime, &candidate->config, running->job->start->place->arch, 0,
                                 &artifact, error);
    if (status != KJIT_OK) return status;
    running->trials[running->count++] = (kjit_tune_trial){i, &candidate->config, artifact};
  }
  running->outcome->candidates = (uint32_t)running->count;
  return KJIT_OK;
}

static void note_failure(struct running *running, size_t entrant, const char *why) {
  char *const first = running->outcome->first_failure;
  char config[KJIT_CONFIG_TEXT_MAX];
  struct text out;
  running->outcome->failed++;
  if (*first) return;
  text_init_fixed(&out, config, sizeof config);
  config_print(running->trials[entrant].config->family, running->trials[entrant].config->values, &out);
  snprintf(first, sizeof running->outcome->first_failure, "%.120s: %.130s", config, why);
}

static kjit_status time_entrant(void *user, size_t entrant, double *microseconds, kjit_error *error) {
  struct running *const running = user;
  *microseconds = 0;
  kjit_status status = running->options->time(running->options->user, &running->trials[entrant], microseconds, error);
  if (status == KJIT_OK && !(*microseconds > 0 && *microseconds < 1e12))
    status = error_set(error, KJIT_ERR_INVALID_ARG, "time() gave %g microseconds: must be above 0", *microseconds);
  if (status != KJIT_OK) note_failure(running, entrant, error->message);
  return status;
}

static kjit_status check_entrant(void *user, size_t entrant, int *right, kjit_error *error) {
  struct running *const running = user;
  *right = 1;
  if (!running->options->check) return KJIT_OK;
  const kjit_status status = running->options->check(running->options->user, &running->trials[entrant], right, error);
  if (status != KJIT_OK || !*right) note_failure(running, entrant, status != KJIT_OK ? error->message : "wrong result");
  return status;
}

static int is_over_now(void *user) {
  return is_over(((struct running *)user)->options);
}

/* Step 4. */
static kjit_status publish(const struct running *running, const kjit_contest_outcome *won, kjit_error *error) {
  const struct tune_job *const job = running->job;
  const kjit_config *const config = running->trials[won->winner].config;
  struct tune_update update;
  const struct tune_measured measured = {.class = job->start->class,
                                         .family = won->winner ? config->family : NULL,
                                         .values = config->values,
                                         .microseconds = won->microseconds,
                                         .rules_microseconds = won->first_microseconds};
  const kjit_status status = tune_update_init(&update, job->places, job->device, &measured, error);
  return status == KJIT_OK ? tune_update_publish(&update, job->places, job->device, error) : status;
}

static kjit_status measure(struct running *running, kjit_error *error) {
  const struct mem *const mem = running->job->places->mem;
  kjit_tune_outcome *const outcome = running->outcome;
  const kjit_contest_ops ops = {running, time_entrant, check_entrant, is_over_now};
  kjit_contest_outcome won;
  kjit_contest_entry *entries = mem_alloc_array(mem, running->count, sizeof *entries);
  if (!entries) return error_no_memory(error);
  kjit_status status = kjit_contest_run(&ops, &running->options->contest, running->count, entries, &won, error);
  mem_free(mem, entries);
  if (status != KJIT_OK) return status;
  outcome->config = *running->trials[won.winner].config;
  outcome->decided_by = won.winner ? KJIT_DECIDED_BY_TABLE : KJIT_DECIDED_BY_RULES;
  outcome->microseconds = won.microseconds;
  outcome->rules_microseconds = won.first_microseconds;
  return running->options->flags & KJIT_TUNE_NO_PUBLISH ? KJIT_OK : publish(running, &won, error);
}

kjit_status tune_run(const struct tune_job *job, const kjit_tune_options *options, kjit_tune_outcome *outcome,
                     kjit_error *error) {
  struct running running = {.job = job, .options = options, .outcome = outcome};
  kjit_status status = tune_list_create(&running.list, job->places->mem, job->start, options->set, error);
  if (status == KJIT_OK) status = make_trials(&running, error);
  if (status == KJIT_OK) status = measure(&running, error);
  for (size_t i = 0; i < running.count; i++)
    kjit_artifact_release((kjit_artifact *)running.trials[i].artifact);
  mem_free(job->places->mem, running.trials);
  kjit_tune_candidates_destroy(running.list);
  return status;
}
