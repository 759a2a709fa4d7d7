#include <pthread.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"

static void test_builder__first_ask_builds_second_is_in_memory(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_MEMORY, origin);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_builder__new_builder_reads_from_the_folder(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  assert_int_equal(1, cache_world_count(world, COUNT_user_hits));
}

static void test_builder__other_compiler_misses(void **state) {
  struct cache_world *world = *state;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  world->identity = "nvrtc-fake-2";
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_int_equal(2, atomic_load(&fake_nvrtc.compiles));
}

static void test_builder__without_nvrtc_any_compilers_entry_answers(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  kjit_error error = {0};
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  world->identity = NULL;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, &error), &error);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_status(KJIT_OK, cache_world_get(world, 1, KJIT_BUILD_RESIDENT_ONLY, &origin, &error), &error);
  assert_int_equal(KJIT_ORIGIN_MEMORY, origin);
  assert_status(KJIT_ERR_NO_NVRTC, cache_world_get(world, 2, 0, NULL, &error), &error);
  assert_contains(error.message, "/nonexistent");
}

static void test_builder__resident_only_touches_nothing(void **state) {
  struct cache_world *world = *state;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_ERR_NOT_RESIDENT, cache_world_get(world, 1, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
}

static void test_builder__no_compile_answers_from_the_tiers_alone(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, KJIT_BUILD_NO_COMPILE, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_status(KJIT_OK, cache_world_get(world, 1, KJIT_BUILD_NO_COMPILE, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_MEMORY, origin);
  assert_status(KJIT_ERR_NOT_FOUND, cache_world_get(world, 2, KJIT_BUILD_NO_COMPILE, NULL, NULL), NULL);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_builder__failed_compile_is_remembered_with_its_log(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_error error = {0};
  atomic_store(&fake_nvrtc.reject, 1);
  cache_request_make(&made, 1);
  for (int round = 0; round < 3; round++) {
    kjit_artifact *artifact = NULL;
    kjit_artifact_info info = {.struct_size = sizeof info};
    if (round == 2) assert_status(KJIT_OK, cache_world_open(world, NULL), NULL); /* a new process, so to say */
    error = (kjit_error){0};
    assert_status(KJIT_ERR_COMPILE, builder_get(world->builder, &made.request, &artifact, &error), &error);
    assert_contains(error.message, "rejected by the fake");
    assert_non_null(artifact);
    assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, NULL), NULL);
    assert_int_equal(0, info.cubin_bytes);
    assert_null(info.cubin);
    assert_contains(info.log, "rejected by the fake");
    kjit_artifact_release(artifact);
  }
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static int64_t later_s; /* how far the clocks below are ahead */

static int64_t later_monotonic_ns(void *user) {
  (void)user;
  return file_ops_system()->monotonic_ns(NULL) + later_s * 1000000000;
}

static int64_t later_wall_s(void *user) {
  (void)user;
  return file_ops_system()->wall_s(NULL) + later_s;
}

static void test_builder__failure_expires(void **state) {
  struct cache_world *world = *state;
  struct file_ops ops = *file_ops_system();
  ops.monotonic_ns = later_monotonic_ns;
  ops.wall_s = later_wall_s;
  world->parts.ops = &ops;
  later_s = 0;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  atomic_store(&fake_nvrtc.reject, 1);
  assert_status(KJIT_ERR_COMPILE, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  atomic_store(&fake_nvrtc.reject, 0);
  later_s = BUILDER_FAILURE_S / 2;
  assert_status(KJIT_ERR_COMPILE, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  later_s = BUILDER_FAILURE_S + 1;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  builder_destroy(world->builder); /* while its table of calls is here */
  world->builder = NULL;
}

static void test_builder__deadline_stops_the_compile(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  kjit_error error = {0};
  atomic_store(&fake_nvrtc.compile_ms, 5000);
  cache_request_make(&made, 1);
  made.request.timeout_ms = 50;
  assert_status(KJIT_ERR_TIMEOUT, builder_get(world->builder, &made.request, &artifact, &error), &error);
  assert_null(artifact);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
}

static int count_down(void *user) {
  int *left = user;
  return --*left <= 0;
}

static void test_builder__caller_can_cancel_the_compile(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  kjit_error error = {0};
  int left = 20;
  atomic_store(&fake_nvrtc.compile_ms, 5000);
  cache_request_make(&made, 1);
  made.request.stop = count_down;
  made.request.stop_user = &left;
  assert_status(KJIT_ERR_CANCELLED, builder_get(world->builder, &made.request, &artifact, &error), &error);
  assert_null(artifact);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
}

static void test_builder__refused_artifact_is_built_again(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  char path[TEMP_PATH_BYTES];
  cache_request_make(&made, 1);
  assert_status(KJIT_OK, builder_get(world->builder, &made.request, &artifact, NULL), NULL);
  cache_world_path(world, 1, path);
  assert_int_equal(0, access(path, F_OK));
  builder_forget(world->builder, artifact);
  assert_int_equal(-1, access(path, F_OK));
  kjit_artifact_release(artifact);
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
  assert_int_equal(2, atomic_load(&fake_nvrtc.compiles));
  assert_int_equal(1, cache_world_count(world, COUNT_rebuilt_entries));
}

static void test_builder__site_folder_is_read_and_never_written(void **state) {
  struct cache_world *world = *state;
  char site[TEMP_PATH_BYTES];
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  temp_folder_path(&world->folder, "site", site);
  assert_int_equal(0, rename(world->cache_dir, site));
  world->options.site_dir = site;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_SITE, origin);
  assert_int_equal(1, cache_world_count(world, COUNT_site_hits));
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_builder__mode_off_touches_no_file(void **state) {
  struct cache_world *world = *state;
  world->options.cache_mode = KJIT_CACHE_OFF;
  rmdir(world->cache_dir);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_int_equal(-1, access(world->cache_dir, F_OK));
  assert_int_equal(0, cache_world_count(world, COUNT_cache_errors));
}

static void test_builder__mode_ro_reads_and_never_writes(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES];
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  world->options.cache_mode = KJIT_CACHE_RO;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, NULL, NULL), NULL);
  cache_world_path(world, 2, path);
  assert_int_equal(-1, access(path, F_OK));
}

struct asker {
  struct cache_world *world;
  int (*stop)(void *user); /* NULL: it is never asked whether it cancels */
  void *stop_user;
  kjit_status status;
};

static void *ask(void *user) {
  struct asker *asker = user;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  cache_request_make(&made, 1);
  made.request.stop = asker->stop;
  made.request.stop_user = asker->stop_user;
  asker->status = builder_get(asker->world->builder, &made.request, &artifact, NULL);
  kjit_artifact_release(artifact);
  return NULL;
}

static void test_builder__sixteen_threads_build_once(void **state) {
  struct cache_world *world = *state;
  struct asker askers[16];
  pthread_t threads[16];
  atomic_store(&fake_nvrtc.compile_ms, 100);
  for (int i = 0; i < 16; i++) {
    askers[i] = (struct asker){.world = world, .status = KJIT_ERR_INTERNAL};
    assert_int_equal(0, pthread_create(&threads[i], NULL, ask, &askers[i]));
  }
  for (int i = 0; i < 16; i++) {
    pthread_join(threads[i], NULL);
    assert_status(KJIT_OK, askers[i].status, NULL);
  }
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  assert_int_equal(1, cache_world_count(world, COUNT_builds));
}

/* A follower is asked whether it cancels only while it waits for the leader. */
static int go_on_and_tell(void *user) {
  atomic_bool *follows = user;
  atomic_store(follows, true);
  return 0;
}

static int cancel_once_followed(void *user) {
  const atomic_bool *follows = user;
  return atomic_load(follows);
}

static void test_builder__follower_gets_the_kernel_of_a_cancelled_leader(void **state) {
  struct cache_world *world = *state;
  atomic_bool follows = false;
  struct asker leader = {world, cancel_once_followed, &follows, KJIT_ERR_INTERNAL};
  struct asker follower = {world, go_on_and_tell, &follows, KJIT_ERR_INTERNAL};
  pthread_t threads[2];
  atomic_store(&fake_nvrtc.compile_ms, 60000); /* until the leader has given up */
  assert_int_equal(0, pthread_create(&threads[0], NULL, ask, &leader));
  while (!atomic_load(&fake_nvrtc.compiles))
    sched_yield();
  assert_int_equal(0, pthread_create(&threads[1], NULL, ask, &follower));
  pthread_join(threads[0], NULL);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  pthread_join(threads[1], NULL);
  assert_status(KJIT_ERR_CANCELLED, leader.status, NULL);
  assert_status(KJIT_OK, follower.status, NULL);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_builder__follower_can_cancel_while_the_leader_goes_on(void **state) {
  struct cache_world *world = *state;
  int left = 3;
  struct asker leader = {.world = world, .status = KJIT_ERR_INTERNAL};
  struct asker follower = {world, count_down, &left, KJIT_ERR_INTERNAL};
  pthread_t thread;
  atomic_store(&fake_nvrtc.compile_ms, 60000);
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &leader));
  while (!atomic_load(&fake_nvrtc.compiles))
    sched_yield();
  ask(&follower);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  pthread_join(thread, NULL);
  assert_status(KJIT_ERR_CANCELLED, follower.status, NULL);
  assert_status(KJIT_OK, leader.status, NULL);
}

