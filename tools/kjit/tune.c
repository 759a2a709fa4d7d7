/* kjit tune: measure which config of a kernel is the fastest on this card, and keep it for the planner. */
#include "interrupt.h"
#include "progress.h"
#include "tune_report.h"
#include "tune_stage.h"
#include "tune_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/random.h"

static const char usage[] =
    "usage: kjit tune [--set NAME]... [--problem TEXT]... [--manifest FILE]... [OPTION]...\n\n"
    "Compiles configs around the one that the rules choose, runs them on the first GPU, and writes what was\n"
    "faster by more than the margin, twice, and right, into the card's table, which kjit_attention_forward()\n"
    "asks before its rules. A class that was finished stays in the table when the rest is "
    "interrupted.\n\n" TUNE_PROBLEMS_USAGE "  --seconds N      begin no measurement after this time (no bound)\n"
    "  --jobs N         compiling processes; one for each processor by default\n"
    "  --candidates N   of each problem, the nearest to the rules' choice (all)\n"
    "  --runs N         timed runs of each finalist, and again to confirm (25)\n"
    "  --margin PERCENT what a config must be faster by (1)\n"
    "  --out FILE       the table to write to, in place of the one in the cache folder\n"
    "  --dry-run        no GPU: show the classes, their candidates, and why others were refused\n"
    "  --arch ARCH      with --dry-run: the usual card of this architecture (sm_90a, if there is no GPU)\n"
    "  --compile        with --dry-run: compile them too, and show what the compiler's report refuses\n"
    "  --json           one JSON object on stdout\n\n"
    "KJIT_TUNED=off switches tables off. 'kjit doctor' shows which are in use.\n"
    "Exit codes: 0 done, 1 failed, 2 usage, 3 no usable GPU or driver, 4 no NVRTC.\n";

#define USUAL_ARCH      "sm_90a"
#define MOST_JOBS       1024
#define MOST_SECONDS    1000000
#define MOST_CANDIDATES 1000 /* more than the library lists */

struct tune_options {
  struct option_list sets, problems, manifests;
  const char *out, *arch;
  uint64_t seconds, jobs, candidates, runs, margin;
  bool dry_run, compile, json;
};

struct tune {
  const struct tune_options *options;
  kjit_runtime *runtime; /* no driver call is ever made with it, so that compilers can be forked */
  struct tune_card card;
  struct tune_problems problems;
  struct tune_class_report *classes;
  struct tune_report report;
  struct tune_stage *stage;
  kjit_tune_info table;
  double started;
};

static int options_check(struct tune_options *options) {
  if (options->sets.count + options->problems.count + options->manifests.count == 0)
    return usage_error("tune: at least one of --set, --problem and --manifest is needed");
  if (!options->dry_run && options->arch != NULL) return usage_error("tune: --arch needs --dry-run");
  if (!options->dry_run && options->compile) return usage_error("tune: --compile needs --dry-run");
  if (options->dry_run && options->out != NULL) return usage_error("tune: --dry-run writes no table: no --out");
  if (options->arch != NULL && strlen(options->arch) >= ARCH_BYTES)
    return usage_error("tune: --arch %.40s: no architecture is named so", options->arch);
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (options->jobs == 0) options->jobs = processors > 0 ? (uint64_t)processors : 1;
  return -1;
}

/* ---- What there is to do ---- */

static kjit_status problems_collect(struct tune *tune, kjit_error *error) {
  const struct tune_options *options = tune->options;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < options->sets.count && status == KJIT_OK; i++)
    status = tune_problems_add_set(&tune->problems, options->sets.items[i], error);
  for (size_t i = 0; i < options->problems.count && status == KJIT_OK; i++)
    status = tune_problems_add_text(&tune->problems, options->problems.items[i], error);
  for (size_t i = 0; i < options->manifests.count && status == KJIT_OK; i++)
    status = tune_problems_add_manifest(&tune->problems, options->manifests.items[i], error);
  return status;
}

