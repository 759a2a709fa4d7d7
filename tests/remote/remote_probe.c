/* One side of remote_test.py: processes with the fake compiler and folders of their own that share a store.
 *
 *   remote_probe URL get KERNELS                     one machine asks for kernels 1..KERNELS
 *   remote_probe URL stampede PROCESSES COMPILE_MS   each process is a machine, and all ask for kernel 1
 *   remote_probe URL kill ROUNDS                     a writer is killed in each round; a reader then checks everything
 *
 * It prints one JSON object; it ends with 1 when a kernel was wrong. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "support/cache_world.h"

#define KILL_NUMBERS 4
#define KILL_BYTES   300000

static const char *url;
static const char *signing_key, *trusted_key;
static uint32_t end_ms; /* 0: the library's own */

/* A machine with an empty folder. */
static struct cache_world *machine(void) {
  void *state = NULL;
  if (cache_world_setup_fast(&state)) abort();
  struct cache_world *world = state;
  world->options.cache_remote = url;
  world->options.signing_key_path = signing_key;
  world->options.trusted_keys = trusted_key ? &trusted_key : NULL;
  world->options.trusted_key_count = trusted_key != NULL;
  world->options.remote_end_ms = end_ms;
  if (cache_world_open(world, NULL) != KJIT_OK) abort();
  return world;
}

static void print_counts(const struct cache_world *world, double seconds, double end_seconds, const uint64_t *counts,
                         bool right) {
  (void)world;
  printf("{\"right\": %s, \"seconds\": %.6f, \"end_seconds\": %.6f, \"compiles\": %ld", right ? "true" : "false",
         seconds, end_seconds, atomic_load(&fake_nvrtc.compiles));
  int i = 0;
#define PRINT(name) printf(", \"" #name "\": %llu", (unsigned long long)counts[i++]);
  CACHE_COUNTER_MAP(PRINT)
#undef PRINT
  printf("}\n");
}

static double now_s(void) {
  return 1e-9 * (double)file_ops_system()->monotonic_ns(NULL);
}

static int run_get(long kernels) {
  struct cache_world *world = machine();
  struct cache_counters *counters = &world->builder->counters;
  uint64_t counts[CACHE_COUNTERS];
  bool right = true;
  const double start = now_s();
  for (long number = 1; number <= kernels; number++)
    right &= cache_world_get(world, number, 0, NULL, NULL) == KJIT_OK;
  const double end = now_s();
  /* The line of writes is worked off first, so that its counts are there. */
  remote_destroy(world->builder->remote);
  world->builder->remote = NULL;
  const double done = now_s();
  for (int i = 0; i < CACHE_COUNTERS; i++)
    counts[i] = count_get(counters, (enum cache_counter)i);
  print_counts(world, end - start, done - end, counts, right);
  cache_world_teardown((void **)&world);
  return !right;
}

static int wait_for(pid_t process) {
  int status = 0;
  if (waitpid(process, &status, 0) != process) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int run_stampede(long processes, long compile_ms) {
  pid_t *children = calloc((size_t)processes, sizeof *children);
  int wrong = 0;
  atomic_store(&fake_nvrtc.compile_ms, compile_ms);
  const double start = now_s();
  for (long i = 0; i < processes; i++) {
    children[i] = fork();
    if (children[i]) continue;
    struct fake_nvrtc_counts *const shared = fake_nvrtc_state;
    fake_nvrtc_state = &fake_nvrtc_own; /* cache_world_setup() clears it */
    struct cache_world *world = machine();
    fake_nvrtc_state = shared;
    while (!atomic_load(&fake_nvrtc.stage))
      /* 7919 and 12000 share no factor, so that the moments are spread over the whole write. */
      usleep(1000);
    const bool right = cache_world_get(world, 1, 0, NULL, NULL) == KJIT_OK;
    cache_world_teardown((void **)&world);
    _exit(!right);
  }
  atomic_store(&fake_nvrtc.stage, 1);
  for (long i = 0; i < processes; i++)
    wrong += wait_for(children[i]);
  printf("{\"wrong\": %d, \"compiles\": %ld, \"seconds\": %.3f}\n", wrong, atomic_load(&fake_nvrtc.compiles),
         now_s() - start);
  free(children);
  return wrong != 0;
}

/* Each turn is a new machine, since one that has the kernels writes nothing. */
static void write_until_killed(void) {
  for (;;) {
    struct cache_world *world = machine();
    atomic_store(&fake_nvrtc.cubin_bytes, KILL_BYTES);
    for (long number = 1; number <= KILL_NUMBERS; number++)
      if (cache_world_get(world, number, 0, NULL, NULL) != KJIT_OK) _exit(1);
    cache_world_teardown((void **)&world);
  }
}

static int read_all(void) {
  struct cache_world *world = machine();
  uint64_t refused = 0;
  bool right = true;
  atomic_store(&fake_nvrtc.cubin_bytes, KILL_BYTES);
  for (long number = 1; number <= KILL_NUMBERS; number++)
    right &= cache_world_get(world, number, KJIT_BUILD_NO_COMPILE, NULL, NULL) != KJIT_ERR_CORRUPT;
  refused = cache_world_count(world, COUNT_remote_refused);
  cache_world_teardown((void **)&world);
  return right ? (refused ? 2 : 0) : 1;
}

static int run_kill(long rounds) {
  long wrong = 0, refused = 0;
  char write_url[1024]; /* the writer must not find what it wrote before */
  snprintf(write_url, sizeof write_url, "%s|wo", url);
  for (long round = 0; round < rounds; round++) {
    const pid_t writer = fork();
    if (!writer) {
      url = write_url;
      write_until_killed();
    }
    /* 7919 and 12000 share no factor, so that the moments are spread over the whole write. */
    usleep((useconds_t)(1000 + round * 7919 % 12000));
    kill(writer, SIGKILL);
    (void)wait_for(writer);
    const pid_t reader = fork();
    if (!reader) _exit(read_all());
    const int code = wait_for(reader);
    wrong += code == 1;
    refused += code == 2;
  }
  printf("{\"rounds\": %ld, \"wrong\": %ld, \"refused\": %ld}\n", rounds, wrong, refused);
  return wrong != 0;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  url = argv[1];
  signing_key = getenv("PROBE_SIGNING_KEY");
  trusted_key = getenv("PROBE_TRUSTED_KEY");
  const long number = strtol(argv[3], NULL, 10);
  const char *const end = getenv("PROBE_END_MS");
  end_ms = end ? (uint32_t)strtoul(end, NULL, 10) : 0;
  void *const shared = mmap(NULL, sizeof fake_nvrtc_own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  if (!strcmp(argv[2], "get")) return run_get(number);
  if (!strcmp(argv[2], "kill")) return run_kill(number);
  fake_nvrtc_state = shared;
  return argc > 4 ? run_stampede(number, strtol(argv[4], NULL, 10)) : 2;
}
