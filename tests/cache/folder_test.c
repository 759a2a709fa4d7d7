/* Which folders are used and which are not: no HOME, read-only, somebody else's, world-writable, links, a full disk. In
 * each case kernels are compiled and handed out; the cache counts, tells the log, and prints nothing. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"
#include "support/faulty_ops.h"

/* What the "process environment" of a test is. */
static struct { const char *name, *value; } environment[4];

static const char *fake_environment(void *user, const char *name) {
  (void)user;
  for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
    if (environment[i].name && !strcmp(environment[i].name, name)) return environment[i].value;
  return NULL;
}

static uid_t somebody_else(void *user) {
  (void)user;
  return getuid() + 1;
}

static struct file_ops ops;
static struct faulty_ops faulty;

static int setup(void **state) {
  if (cache_world_setup(state)) return -1;
  struct cache_world *world = *state;
  memset(environment, 0, sizeof environment);
  ops = *file_ops_system();
  ops.environment = fake_environment;
  world->parts.ops = &ops;
  world->options.cache_dir = NULL;
  world->options.flags = 0;
  return 0;
}

static void set_environment(size_t slot, const char *name, const char *value) {
  environment[slot].name = name;
  environment[slot].value = value;
}

/* Open, build, build again: it works, and `path` (NULL: none) is where it is kept. */
static void assert_works(struct cache_world *world, const char *path) {
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
  if (path)
    assert_string_equal(path, builder_cache_path(world->builder));
  else
    assert_null(builder_cache_path(world->builder));
}

static void assert_memory_only(struct cache_world *world, const char *why) {
  kjit_doctor_report report = {0};
  atomic_store(&world->log_lines, 0);
  assert_works(world, NULL);
  assert_int_equal(1, cache_world_count(world, COUNT_cache_errors));
  assert_true(atomic_load(&world->log_lines) > 0);
  builder_doctor(world->builder, &report);
  assert_int_not_equal(KJIT_OK, report.cache_status);
  assert_contains(report.cache_message, why);
  assert_string_equal("", report.cache_path);
}

static void test_folder__option_wins_over_environment(void **state) {
  struct cache_world *world = *state;
  set_environment(0, "KJIT_CACHE_DIR", "/nonexistent/kjit");
  world->options.cache_dir = world->cache_dir;
  assert_works(world, world->cache_dir);
}

static void test_folder__kjit_cache_dir_wins_over_xdg(void **state) {
  struct cache_world *world = *state;
  set_environment(0, "KJIT_CACHE_DIR", world->cache_dir);
  set_environment(1, "XDG_CACHE_HOME", "/nonexistent");
  assert_works(world, world->cache_dir);
}

static void test_folder__xdg_cache_home_is_made_private(void **state) {
  struct cache_world *world = *state;
  char xdg[TEMP_PATH_BYTES], path[TEMP_PATH_BYTES];
  struct stat status;
  temp_folder_path(&world->folder, "xdg/deep", xdg);
  temp_folder_path(&world->folder, "xdg/deep/kjit", path);
  set_environment(0, "XDG_CACHE_HOME", xdg);
  set_environment(1, "HOME", "/nonexistent");
  assert_works(world, path);
  assert_int_equal(0, stat(path, &status));
  assert_int_equal(0700, status.st_mode & 0777);
}

static void test_folder__home_is_the_last_resort(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, ".cache/kjit", path);
  set_environment(0, "HOME", world->folder.path);
  set_environment(1, "XDG_CACHE_HOME", "relative/is/ignored");
  assert_works(world, path);
}

static void test_folder__ignored_environment_leaves_home(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, ".cache/kjit", path);
  world->options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  set_environment(0, "HOME", world->folder.path);
  set_environment(1, "KJIT_CACHE_DIR", world->cache_dir);
  assert_works(world, path);
}

static void test_folder__no_home_is_memory_only(void **state) {
  assert_memory_only(*state, "HOME");
}

static void test_folder__home_that_cannot_be_written_is_memory_only(void **state) {
  set_environment(0, "HOME", "/proc/nothing");
  assert_memory_only(*state, "/proc/nothing/.cache/kjit");
}

