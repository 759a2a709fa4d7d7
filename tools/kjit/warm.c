/* kjit warm: fill the cache. */
#include "command.h"
#include "manifest.h"
#include "progress.h"
#include "warm_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: kjit warm [--set NAME]... [--manifest FILE]... [--arch A,B,...] [--jobs N] [--shard I/N] [--json]\n\n"
    "Compiles what the cache does not hold yet. Needs no GPU.\n\n"
    "  --set NAME       progression (7 configs), autotune (80), prebuilt (85); for each architecture of --arch\n"
    "  --manifest FILE  one request a line, '#' begins a comment, '-' is standard input:\n"
    "                     flash_forward sm_80,sm_90 (FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles\n"
    "                     attention sm_90 dtype=bf16,head_dim=128\n"
    "  --arch A,B,...   sm_80, sm_90, ...; needed with --set\n"
    "  --jobs N         processes; one for each processor by default\n"
    "  --shard I/N      the I-th of N disjoint parts: N machines with I = 1..N do the whole\n"
    "  --json           one JSON object on stdout\n";

/* Failures printed one by one; the rest is counted. */
#define FAILURES_PRINTED 10
/* More processes than this help no machine and would only use up its memory. */
#define MOST_JOBS 1024

struct warm_options {
  struct option_list sets, manifests;
  const char *archs, *shard;
  uint64_t jobs;
  uint64_t shard_index, shard_count;
  bool json;
};

struct warm_report {
  size_t requested, distinct, in_shard;
  size_t built, cached, failed;
  double seconds;
  kjit_status worst; /* of the first failure */
};

static int shard_read(struct warm_options *options) {
  options->shard_index = options->shard_count = 1;
  if (options->shard == NULL) return -1;
  const char *slash = strchr(options->shard, '/');
  char index[16] = "";
  if (slash != NULL && (size_t)(slash - options->shard) < sizeof index)
    memcpy(index, options->shard, (size_t)(slash - options->shard));
  if (slash != NULL && number_read(slash + 1, 1, MOST_REQUESTS, &options->shard_count) &&
      number_read(index, 1, options->shard_count, &options->shard_index))
    return -1;
  return usage_error("--shard %s: I/N with 1 <= I <= N is expected", options->shard);
}

static int options_check(struct warm_options *options) {
  if (options->sets.count + options->manifests.count == 0)
    return usage_error("warm: at least one of --set and --manifest is needed");
  if (options->sets.count > 0 && options->archs == NULL) return usage_error("warm: --set needs --arch");
  if (options->sets.count == 0 && options->archs != NULL)
    return usage_error("warm: --arch belongs to --set; a manifest names its own");
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (options->jobs == 0) options->jobs = processors > 0 ? (uint64_t)processors : 1;
  return shard_read(options);
}

static kjit_status requests_collect(const struct warm_options *options, struct request_list *list, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < options->sets.count && status == KJIT_OK; i++)
    status = request_list_add_set(list, options->sets.items[i], options->archs, error);
  for (size_t i = 0; i < options->manifests.count && status == KJIT_OK; i++)
    status = manifest_read(options->manifests.items[i], list, error);
  return status;
}

static void results_count(const struct warm_result *results, size_t count, struct warm_report *report) {
  for (size_t i = 0; i < count; i++) {
    if (results[i].status != KJIT_OK) {
      if (report->failed++ == 0) report->worst = (kjit_status)results[i].status;
    } else if (results[i].origin == KJIT_ORIGIN_BUILT) {
      report->built++;
    } else {
      report->cached++;
    }
  }
}

static json_t *failures_json(const struct request_list *list, const struct warm_result *results) {
  json_t *failures = json_array();
  char text[KJIT_FLASH_CONFIG_TEXT_MAX + 64];
  for (size_t i = 0; i < list->count; i++) {
    if (results[i].status == KJIT_OK) continue;
    request_print(&list->items[i], text, sizeof text);
    json_array_append_new(failures,
                          json_pack("{s:s, s:s, s:s}", "request", text, "status",
                                    kjit_status_name((kjit_status)results[i].status), "message", results[i].message));
  }
  return failures;
}

static void print_failures(const struct request_list *list, const struct warm_result *results) {
  char text[KJIT_FLASH_CONFIG_TEXT_MAX + 64];
  size_t printed = 0, left = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (results[i].status == KJIT_OK) continue;
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
    return print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:o}", "requested",
                                (json_int_t)report->requested, "distinct", (json_int_t)report->distinct, "in_shard",
                                (json_int_t)report->in_shard, "built", (json_int_t)report->built, "cached",
                                (json_int_t)report->cached, "failed", (json_int_t)report->failed, "seconds",
                                report->seconds, "jobs", (json_int_t)options->jobs, "failures", failures));
  json_decref(failures);
  printf("%zu requested, %zu distinct", report->requested, report->distinct);
  if (options->shard != NULL) printf(", %zu in shard %s", report->in_shard, options->shard);
  printf(": %zu built, %zu from the cache, %zu failed, %.1f s with %llu jobs\n", report->built, report->cached,
         report->failed, report->seconds, (unsigned long long)options->jobs);
  return print_text("");
}

static int warm_list(const struct warm_options *options, const struct request_list *list, struct warm_report *report) {
  struct warm_result *results = NULL;
  struct progress progress;
  kjit_error error = {0};
  progress_start(&progress);
  if (warm_pool_run(list, options->jobs, progress_show, &progress, &results, &error) != KJIT_OK)
    return report_failure(options->json, &error, NULL);
  report->seconds = seconds_now() - progress.started;
  results_count(results, list->count, report);
  print_failures(list, results);
  const int code = print_report(options, report, failures_json(list, results));
  warm_results_free(results, list->count);
  return report->failed > 0 ? exit_code_of(report->worst) : code;
}

static int warm_with(const struct warm_options *options) {
  struct request_list list = {0};
  struct warm_report report = {0};
  kjit_error error = {0};
  int code;
  if (requests_collect(options, &list, &error) != KJIT_OK) {
    code = report_failure(options->json, &error, NULL);
  } else {
    report.requested = list.count;
    report.distinct = request_list_make_distinct(&list);
    request_list_keep_shard(&list, options->shard_index, options->shard_count);
    report.in_shard = list.count;
    code = warm_list(options, &list, &report);
  }
  request_list_free(&list);
  return code;
}

static int warm_run(int argc, char **argv) {
  struct warm_options options = {0};
  const struct option table[] = {
      {.kind = OPTION_LIST, .name = "--set", .target = &options.sets},
      {.kind = OPTION_LIST, .name = "--manifest", .target = &options.manifests},
      {.kind = OPTION_TEXT, .name = "--arch", .target = &options.archs},
      {.kind = OPTION_TEXT, .name = "--shard", .target = &options.shard},
      {.kind = OPTION_NUMBER, .name = "--jobs", .target = &options.jobs, .least = 1, .most = MOST_JOBS},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, NULL, usage);
  if (code < 0) code = options_check(&options);
  if (code < 0) code = warm_with(&options);
  option_list_free(&options.sets);
  option_list_free(&options.manifests);
  return code;
}

const struct command command_warm = {"warm", "fill the cache with sets of kernels or a manifest", warm_run};
