/* `kjit warm`: fills the cache with every kernel of sets and manifests.
 *
 * 1. The list is collected, made distinct and cut to this machine's shard.
 * 2. With --resume, what the cache and the stores have is taken out of it.
 * 3. Several processes of the compile server compile it (warm_pool.c), while progress is shown.
 * 4. Failures are printed, the first ten one by one, the totals, and how many kernels could not be written into the
 *    cache folder, which is a failure too.
 *
 * An interrupt stops the work; finished kernels are in the cache, so the same command continues where it stopped. One
 * thread beside those of the pool. */
#include "asked.h"
#include "command.h"
#include "interrupt.h"
#include "progress.h"
#include "shard.h"
#include "warm_check.h"
#include "warm_pool.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: kjit warm [--family FAMILY] [--set NAME]... [--manifest FILE]... [--arch A,B,...] [--jobs N]\n"
    "                 [--shard I/N] [--resume] [--check --remote URL [--key PUBLIC]...] [--json]\n\n"
    "Compiles what the cache does not hold yet. Needs no GPU.\n\n" ASKED_USAGE
    "  --family FAMILY  whose sets are meant: a family file, or flash_forward, which it is by default\n"
    "  --jobs N         compiles at once, each in a process; one for each processor by default\n"
    "  --shard I/N      the I-th of N disjoint parts: N machines with I = 1..N do the whole. /N takes I from\n"
    "                   SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX or PARALLEL_SEQ; a Slurm array is split by default\n"
    "  --resume         first looks which kernels the cache and the stores have, says how many, and begins with the\n"
    "                   others, so that progress and the time left are those of what is still to be built\n"
    "  --check          compiles nothing, and says which kernels the store of --remote lacks; with --key those count\n"
    "                   that are signed by it; exit code 1 if any is missing\n"
    "  --json           one JSON object on stdout\n\n"
    "Exit code 1 also if a kernel was built but could not be written into the cache folder; --json counts these as\n"
    "not_kept.\n";

/* How many failures are printed one by one; further ones are counted. */
#define FAILURES_PRINTED 10
/* Most processes: more would only use up memory. */
#define MOST_JOBS 1024

struct warm_options {
  struct asked asked;
  const char *shard_text;
  struct shard shard;
  struct option_list keys; /* public ones, of --check */
  const char *remote;
  uint64_t jobs;
  bool check, resume, json;
};

struct warm_report {
  size_t requested, distinct, in_shard, left_out;
  size_t built, cached, failed, cancelled;
  double seconds;
  kjit_status worst; /* of the first failure */
  struct warm_counts counts;
};

static int options_check(struct warm_options *options) {
  kjit_error error = {0};
  const int code = asked_check(&options->asked, "warm");
  if (code >= 0) return code;
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (options->check != (options->remote != NULL) || (options->keys.count > 0 && !options->check))
    return usage_error("warm: --check needs --remote, and --remote and --key belong to --check");
  if (options->jobs == 0) options->jobs = processors > 0 ? (uint64_t)processors : 1;
  if (shard_read(options->shard_text, &options->shard, &error) != KJIT_OK) return usage_error("%s", error.message);
  const struct shard *shard = &options->shard;
  if (shard->variable != NULL)
    fprintf(stderr, "kjit: shard %llu/%llu, by %s\n", (unsigned long long)shard->index,
            (unsigned long long)shard->count, shard->variable);
  return -1;
}

static void results_count(const struct warm_result *results, size_t count, struct warm_report *report) {
  for (size_t i = 0; i < count; i++) {
    if (results[i].status == KJIT_ERR_CANCELLED) {
      report->cancelled++;
    } else if (results[i].status != KJIT_OK) {
      if (report->failed++ == 0) report->worst = (kjit_status)results[i].status;
    } else if (results[i].origin == KJIT_ORIGIN_BUILT) {
      report->built++;
    } else {
      report->cached++;
    }
  }
}

