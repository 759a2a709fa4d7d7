#include "base/files/file.h"

#include <errno.h>

#include "support/test.h"

static struct failing_allocator allocator;
static struct mem mem;

static int setup(void **state) {
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  return mem_init(&mem, &hooks) ? temp_folder_setup(state) : -1;
}

static int teardown(void **state) {
  temp_folder_teardown(state);
  return atomic_load(&allocator.live) ? -1 : 0;
}

static void test_file__read_gives_the_bytes_and_a_nul(void **state) {
  char path[TEMP_PATH_BYTES], *data;
  size_t bytes;
  kjit_error error = {0};
  assert_int_equal(0, temp_folder_write(*state, "f", "a\0b", 3));
  temp_folder_path(*state, "f", path);
  assert_status(KJIT_OK, file_read(&mem, path, 3, &data, &bytes, &error), &error);
  assert_int_equal(3, bytes);
  assert_memory_equal("a\0b", data, 4);
  mem_free(&mem, data);
}

static void test_file__map_shows_the_bytes(void **state) {
  char path[TEMP_PATH_BYTES];
  struct file_map map;
  kjit_error error = {0};
  assert_int_equal(0, temp_folder_write_text(*state, "f", "abc"));
  temp_folder_path(*state, "f", path);
  assert_status(KJIT_OK, file_map_open(&map, path, 3, &error), &error);
  assert_int_equal(3, map.bytes);
  assert_memory_equal("abc", map.data, 3);
  file_map_close(&map);
  assert_null(map.data);
}

static void test_file__empty_file_is_no_error(void **state) {
  char path[TEMP_PATH_BYTES], *data;
  struct file_map map;
  size_t bytes = 1;
  kjit_error error = {0};
  assert_int_equal(0, temp_folder_write_text(*state, "f", ""));
  temp_folder_path(*state, "f", path);
  assert_status(KJIT_OK, file_map_open(&map, path, 3, &error), &error);
  assert_int_equal(0, map.bytes);
  file_map_close(&map);
  assert_status(KJIT_OK, file_read(&mem, path, 3, &data, &bytes, &error), &error);
  assert_int_equal(0, bytes);
  assert_string_equal("", data);
  mem_free(&mem, data);
}

static void test_file__more_than_the_limit_is_refused(void **state) {
  char path[TEMP_PATH_BYTES], *data;
  struct file_map map;
  size_t bytes;
  kjit_error error = {0};
  assert_int_equal(0, temp_folder_write_text(*state, "f", "abcd"));
  temp_folder_path(*state, "f", path);
  assert_status(KJIT_ERR_IO, file_read(&mem, path, 3, &data, &bytes, &error), &error);
  assert_contains(error.message, "4 bytes; the limit is 3");
  assert_null(data);
  assert_status(KJIT_ERR_IO, file_map_open(&map, path, 3, NULL), NULL);
}

static void test_file__missing_file_is_not_found_with_errno(void **state) {
  char path[TEMP_PATH_BYTES], *data;
  size_t bytes;
  kjit_error error = {0};
  temp_folder_path(*state, "none", path);
  assert_status(KJIT_ERR_NOT_FOUND, file_read(&mem, path, 3, &data, &bytes, &error), &error);
  assert_int_equal(KJIT_CAUSE_ERRNO, error.cause_domain);
  assert_int_equal(ENOENT, error.cause);
  assert_contains(error.message, path);
}

static void test_file__folders_and_fifos_are_refused_at_once(void **state) {
  struct file_map map;
  struct file_identity identity;
  const struct temp_folder *folder = *state;
  char path[TEMP_PATH_BYTES];
  kjit_error error = {0};
  temp_folder_path(folder, "fifo", path);
  assert_int_equal(0, mkfifo(path, 0600));
  assert_status(KJIT_ERR_IO, file_map_open(&map, path, 3, &error), &error);
  assert_contains(error.message, "not a regular file");
  assert_status(KJIT_ERR_IO, file_map_open(&map, folder->path, 3, NULL), NULL);
  assert_false(file_identify(path, &identity));
}

static void test_file__out_of_memory_is_said(void **state) {
  char path[TEMP_PATH_BYTES], *data;
  size_t bytes;
  kjit_error error = {0};
  assert_int_equal(0, temp_folder_write_text(*state, "f", "abc"));
  temp_folder_path(*state, "f", path);
  atomic_store(&allocator.fail_at, 0);
  assert_status(KJIT_ERR_NO_MEMORY, file_read(&mem, path, 3, &data, &bytes, &error), &error);
  assert_null(data);
}

static void test_file__identity_changes_with_the_content(void **state) {
  char path[TEMP_PATH_BYTES], other[TEMP_PATH_BYTES];
  struct file_identity before, after;
  assert_int_equal(0, temp_folder_write_text(*state, "f", "abc"));
  temp_folder_path(*state, "f", path);
  assert_true(file_identify(path, &before));
  assert_true(file_identify(path, &after));
  assert_true(file_identity_equal(&before, &after));
  assert_int_equal(0, temp_folder_write_text(*state, "g", "abc"));
  temp_folder_path(*state, "g", other);
  assert_int_equal(0, rename(other, path));
  assert_true(file_identify(path, &after));
  assert_false(file_identity_equal(&before, &after));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_file__read_gives_the_bytes_and_a_nul, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__map_shows_the_bytes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__empty_file_is_no_error, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__more_than_the_limit_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__missing_file_is_not_found_with_errno, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__folders_and_fifos_are_refused_at_once, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__out_of_memory_is_said, setup, teardown),
      cmocka_unit_test_setup_teardown(test_file__identity_changes_with_the_content, setup, teardown),
  };
  return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
