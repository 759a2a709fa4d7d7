/* Requests whose callers do not wait until the kernel is in the cache: a thread of the builder's publishes it behind
 * the answer, and the builder's end waits for that thread. */
#include <errno.h>

#include "support/cache_world.h"

static atomic_bool may_write;

/* Wait until the test lets the folder be written, or for ten seconds. */
static int sync_when_allowed(void *user, int fd) {
  const struct file_ops *const system = file_ops_system();
  for (int i = 0; i < 10000 && !atomic_load(&may_write); i++)
    system->sleep_ns(system->user, 1000000);
  return atomic_load(&may_write) ? system->sync(user, fd) : -EIO;
}

static void test_publish_later__caller_is_answered_before_the_folder_is_written(void **state) {
  struct cache_world *world = *state;
  struct file_ops ops = *file_ops_system();
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  kjit_error error = {0};
  kjit_origin origin;
  atomic_store(&may_write, 0);
  ops.sync = sync_when_allowed;
  world->parts.ops = &ops;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  cache_request_make(&made, 1);
  made.request.publishes_later = true;
  assert_status(KJIT_OK, builder_get(world->builder, &made.request, &artifact, &error), &error);
  assert_non_null(artifact);
  kjit_artifact_release(artifact);
  assert_int_equal(0, cache_world_count(world, COUNT_published));
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_MEMORY, origin);
  atomic_store(&may_write, 1);
  world->parts.ops = file_ops_system();
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL); /* ends the builder before, which waits for its thread */
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_publish_later__failure_is_told_and_remembered(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  kjit_error error = {0};
  atomic_store(&fake_nvrtc.reject, 1);
  cache_request_make(&made, 1);
  made.request.publishes_later = true;
  assert_status(KJIT_ERR_COMPILE, builder_get(world->builder, &made.request, &artifact, &error), &error);
  assert_contains(error.message, "rejected by the fake");
  kjit_artifact_release(artifact);
  assert_status(KJIT_ERR_COMPILE, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

#define LATER_TEST(test) cmocka_unit_test_setup_teardown(test, cache_world_setup, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      LATER_TEST(test_publish_later__caller_is_answered_before_the_folder_is_written),
      LATER_TEST(test_publish_later__failure_is_told_and_remembered),
  };
  return cmocka_run_group_tests_name("publish_later", tests, NULL, NULL);
}
