/* What the cache costs: a disk hit beside the floor of reading the same bytes, a hit in memory under contention,
 * starting over a full folder, publishing into a full folder. The folder is in memory (/dev/shm) where there is one, so
 * that the cache is measured and not a disk. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "output.h"

#define CUBIN_BYTES   50000
#define THREADS_MAX   16
#define HITS          20000
#define START_ENTRIES 10000
#define FULL_ENTRIES  100000
#define PUBLISHES     4000

struct bench {
  struct output output;
  size_t rounds;
  struct mem mem;
  struct log log;
  char folder[64];
};

/* The least that any cache must do: the same file into memory of its own. */
static bool read_plainly(const char *path) {
  struct stat status;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status)) return false;
  void *data = malloc((size_t)status.st_size);
  const bool read_all = data && read(file, data, (size_t)status.st_size) == status.st_size;
  close(file);
  free(data);
  return read_all;
}

static bool read_through_cache(struct builder *builder, const struct jit_request *request) {
  struct key key;
  struct builder_call call = {.builder = builder, .request = request, .key = &key, .deadline_ns = INT64_MAX};
  kjit_artifact *artifact = NULL;
  bool found = key_make(&key, builder->mem, request, "nvrtc-bench", NULL) == KJIT_OK;
  found = found && builder_look_up(&call, &artifact, NULL) == KJIT_OK;
  kjit_artifact_release(artifact);
  key_finish(&key);
  return found;
}

static int bench_disk_hit(struct bench *bench) {
  struct bench_request made;
  struct entry_name name;
  kjit_artifact *artifact = NULL;
  char path[512];
  double *floor = calloc(bench->rounds, sizeof *floor), *hit = calloc(bench->rounds, sizeof *hit);
  struct builder *builder = bench_builder(&bench->mem, &bench->log, bench->folder, CUBIN_BYTES, 0);
  bench_request_make(&made, 1);
  bool good = floor && hit && builder && builder_get(builder, &made.request, &artifact, NULL) == KJIT_OK;
  if (good) {
    artifact_entry_name(artifact, &name);
    snprintf(path, sizeof path, "%s/%s", bench->folder, name.path);
  }
  for (size_t i = 0; good && i < bench->rounds; i++) {
    const double start = statistics_now();
    good = read_plainly(path);
    const double middle = statistics_now();
    good = good && read_through_cache(builder, &made.request);
    hit[i] = (statistics_now() - middle) * 1e6;
    floor[i] = (middle - start) * 1e6;
  }
  const struct statistics floors = statistics_of(floor, bench->rounds), hits = statistics_of(hit, bench->rounds);
  output_statistics(&bench->output, "disk_hit_floor_50KB", "us", &floors);
  output_statistics(&bench->output, "disk_hit_50KB", "us", &hits);
  output_number(&bench->output, "disk_hit_over_floor", "us", hits.median - floors.median);
  kjit_artifact_release(artifact);
  builder_destroy(builder);
  free(floor);
  free(hit);
  return good ? 0 : output_failure(&bench->output, "disk hit failed");
}

struct hitter {
  struct builder *builder;
  pthread_barrier_t *barrier;
  double seconds;
  bool good;
};

static void *hit_memory(void *user) {
  struct hitter *hitter = user;
  struct bench_request made;
  hitter->good = true;
  bench_request_make(&made, 1);
  made.request.flags = KJIT_BUILD_RESIDENT_ONLY;
  pthread_barrier_wait(hitter->barrier);
  const double start = statistics_now();
  for (int i = 0; i < HITS; i++) {
    kjit_artifact *artifact = NULL;
    hitter->good = hitter->good && builder_get(hitter->builder, &made.request, &artifact, NULL) == KJIT_OK;
    kjit_artifact_release(artifact);
  }
  hitter->seconds = statistics_now() - start;
  return NULL;
}

static bool run_hitters(struct bench *bench, struct builder *builder, unsigned threads) {
  struct hitter hitters[THREADS_MAX];
  pthread_t ids[THREADS_MAX];
  pthread_barrier_t barrier;
  double us[THREADS_MAX];
  char variant[64];
  bool good = !pthread_barrier_init(&barrier, NULL, threads);
  for (unsigned i = 0; i < threads; i++) {
    hitters[i] = (struct hitter){builder, &barrier, 0, false};
    if (pthread_create(&ids[i], NULL, hit_memory, &hitters[i])) return false;
  }
  for (unsigned i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    good = good && hitters[i].good;
    us[i] = hitters[i].seconds / HITS * 1e6;
  }
  pthread_barrier_destroy(&barrier);
  const struct statistics statistics = statistics_of(us, threads);
  snprintf(variant, sizeof variant, "memory_hit_%u_threads", threads);
  output_statistics(&bench->output, variant, "us", &statistics);
  return good;
}

