/* A file beside the entries: whole or not at all, whatever fails, and one writer at a time. */
#include "jit/admin/side_file.h"

#include "support/cache_world.h"
#include "support/faulty_ops.h"
#include "support/processes.h"
#include <stdbool.h>

static struct faulty_ops faulty;

static const struct side_file file = {"tuned", "a", 1 << 20};
static const char before[] = "what was there before", after[] = "what is there now, and is longer than that";

static int setup(void **state) {
  if (cache_world_setup(state)) return -1;
  struct cache_world *world = *state;
  faulty_ops_init(&faulty);
  world->parts.ops = &faulty.ops;
  return cache_world_open(world, NULL) == KJIT_OK ? 0 : -1;
}

static kjit_status replace(struct builder *builder, const char *text, kjit_error *error) {
  struct side_file_lock *lock = NULL;
  kjit_status status = side_file_lock(builder, &file, &lock, error);
  if (status == KJIT_OK) status = side_file_replace(builder, &file, text, strlen(text), error);
  side_file_unlock(lock);
  return status;
}

/* The file's text, or NULL; mem_free() it. */
static char *read_back(struct cache_world *world) {
  char *data;
  size_t bytes;
  const kjit_status status = side_file_read(world->builder, KJIT_ORIGIN_USER, &file, &data, &bytes, NULL);
  if (status == KJIT_OK) assert_int_equal(strlen(data), bytes);
  return data;
}

static void expect_text(struct cache_world *world, const char *text) {
  char *data = read_back(world);
  assert_non_null(data);
  assert_string_equal(data, text);
  mem_free(&world->mem, data);
}

static void test_side_file__what_was_written_is_read(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES], expected[2 * TEMP_PATH_BYTES];
  assert_null(read_back(world));
  assert_status(KJIT_OK, replace(world->builder, before, NULL), NULL);
  expect_text(world, before);
  assert_status(KJIT_OK, replace(world->builder, after, NULL), NULL);
  expect_text(world, after);
  side_file_path(world->builder, &file, path, sizeof path);
  snprintf(expected, sizeof expected, "%s/tuned/a", world->cache_dir);
  assert_string_equal(path, expected);
}

static void test_side_file__is_the_old_one_or_the_new_one_whatever_fails(void **state) {
  struct cache_world *world = *state;
  kjit_status status = KJIT_ERR_IO;
  for (long n = 0; status != KJIT_OK; n++) {
    kjit_error error = {0};
    assert_true(n < 100);
    assert_status(KJIT_OK, replace(world->builder, before, NULL), NULL);
    const long open = atomic_load(&faulty.open);
    atomic_store(&faulty.fail_at, atomic_load(&faulty.calls) + n);
    status = replace(world->builder, after, &error);
    const bool all_done = atomic_load(&faulty.calls) <= atomic_load(&faulty.fail_at);
    atomic_store(&faulty.fail_at, -1);
    char *data = read_back(world);
    assert_non_null(data);
    assert_true(!strcmp(data, before) || !strcmp(data, after));
    if (status == KJIT_OK) assert_string_equal(data, after);
    if (status != KJIT_OK) assert_int_equal(error.status, KJIT_ERR_IO);
    mem_free(&world->mem, data);
    assert_int_equal(atomic_load(&faulty.open), open);
    if (!all_done) status = KJIT_ERR_IO; /* what failed did not matter: there is more to fail */
  }
}

static void test_side_file__a_failing_read_is_said(void **state) {
  struct cache_world *world = *state;
  kjit_error error = {0};
  char *data;
  size_t bytes;
  assert_status(KJIT_OK, replace(world->builder, before, NULL), NULL);
  atomic_store(&faulty.kind, FAULTY_READ);
  assert_status(KJIT_ERR_IO, side_file_read(world->builder, KJIT_ORIGIN_USER, &file, &data, &bytes, &error), &error);
  assert_null(data);
  assert_contains(error.message, "/tuned/a could not be read");
}

