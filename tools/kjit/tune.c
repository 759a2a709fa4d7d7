/* kjit tune: measure which config of a kernel is the fastest on this card, and keep it for the next choice.
 *
 * 1. The problems are read, one for each class, and the candidates of each are listed.
 * 2. All of them are compiled by processes, and judged by the compiler's report.
 * 3. Each class has a contest: of attention by tune_stage.h, of a user's family by the user's program (tune_runner.h).
 * 4. What won is put into the card's table at once, and all is reported.
 *
 * One thread. */
#include "interrupt.h"
#include "progress.h"
#include "tune_options.h"
#include "tune_report.h"
#include "tune_runner.h"
#include "tune_stage.h"
#include "tune_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"

#define USUAL_ARCH "sm_90a"

struct tune {
  const struct tune_options *options;
  kjit_runtime *runtime; /* no driver call is ever made with it, so that compilers can be forked */
  struct tune_card card;
  struct tune_problems problems;
  struct tune_class_report *classes;
  struct tune_report report;
  struct tune_stage *stage;   /* times problems of attention */
  struct tune_runner *runner; /* times those of a user's family */
  kjit_tune_info table;
  double started;
};

/* ---- What there is to do ---- */

static kjit_status problems_collect(struct tune *tune, kjit_error *error) {
  const struct tune_options *options = tune->options;
  kjit_status status = KJIT_OK;
  if (options->family != NULL) status = tune_problems_set_family(&tune->problems, options->family, error);
  for (size_t i = 0; i < options->sets.count && options->family == NULL && status == KJIT_OK; i++)
    status = tune_problems_add_set(&tune->problems, options->sets.items[i], error);
  for (size_t i = 0; i < options->problems.count && status == KJIT_OK; i++)
    status = tune_problems_add_text(&tune->problems, options->problems.items[i], error);
  for (size_t i = 0; i < options->files.count && status == KJIT_OK; i++)
    status = tune_problems_add_manifest(&tune->problems, options->files.items[i], error);
  for (size_t i = 0; i < options->manifests.count && status == KJIT_OK; i++)
    status = tune_problems_add_manifest(&tune->problems, options->manifests.items[i], error);
  return status;
}

/* A dry run does without a card; what runs does not. */
static kjit_status card_find(struct tune *tune, kjit_error *error) {
  const struct tune_options *options = tune->options;
  struct tune_card *card = &tune->card;
  kjit_error reason = {0};
  if (options->arch != NULL && options->family != NULL) {
    snprintf(card->arch, sizeof card->arch, "%s", options->arch);
    card->device.struct_size = sizeof card->device;
    return kjit_tune_device_any(options->arch, &card->device, error);
  }
  if (options->arch == NULL && stage_probe(&card->device, &reason) == KJIT_OK) {
    snprintf(card->arch, sizeof card->arch, "%s", card->device.arch_specific);
    return KJIT_OK;
  }
  if (!options->dry_run) {
    *error = reason;
    return (kjit_status)error->status;
  }
  card->device = (kjit_device_info){.struct_size = sizeof card->device};
  snprintf(card->arch, sizeof card->arch, "%s", options->arch != NULL ? options->arch : USUAL_ARCH);
  return KJIT_OK;
}

/* What no family computes is said of its class; the others go on. */
static kjit_status fields_make(struct tune *tune, kjit_error *error) {
  tune->classes = calloc(tune->problems.count + 1, sizeof *tune->classes);
  if (tune->classes == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for the classes");
  for (size_t i = 0; i < tune->problems.count; i++) {
    struct tune_class_report *class = &tune->classes[i];
    kjit_error reason = {0};
    tune->report.count = i + 1;
    const char *set =
        tune->options->family != NULL && tune->options->sets.count > 0 ? tune->options->sets.items[0] : NULL;
    const kjit_status status = field_make(&class->field, tune->runtime, &tune->card, &tune->problems.items[i], set,
                                          tune->options->candidates, &reason);
    if (status == KJIT_OK) continue;
    if (status != KJIT_ERR_UNSUPPORTED) {
      *error = reason;
      return status;
    }
    class->state = TUNE_UNSUPPORTED;
    snprintf(class->message, sizeof class->message, "%s", reason.message);
  }
  return KJIT_OK;
}

/* ---- Compiling ---- */

static void class_fail(struct tune_class_report *class, const kjit_error *error) {
  class->state = TUNE_FAILED;
  snprintf(class->message, sizeof class->message, "%s", error->message);
  fprintf(stderr, "kjit: %s: %s\n", class->field.problem->class_text, error->message);
}

static void fields_judge(struct tune *tune, const struct request_list *list, const struct warm_result *results) {
  for (size_t i = 0; i < tune->report.count; i++) {
    struct tune_class_report *class = &tune->classes[i];
    kjit_error error = {0};
    if (class->state != TUNE_OPEN) continue;
    if (field_judge(&class->field, tune->runtime, list, results, &error) != KJIT_OK) {
      class_fail(class, &error);
      if (tune->report.worst == KJIT_OK) tune->report.worst = (kjit_status)error.status;
    }
    for (size_t j = 0; j < class->field.count; j++)
      class->dropped += class->field.items[j].refused[0] != '\0';
  }
}

static kjit_status compile_all(struct tune *tune, kjit_error *error) {
  struct request_list list = {0};
  struct warm_result *results = NULL;
  struct progress progress;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < tune->report.count && status == KJIT_OK; i++)
    status = field_add_requests(&tune->classes[i].field, &tune->card, &list, error);
  if (status == KJIT_OK) {
    fprintf(stderr, "kjit: compiling %zu kernels\n", request_list_make_distinct(&list));
    progress_start(&progress);
    status = warm_pool_run(&list, tune->options->jobs, 0, progress_show, &progress, &results, NULL, error);
  }
  tune->report.interrupted = interrupt_signal() != 0;
  if (status == KJIT_OK && !tune->report.interrupted) fields_judge(tune, &list, results);
  warm_results_free(results);
  request_list_free(&list);
  return status;
}

