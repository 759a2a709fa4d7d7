/* What killed writers leave in "tmp" goes; what a living one has there stays, at whatever moment the sweep comes. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"

/* Somebody else who looks after the same folder, at a chosen moment of the world's own publish. */
static struct {
  struct file_ops world_ops, other_ops;
  struct builder *other;
  bool after_open, before_sync; /* a temporary file is made and not yet locked; written and not yet renamed */
  long times;
  char from[TEMP_PATH_BYTES], to[TEMP_PATH_BYTES]; /* renamed while it is swept */
} beside;

static void maintain(void) {
  kjit_cache_report report = {.struct_size = sizeof report};
  beside.times++;
  assert_status(KJIT_OK, builder_cache_verify(beside.other, KJIT_CACHE_REPAIR, &report, NULL), NULL);
  assert_int_equal(0, report.temporary_files);
  assert_status(KJIT_OK, builder_cache_prune(beside.other, UINT64_MAX, &report, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_clear(beside.other, &report, NULL), NULL);
}

static int open_beside(void *user, int folder, const char *path, int flags, mode_t mode) {
  (void)user;
  const int file = file_ops_system()->open(NULL, folder, path, flags, mode);
  if (file >= 0 && flags & O_EXCL && beside.after_open) maintain();
  return file;
}

static int sync_beside(void *user, int file) {
  (void)user, (void)file;
  if (beside.before_sync) maintain();
  return 0;
}

static int no_lock(void *user, int file, off_t at, off_t bytes) {
  (void)user, (void)file, (void)at, (void)bytes;
  return -ENOLCK;
}

static int lock_after_rename(void *user, int file, off_t at, off_t bytes) {
  (void)user;
  if (rename(beside.from, beside.to)) return -errno;
  return file_ops_system()->lock(NULL, file, at, bytes);
}

static int setup(void **state) {
  memset(&beside, 0, sizeof beside);
  if (cache_world_setup(state)) return -1;
  struct cache_world *world = *state;
  struct builder_parts parts = {.ops = &beside.other_ops};
  beside.world_ops = beside.other_ops = *file_ops_system();
  beside.world_ops.open = open_beside;
  beside.world_ops.sync = sync_beside;
  world->parts.ops = &beside.world_ops;
  if (nvrtc_create_fake(&parts.nvrtc, &world->mem, fake_nvrtc_api(), world->identity, NULL) != KJIT_OK) return -1;
  if (builder_create_parts(&beside.other, &world->options, &world->mem, &world->log, &parts, NULL) != KJIT_OK)
    return -1;
  if (cache_world_open(world, NULL) != KJIT_OK) return -1;
  return cache_world_get(world, 1, 0, NULL, NULL) == KJIT_OK ? 0 : -1; /* the folders are made */
}

static int teardown(void **state) {
  beside.after_open = beside.before_sync = false;
  builder_destroy(beside.other);
  return cache_world_teardown(state);
}

static void assert_publishes(struct cache_world *world) {
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, NULL, NULL), NULL);
  assert_true(beside.times > 0);
  assert_int_equal(2, cache_world_count(world, COUNT_published));
  assert_int_equal(0, cache_world_count(world, COUNT_cache_errors));
}

static void test_sweep__file_that_was_just_made_is_its_writers(void **state) {
  beside.after_open = true;
  assert_publishes(*state);
  assert_int_equal(1, beside.times); /* it was made once */
}

static void test_sweep__file_that_is_being_written_is_its_writers(void **state) {
  beside.before_sync = true;
  assert_publishes(*state);
}

static void test_sweep__young_file_is_its_writers_where_there_are_no_locks(void **state) {
  beside.after_open = beside.before_sync = true;
  beside.world_ops.lock = beside.other_ops.lock = no_lock;
  assert_publishes(*state);
}

static void temp_path(const struct cache_world *world, const char *name, char path[TEMP_PATH_BYTES]) {
  char inside[64];
  snprintf(inside, sizeof inside, "cache/tmp/%s", name);
  temp_folder_path(&world->folder, inside, path);
}

static bool is_there(const struct cache_world *world, const char *name) {
  char path[TEMP_PATH_BYTES];
  temp_path(world, name, path);
  return access(path, F_OK) == 0;
}

static void plant(const struct cache_world *world, const char *name, const char *text, time_t age_s) {
  char path[TEMP_PATH_BYTES];
  const struct timespec times[2] = {{0, UTIME_OMIT}, {time(NULL) - age_s, 0}};
  temp_path(world, name, path);
  assert_int_equal(0, temp_folder_write_text(&world->folder, path + strlen(world->folder.path) + 1, text));
  assert_int_equal(0, utimensat(AT_FDCWD, path, times, 0));
}

static void test_sweep__orphans_go_and_live_files_stay(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES];
  kjit_cache_report report = {.struct_size = sizeof report};
  plant(world, "orphan", "x", 0);
  plant(world, "live", "x", 0);
  plant(world, "made", "", 0);
  plant(world, "abandoned", "", 3600);
  temp_path(world, "live", path);
  const int file = open(path, O_RDWR);
  assert_int_equal(0, file_ops_system()->lock(NULL, file, 0, 1));
  assert_status(KJIT_OK, builder_cache_verify(world->builder, 0, &report, NULL), NULL);
  assert_int_equal(2, report.temporary_files);
  assert_status(KJIT_OK, builder_cache_prune(world->builder, UINT64_MAX, &report, NULL), NULL);
  assert_int_equal(2, report.temporary_files);
  assert_false(is_there(world, "orphan") || is_there(world, "abandoned"));
  assert_true(is_there(world, "live") && is_there(world, "made"));
  close(file);
}

static void test_sweep__file_published_meanwhile_is_no_orphan(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report = {.struct_size = sizeof report};
  plant(world, "done", "x", 0);
  temp_path(world, "done", beside.from);
  temp_folder_path(&world->folder, "published", beside.to);
  beside.other_ops.lock = lock_after_rename;
  assert_status(KJIT_OK, builder_cache_verify(beside.other, 0, &report, NULL), NULL);
  assert_int_equal(0, report.temporary_files);
  assert_int_equal(0, access(beside.to, F_OK));
  beside.other_ops.lock = file_ops_system()->lock;
}

static void test_sweep__first_publish_sweeps_old_orphans_alone(void **state) {
  struct cache_world *world = *state;
  plant(world, "old", "x", 3600);
  plant(world, "young", "x", 0);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 50, 0, NULL, NULL), NULL);
  assert_false(is_there(world, "old"));
  assert_true(is_there(world, "young"));
}

#define SWEEP_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      SWEEP_TEST(test_sweep__file_that_was_just_made_is_its_writers),
      SWEEP_TEST(test_sweep__file_that_is_being_written_is_its_writers),
      SWEEP_TEST(test_sweep__young_file_is_its_writers_where_there_are_no_locks),
      SWEEP_TEST(test_sweep__orphans_go_and_live_files_stay),
      SWEEP_TEST(test_sweep__file_published_meanwhile_is_no_orphan),
      SWEEP_TEST(test_sweep__first_publish_sweeps_old_orphans_alone),
  };
  return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