static void test_builder__hit_does_not_wait_for_another_keys_compile(void **state) {
  struct cache_world *world = *state;
  pthread_t thread;
  struct asker asker = {.world = world, .status = KJIT_ERR_INTERNAL};
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, NULL, NULL), NULL);
  atomic_store(&fake_nvrtc.compile_ms, 60000);
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &asker));
  while (atomic_load(&fake_nvrtc.compiles) < 2)
    sched_yield();
  const kjit_status status = cache_world_get(world, 2, 0, NULL, NULL);
  const uint64_t builds = cache_world_count(world, COUNT_builds);
  atomic_store(&fake_nvrtc.compile_ms, 0);
  pthread_join(thread, NULL);
  assert_status(KJIT_OK, status, NULL);
  assert_int_equal(1, builds); /* the other one was still at it */
  assert_status(KJIT_OK, asker.status, NULL);
}

static void test_builder__waits_for_a_compile_that_was_cancelled(void **state) {
  struct cache_world *world = *state;
  pthread_t thread;
  struct asker asker = {.world = world, .status = KJIT_ERR_INTERNAL};
  assert_true(builder_wait_compiles(world->builder, 0));
  atomic_store(&fake_nvrtc.compile_ms, 60000);
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &asker));
  while (!atomic_load(&fake_nvrtc.compiles))
    sched_yield();
  assert_false(builder_wait_compiles(world->builder, 1));
  builder_cancel(world->builder);
  assert_true(builder_wait_compiles(world->builder, 60000));
  pthread_join(thread, NULL);
  assert_status(KJIT_ERR_CANCELLED, asker.status, NULL);
  assert_true(builder_wait_compiles(world->builder, 0));
}

