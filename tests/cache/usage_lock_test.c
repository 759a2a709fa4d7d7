/* Waiting for the lock on the file "usage" while another holds it, with a clock that only the waiting moves. The other
 * holder is this process by another descriptor, because the lock belongs to the open file. */
#include <errno.h>
#include <fcntl.h>

#include "jit/admin/cache_admin.h"
#include "jit/cache/cache_usage.h"
#include "support/cache_world.h"

#define SECOND_NS ((int64_t)1000000000)

static struct {
  struct file_ops ops;
  int64_t now_ns;
  int file; /* the locked file; -1: it is free */
  uint64_t checksum;
  int64_t move_every_ns, moved_ns, release_at_ns; /* 0: never */
} other;

static int64_t now_ns(void *user) {
  (void)user;
  return other.now_ns;
}

/* Change the stored checksum, as a holder that makes progress does when it writes the block. */
static void change_block(void) {
  const off_t at = (off_t)offsetof(struct usage_block, checksum);
  other.checksum++;
  assert_int_equal(sizeof other.checksum, pwrite(other.file, &other.checksum, sizeof other.checksum, at));
}

static void release_lock(void) {
  if (other.file >= 0) close(other.file);
  other.file = -1;
}

static void pass_time(void *user, int64_t ns) {
  (void)user;
  other.now_ns += ns;
  if (other.file >= 0 && other.move_every_ns && other.now_ns - other.moved_ns >= other.move_every_ns) {
    other.moved_ns = other.now_ns;
    change_block();
  }
  if (other.release_at_ns && other.now_ns >= other.release_at_ns) release_lock();
}

static void hold_lock(const struct cache_world *world) {
  char path[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "cache/usage", path);
  other.file = open(path, O_RDWR | O_CREAT, 0600);
  assert_true(other.file >= 0);
  assert_int_equal(0, file_ops_system()->lock(NULL, other.file, 0, 1));
}

static int setup(void **state) {
  if (cache_world_setup(state)) return -1;
  struct cache_world *world = *state;
  memset(&other, 0, sizeof other);
  other.file = -1;
  other.now_ns = SECOND_NS;
  other.checksum = 1000; /* no checksum that a block has by itself */
  other.ops = *file_ops_system();
  other.ops.monotonic_ns = now_ns;
  other.ops.sleep_ns = pass_time;
  world->parts.ops = &other.ops;
  return cache_world_open(world, NULL) == KJIT_OK ? 0 : -1;
}

static int teardown(void **state) {
  release_lock();
  return cache_world_teardown(state);
}

/* Asks for a number that is not there yet. Seconds waited, rounded to the nearest. */
static int64_t ask(struct cache_world *world, long number) {
  const int64_t start_ns = other.now_ns;
  assert_status(KJIT_OK, cache_world_get(world, number, 0, NULL, NULL), NULL);
  return (other.now_ns - start_ns + SECOND_NS / 2) / SECOND_NS;
}

static void assert_counts(const struct cache_world *world, uint64_t published, uint64_t errors) {
  assert_int_equal(published, cache_world_count(world, COUNT_published));
  assert_int_equal(errors, cache_world_count(world, COUNT_cache_errors));
}

static void test_usage_lock__publish_waits_while_others_are_served(void **state) {
  struct cache_world *world = *state;
  hold_lock(world);
  other.move_every_ns = SECOND_NS;
  other.release_at_ns = other.now_ns + 20 * SECOND_NS;
  assert_int_equal(20, ask(world, 1));
  assert_counts(world, 1, 0);
}

static void test_usage_lock__publish_is_left_out_after_five_seconds_of_standstill(void **state) {
  struct cache_world *world = *state;
  hold_lock(world);
  assert_int_equal(5, ask(world, 1));
  assert_counts(world, 0, 1);
}

static void test_usage_lock__publish_is_left_out_after_thirty_seconds_in_any_case(void **state) {
  struct cache_world *world = *state;
  hold_lock(world);
  other.move_every_ns = SECOND_NS;
  assert_int_equal(30, ask(world, 1));
  assert_counts(world, 0, 1);
}

static void test_usage_lock__standstill_is_waited_for_once(void **state) {
  struct cache_world *world = *state;
  hold_lock(world);
  assert_int_equal(5, ask(world, 1));
  for (long number = 2; number <= 9; number++)
    assert_int_equal(0, ask(world, number));
  assert_counts(world, 0, 9);
  const int64_t start_ns = other.now_ns;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL); /* ends the builder that waited */
  assert_int_equal(start_ns, other.now_ns);
}

static void test_usage_lock__free_again_is_used_at_once(void **state) {
  struct cache_world *world = *state;
  hold_lock(world);
  assert_int_equal(5, ask(world, 1));
  release_lock();
  assert_int_equal(0, ask(world, 2));
  assert_counts(world, 1, 1);
}

static void test_usage_lock__moved_again_is_waited_for_again(void **state) {
  struct cache_world *world = *state;
  hold_lock(world);
  assert_int_equal(5, ask(world, 1));
  change_block();
  other.release_at_ns = other.now_ns + 3 * SECOND_NS;
  assert_int_equal(3, ask(world, 2));
  assert_counts(world, 1, 1);
}

static void test_usage_lock__clear_waits_whatever_was_before(void **state) {
  struct cache_world *world = *state;
  kjit_error error = {0};
  hold_lock(world);
  assert_int_equal(5, ask(world, 1));
  assert_status(KJIT_ERR_IO, builder_cache_clear(world->builder, NULL, &error), &error);
  assert_contains(error.message, "another process holds it");
  assert_int_equal(EBUSY, error.cause);
  other.release_at_ns = other.now_ns + 3 * SECOND_NS;
  assert_status(KJIT_OK, builder_cache_clear(world->builder, NULL, &error), &error);
}

static void test_usage_lock__import_says_who_is_in_the_way(void **state) {
  struct cache_world *world = *state;
  kjit_error error = {0};
  kjit_cache_report report = {.struct_size = sizeof report};
  char path[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "export", path);
  ask(world, 1);
  assert_status(KJIT_OK, builder_cache_export(world->builder, path, NULL, NULL, &error), &error);
  hold_lock(world);
  assert_status(KJIT_ERR_IO, builder_cache_import(world->builder, path, &report, &error), &error);
  assert_contains(error.message, "another process holds it");
  assert_int_equal(EBUSY, error.cause);
  assert_int_equal(0, report.entries);
  other.release_at_ns = other.now_ns + 3 * SECOND_NS;
  assert_status(KJIT_OK, builder_cache_import(world->builder, path, &report, &error), &error);
  assert_int_equal(1, report.entries);
}

#define USAGE_LOCK_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      USAGE_LOCK_TEST(test_usage_lock__publish_waits_while_others_are_served),
      USAGE_LOCK_TEST(test_usage_lock__publish_is_left_out_after_five_seconds_of_standstill),
      USAGE_LOCK_TEST(test_usage_lock__publish_is_left_out_after_thirty_seconds_in_any_case),
      USAGE_LOCK_TEST(test_usage_lock__standstill_is_waited_for_once),
      USAGE_LOCK_TEST(test_usage_lock__free_again_is_used_at_once),
      USAGE_LOCK_TEST(test_usage_lock__moved_again_is_waited_for_again),
      USAGE_LOCK_TEST(test_usage_lock__clear_waits_whatever_was_before),
      USAGE_LOCK_TEST(test_usage_lock__import_says_who_is_in_the_way),
  };
  return cmocka_run_group_tests_name("usage_lock", tests, NULL, NULL);
}