static void test_side_file__larger_than_its_limit_is_an_error(void **state) {
  struct cache_world *world = *state;
  struct side_file small = file;
  kjit_error error = {0};
  char *data;
  size_t bytes;
  assert_status(KJIT_OK, replace(world->builder, before, NULL), NULL);
  small.limit = strlen(before) - 1;
  assert_status(KJIT_ERR_IO, side_file_read(world->builder, KJIT_ORIGIN_USER, &small, &data, &bytes, &error), &error);
  small.limit++;
  assert_status(KJIT_OK, side_file_read(world->builder, KJIT_ORIGIN_USER, &small, &data, &bytes, &error), &error);
  mem_free(&world->mem, data);
}

static void test_side_file__a_link_is_not_followed(void **state) {
  struct cache_world *world = *state;
  char link[TEMP_PATH_BYTES + 16];
  kjit_error error = {0};
  char *data;
  size_t bytes;
  assert_status(KJIT_OK, replace(world->builder, before, NULL), NULL);
  snprintf(link, sizeof link, "%s/tuned/a", world->cache_dir);
  assert_int_equal(unlink(link), 0);
  assert_int_equal(symlink("/etc/passwd", link), 0);
  assert_status(KJIT_ERR_IO, side_file_read(world->builder, KJIT_ORIGIN_USER, &file, &data, &bytes, &error), &error);
  assert_status(KJIT_OK, replace(world->builder, after, NULL), NULL); /* the link goes, what it led to stays */
  expect_text(world, after);
}

static void test_side_file__read_only_folder_is_said(void **state) {
  struct cache_world *world = *state;
  kjit_error error = {0};
  world->options.cache_mode = KJIT_CACHE_RO;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_ERR_IO, replace(world->builder, before, &error), &error);
  assert_string_equal(error.message, "tuned/a cannot be written: the cache folder is off or read-only");
}

/* The number in the file, one more. */
static int count_up(struct cache_world *world, long times) {
  for (long i = 0; i < times; i++) {
    struct side_file_lock *lock = NULL;
    char text[24], *data;
    size_t bytes;
    if (side_file_lock(world->builder, &file, &lock, NULL) != KJIT_OK) return 1;
    const kjit_status status = side_file_read(world->builder, KJIT_ORIGIN_USER, &file, &data, &bytes, NULL);
    snprintf(text, sizeof text, "%ld", status == KJIT_OK ? strtol(data, NULL, 10) + 1 : 1);
    mem_free(&world->mem, data);
    const bool written = side_file_replace(world->builder, &file, text, strlen(text), NULL) == KJIT_OK;
    side_file_unlock(lock);
    if (!written) return 2;
  }
  return 0;
}

static void test_side_file__processes_take_turns(void **state) {
  struct cache_world *world = *state;
  struct processes processes = {0};
  for (int i = 0; i < 4; i++)
    assert_true(processes_start(&processes, world, count_up, 25) > 0);
  assert_int_equal(processes_wait_all(&processes, 0), 0);
  expect_text(world, "100");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_side_file__what_was_written_is_read, setup, cache_world_teardown),
      cmocka_unit_test_setup_teardown(test_side_file__is_the_old_one_or_the_new_one_whatever_fails, setup,
                                      cache_world_teardown),
      cmocka_unit_test_setup_teardown(test_side_file__a_failing_read_is_said, setup, cache_world_teardown),
      cmocka_unit_test_setup_teardown(test_side_file__larger_than_its_limit_is_an_error, setup, cache_world_teardown),
      cmocka_unit_test_setup_teardown(test_side_file__a_link_is_not_followed, setup, cache_world_teardown),
      cmocka_unit_test_setup_teardown(test_side_file__read_only_folder_is_said, setup, cache_world_teardown),
      cmocka_unit_test_setup_teardown(test_side_file__processes_take_turns, processes_setup, processes_teardown),
  };
  return cmocka_run_group_tests_name("side_file", tests, NULL, NULL);
}
