/* What a hit in a remote store costs, beside one in the folder and beside compiling, with real kernels. No GPU.
 *
 *   bench_remote_hits URL FOLDER [--count N] [--rounds N] [--json]
 *
 * 1. The first N kernels (100) of the set "prebuilt", for sm_80 and then for sm_86, are compiled into FOLDER unless it
 *    has them, and put into the store.
 * 2. In each round, a runtime with an empty folder and the store asks for all of them, one after the other: the time
 * from before the runtime is made until the last kernel is there is the start of a process. The folder is filled behind
 *    it, which is waited for outside the measurement.
 * 3. Each round then does the same with a new runtime over FOLDER alone. */
#include <kjit/kjit.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"

#define MOST_KERNELS 160
#define MOST_ROUNDS  100

struct bench {
  struct output output;
  const char *url, *folder;
  size_t count, rounds;
  double *remote_us, *disk_us, *compile_us; /* of each kernel of each round; of each kernel */
  double remote_ms[MOST_ROUNDS], disk_ms[MOST_ROUNDS];
};

static kjit_status open_runtime(kjit_runtime **runtime, const char *folder, const char *url, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = folder;
  options.cache_remote = url;
  options.remote_end_ms = 60000;
  return kjit_runtime_create(runtime, &options, error);
}

/* Ask for the kernel of a number; it must come from `origin` unless that is KJIT_ORIGIN_NONE. */
static kjit_status get(kjit_runtime *runtime, size_t number, kjit_origin origin, kjit_artifact_info *info,
                       kjit_error *error) {
  const kjit_family *family = kjit_family_find("flash_forward");
  kjit_config config;
  kjit_artifact *artifact = NULL;
  size_t configs = 0;
  kjit_status status = kjit_family_set(family, "prebuilt", 0, NULL, &configs, error);
  if (status == KJIT_OK) status = kjit_family_set(family, "prebuilt", number % configs, &config, NULL, error);
  if (status != KJIT_OK) return status;
  status = kjit_config_build(runtime, &config, number < configs ? "sm_80" : "sm_86", 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, info, error);
  const uint32_t found = info->origin;
  kjit_artifact_release(artifact);
  if (status != KJIT_OK || origin == KJIT_ORIGIN_NONE || found == (uint32_t)origin || found == KJIT_ORIGIN_MEMORY)
    return status;
  snprintf(error->message, sizeof error->message, "kernel %zu came from %s", number, kjit_origin_name(found));
  return KJIT_ERR_INTERNAL;
}

/* Ask for all with a new runtime; `us` gets the time of each, and the result is that of all, with the runtime's own. */
static double time_all(const struct bench *bench, const char *folder, const char *url, kjit_origin origin, double *us,
                       kjit_error *error) {
  kjit_runtime *runtime = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  const double start = statistics_now();
  kjit_status status = open_runtime(&runtime, folder, url, error);
  for (size_t i = 0; i < bench->count && status == KJIT_OK; i++) {
    const double from = statistics_now();
    status = get(runtime, i, origin, &info, error);
    us[i] = 1e6 * (statistics_now() - from);
  }
  const double taken = 1e3 * (statistics_now() - start);
  kjit_runtime_destroy(runtime);
  return status == KJIT_OK ? taken : -1;
}

static kjit_status fill(struct bench *bench, kjit_error *error) {
  kjit_runtime *runtime = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_remote_report report = {.struct_size = sizeof report};
  kjit_status status = open_runtime(&runtime, bench->folder, bench->url, error);
  for (size_t i = 0; i < bench->count && status == KJIT_OK; i++) {
    status = get(runtime, i, KJIT_ORIGIN_NONE, &info, error);
    bench->compile_us[i] = 1e3 * info.compile_ms;
  }
  if (status == KJIT_OK) status = kjit_remote_push(runtime, &report, error);
  kjit_runtime_destroy(runtime);
  return status;
}

static int run_rounds(struct bench *bench, kjit_error *error) {
  for (size_t round = 0; round < bench->rounds; round++) {
    char empty[64];
    snprintf(empty, sizeof empty, "/tmp/kjit-remote-hits-%ld-%zu", (long)getpid(), round);
    double *const remote_us = bench->remote_us + round * bench->count, *disk_us = bench->disk_us + round * bench->count;
    bench->remote_ms[round] = time_all(bench, empty, bench->url, KJIT_ORIGIN_REMOTE, remote_us, error);
    if (bench->remote_ms[round] < 0) return 0;
    bench->disk_ms[round] = time_all(bench, empty, NULL, KJIT_ORIGIN_USER, disk_us, error);
    if (bench->disk_ms[round] < 0) return 0;
  }
  return 1;
}

static void report(struct bench *bench) {
  const struct output *const output = &bench->output;
  const size_t calls = bench->count * bench->rounds;
  const struct statistics compile = statistics_of(bench->compile_us, bench->count);
  const struct statistics remote = statistics_of(bench->remote_us, calls), disk = statistics_of(bench->disk_us, calls);
  const struct statistics start = statistics_of(bench->remote_ms, bench->rounds);
  const struct statistics warm = statistics_of(bench->disk_ms, bench->rounds);
  output_statistics(output, "compile", "us", &compile);
  output_statistics(output, "hit in the store", "us", &remote);
  output_statistics(output, "hit in the folder", "us", &disk);
  output_statistics(output, "start, from the store", "ms", &start);
  output_statistics(output, "start, from the folder", "ms", &warm);
}

/* The words before the first option are the URL and the folder; --count is taken out of what output.h reads. */
static int read_options(struct bench *bench, int argc, char **argv) {
  bench->count = 100;
  bench->rounds = 5;
  if (argc < 3) return 0;
  bench->url = argv[1];
  bench->folder = argv[2];
  if (argc > 4 && !strcmp(argv[3], "--count")) {
    bench->count = strtoull(argv[4], NULL, 10);
    argv += 2;
    argc -= 2;
  }
  argv[2] = argv[0];
  return bench->count >= 1 && bench->count <= MOST_KERNELS &&
         output_read_options(&bench->output, argc - 2, argv + 2, &bench->rounds, MOST_ROUNDS);
}

int main(int argc, char **argv) {
  struct bench bench = {.output.benchmark = "remote_hits"};
  kjit_error error = {0};
  int code = 1;
  if (!read_options(&bench, argc, argv)) {
    fprintf(stderr, "usage: bench_remote_hits URL FOLDER [--count N] [--rounds N] [--json]\n");
    return 2;
  }
  bench.remote_us = calloc(bench.count * bench.rounds, sizeof *bench.remote_us);
  bench.disk_us = calloc(bench.count * bench.rounds, sizeof *bench.disk_us);
  bench.compile_us = calloc(bench.count, sizeof *bench.compile_us);
  const int has_memory = bench.remote_us && bench.disk_us && bench.compile_us;
  if (has_memory && fill(&bench, &error) == KJIT_OK && run_rounds(&bench, &error)) {
    report(&bench);
    code = 0;
  } else {
    code = output_failure(&bench.output, "%s", has_memory ? error.message : "out of memory");
  }
  free(bench.remote_us);
  free(bench.disk_us);
  free(bench.compile_us);
  return code;
}