static void test_builder__statistics_outlive_the_builder(void **state) {
  struct cache_world *world = *state;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
  assert_int_equal(1, stats.entries);
  assert_int_equal(1, stats.builds);
  assert_int_equal(1, stats.hits);
  assert_int_equal(1, stats.published);
  assert_true(stats.bytes > FAKE_CUBIN_LEAST_BYTES);
}

#define BUILDER_TEST(test) cmocka_unit_test_setup_teardown(test, cache_world_setup, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      BUILDER_TEST(test_builder__first_ask_builds_second_is_in_memory),
      BUILDER_TEST(test_builder__new_builder_reads_from_the_folder),
      BUILDER_TEST(test_builder__other_compiler_misses),
      BUILDER_TEST(test_builder__without_nvrtc_any_compilers_entry_answers),
      BUILDER_TEST(test_builder__resident_only_touches_nothing),
      BUILDER_TEST(test_builder__no_compile_answers_from_the_tiers_alone),
      BUILDER_TEST(test_builder__failed_compile_is_remembered_with_its_log),
      BUILDER_TEST(test_builder__failure_expires),
      BUILDER_TEST(test_builder__deadline_stops_the_compile),
      BUILDER_TEST(test_builder__caller_can_cancel_the_compile),
      BUILDER_TEST(test_builder__refused_artifact_is_built_again),
      BUILDER_TEST(test_builder__site_folder_is_read_and_never_written),
      BUILDER_TEST(test_builder__mode_off_touches_no_file),
      BUILDER_TEST(test_builder__mode_ro_reads_and_never_writes),
      BUILDER_TEST(test_builder__sixteen_threads_build_once),
      BUILDER_TEST(test_builder__follower_gets_the_kernel_of_a_cancelled_leader),
      BUILDER_TEST(test_builder__follower_can_cancel_while_the_leader_goes_on),
      BUILDER_TEST(test_builder__hit_does_not_wait_for_another_keys_compile),
      BUILDER_TEST(test_builder__waits_for_a_compile_that_was_cancelled),
      BUILDER_TEST(test_builder__statistics_outlive_the_builder),
  };
  return cmocka_run_group_tests_name("builder", tests, NULL, NULL);
}
