/* The bounds: bytes and entries, least recently used first, also while eight processes read and write. The order is
 * tested on a file system whose times are whole seconds, which pass when the test says so. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include "jit/admin/cache_admin.h"
#include "jit/cache/cache_usage.h"
#include "jit/cache/cache_walk.h"
#include "support/processes.h"

static bool is_there(const struct cache_world *world, long number) {
  char path[TEMP_PATH_BYTES];
  cache_world_path(world, number, path);
  return access(path, F_OK) == 0;
}

static struct file_ops coarse;
static time_t coarse_s;

static int coarse_touch(void *user, int file) {
  const struct timespec times[2] = {{0, UTIME_OMIT}, {coarse_s, 0}};
  (void)user;
  return futimens(file, times) ? -errno : 0;
}

static int coarse_stat(void *user, int file, struct stat *status) {
  (void)user;
  const int done = file_ops_system()->stat(NULL, file, status);
  status->st_mtim.tv_nsec = 0;
  return done;
}

static int coarse_stat_at(void *user, int folder, const char *name, struct stat *status) {
  (void)user;
  const int done = file_ops_system()->stat_at(NULL, folder, name, status);
  status->st_mtim.tv_nsec = 0;
  return done;
}

/* As a process of its own would: nothing is in memory. */
static void use_at_once(struct cache_world *world, long number) {
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, number, 0, NULL, NULL), NULL);
}

static void use(struct cache_world *world, long number) {
  coarse_s++;
  use_at_once(world, number);
}

static void test_evict__entries_beyond_the_bound_push_the_oldest_out(void **state) {
  struct cache_world *world = *state;
  world->options.cache_max_entries = 5;
  for (long number = 1; number <= 8; number++)
    use(world, number);
  for (long number = 1; number <= 8; number++)
    assert_int_equal(number > 3, is_there(world, number));
}

static void test_evict__used_entry_outlives_newer_ones(void **state) {
  struct cache_world *world = *state;
  world->options.cache_max_entries = 5;
  for (long number = 1; number <= 5; number++)
    use(world, number);
  use(world, 1);
  for (long number = 6; number <= 9; number++)
    use(world, number);
  assert_true(is_there(world, 1));
  assert_false(is_there(world, 2));
}

static void test_evict__entries_of_one_second_meet_the_bound_after_older_ones(void **state) {
  struct cache_world *world = *state;
  int left = 0;
  world->options.cache_max_entries = 5;
  use(world, 1);
  coarse_s++;
  for (long number = 2; number <= 9; number++) {
    use_at_once(world, number);
    assert_true(is_there(world, number));
    assert_int_equal(number <= 5, is_there(world, 1));
  }
  for (long number = 1; number <= 9; number++)
    left += is_there(world, number);
  assert_int_equal(5, left);
}

/* By the system's calls and clock: uses that follow each other within one tick of the kernel. */
static void test_evict__uses_of_one_tick_are_in_order(void **state) {
  struct cache_world *world = *state;
  struct stat status;
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1000000, 123456789}};
  assert_int_equal(0, utimensat(AT_FDCWD, world->cache_dir, times, 0));
  assert_int_equal(0, stat(world->cache_dir, &status));
  if (status.st_mtim.tv_nsec != times[1].tv_nsec) skip(); /* this file system has no such times */
  world->parts.ops = NULL;
  world->options.cache_max_entries = 5;
  for (long number = 1; number <= 40; number++)
    use_at_once(world, number);
  for (long number = 1; number <= 40; number++)
    assert_int_equal(number > 35, is_there(world, number));
}

static void test_evict__bytes_beyond_the_bound_push_the_oldest_out(void **state) {
  struct cache_world *world = *state;
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  atomic_store(&fake_nvrtc.cubin_bytes, 10000);
  world->options.cache_max_bytes = 35000;
  for (long number = 1; number <= 6; number++) {
    use(world, number);
    assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
    assert_true(stats.bytes <= 35000);
  }
  assert_int_equal(3, stats.entries);
  assert_true(is_there(world, 6));
  assert_false(is_there(world, 3));
  assert_int_equal(3, stats.evictions);
}