static void test_folder__file_in_its_place_is_memory_only(void **state) {
  struct cache_world *world = *state;
  assert_int_equal(0, temp_folder_write_text(&world->folder, "file", "x"));
  char path[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "file", path);
  world->options.cache_dir = path;
  assert_memory_only(world, "Not a directory");
}

static void test_folder__somebody_elses_is_refused(void **state) {
  struct cache_world *world = *state;
  ops.user_id = somebody_else;
  world->options.cache_dir = world->cache_dir;
  assert_memory_only(world, "belongs to another user");
}

static void test_folder__writable_by_others_is_refused(void **state) {
  struct cache_world *world = *state;
  world->options.cache_dir = world->cache_dir;
  assert_int_equal(0, chmod(world->cache_dir, 0777));
  assert_memory_only(world, "other users can write");
  assert_int_equal(0, chmod(world->cache_dir, 0770));
  assert_memory_only(world, "other users can write");
  assert_int_equal(0, chmod(world->cache_dir, 0755));
  assert_works(world, world->cache_dir);
}

static void test_folder__site_writable_by_everybody_is_not_read(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  world->options.cache_dir = world->cache_dir;
  assert_works(world, world->cache_dir);
  char site[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "site", site);
  assert_int_equal(0, rename(world->cache_dir, site));
  assert_int_equal(0, chmod(site, 0777));
  set_environment(0, "KJIT_CACHE_SITE", site);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
  assert_int_equal(1, cache_world_count(world, COUNT_cache_errors));
}

/* A link to the folder itself is the user's own doing; one inside it is not followed. */
static void test_folder__links_lead_to_it_but_not_inside_it(void **state) {
  struct cache_world *world = *state;
  char link[TEMP_PATH_BYTES], outside[TEMP_PATH_BYTES], entries[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "link", link);
  temp_folder_path(&world->folder, "outside", outside);
  temp_folder_path(&world->folder, "cache/entries", entries);
  assert_int_equal(0, symlink(world->cache_dir, link));
  assert_int_equal(0, mkdir(outside, 0700));
  assert_int_equal(0, symlink(outside, entries));
  world->options.cache_dir = link;
  assert_works(world, link);
  assert_true(cache_world_count(world, COUNT_cache_errors) > 0);
  assert_int_equal(0, rmdir(outside)); /* still empty */
}

static void test_folder__link_as_temporary_folder_is_not_followed(void **state) {
  struct cache_world *world = *state;
  char outside[TEMP_PATH_BYTES], temp[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "outside", outside);
  temp_folder_path(&world->folder, "cache/tmp", temp);
  assert_int_equal(0, mkdir(outside, 0700));
  assert_int_equal(0, symlink(outside, temp));
  world->options.cache_dir = world->cache_dir;
  assert_works(world, world->cache_dir);
  assert_true(cache_world_count(world, COUNT_cache_errors) > 0);
  assert_int_equal(0, rmdir(outside));
}

/* Each of these fails all calls of one kind, in a folder that was usable when the builder was made. */
static void assert_survives(struct cache_world *world, enum faulty_call kind, int code) {
  faulty_ops_init(&faulty);
  world->parts.ops = &faulty.ops;
  world->options.cache_dir = world->cache_dir;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  atomic_store(&faulty.kind, (int)kind);
  atomic_store(&faulty.code, code);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_true(cache_world_count(world, COUNT_cache_errors) > 0);
  assert_int_equal(0, cache_world_count(world, COUNT_published));
  atomic_store(&faulty.kind, FAULTY_CALLS);
  builder_destroy(world->builder);
  world->builder = NULL;
  assert_int_equal(0, atomic_load(&faulty.open));
}

static void test_folder__read_only_file_system_works_from_memory(void **state) {
  assert_survives(*state, FAULTY_MAKE_FOLDER, EROFS);
}

static void test_folder__too_many_open_files_works_from_memory(void **state) {
  assert_survives(*state, FAULTY_OPEN, EMFILE);
}