/* ---- Measuring ---- */

static int is_over(void *user) {
  struct tune *tune = user;
  const uint64_t bound = tune->options->seconds;
  tune->report.interrupted = interrupt_signal() != 0;
  tune->report.out_of_time = bound > 0 && seconds_now() - tune->started > (double)bound;
  return tune->report.interrupted || tune->report.out_of_time;
}

/* Those of a field that run: their texts for the stage, and where they stand in the field. */
struct runners {
  struct stage_entrant *entrants;
  size_t *places;
  kjit_contest_entry *entries;
  size_t count;
};

static void runners_free(struct runners *runners) {
  free(runners->entrants);
  free(runners->places);
  free(runners->entries);
}

static kjit_status runners_take(struct runners *runners, const struct field_of_entrants *field, kjit_error *error) {
  *runners =
      (struct runners){calloc(field->count, sizeof *runners->entrants), calloc(field->count, sizeof *runners->places),
                       calloc(field->count, sizeof *runners->entries), 0};
  if (runners->entrants == NULL || runners->places == NULL || runners->entries == NULL)
    return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu candidates", field->count);
  for (size_t i = 0; i < field->count; i++) {
    if (field->items[i].refused[0] != '\0') continue;
    runners->places[runners->count] = i;
    runners->entrants[runners->count++] = (struct stage_entrant){&field->items[i].config};
  }
  return KJIT_OK;
}

/* What a contest is about: the tune, and the class whose candidates run. */
struct match {
  struct tune *tune;
  struct tune_class_report *class;
  const struct runners *runners;
};

static int match_is_over(void *user) {
  return is_over(((struct match *)user)->tune);
}

/* The first failure of a class is told in full, because otherwise nobody would learn why candidates fail. */
static void note_failure(const struct match *match, size_t entrant, const char *why) {
  struct tune_class_report *class = match->class;
  char config[KJIT_CONFIG_TEXT_MAX];
  if (class->failed++ > 0) return;
  request_print_config(match->runners->entrants[entrant].config, config);
  snprintf(class->failure, sizeof class->failure, "%.240s: %.240s", config, why);
}

static kjit_status match_time(void *user, size_t entrant, double *microseconds, kjit_error *error) {
  const struct match *match = user;
  struct tune *tune = match->tune;
  const kjit_status status = tune->runner != NULL ? runner_time(tune->runner, entrant, microseconds, error)
                                                  : stage_time(tune->stage, entrant, microseconds, error);
  if (status != KJIT_OK) note_failure(match, entrant, error->message);
  return status;
}

/* A runner says itself that a result is wrong. */
static kjit_status match_check(void *user, size_t entrant, int *right, kjit_error *error) {
  const struct match *match = user;
  *right = 1;
  if (match->tune->runner != NULL) return KJIT_OK;
  const kjit_status status = stage_check(match->tune->stage, entrant, right, error);
  if (status != KJIT_OK || !*right) note_failure(match, entrant, status != KJIT_OK ? error->message : "wrong result");
  return status;
}

static void outcome_take(struct tune_class_report *class, const struct runners *runners) {
  class->winner = runners->places[class->outcome.winner];
  for (size_t i = 0; i < runners->count; i++)
    class->runs += runners->entries[i].runs;
}

static kjit_status row_put(struct tune *tune, const struct tune_class_report *class, kjit_error *error) {
  kjit_tune_result result = kjit_tune_result_default();
  result.problem = class->field.problem->asked;
  result.microseconds = class->outcome.microseconds;
  result.rules_microseconds = class->outcome.first_microseconds;
  if (class->winner != 0) result.config = &class->field.items[class->winner].config;
  return tune_table_put(tune->runtime, &tune->card.device, &result, tune->options->out, error);
}

/* Put the problem on the card, or name it to the runner. */
static kjit_status class_begin(struct tune *tune, const struct tune_class_report *class, const struct runners *runners,
                               kjit_error *error) {
  const struct tune_problem *problem = class->field.problem;
  if (problem->asked.family != NULL)
    return runner_set(tune->runner, problem->asked.family, runners->entrants, runners->count, error);
  return stage_set(tune->stage, &problem->asked.attention, runners->entrants, runners->count, error);
}

