/* What a process keeps in its memory, and what it lets go of. */
#include "support/cache_world.h"

#include <stdbool.h>

/* Open again with these bounds, 0 for the default. */
static void open_with(struct cache_world *world, uint64_t max_entries, uint64_t max_bytes) {
  world->options.memory_max_entries = max_entries;
  world->options.memory_max_bytes = max_bytes;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
}

static void ask(struct cache_world *world, long number) {
  assert_status(KJIT_OK, cache_world_get(world, number, 0, NULL, NULL), NULL);
}

static kjit_artifact *hold(struct cache_world *world, long number) {
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  cache_request_make(&made, number);
  assert_status(KJIT_OK, builder_get(world->builder, &made.request, &artifact, NULL), NULL);
  return artifact;
}

static bool is_resident(struct cache_world *world, long number) {
  return cache_world_get(world, number, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL) == KJIT_OK;
}

static long count_resident(struct cache_world *world, long first, long count) {
  long resident = 0;
  for (long i = first; i < first + count; i++)
    resident += is_resident(world, i);
  return resident;
}

static void test_resident__beyond_its_entries_the_least_used_goes(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  open_with(world, 4, 0);
  for (long i = 1; i <= 4; i++)
    ask(world, i);
  ask(world, 1);
  ask(world, 5);
  assert_false(is_resident(world, 2));
  assert_int_equal(3, count_resident(world, 3, 3));
  assert_true(is_resident(world, 1));
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_int_equal(5, atomic_load(&fake_nvrtc.compiles));
}

static void test_resident__beyond_its_bytes_the_least_used_go(void **state) {
  struct cache_world *world = *state;
  kjit_artifact *artifact = hold(world, 1);
  const uint64_t bytes = artifact_image(artifact)->bytes;
  kjit_artifact_release(artifact);
  open_with(world, 0, 3 * bytes + bytes / 2);
  for (long i = 1; i <= 9; i++)
    ask(world, i);
  assert_int_equal(0, count_resident(world, 1, 6));
  assert_int_equal(3, count_resident(world, 7, 3));
}

static void test_resident__larger_than_the_bound_is_built_and_not_kept(void **state) {
  struct cache_world *world = *state;
  open_with(world, 0, 100);
  ask(world, 1);
  ask(world, 2);
  assert_false(is_resident(world, 1));
}

static void test_resident__held_artifact_stays(void **state) {
  struct cache_world *world = *state;
  open_with(world, 2, 0);
  kjit_artifact *held = hold(world, 1);
  for (long i = 2; i <= 40; i++)
    ask(world, i);
  kjit_artifact *again = hold(world, 1);
  const bool same = artifact_same(held, again);
  kjit_artifact_release(held);
  kjit_artifact_release(again);
  assert_true(same);
}

/* More are held than may be kept, and than one addition looks at; once they are let go of, the bound is met again. */
static void test_resident__bound_is_met_when_nothing_is_held(void **state) {
  struct cache_world *world = *state;
  kjit_artifact *held[200];
  open_with(world, 8, 0);
  for (long i = 0; i < 200; i++)
    held[i] = hold(world, i);
  const long resident = count_resident(world, 0, 200);
  for (long i = 0; i < 200; i++)
    kjit_artifact_release(held[i]);
  ask(world, 200);
  assert_int_equal(200, resident);
  assert_int_equal(8, count_resident(world, 0, 201));
}

static void test_resident__failures_count_as_well(void **state) {
  struct cache_world *world = *state;
  open_with(world, 3, 0);
  ask(world, 1);
  atomic_store(&fake_nvrtc.reject, 1);
  for (long i = 2; i <= 5; i++)
    assert_status(KJIT_ERR_COMPILE, cache_world_get(world, i, 0, NULL, NULL), NULL);
  assert_false(is_resident(world, 1));
}

static void test_resident__no_compile_keeps_within_the_bound(void **state) {
  struct cache_world *world = *state;
  for (long i = 1; i <= 6; i++)
    ask(world, i);
  open_with(world, 2, 0);
  for (long i = 1; i <= 6; i++)
    assert_status(KJIT_OK, cache_world_get(world, i, KJIT_BUILD_NO_COMPILE, NULL, NULL), NULL);
  assert_int_equal(2, count_resident(world, 1, 6));
}

#define RESIDENT_TEST(test) cmocka_unit_test_setup_teardown(test, cache_world_setup_fast, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      RESIDENT_TEST(test_resident__beyond_its_entries_the_least_used_goes),
      RESIDENT_TEST(test_resident__beyond_its_bytes_the_least_used_go),
      RESIDENT_TEST(test_resident__larger_than_the_bound_is_built_and_not_kept),
      RESIDENT_TEST(test_resident__held_artifact_stays),
      RESIDENT_TEST(test_resident__bound_is_met_when_nothing_is_held),
      RESIDENT_TEST(test_resident__failures_count_as_well),
      RESIDENT_TEST(test_resident__no_compile_keeps_within_the_bound),
  };
  return cmocka_run_group_tests_name("resident", tests, NULL, NULL);
}