static void test_folder__failing_disk_works_from_memory(void **state) {
  assert_survives(*state, FAULTY_SYNC, EIO);
}

static void test_folder__full_disk_by_write_works_from_memory(void **state) {
  struct cache_world *world = *state;
  char temp[TEMP_PATH_BYTES];
  assert_survives(world, FAULTY_WRITE, ENOSPC);
  temp_folder_path(&world->folder, "cache/tmp", temp);
  assert_int_equal(0, rmdir(temp)); /* nothing was left behind */
}

static void test_folder__doctor_tries_to_write(void **state) {
  struct cache_world *world = *state;
  kjit_doctor_report report = {0};
  char temp[TEMP_PATH_BYTES];
  faulty_ops_init(&faulty);
  world->parts.ops = &faulty.ops;
  world->options.cache_dir = world->cache_dir;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  builder_doctor(world->builder, &report);
  builder_try_cache(world->builder, &report);
  assert_int_equal(KJIT_OK, report.cache_status);
  atomic_store(&faulty.code, ENOSPC);
  atomic_store(&faulty.kind, FAULTY_WRITE);
  builder_try_cache(world->builder, &report);
  assert_int_equal(KJIT_ERR_IO, report.cache_status);
  assert_contains(report.cache_message, "cannot be written: No space left on device");
  assert_string_equal(world->cache_dir, report.cache_path);
  temp_folder_path(&world->folder, "cache/tmp", temp);
  assert_int_equal(0, rmdir(temp)); /* nothing was left behind */
  world->parts.ops = NULL;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
}

static void test_folder__short_writes_are_completed(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  faulty_ops_init(&faulty);
  atomic_store(&faulty.short_writes, 100);
  world->parts.ops = &faulty.ops;
  world->options.cache_dir = world->cache_dir;
  world->options.cache_max_bytes = 0;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  world->parts.ops = NULL;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
}

static void test_folder__file_system_without_locks_builds_with_a_stand_in(void **state) {
  struct cache_world *world = *state;
  kjit_origin origin;
  faulty_ops_init(&faulty);
  world->parts.ops = &faulty.ops;
  world->options.cache_dir = world->cache_dir;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  atomic_store(&faulty.kind, FAULTY_LOCK);
  atomic_store(&faulty.code, ENOLCK);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_int_equal(1, cache_world_count(world, COUNT_published));
  char building[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "cache/building", building);
  assert_int_equal(0, rmdir(building)); /* was made, and is empty again */
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
}

static void test_folder__abandoned_stand_in_delays_by_the_bound_and_goes(void **state) {
  struct cache_world *world = *state;
  struct entry_name name;
  char path[TEMP_PATH_BYTES], building[64 + DIGEST_HEX_BYTES];
  faulty_ops_init(&faulty);
  atomic_store(&faulty.kind, FAULTY_LOCK);
  atomic_store(&faulty.code, ENOLCK);
  cache_world_name(world, 1, &name);
  snprintf(building, sizeof building, "cache/building/%s", entry_name_key(&name));
  assert_int_equal(0, temp_folder_write_text(&world->folder, building, ""));
  world->parts.ops = &faulty.ops;
  world->parts.wait_bound_ns = 100000000;
  world->options.cache_dir = world->cache_dir;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_int_equal(1, cache_world_count(world, COUNT_waits));
  assert_true(cache_world_count(world, COUNT_wait_ns) >= 100000000);
  temp_folder_path(&world->folder, building, path);
  assert_int_equal(-1, access(path, F_OK));
}

