/* Entries damaged in every way that a disk, a killed process or a mistaken copy can damage them: each is a miss, a
 * rebuild and a count, and the cubin handed on is the right one. */
#include <fcntl.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"

/* The entry of number 1, published, and its file. */
struct published {
  char path[TEMP_PATH_BYTES];
  uint8_t *image;
  size_t bytes;
};

static void publish_one(struct cache_world *world, struct published *published) {
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  cache_world_path(world, 1, published->path);
  FILE *file = fopen(published->path, "rb");
  assert_non_null(file);
  published->image = malloc(1 << 16);
  published->bytes = fread(published->image, 1, 1 << 16, file);
  fclose(file);
  assert_true(published->bytes > FAKE_CUBIN_LEAST_BYTES && published->bytes < 1 << 16);
}

/* Not through a temporary file: damage does not come by rename. */
static void overwrite(const char *path, const void *data, size_t bytes) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(file >= 0);
  assert_int_equal(bytes, write(file, data, bytes));
  close(file);
}

/* With a fresh builder, as another process: the damage is seen, counted, and replaced by a sound entry. */
static void assert_rebuilt(struct cache_world *world) {
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
  assert_int_equal(1, cache_world_count(world, COUNT_rebuilt_entries));
  assert_int_equal(0, cache_world_count(world, COUNT_cache_errors));
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
}

static void test_damage__every_flipped_byte_is_rebuilt(void **state) {
  struct cache_world *world = *state;
  struct published published;
  publish_one(world, &published);
  const uint64_t builds = (uint64_t)atomic_load(&fake_nvrtc.compiles);
  for (size_t i = 0; i < published.bytes; i++) {
    published.image[i] ^= 0xff;
    overwrite(published.path, published.image, published.bytes);
    assert_rebuilt(world);
    published.image[i] ^= 0xff;
  }
  assert_int_equal(builds + published.bytes, atomic_load(&fake_nvrtc.compiles));
  free(published.image);
}

static void test_damage__every_truncation_is_rebuilt(void **state) {
  struct cache_world *world = *state;
  struct published published;
  publish_one(world, &published);
  for (size_t bytes = 0; bytes < published.bytes; bytes++) {
    overwrite(published.path, published.image, bytes);
    assert_rebuilt(world);
  }
  free(published.image);
}

static void test_damage__file_grown_at_the_end_is_rebuilt(void **state) {
  struct cache_world *world = *state;
  struct published published;
  publish_one(world, &published);
  published.image[published.bytes] = 0;
  overwrite(published.path, published.image, published.bytes + 1);
  assert_rebuilt(world);
  free(published.image);
}

static void test_damage__entry_of_another_key_copied_over_is_rebuilt(void **state) {
  struct cache_world *world = *state;
  struct published published;
  char other[TEMP_PATH_BYTES];
  publish_one(world, &published);
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, NULL, NULL), NULL);
  cache_world_path(world, 2, other);
  overwrite(other, published.image, published.bytes);
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
  assert_int_equal(1, cache_world_count(world, COUNT_rebuilt_entries));
  free(published.image);
}

static void test_damage__huge_sparse_file_is_rebuilt_without_being_read(void **state) {
  struct cache_world *world = *state;
  struct published published;
  publish_one(world, &published);
  assert_int_equal(0, truncate(published.path, (off_t)1 << 40));
  assert_rebuilt(world);
  free(published.image);
}

static void test_damage__symbolic_link_as_an_entry_is_not_followed(void **state) {
  struct cache_world *world = *state;
  struct published published;
  char target[TEMP_PATH_BYTES];
  publish_one(world, &published);
  temp_folder_path(&world->folder, "target", target);
  assert_int_equal(0, rename(published.path, target));
  assert_int_equal(0, symlink(target, published.path));
  assert_rebuilt(world);
  assert_int_equal(0, access(target, F_OK));
  free(published.image);
}

