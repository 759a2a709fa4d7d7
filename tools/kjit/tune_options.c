/* Reads the options of `kjit tune`, and refuses those that do not belong together. One thread. */
#include "tune_options.h"

#include "tune_problems.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "request_list.h"

static const char usage[] =
    "usage: kjit tune [--set NAME]... [--problem TEXT]... [--manifest FILE]... [OPTION]...\n"
    "       kjit tune --family FILE --runner PROGRAM [--set NAME] [--problem TEXT]... [--problems FILE]... "
    "[OPTION]...\n\n"
    "Compiles configs around the one that the rules choose, runs them on the first GPU, and writes what was\n"
    "faster by more than the margin, twice, and right, into the card's table, which kjit_attention_forward()\n"
    "asks before its rules. A class that was finished stays in the table when the rest is "
    "interrupted.\n\n" TUNE_PROBLEMS_USAGE
    "  --family FILE    tune a user's family (docs/families.md): a problem is then its given fields and integer\n"
    "                   parameters, m=4096,n=4096; --set is the set of candidates (around the choice, if none)\n"
    "  --runner PROGRAM a shell command that times one candidate: reads lines 'time problem=... config=...\n"
    "                   cubin=...', answers microseconds, or 'error' or 'wrong' and a sentence\n"
    "  --runner-seconds N  the longest wait for an answer (120)\n"
    "  --seconds N      begin no measurement after this time (no bound)\n"
    "  --jobs N         compiling processes; one for each processor by default\n"
    "  --candidates N   of each problem, the nearest to the rules' choice (all)\n"
    "  --runs N         timed runs of each finalist, and again to confirm (25)\n"
    "  --margin PERCENT what a config must be faster by (1)\n"
    "  --out FILE       the table to write to, in place of the one in the cache folder\n"
    "  --dry-run        no GPU: show the classes, their candidates, and why others were refused\n"
    "  --arch ARCH      with --family: no card, the table of the device \"any\" of this architecture;\n"
    "                   with --dry-run: the usual card of this architecture (sm_90a, if there is no GPU)\n"
    "  --compile        with --dry-run: compile them too, and show what the compiler's report refuses\n"
    "  --json           one JSON object on stdout\n\n"
    "KJIT_TUNED=off switches tables off. 'kjit doctor' shows which are in use.\n"
    "Exit codes: 0 done, 1 failed, 2 usage, 3 no usable GPU or driver, 4 no NVRTC.\n";

#define MOST_JOBS    1024
#define MOST_SECONDS 1000000

static int options_check_family(const struct tune_options *options) {
  if (options->family == NULL)
    return options->runner != NULL ? usage_error("tune: --runner needs --family, whose candidates it times") : -1;
  if (options->runner == NULL && !options->dry_run)
    return usage_error("tune: --family needs --runner, the program that times a candidate, or --dry-run");
  if (options->problems.count + options->files.count == 0)
    return usage_error("tune: --family needs a problem: --problem or --problems");
  if (options->manifests.count > 0) return usage_error("tune: --manifest has problems of attention, not of --family");
  if (options->sets.count > 1) return usage_error("tune: --family takes one --set, that of the candidates");
  return -1;
}

static int options_check(struct tune_options *options) {
  const int code = options_check_family(options);
  if (code >= 0) return code;
  if (options->sets.count + options->problems.count + options->files.count + options->manifests.count == 0)
    return usage_error("tune: at least one of --set, --problem, --problems and --manifest is needed");
  if (!options->dry_run && options->arch != NULL && options->family == NULL)
    return usage_error("tune: --arch needs --dry-run or --family");
  if (!options->dry_run && options->compile) return usage_error("tune: --compile needs --dry-run");
  if (options->dry_run && options->out != NULL) return usage_error("tune: --dry-run writes no table: no --out");
  if (options->arch != NULL && strlen(options->arch) >= ARCH_BYTES)
    return usage_error("tune: --arch %.40s: no architecture is named so", options->arch);
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (options->jobs == 0) options->jobs = processors > 0 ? (uint64_t)processors : 1;
  return -1;
}

int tune_options_read(struct tune_options *options, int argc, char **argv) {
  const struct option table[] = {
      {.kind = OPTION_LIST, .name = "--set", .target = &options->sets},
      {.kind = OPTION_LIST, .name = "--problem", .target = &options->problems},
      {.kind = OPTION_LIST, .name = "--problems", .target = &options->files},
      {.kind = OPTION_LIST, .name = "--manifest", .target = &options->manifests},
      {.kind = OPTION_TEXT, .name = "--family", .target = &options->family},
      {.kind = OPTION_TEXT, .name = "--runner", .target = &options->runner},
      {.kind = OPTION_NUMBER,
       .name = "--runner-seconds",
       .target = &options->runner_seconds,
       .least = 1,
       .most = 86400},
      {.kind = OPTION_NUMBER, .name = "--seconds", .target = &options->seconds, .least = 1, .most = MOST_SECONDS},
      {.kind = OPTION_NUMBER, .name = "--jobs", .target = &options->jobs, .least = 1, .most = MOST_JOBS},
      {.kind = OPTION_NUMBER,
       .name = "--candidates",
       .target = &options->candidates,
       .least = 1,
       .most = TUNE_MOST_CANDIDATES},
      {.kind = OPTION_NUMBER, .name = "--runs", .target = &options->runs, .least = 1, .most = KJIT_CONTEST_RUNS_MAX},
      {.kind = OPTION_NUMBER, .name = "--margin", .target = &options->margin, .least = 0, .most = 50},
      {.kind = OPTION_TEXT, .name = "--out", .target = &options->out},
      {.kind = OPTION_FLAG, .name = "--dry-run", .target = &options->dry_run},
      {.kind = OPTION_TEXT, .name = "--arch", .target = &options->arch},
      {.kind = OPTION_FLAG, .name = "--compile", .target = &options->compile},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options->json},
      {.kind = OPTION_END},
  };
  const int code = options_read(argc, argv, table, NULL, usage);
  return code < 0 ? options_check(options) : code;
}

void tune_options_free(struct tune_options *options) {
  option_list_free(&options->sets);
  option_list_free(&options->problems);
  option_list_free(&options->files);
  option_list_free(&options->manifests);
}