/* A dry run does without a card; what runs does not. */
static kjit_status card_find(struct tune *tune, kjit_error *error) {
  const struct tune_options *options = tune->options;
  struct tune_card *card = &tune->card;
  kjit_error reason = {0};
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
    const kjit_status status = field_make(&class->field, tune->runtime, &tune->card, &tune->problems.items[i],
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
    if (field_judge(&class->field, tune->runtime, &tune->card, list, results, &error) != KJIT_OK) {
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
    status = warm_pool_run(&list, tune->options->jobs, progress_show, &progress, &results, error);
  }
  tune->report.interrupted = interrupt_signal() != 0;
  if (status == KJIT_OK && !tune->report.interrupted) fields_judge(tune, &list, results);
  warm_results_free(results, list.count);
  request_list_free(&list);
  return status;
}

/* ---- Measuring ---- */

static bool is_over(void *user) {
  struct tune *tune = user;
  const uint64_t bound = tune->options->seconds;
  tune->report.interrupted = interrupt_signal() != 0;
  tune->report.out_of_time = bound > 0 && seconds_now() - tune->started > (double)bound;
  return tune->report.interrupted || tune->report.out_of_time;
}

/* The contest knows the tune; the stage is the tune's. */
static kjit_status contest_time(void *user, size_t entrant, double *microseconds, kjit_error *error) {
  return stage_time(((struct tune *)user)->stage, entrant, microseconds, error);
}

static kjit_status contest_check(void *user, size_t entrant, bool *right, kjit_error *error) {
  return stage_check(((struct tune *)user)->stage, entrant, right, error);
}

/* Those of a field that run: their texts for the stage, and where they stand in the field. */
struct runners {
  struct stage_entrant *entrants;
  size_t *places;
  struct contest_entry *entries;
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

static void outcome_take(struct tune_class_report *class, const struct runners *runners) {
  class->winner = runners->places[class->outcome.winner];
  for (size_t i = 0; i < runners->count; i++)
    class->runs += runners->entries[i].runs;
}

static kjit_status row_put(struct tune *tune, const struct tune_class_report *class, kjit_error *error) {
  kjit_tune_result result = kjit_tune_result_default();
  result.problem = class->field.problem->asked;
  result.microseconds = class->outcome.microseconds;
  result.rules_microseconds = class->outcome.rules_microseconds;
  if (class->winner != 0) result.config = &class->field.items[class->winner].config;
  return tune_table_put(tune->runtime, &tune->card.device, &result, tune->options->out, error);
}

static kjit_status class_measure(struct tune *tune, struct tune_class_report *class, kjit_error *error) {
  const struct contest_ops ops = {tune, contest_time, contest_check, is_over};
  struct contest_settings settings = CONTEST_SETTINGS_DEFAULT;
  struct runners runners;
  settings.final_runs = tune->options->runs;
  settings.margin = (double)tune->options->margin / 100;
  settings.seed = random_fresh_seed();
  kjit_status status = runners_take(&runners, &class->field, error);
  if (status == KJIT_OK)
    status = stage_set(tune->stage, &class->field.problem->asked, runners.entrants, runners.count, error);
  if (status == KJIT_OK) status = contest_run(&ops, &settings, runners.count, runners.entries, &class->outcome, error);
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
  status = kjit_tune_get_info(tune->runtime, &tune->card.device, &tune->table, error);
  if (status == KJIT_OK) status = stage_open(&tune->stage, error);
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
  struct tune_options options = {.candidates = MOST_CANDIDATES, .runs = 25, .margin = 1};
  const struct option table[] = {
      {.kind = OPTION_LIST, .name = "--set", .target = &options.sets},
      {.kind = OPTION_LIST, .name = "--problem", .target = &options.problems},
      {.kind = OPTION_LIST, .name = "--manifest", .target = &options.manifests},
      {.kind = OPTION_NUMBER, .name = "--seconds", .target = &options.seconds, .least = 1, .most = MOST_SECONDS},
      {.kind = OPTION_NUMBER, .name = "--jobs", .target = &options.jobs, .least = 1, .most = MOST_JOBS},
      {.kind = OPTION_NUMBER,
       .name = "--candidates",
       .target = &options.candidates,
       .least = 1,
       .most = MOST_CANDIDATES},
      {.kind = OPTION_NUMBER, .name = "--runs", .target = &options.runs, .least = 1, .most = CONTEST_MOST_RUNS},
      {.kind = OPTION_NUMBER, .name = "--margin", .target = &options.margin, .least = 0, .most = 50},
      {.kind = OPTION_TEXT, .name = "--out", .target = &options.out},
      {.kind = OPTION_FLAG, .name = "--dry-run", .target = &options.dry_run},
      {.kind = OPTION_TEXT, .name = "--arch", .target = &options.arch},
      {.kind = OPTION_FLAG, .name = "--compile", .target = &options.compile},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, NULL, usage);
  if (code < 0) code = options_check(&options);
  if (code < 0) code = tune_with(&options);
  option_list_free(&options.sets);
  option_list_free(&options.problems);
  option_list_free(&options.manifests);
  interrupt_pass_on();
  return code;
}

const struct command command_tune = {
    .name = "tune", .summary = "measure the fastest configs on this card", .run = tune_run};