static void test_evict__entry_larger_than_the_bound_is_not_kept(void **state) {
  struct cache_world *world = *state;
  atomic_store(&fake_nvrtc.cubin_bytes, 10000);
  use(world, 1);
  world->options.cache_max_bytes = 9000;
  use(world, 2);
  assert_false(is_there(world, 2));
  assert_int_equal(1, cache_world_count(world, COUNT_cache_errors));
}

static void test_evict__replacing_an_entry_counts_it_once(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  for (int i = 0; i < 3; i++) {
    cache_request_make(&made, 1);
    assert_status(KJIT_OK, builder_get(world->builder, &made.request, &artifact, NULL), NULL);
    if (i < 2) builder_forget(world->builder, artifact);
    kjit_artifact_release(artifact);
  }
  kjit_cache_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, builder_cache_prune(world->builder, UINT64_MAX, &report, NULL), NULL);
  assert_int_equal(1, report.entries);
  assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
  assert_int_equal(1, stats.entries);
  assert_int_equal(report.bytes, stats.bytes);
}

static void test_evict__prune_keeps_the_most_recently_used(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report = {.struct_size = sizeof report};
  atomic_store(&fake_nvrtc.cubin_bytes, 10000);
  for (long number = 1; number <= 10; number++)
    use(world, number);
  use(world, 2);
  assert_status(KJIT_OK, builder_cache_prune(world->builder, 35000, &report, NULL), NULL);
  assert_int_equal(10, report.entries);
  assert_int_equal(7, report.removed);
  assert_true(is_there(world, 2) && is_there(world, 9) && is_there(world, 10));
}

static void planted_path(const struct cache_world *world, long number, char path[TEMP_PATH_BYTES]) {
  struct digest digest;
  struct entry_name name;
  char inside[TEMP_PATH_BYTES];
  digest_of(&digest, &number, sizeof number);
  entry_name_make(&name, &digest, &digest);
  snprintf(inside, sizeof inside, "cache/%s", name.path);
  temp_folder_path(&world->folder, inside, path);
}

/* A file where an entry would be, last used `number` seconds after some moment. */
static void plant(const struct cache_world *world, long number) {
  char path[TEMP_PATH_BYTES];
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1000000 + number, 0}};
  planted_path(world, number, path);
  assert_int_equal(0, temp_folder_write_text(&world->folder, path + strlen(world->folder.path) + 1, "entry"));
  assert_int_equal(0, utimensat(AT_FDCWD, path, times, 0));
}

/* Of a cache too large to look at whole, evictions take old entries: the youngest half stays. */
static void test_evict__sampled_eviction_takes_old_entries(void **state) {
  struct cache_world *world = *state;
  struct disk_cache *cache = &world->builder->user;
  struct cache_usage usage;
  char path[TEMP_PATH_BYTES];
  const long count = 6000;
  for (long number = 0; number < count; number++)
    plant(world, number);
  assert_int_equal(0, cache_usage_open(&usage, cache));
  assert_int_equal(count, cache_totals_sum(&usage.block.totals).entries);
  const struct evict_goal goal = {UINT64_MAX, 5500, EVICT_SAMPLE};
  assert_int_equal(0, cache_evict(cache, &usage.block.totals, &goal, NULL));
  assert_true(cache_totals_sum(&usage.block.totals).entries <= 5500);
  cache_usage_close(&usage);
  for (long number = count / 2; number < count; number++) {
    planted_path(world, number, path);
    assert_int_equal(0, access(path, F_OK));
  }
}

#define LOAD_KEYS  180
#define LOAD_BOUND 60
#define LOAD_HOT   10
#define LOAD_ASKS  250