static kjit_status class_measure(struct tune *tune, struct tune_class_report *class, kjit_error *error) {
  struct runners runners;
  struct match match = {tune, class, &runners};
  const kjit_contest_ops ops = {&match, match_time, match_check, match_is_over};
  kjit_contest_settings settings = kjit_contest_settings_default();
  settings.final_runs = (uint32_t)tune->options->runs;
  settings.margin = (double)tune->options->margin / 100;
  settings.seed = random_fresh_seed();
  kjit_status status = runners_take(&runners, &class->field, error);
  if (status == KJIT_OK) status = class_begin(tune, class, &runners, error);
  if (status == KJIT_OK)
    status = kjit_contest_run(&ops, &settings, runners.count, runners.entries, &class->outcome, error);
  if (status == KJIT_OK) outcome_take(class, &runners);
  if (status == KJIT_OK) status = row_put(tune, class, error);
  runners_free(&runners);
  if (status == KJIT_OK) class->state = TUNE_DONE;
  return status;
}

static void measure_all(struct tune *tune) {
  struct progress progress;
  progress_start(&progress);
  for (size_t i = 0; i < tune->report.count && !is_over(tune); i++) {
    struct tune_class_report *class = &tune->classes[i];
    kjit_error error = {0};
    if (class->state == TUNE_OPEN && class_measure(tune, class, &error) != KJIT_OK &&
        error.status != KJIT_ERR_CANCELLED) {
      class_fail(class, &error);
      if (tune->report.worst == KJIT_OK) tune->report.worst = (kjit_status)error.status;
    }
    progress_show(&progress, i + 1, tune->report.count);
  }
}

/* ---- All of it ---- */

static kjit_status prepare(struct tune *tune, kjit_error *error) {
  kjit_status status = problems_collect(tune, error);
  if (status == KJIT_OK) status = card_find(tune, error);
  if (status == KJIT_OK) status = open_runtime(&tune->runtime, error);
  return status == KJIT_OK ? fields_make(tune, error) : status;
}

static kjit_status carry_out(struct tune *tune, kjit_error *error) {
  const struct tune_options *options = tune->options;
  kjit_status status = KJIT_OK;
  tune->report.compiled = !options->dry_run || options->compile;
  if (tune->report.compiled) status = compile_all(tune, error);
  if (status != KJIT_OK || options->dry_run || tune->report.interrupted) return status;
  tune->table = (kjit_tune_info){.struct_size = sizeof tune->table};
  const kjit_family *family = tune->problems.family;
  status = kjit_tune_get_info(tune->runtime, family, &tune->card.device, NULL, &tune->table, error);
  if (status == KJIT_OK && family != NULL)
    status = runner_open(&tune->runner, options->runner, options->runner_seconds, &tune->card.device, tune->card.arch,
                         error);
  if (status == KJIT_OK && family == NULL) status = stage_open(&tune->stage, error);
  if (status == KJIT_OK) measure_all(tune);
  return status;
}

static int report(struct tune *tune) {
  struct tune_report *all = &tune->report;
  const char *out = tune->options->out;
  all->card = &tune->card;
  all->classes = tune->classes;
  all->asked = tune->problems.asked;
  all->skipped = tune->problems.skipped;
  all->dry_run = tune->options->dry_run;
  all->seconds = seconds_now() - tune->started;
  all->table = all->dry_run ? "" : out != NULL ? out : tune->table.path;
  const int code = tune_report_print(all, tune->options->json);
  if (all->interrupted) fprintf(stderr, "kjit: interrupted: what was finished is in the table\n");
  if (all->out_of_time) fprintf(stderr, "kjit: out of time: the classes that are left were not measured\n");
  return all->worst != KJIT_OK ? exit_code_of(all->worst) : code;
}

static void finish(struct tune *tune) {
  stage_close(tune->stage);
  runner_close(tune->runner);
  for (size_t i = 0; i < tune->report.count; i++)
    field_finish(&tune->classes[i].field);
  free(tune->classes);
  tune_problems_free(&tune->problems);
  kjit_runtime_destroy(tune->runtime);
}

static int tune_with(const struct tune_options *options) {
  struct tune tune = {.options = options, .started = seconds_now()};
  kjit_error error = {0};
  interrupt_catch();
  kjit_status status = prepare(&tune, &error);
  if (status == KJIT_OK) status = carry_out(&tune, &error);
  const int code = status == KJIT_OK ? report(&tune) : report_failure(options->json, &error, NULL);
  interrupt_release();
  finish(&tune);
  return code;
}

static int tune_run(int argc, char **argv) {
  struct tune_options options = TUNE_OPTIONS_DEFAULT;
  int code = tune_options_read(&options, argc, argv);
  if (code < 0) code = tune_with(&options);
  tune_options_free(&options);
  interrupt_pass_on();
  return code;
}

const struct command command_tune = {
    .name = "tune", .summary = "measure the fastest configs on this card", .run = tune_run};