/* True for a failed request; one that was interrupted has not failed. */
static bool result_failed(const struct warm_result *result) {
  return result->status != KJIT_OK && result->status != KJIT_ERR_CANCELLED;
}

static json_t *failures_json(const struct request_list *list, const struct warm_result *results) {
  json_t *failures = json_array();
  char text[KJIT_CONFIG_TEXT_MAX + 64];
  for (size_t i = 0; i < list->count; i++) {
    if (!result_failed(&results[i])) continue;
    request_print(&list->items[i], text, sizeof text);
    json_array_append_new(failures, json_pack("{s:s, s:s, s:o}", "request", text, "status",
                                              kjit_status_name((kjit_status)results[i].status), "message",
                                              json_text(results[i].message)));
  }
  return failures;
}

static void print_failures(const struct request_list *list, const struct warm_result *results) {
  char text[KJIT_CONFIG_TEXT_MAX + 64];
  size_t printed = 0, left = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (!result_failed(&results[i])) continue;
    if (printed == FAILURES_PRINTED) {
      left++;
      continue;
    }
    printed++;
    request_print(&list->items[i], text, sizeof text);
    fprintf(stderr, "kjit: %s: %s\n", text, results[i].message);
  }
  if (left > 0) fprintf(stderr, "kjit: and %zu more\n", left);
}

static int print_report(const struct warm_options *options, const struct warm_report *report, json_t *failures) {
  if (options->json)
    return print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:o}", "requested",
                                (json_int_t)report->requested, "distinct", (json_int_t)report->distinct, "left_out",
                                (json_int_t)report->left_out, "in_shard", (json_int_t)report->in_shard, "built",
                                (json_int_t)report->built, "cached", (json_int_t)report->cached, "failed",
                                (json_int_t)report->failed, "interrupted", (json_int_t)report->cancelled, "not_kept",
                                (json_int_t)report->counts.not_kept, "seconds", report->seconds, "jobs",
                                (json_int_t)options->jobs, "failures", failures));
  json_decref(failures);
  printf("%zu requested, %zu distinct", report->requested, report->distinct);
  if (report->left_out > 0) printf(" (and %zu that their architecture cannot run)", report->left_out);
  if (options->shard.count > 1)
    printf(", %zu in shard %llu/%llu", report->in_shard, (unsigned long long)options->shard.index,
           (unsigned long long)options->shard.count);
  printf(": %zu built, %zu from the cache, %zu failed, %.1f s with %llu jobs\n", report->built, report->cached,
         report->failed, report->seconds, (unsigned long long)options->jobs);
  return print_text("");
}

/* Tell how to go on: finished kernels are in the cache unless they could not be kept, so the same command does the
 * rest. */
static void print_interrupted(const struct warm_report *report) {
  fprintf(stderr, "kjit: interrupted: %zu of %zu are done%s; the same command goes on with the other %zu\n",
          report->in_shard - report->cancelled, report->in_shard,
          report->counts.not_kept > 0 ? "" : " and in the cache", report->cancelled);
}

/* A cache that stays empty is a failure here: filling it is all that the command is for. Each cause was logged when it
 * arose. */
static int say_not_kept(const struct warm_report *report) {
  const unsigned long long count = report->counts.not_kept;
  const char *const path = report->counts.cache_path;
  if (path[0] == '\0') return failure("there is no cache folder for the kernels built (%llu)", count);
  return failure("%llu of the kernels built could not be written into the cache folder %s", count, path);
}