/* On a file system that really is full. Needs the right to mount one, in a user namespace if need be. */
static int on_full_disk(struct cache_world *world) {
  char fill[TEMP_PATH_BYTES];
  if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) return 77;
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 77;
  if (mount("kjit-test", world->cache_dir, "tmpfs", 0, "size=256k,mode=0700")) return 77;
  temp_folder_path(&world->folder, "cache/fill", fill);
  world->options.cache_dir = world->cache_dir;
  if (cache_world_open(world, NULL) != KJIT_OK || cache_world_get(world, 1, 0, NULL, NULL) != KJIT_OK) return 1;
  if (cache_world_count(world, COUNT_published) != 1) return 2;
  const int file = open(fill, O_WRONLY | O_CREAT, 0600);
  static const char zeros[4096];
  while (write(file, zeros, sizeof zeros) > 0)
    ;
  close(file);
  atomic_store(&fake_nvrtc.cubin_bytes, 50000);
  for (long number = 2; number < 6; number++)
    if (cache_world_get(world, number, 0, NULL, NULL) != KJIT_OK) return 3;
  if (cache_world_count(world, COUNT_cache_errors) < 4 || cache_world_count(world, COUNT_published) != 1) return 4;
  if (unlink(fill) || cache_world_get(world, 7, 0, NULL, NULL) != KJIT_OK) return 5;
  return cache_world_count(world, COUNT_published) == 2 ? 0 : 6;
}

static void test_folder__full_disk_works_from_memory_and_recovers(void **state) {
  int status = 0;
  const pid_t child = fork();
  if (!child) _exit(on_full_disk(*state));
  assert_int_equal(child, waitpid(child, &status, 0));
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) skip(); /* this machine does not let us mount anything */
  assert_int_equal(0, WEXITSTATUS(status));
}

static void test_folder__nothing_is_written_outside_it_or_to_stderr(void **state) {
  struct cache_world *world = *state;
  char captured[TEMP_PATH_BYTES];
  temp_folder_path(&world->folder, "stderr", captured);
  fflush(stderr);
  const int saved = dup(2), file = open(captured, O_RDWR | O_CREAT, 0600);
  assert_true(saved >= 0 && file >= 0);
  dup2(file, 2);
  set_environment(0, "HOME", "/proc/nothing");
  const kjit_status opened = cache_world_open(world, NULL);
  const kjit_status got = cache_world_get(world, 1, 0, NULL, NULL);
  fflush(stderr);
  const off_t bytes = lseek(file, 0, SEEK_END);
  dup2(saved, 2);
  close(saved);
  close(file);
  assert_status(KJIT_OK, opened, NULL);
  assert_status(KJIT_OK, got, NULL);
  assert_int_equal(0, bytes);
}

#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, setup, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_folder__option_wins_over_environment),
      FOLDER_TEST(test_folder__kjit_cache_dir_wins_over_xdg),
      FOLDER_TEST(test_folder__xdg_cache_home_is_made_private),
      FOLDER_TEST(test_folder__home_is_the_last_resort),
      FOLDER_TEST(test_folder__ignored_environment_leaves_home),
      FOLDER_TEST(test_folder__no_home_is_memory_only),
      FOLDER_TEST(test_folder__home_that_cannot_be_written_is_memory_only),
      FOLDER_TEST(test_folder__file_in_its_place_is_memory_only),
      FOLDER_TEST(test_folder__somebody_elses_is_refused),
      FOLDER_TEST(test_folder__writable_by_others_is_refused),
      FOLDER_TEST(test_folder__site_writable_by_everybody_is_not_read),
      FOLDER_TEST(test_folder__links_lead_to_it_but_not_inside_it),
      FOLDER_TEST(test_folder__link_as_temporary_folder_is_not_followed),
      FOLDER_TEST(test_folder__read_only_file_system_works_from_memory),
      FOLDER_TEST(test_folder__too_many_open_files_works_from_memory),
      FOLDER_TEST(test_folder__failing_disk_works_from_memory),
      FOLDER_TEST(test_folder__full_disk_by_write_works_from_memory),
      FOLDER_TEST(test_folder__doctor_tries_to_write),
      FOLDER_TEST(test_folder__short_writes_are_completed),
      FOLDER_TEST(test_folder__file_system_without_locks_builds_with_a_stand_in),
      FOLDER_TEST(test_folder__abandoned_stand_in_delays_by_the_bound_and_goes),
      FOLDER_TEST(test_folder__full_disk_works_from_memory_and_recovers),
      FOLDER_TEST(test_folder__nothing_is_written_outside_it_or_to_stderr),
  };
  return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
