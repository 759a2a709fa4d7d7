/* Many processes and one folder: one build per key, whatever happens to the builder. KJIT_TEST_ROUNDS sets the number
 * of rounds of kills (1,000 for the long run). */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>

#include "jit/admin/cache_admin.h"
#include "support/processes.h"

static int ask_for(struct cache_world *world, long number) {
  return cache_world_get(world, number, 0, NULL, NULL) == KJIT_OK ? 0 : 1;
}

static void *ask_for_seven(void *user) {
  return cache_world_get(user, 7, 0, NULL, NULL) == KJIT_OK ? NULL : user;
}

static int ask_with_four_threads(struct cache_world *world, long argument) {
  pthread_t threads[4];
  int failures = 0;
  (void)argument;
  for (int i = 0; i < 4; i++)
    if (pthread_create(&threads[i], NULL, ask_for_seven, world)) return 2;
  for (int i = 0; i < 4; i++) {
    void *failed = NULL;
    pthread_join(threads[i], &failed);
    failures += failed != NULL;
  }
  return failures;
}

static void test_process__stampede_on_one_key_builds_once(void **state) {
  struct cache_world *world = *state;
  struct processes processes = {.count = 0};
  atomic_store(&fake_nvrtc.compile_ms, 300);
  for (int i = 0; i < 64; i++)
    assert_true(processes_start(&processes, world, ask_with_four_threads, 0) > 0);
  assert_int_equal(0, processes_wait_all(&processes, 0));
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static int ask_for_a_hundred(struct cache_world *world, long seed) {
  for (long i = 0; i < 100; i++)
    if (ask_for(world, (i * 37 + seed * 11) % 100)) return 1;
  return 0;
}

static void test_process__stampede_on_a_hundred_keys_builds_a_hundred(void **state) {
  struct cache_world *world = *state;
  struct processes processes = {.count = 0};
  atomic_store(&fake_nvrtc.compile_ms, 3);
  for (long i = 0; i < 64; i++)
    assert_true(processes_start(&processes, world, ask_for_a_hundred, i) > 0);
  assert_int_equal(0, processes_wait_all(&processes, 0));
  assert_int_equal(100, atomic_load(&fake_nvrtc.compiles));
}

/* Longer than a test may last: who waits for so long is ended by the test's own bound. */
#define FOREVER_NS ((int64_t)3600 * 1000000000)

/* A process that holds the lock of key 7, deep in its compile. */
static pid_t start_holder(struct cache_world *world) {
  atomic_store(&fake_nvrtc.compile_ms, 3600000);
  const pid_t holder = processes_start(NULL, world, ask_for, 7);
  while (!atomic_load(&fake_nvrtc.compiles))
    processes_sleep_ms(1);
  return holder;
}

static void test_process__stopped_holder_delays_others_by_the_bound(void **state) {
  struct cache_world *world = *state;
  struct processes processes = {.count = 0};
  const pid_t holder = start_holder(world);
  assert_int_equal(0, kill(holder, SIGSTOP));
  assert_int_equal(holder, waitpid(holder, NULL, WUNTRACED));
  atomic_store(&fake_nvrtc.compile_ms, 0);
  world->parts.wait_bound_ns = 400000000;
  const double start_ms = processes_now_ms();
  for (int i = 0; i < 4; i++)
    assert_true(processes_start(&processes, world, ask_for, 7) > 0);
  const int result = processes_wait_all(&processes, 0); /* not before the bound, and while the holder still holds */
  const double took_ms = processes_now_ms() - start_ms;
  kill(holder, SIGKILL);
  processes_wait(holder);
  assert_int_equal(0, result);
  assert_true(took_ms >= 300);
}

static void test_process__killed_holders_lock_is_free_at_once(void **state) {
  struct cache_world *world = *state;
  const pid_t holder = start_holder(world);
  kill(holder, SIGKILL);
  assert_int_equal(128 + SIGKILL, processes_wait(holder));
  atomic_store(&fake_nvrtc.compile_ms, 0);
  world->parts.wait_bound_ns = FOREVER_NS;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_int_equal(0, ask_for(world, 7));
}

static void test_process__waiter_with_a_deadline_times_out(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  const pid_t holder = start_holder(world);
  cache_request_make(&made, 7);
  made.request.timeout_ms = 50;
  const kjit_status status = builder_get(world->builder, &made.request, &artifact, NULL);
  kill(holder, SIGKILL);
  processes_wait(holder);
  assert_status(KJIT_ERR_TIMEOUT, status, NULL);
}

enum { STAGE_FORKED = 1, STAGE_OVER };

/* Forks a child of its own while it holds the lock; then waits to be killed. */
static int hold_and_fork(struct cache_world *world, long argument) {
  pthread_t thread;
  (void)argument;
  if (pthread_create(&thread, NULL, ask_for_seven, world)) return 2;
  while (!atomic_load(&fake_nvrtc.compiles))
    processes_sleep_ms(1);
  if (!fork()) {
    while (atomic_load(&fake_nvrtc.stage) != STAGE_OVER)
      processes_sleep_ms(1);
    _exit(0);
  }
  atomic_store(&fake_nvrtc.stage, STAGE_FORKED);
  pthread_join(thread, NULL);
  return 0;
}

static void test_process__forked_child_does_not_keep_its_parents_lock(void **state) {
  struct cache_world *world = *state;
  atomic_store(&fake_nvrtc.compile_ms, 3600000);
  const pid_t holder = processes_start(NULL, world, hold_and_fork, 0);
  while (atomic_load(&fake_nvrtc.stage) != STAGE_FORKED)
    processes_sleep_ms(1);
  kill(holder, SIGKILL);
  processes_wait(holder);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  world->parts.wait_bound_ns = FOREVER_NS;
  const kjit_status opened = cache_world_open(world, NULL);
  const int result = opened == KJIT_OK ? ask_for(world, 7) : 99;
  atomic_store(&fake_nvrtc.stage, STAGE_OVER);
  assert_int_equal(0, result);
}

/* In a child of a process that has a builder with a thread in the middle of a compile. */
static int use_parents_builder(struct cache_world *world) {
  if (cache_world_get(world, 1, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL) != KJIT_OK) return 1;
  if (cache_world_get(world, 7, 0, NULL, NULL) != KJIT_OK) return 2; /* the parent's thread has it in hand */
  if (cache_world_get(world, 8, 0, NULL, NULL) != KJIT_OK) return 3;
  builder_destroy(world->builder);
  world->builder = NULL;
  return 0;
}

static void test_process__forked_child_uses_its_parents_builder(void **state) {
  struct cache_world *world = *state;
  pthread_t thread;
  assert_int_equal(0, ask_for(world, 1));
  atomic_store(&fake_nvrtc.compile_ms, 300);
  assert_int_equal(0, pthread_create(&thread, NULL, ask_for_seven, world));
  while (atomic_load(&fake_nvrtc.compiles) < 2)
    processes_sleep_ms(1);
  const pid_t child = fork();
  if (!child) _exit(use_parents_builder(world));
  assert_int_equal(0, processes_wait(child));
  pthread_join(thread, NULL);
  assert_int_equal(3, atomic_load(&fake_nvrtc.compiles));
  /* What the child counted it wrote once, and the parent's counts are the parent's. */
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
  assert_int_equal(3, stats.builds);
}

/* Files of at least so many bytes in a folder of the cache. */
static size_t count_files(const struct cache_world *world, const char *folder, off_t least) {
  char path[TEMP_PATH_BYTES];
  size_t count = 0;
  struct stat status;
  temp_folder_path(&world->folder, folder, path);
  DIR *list = opendir(path);
  if (!list) return 0;
  for (const struct dirent *found; (found = readdir(list));)
    count += !fstatat(dirfd(list), found->d_name, &status, AT_SYMLINK_NOFOLLOW) && S_ISREG(status.st_mode) &&
             status.st_size >= least;
  closedir(list);
  return count;
}

#define WARM_KEYS 24

static int warm(struct cache_world *world, long seed) {
  for (long i = 0; i < WARM_KEYS; i++)
    if (ask_for(world, (i * 7 + seed * 5) % WARM_KEYS)) return 1;
  return 0;
}

static long rounds(long by_default) {
  const char *text = getenv("KJIT_TEST_ROUNDS");
  const long asked = text ? strtol(text, NULL, 10) : 0;
  return asked > 0 ? asked : by_default;
}

/* Killed processes leave sound entries or none. */
static void kill_one_round(struct cache_world *world, long round) {
  struct processes processes = {.count = 0};
  kjit_cache_report report = {.struct_size = sizeof report};
  for (long i = 0; i < 4; i++)
    assert_true(processes_start(&processes, world, warm, round + i) > 0);
  processes_sleep_ms((round * 7919) % 23);
  processes_kill_all(&processes);
  assert_int_equal(0, processes_wait_all(&processes, 128 + SIGKILL));
  assert_status(KJIT_OK, builder_cache_verify(world->builder, 0, &report, NULL), NULL);
  assert_int_equal(0, report.damaged);
  if (round % 4 == 3) assert_status(KJIT_OK, builder_cache_clear(world->builder, &report, NULL), NULL);
}

static void test_process__kills_at_random_moments_leave_a_sound_folder(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report = {.struct_size = sizeof report};
  const long count = rounds(40);
  atomic_store(&fake_nvrtc.cubin_bytes, 60000);
  atomic_store(&fake_nvrtc.compile_ms, 1);
  for (long round = 0; round < count; round++)
    kill_one_round(world, round);
  world->parts.wait_bound_ns = FOREVER_NS; /* no lock stayed */
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_int_equal(0, warm(world, 0));
  assert_int_equal(0, cache_world_count(world, COUNT_rebuilt_entries));
  assert_status(KJIT_OK, builder_cache_prune(world->builder, UINT64_MAX, &report, NULL), NULL);
  assert_int_equal(WARM_KEYS, report.entries);
  /* One killed between making a file and locking it leaves it empty, and for a minute. */
  assert_int_equal(0, count_files(world, "cache/tmp", 1));
  assert_int_equal(0, count_files(world, "cache/building", 0));
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
  assert_int_equal(WARM_KEYS, stats.entries);
}

/* Others clear, prune and verify, list, export and import while four fill: everybody gets what he asked for. */
static int maintain(struct cache_world *world, long argument) {
  kjit_cache_report report = {.struct_size = sizeof report};
  for (int i = 0; i < 60; i++) {
    if (builder_cache_verify(world->builder, KJIT_CACHE_REPAIR, &report, NULL) != KJIT_OK || report.damaged) return 1;
    if (builder_cache_prune(world->builder, (uint64_t)argument, &report, NULL) != KJIT_OK) return 2;
    if (i % 10 == 9 && builder_cache_clear(world->builder, &report, NULL) != KJIT_OK) return 3;
  }
  return 0;
}

static int see_sound(void *user, const kjit_cache_entry *entry) {
  *(bool *)user |= entry->status != KJIT_OK;
  return 0;
}

static int see_difference(void *user, const kjit_cache_difference *difference) {
  (void)user;
  return !difference->field[0];
}

/* What only reads, and what publishes many at once. An entry that is gone before it is looked at is no failure. */
static int look_around(struct cache_world *world, long argument) {
  char name[32], path[TEMP_PATH_BYTES], nearest[65];
  struct entry_name entry;
  snprintf(name, sizeof name, "export-%ld", argument);
  temp_folder_path(&world->folder, name, path);
  for (long i = 0; i < 60; i++) {
    kjit_cache_stats stats = {.struct_size = sizeof stats};
    kjit_cache_report report = {.struct_size = sizeof report};
    bool damaged = false;
    if (builder_cache_list(world->builder, see_sound, &damaged, NULL) != KJIT_OK || damaged) return 11;
    if (builder_cache_get_stats(world->builder, &stats, NULL) != KJIT_OK) return 12;
    cache_world_name(world, i % WARM_KEYS, &entry);
    kjit_status status = builder_cache_show(world->builder, entry_name_key(&entry), see_sound, &damaged, NULL);
    if ((status != KJIT_OK && status != KJIT_ERR_NOT_FOUND) || damaged) return 15;
    status = builder_cache_why(world->builder, entry_name_key(&entry), nearest, see_difference, NULL, NULL);
    if (status != KJIT_OK && status != KJIT_ERR_NOT_FOUND) return 16;
    if (i % 6) continue; /* an import publishes as much as a writer's whole round */
    if (builder_cache_export(world->builder, path, NULL, &report, NULL) != KJIT_OK || report.damaged) return 13;
    if (builder_cache_import(world->builder, path, &report, NULL) != KJIT_OK || report.damaged) return 14;
  }
  return 0;
}

static int warm_again_and_again(struct cache_world *world, long seed) {
  for (int i = 0; i < 30; i++) {
    if (cache_world_open(world, NULL) != KJIT_OK || warm(world, seed)) return 1;
    if (cache_world_count(world, COUNT_rebuilt_entries) || cache_world_count(world, COUNT_cache_errors)) return 2;
  }
  return 0;
}

static void test_process__maintenance_beside_writers_disturbs_nobody(void **state) {
  struct cache_world *world = *state;
  struct processes processes = {.count = 0};
  for (long i = 0; i < 4; i++)
    assert_true(processes_start(&processes, world, warm_again_and_again, i) > 0);
  for (long i = 0; i < 2; i++)
    assert_true(processes_start(&processes, world, maintain, 5000) > 0);
  for (long i = 0; i < 2; i++)
    assert_true(processes_start(&processes, world, look_around, i) > 0);
  assert_int_equal(0, processes_wait_all(&processes, 0));
}

#define PROCESS_TEST(test) cmocka_unit_test_setup_teardown(test, processes_setup, processes_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      PROCESS_TEST(test_process__stampede_on_one_key_builds_once),
      PROCESS_TEST(test_process__stampede_on_a_hundred_keys_builds_a_hundred),
      PROCESS_TEST(test_process__stopped_holder_delays_others_by_the_bound),
      PROCESS_TEST(test_process__killed_holders_lock_is_free_at_once),
      PROCESS_TEST(test_process__waiter_with_a_deadline_times_out),
      PROCESS_TEST(test_process__forked_child_does_not_keep_its_parents_lock),
      PROCESS_TEST(test_process__forked_child_uses_its_parents_builder),
      PROCESS_TEST(test_process__kills_at_random_moments_leave_a_sound_folder),
      PROCESS_TEST(test_process__maintenance_beside_writers_disturbs_nobody),
  };
  return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