/* Three quarters of all asks are for ten hot keys, the rest for any: three times what the folder may hold. */
static int load(struct cache_world *world, long seed) {
  uint64_t random = (uint64_t)seed * 0x9e3779b97f4a7c15u + 1;
  for (int i = 0; i < LOAD_ASKS; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const long any = (long)((random >> 33) % LOAD_KEYS), number = (random >> 60) < 12 ? any % LOAD_HOT : any;
    if (cache_world_open(world, NULL) != KJIT_OK) return 1;
    if (cache_world_get(world, number, 0, NULL, NULL) != KJIT_OK) return 2;
    if (cache_world_count(world, COUNT_rebuilt_entries)) return 3;
  }
  return 0;
}

static int add_up(void *user, int folder, const struct entry_name *name) {
  struct cache_amount *sum = user;
  struct stat status;
  if (fstatat(folder, name->file, &status, AT_SYMLINK_NOFOLLOW)) return 0;
  sum->bytes += (uint64_t)status.st_size;
  sum->entries++;
  return 0;
}

/* What is in the folder while nobody can publish. */
static struct cache_amount measure(struct cache_world *world) {
  struct cache_usage usage;
  struct cache_amount sum = {0, 0};
  assert_int_equal(0, cache_usage_open(&usage, &world->builder->user));
  assert_int_equal(0, cache_walk(&world->builder->user, add_up, &sum));
  cache_usage_close(&usage);
  return sum;
}

static void test_evict__bound_holds_while_eight_processes_read_and_write(void **state) {
  struct cache_world *world = *state;
  struct processes processes = {.count = 0};
  atomic_store(&fake_nvrtc.cubin_bytes, 20000);
  world->options.cache_max_bytes = LOAD_BOUND * (uint64_t)20700;
  world->parts.ops = NULL;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  for (long i = 0; i < 8; i++)
    assert_true(processes_start(&processes, world, load, i) > 0);
  uint64_t largest = 0;
  for (bool over = false; !over; processes_sleep_ms(10)) {
    over = !processes_running(&processes); /* before the last look */
    const struct cache_amount sum = measure(world);
    if (sum.bytes > largest) largest = sum.bytes;
  }
  assert_int_equal(0, processes_wait_all(&processes, 0));
  assert_true(largest <= world->options.cache_max_bytes + world->options.cache_max_bytes / 20);
  assert_true(largest >= world->options.cache_max_bytes / 2);
  int hot = 0;
  for (long number = 0; number < LOAD_HOT; number++)
    hot += is_there(world, number);
  assert_true(hot >= LOAD_HOT - 1);
}

static int setup(void **state) {
  if (processes_setup(state)) return -1;
  struct cache_world *world = *state;
  coarse = *file_ops_system();
  coarse.touch = coarse_touch;
  coarse.stat = coarse_stat;
  coarse.stat_at = coarse_stat_at;
  coarse_s = 1000000;
  world->parts.ops = &coarse;
  world->parts.use_grain_s = -1;
  return cache_world_open(world, NULL) == KJIT_OK ? 0 : -1;
}

#define EVICT_TEST(test) cmocka_unit_test_setup_teardown(test, setup, processes_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      EVICT_TEST(test_evict__entries_beyond_the_bound_push_the_oldest_out),
      EVICT_TEST(test_evict__used_entry_outlives_newer_ones),
      EVICT_TEST(test_evict__entries_of_one_second_meet_the_bound_after_older_ones),
      EVICT_TEST(test_evict__uses_of_one_tick_are_in_order),
      EVICT_TEST(test_evict__bytes_beyond_the_bound_push_the_oldest_out),
      EVICT_TEST(test_evict__entry_larger_than_the_bound_is_not_kept),
      EVICT_TEST(test_evict__replacing_an_entry_counts_it_once),
      EVICT_TEST(test_evict__prune_keeps_the_most_recently_used),
      EVICT_TEST(test_evict__sampled_eviction_takes_old_entries),
      EVICT_TEST(test_evict__bound_holds_while_eight_processes_read_and_write),
  };
  return cmocka_run_group_tests_name("evict", tests, NULL, NULL);
}