static void test_damage__fifo_as_an_entry_does_not_hang(void **state) {
  struct cache_world *world = *state;
  struct published published;
  publish_one(world, &published);
  assert_int_equal(0, unlink(published.path));
  assert_int_equal(0, mkfifo(published.path, 0600));
  assert_rebuilt(world);
  free(published.image);
}

static void test_damage__folder_as_an_entry_leaves_the_kernel_usable(void **state) {
  struct cache_world *world = *state;
  struct published published;
  publish_one(world, &published);
  assert_int_equal(0, unlink(published.path));
  assert_int_equal(0, mkdir(published.path, 0700));
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_true(cache_world_count(world, COUNT_cache_errors) > 0);
  free(published.image);
}

static void test_damage__without_nvrtc_the_sound_one_of_two_compilers_answers(void **state) {
  struct cache_world *world = *state;
  struct published published;
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  /* The other one is the more recent by far: it is asked first. */
  cache_world_path(world, 1, published.path);
  assert_int_equal(0, utimensat(AT_FDCWD, published.path, (struct timespec[2]){{1, 0}, {1, 0}}, 0));
  world->identity = "nvrtc-fake-2";
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  publish_one(world, &published);
  published.image[published.bytes / 2] ^= 1;
  overwrite(published.path, published.image, published.bytes);
  world->identity = NULL;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_int_equal(1, cache_world_count(world, COUNT_rebuilt_entries));
  free(published.image);
}

static void test_damage__verify_counts_and_repair_removes(void **state) {
  struct cache_world *world = *state;
  struct published published;
  kjit_cache_report report = {.struct_size = sizeof report};
  publish_one(world, &published);
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, NULL, NULL), NULL);
  published.image[200] ^= 1;
  overwrite(published.path, published.image, published.bytes);
  assert_status(KJIT_OK, builder_cache_verify(world->builder, 0, &report, NULL), NULL);
  assert_int_equal(2, report.entries);
  assert_int_equal(1, report.damaged);
  assert_int_equal(0, report.removed);
  assert_status(KJIT_OK, builder_cache_verify(world->builder, KJIT_CACHE_REPAIR, &report, NULL), NULL);
  assert_int_equal(1, report.removed);
  assert_status(KJIT_OK, builder_cache_verify(world->builder, 0, &report, NULL), NULL);
  assert_int_equal(1, report.entries);
  assert_int_equal(0, report.damaged);
  free(published.image);
}

static void test_damage__lost_or_damaged_usage_file_is_counted_anew(void **state) {
  struct cache_world *world = *state;
  char usage[TEMP_PATH_BYTES];
  for (long number = 1; number <= 5; number++)
    assert_status(KJIT_OK, cache_world_get(world, number, 0, NULL, NULL), NULL);
  temp_folder_path(&world->folder, "cache/usage", usage);
  overwrite(usage, "nonsense", 8);
  assert_status(KJIT_OK, cache_world_get(world, 6, 0, NULL, NULL), NULL);
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
  assert_int_equal(6, stats.entries);
}

#define DAMAGE_TEST(test) cmocka_unit_test_setup_teardown(test, cache_world_setup_fast, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      DAMAGE_TEST(test_damage__every_flipped_byte_is_rebuilt),
      DAMAGE_TEST(test_damage__every_truncation_is_rebuilt),
      DAMAGE_TEST(test_damage__file_grown_at_the_end_is_rebuilt),
      DAMAGE_TEST(test_damage__entry_of_another_key_copied_over_is_rebuilt),
      DAMAGE_TEST(test_damage__huge_sparse_file_is_rebuilt_without_being_read),
      DAMAGE_TEST(test_damage__symbolic_link_as_an_entry_is_not_followed),
      DAMAGE_TEST(test_damage__fifo_as_an_entry_does_not_hang),
      DAMAGE_TEST(test_damage__folder_as_an_entry_leaves_the_kernel_usable),
      DAMAGE_TEST(test_damage__without_nvrtc_the_sound_one_of_two_compilers_answers),
      DAMAGE_TEST(test_damage__verify_counts_and_repair_removes),
      DAMAGE_TEST(test_damage__lost_or_damaged_usage_file_is_counted_anew),
  };
  return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