static int bench_memory_hit(struct bench *bench) {
  struct bench_request made;
  kjit_artifact *artifact = NULL;
  struct builder *builder = bench_builder(&bench->mem, &bench->log, bench->folder, CUBIN_BYTES, 0);
  bench_request_make(&made, 1);
  bool good = builder && builder_get(builder, &made.request, &artifact, NULL) == KJIT_OK;
  for (unsigned threads = 1; good && threads <= THREADS_MAX; threads *= 2)
    good = run_hitters(bench, builder, threads);
  kjit_artifact_release(artifact);
  builder_destroy(builder);
  return good ? 0 : output_failure(&bench->output, "memory hit failed");
}

static bool time_starts(struct bench *bench, const char *variant) {
  const size_t count = bench->rounds;
  double *us = calloc(count, sizeof *us);
  bool good = us != NULL;
  for (size_t i = 0; good && i < count; i++) {
    const double start = statistics_now();
    struct builder *builder = bench_builder(&bench->mem, &bench->log, bench->folder, CUBIN_BYTES, 0);
    us[i] = (statistics_now() - start) * 1e6;
    good = builder != NULL;
    builder_destroy(builder);
  }
  const struct statistics statistics = statistics_of(us, count);
  output_statistics(&bench->output, variant, "us", &statistics);
  free(us);
  return good;
}

static int bench_start(struct bench *bench) {
  const bool good = time_starts(bench, "start_empty") && bench_plant(bench->folder, 0, START_ENTRIES, 1000) &&
                    time_starts(bench, "start_10000_entries");
  return good ? 0 : output_failure(&bench->output, "start failed");
}

/* Of this process: other work on the machine does not blur it. */
static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Time publishes of one image under new names, in a folder that holds `max_entries` or has room. */
static bool time_publishes(struct bench *bench, const char *variant, struct builder *builder, long first,
                           const struct entry_image *image) {
  double *us = calloc(PUBLISHES, sizeof *us), sum = 0;
  bool good = us != NULL;
  const double cpu_start = cpu_seconds();
  for (long i = 0; good && i < PUBLISHES; i++) {
    struct digest digest;
    struct entry_name name;
    const long number = first + i;
    digest_of(&digest, &number, sizeof number);
    entry_name_make(&name, &digest, &digest);
    const double start = statistics_now();
    good = cache_publish(&builder->user, &name, image->data, image->bytes) == 0;
    us[i] = (statistics_now() - start) * 1e6;
    sum += us[i];
  }
  const struct statistics statistics = statistics_of(us, PUBLISHES);
  output_statistics(&bench->output, variant, "us", &statistics);
  output_number(&bench->output, "  mean", "us", sum / PUBLISHES);
  output_number(&bench->output, "  mean of CPU time", "us", (cpu_seconds() - cpu_start) / PUBLISHES * 1e6);
  free(us);
  return good;
}

static bool publish_with_bound(struct bench *bench, const char *variant, uint32_t max_entries, long first) {
  struct bench_request made;
  kjit_artifact *artifact = NULL;
  struct builder *builder = bench_builder(&bench->mem, &bench->log, bench->folder, CUBIN_BYTES, max_entries);
  bench_request_make(&made, 1);
  bool good = builder && builder_get(builder, &made.request, &artifact, NULL) == KJIT_OK;
  good = good && time_publishes(bench, variant, builder, first, artifact_image(artifact));
  if (good)
    output_number(&bench->output, "  evicted", "entries", (double)count_get(&builder->counters, COUNT_evictions));
  kjit_artifact_release(artifact);
  builder_destroy(builder);
  return good;
}

static int bench_publish(struct bench *bench) {
  bool good = bench_plant(bench->folder, START_ENTRIES, FULL_ENTRIES - START_ENTRIES, 1000);
  good = good && publish_with_bound(bench, "publish_100000_entries_with_room", 2 * FULL_ENTRIES, FULL_ENTRIES);
  good = good && publish_with_bound(bench, "publish_100000_entries_full", FULL_ENTRIES + PUBLISHES + 1,
                                    FULL_ENTRIES + PUBLISHES);
  return good ? 0 : output_failure(&bench->output, "publish failed");
}

int main(int argc, char **argv) {
  struct bench bench = {.output = {.benchmark = "cache"}, .rounds = 2000};
  if (!output_read_options(&bench.output, argc, argv, &bench.rounds, 1000000)) return 2;
  mem_init(&bench.mem, NULL);
  if (!bench_folder_create(bench.folder)) return output_failure(&bench.output, "no folder to work in");
  int failed = bench_disk_hit(&bench) || bench_memory_hit(&bench);
  bench_folder_remove(bench.folder);
  failed = failed || !bench_folder_create(bench.folder) || bench_start(&bench) || bench_publish(&bench);
  bench_folder_remove(bench.folder);
  return failed;
}