/* Take out of the list what need not be built. What could not be looked up, as after an interrupt, stays in it. */
static kjit_status leave_out_present(const struct warm_options *options, struct request_list *list,
                                     struct warm_report *report, struct progress *progress, kjit_error *error) {
  struct warm_result *results = NULL;
  const size_t all = list->count;
  bool *const present = calloc(all + 1, sizeof *present);
  if (present == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu answers", all);
  const kjit_status status =
      warm_pool_run(list, options->jobs, KJIT_BUILD_NO_COMPILE, progress_show, progress, &results, NULL, error);
  if (status == KJIT_OK) {
    for (size_t i = 0; i < all; i++)
      present[i] = results[i].status == KJIT_OK;
    report->cached = request_list_leave_out(list, present);
    fprintf(stderr, "kjit: resuming: %zu of %zu are there\n", report->cached, all);
  }
  free(present);
  warm_results_free(results);
  return status;
}

static int warm_list(const struct warm_options *options, struct request_list *list, struct warm_report *report) {
  struct warm_result *results = NULL;
  struct progress progress;
  kjit_error error = {0};
  kjit_status ran = KJIT_OK;
  interrupt_catch();
  progress_start(&progress);
  const double started = progress.started;
  if (options->resume) ran = leave_out_present(options, list, report, &progress, &error);
  if (options->resume) progress_start(&progress);
  if (ran == KJIT_OK)
    ran = warm_pool_run(list, options->jobs, 0, progress_show, &progress, &results, &report->counts, &error);
  interrupt_release();
  if (ran != KJIT_OK) return report_failure(options->json, &error, NULL);
  report->seconds = seconds_now() - started;
  results_count(results, list->count, report);
  print_failures(list, results);
  const int code = print_report(options, report, failures_json(list, results));
  warm_results_free(results);
  if (report->cancelled > 0) print_interrupted(report);
  const int kept = report->counts.not_kept > 0 ? say_not_kept(report) : code;
  return report->failed > 0 ? exit_code_of(report->worst) : kept;
}

/* Cut the list to this machine's shard. */
static int shard_keep(const struct warm_options *options, struct request_list *list, kjit_error *error) {
  const struct shard *shard = &options->shard;
  kjit_runtime *runtime = NULL;
  if (shard->count == 1) return EXIT_DONE;
  kjit_status status = open_runtime(&runtime, error);
  if (status == KJIT_OK) status = request_list_keep_shard(list, runtime, shard->index, shard->count, error);
  kjit_runtime_destroy(runtime);
  return status == KJIT_OK ? EXIT_DONE : report_failure(options->json, error, NULL);
}

static int warm_with(const struct warm_options *options) {
  struct request_list list = {0};
  struct warm_report report = {0};
  kjit_error error = {0};
  int code;
  if (asked_collect(&options->asked, &list, &error) != KJIT_OK) {
    code = report_failure(options->json, &error, NULL);
  } else {
    report.requested = list.count;
    report.left_out = list.left_out;
    report.distinct = request_list_make_distinct(&list);
    code = shard_keep(options, &list, &error);
    report.in_shard = list.count;
    if (code == EXIT_DONE && options->check)
      code = warm_check(&list, options->remote, &options->keys, options->json);
    else if (code == EXIT_DONE)
      code = warm_list(options, &list, &report);
  }
  request_list_free(&list);
  return code;
}

static int warm_run(int argc, char **argv) {
  struct warm_options options = {0};
  const struct option table[] = {
      ASKED_OPTIONS(options.asked),
      {.kind = OPTION_TEXT, .name = "--family", .target = &options.asked.family},
      {.kind = OPTION_TEXT, .name = "--shard", .target = &options.shard_text},
      {.kind = OPTION_NUMBER, .name = "--jobs", .target = &options.jobs, .least = 1, .most = MOST_JOBS},
      {.kind = OPTION_TEXT, .name = "--remote", .target = &options.remote},
      {.kind = OPTION_LIST, .name = "--key", .target = &options.keys},
      {.kind = OPTION_FLAG, .name = "--resume", .target = &options.resume},
      {.kind = OPTION_FLAG, .name = "--check", .target = &options.check},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, NULL, usage);
  if (code < 0) code = options_check(&options);
  if (code < 0) code = warm_with(&options);
  asked_free(&options.asked);
  option_list_free(&options.keys);
  interrupt_pass_on();
  return code;
}

const struct command command_warm = {
    .name = "warm", .summary = "fill the cache with sets of kernels or a manifest", .run = warm_run};
