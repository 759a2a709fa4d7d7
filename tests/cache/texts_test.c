/* The texts of callers' sources: kept when something is compiled, bounded, and used by `kjit cache why` alone. */
#include "jit/cache/text_store.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"

/* A source of two files, of which the header's text is the test's. */
struct headed {
  struct cache_request made;
  struct source_file files[2];
};

static void headed_make(struct headed *headed, const char *header, size_t bytes) {
  struct mem mem;
  mem_init(&mem, NULL);
  cache_request_make(&headed->made, 1);
  headed->made.request.keeps_texts = true;
  headed->files[0] = headed->made.file;
  headed->files[1] = (struct source_file){.name = "v.h", .path = "/somewhere/v.h", .text = header, .bytes = bytes};
  headed->made.sources = (struct source_set){0};
  assert_true(source_set_seal(&headed->made.sources, headed->files, 2, &mem));
}

static void compile(struct cache_world *world, struct headed *headed, const char *header) {
  kjit_artifact *artifact = NULL;
  headed_make(headed, header, strlen(header));
  assert_status(KJIT_OK, builder_get(world->builder, &headed->made.request, &artifact, NULL), NULL);
  kjit_artifact_release(artifact);
}

struct told {
  int count;
  uint32_t line;
  char field[64], wanted[600], found[600];
};

static int note(void *user, const kjit_cache_difference *difference) {
  struct told *told = user;
  told->count++;
  told->line = difference->line;
  snprintf(told->field, sizeof told->field, "%s", difference->field);
  snprintf(told->wanted, sizeof told->wanted, "%s", difference->wanted_line ? difference->wanted_line : "(none)");
  snprintf(told->found, sizeof told->found, "%s", difference->found_line ? difference->found_line : "(none)");
  return 0;
}

static struct told why(struct cache_world *world, const struct headed *headed) {
  struct key key;
  char nearest[65];
  struct told told = {0};
  kjit_error error = {0};
  assert_status(KJIT_OK, key_make(&key, &world->mem, &headed->made.request, world->identity, NULL), NULL);
  const kjit_status status = builder_cache_why(world->builder, key.text.data, nearest, note, &told, &error);
  key_finish(&key);
  assert_status(KJIT_OK, status, &error);
  return told;
}

static void text_path(const struct cache_world *world, const struct source_file *file, char path[TEMP_PATH_BYTES]) {
  char hex[DIGEST_HEX_BYTES];
  digest_to_hex(&file->digest, hex);
  assert_true(snprintf(path, TEMP_PATH_BYTES, "%s/texts/%c/%s", world->cache_dir, hex[0], hex) < TEMP_PATH_BYTES);
}

static bool is_kept(const struct cache_world *world, const struct source_file *file) {
  char path[TEMP_PATH_BYTES];
  text_path(world, file, path);
  return access(path, F_OK) == 0;
}

static void test_texts__a_changed_header_is_told_by_its_line(void **state) {
  struct cache_world *world = *state;
  struct headed first, second;
  compile(world, &first, "#pragma once\n#define VALUE 1\n");
  compile(world, &second, "#pragma once\n#define VALUE 2\n");
  const struct told told = why(world, &second);
  assert_int_equal(1, told.count);
  assert_string_equal("source v.h", told.field);
  assert_int_equal(2, told.line);
  assert_string_equal("#define VALUE 2", told.wanted);
  assert_string_equal("#define VALUE 1", told.found);
}

static void test_texts__a_deleted_text_leaves_the_name_of_the_file(void **state) {
  struct cache_world *world = *state;
  struct headed first, second;
  char path[TEMP_PATH_BYTES];
  compile(world, &first, "#define VALUE 1\n");
  compile(world, &second, "#define VALUE 2\n");
  text_path(world, &first.files[1], path);
  assert_int_equal(0, unlink(path));
  const struct told told = why(world, &second);
  assert_string_equal("source v.h", told.field);
  assert_int_equal(0, told.line);
  assert_string_equal("(none)", told.wanted);
}

static void test_texts__a_forged_text_is_removed_and_not_shown(void **state) {
  struct cache_world *world = *state;
  struct headed first, second;
  char path[TEMP_PATH_BYTES];
  compile(world, &first, "#define VALUE 1\n");
  compile(world, &second, "#define VALUE 2\n");
  text_path(world, &first.files[1], path);
  const int file = open(path, O_WRONLY);
  assert_int_equal(1, pwrite(file, "X", 1, 3));
  close(file);
  assert_int_equal(0, why(world, &second).line);
  assert_false(is_kept(world, &first.files[1]));
}

static void test_texts__a_link_in_the_place_of_a_text_is_not_followed(void **state) {
  struct cache_world *world = *state;
  struct headed first, second;
  char path[TEMP_PATH_BYTES], moved[TEMP_PATH_BYTES];
  compile(world, &first, "#define VALUE 1\n");
  compile(world, &second, "#define VALUE 2\n");
  text_path(world, &first.files[1], path);
  temp_folder_path(&world->folder, "moved", moved);
  assert_int_equal(0, rename(path, moved));
  assert_int_equal(0, symlink(moved, path));
  assert_int_equal(0, why(world, &second).line);
}

static void test_texts__none_are_kept_when_the_option_says_so(void **state) {
  struct cache_world *world = *state;
  struct headed first, second;
  world->options.source_max_bytes = KJIT_KEEP_NO_SOURCES;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  compile(world, &first, "#define VALUE 1\n");
  compile(world, &second, "#define VALUE 2\n");
  assert_false(is_kept(world, &first.files[0]));
  assert_false(is_kept(world, &first.files[1]));
  assert_int_equal(0, why(world, &second).line);
}

static void test_texts__kjits_own_kernels_and_hits_keep_none(void **state) {
  struct cache_world *world = *state;
  struct headed headed;
  char path[TEMP_PATH_BYTES];
  kjit_artifact *artifact = NULL;
  headed_make(&headed, "// own\n", 7);
  headed.made.request.keeps_texts = false;
  assert_status(KJIT_OK, builder_get(world->builder, &headed.made.request, &artifact, NULL), NULL);
  kjit_artifact_release(artifact);
  assert_false(is_kept(world, &headed.files[1]));
  compile(world, &headed, "// own\n"); /* a memory hit */
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  compile(world, &headed, "// own\n"); /* a disk hit */
  temp_folder_path(&world->folder, "cache/texts", path);
  assert_int_not_equal(0, access(path, F_OK));
}

static void test_texts__the_toolkits_files_and_long_ones_are_left_out(void **state) {
  struct cache_world *world = *state;
  struct headed headed;
  static const char *const dirs[] = {"/some", "/somewhere"};
  headed_make(&headed, "// text\n", 8);
  text_store_put(&world->builder->user, &headed.made.sources, &(struct text_store_skip){dirs, 2});
  assert_true(is_kept(world, &headed.files[0]));
  assert_false(is_kept(world, &headed.files[1]));
  text_store_put(&world->builder->user, &headed.made.sources, &(struct text_store_skip){dirs, 1});
  assert_true(is_kept(world, &headed.files[1]));
  char *large = malloc(TEXT_STORE_FILE_MAX + 2);
  assert_non_null(large);
  memset(large, 'x', TEXT_STORE_FILE_MAX + 1);
  large[TEXT_STORE_FILE_MAX + 1] = '\0';
  headed_make(&headed, large, TEXT_STORE_FILE_MAX + 1);
  text_store_put(&world->builder->user, &headed.made.sources, &(struct text_store_skip){0});
  assert_false(is_kept(world, &headed.files[1]));
  free(large);
}

/* 40 texts of 1000 bytes in folders of 2000: at most two stay in each, and the newest is one of them. */
static void test_texts__the_oldest_go_first(void **state) {
  struct cache_world *world = *state;
  struct headed headed;
  char header[1001];
  world->options.source_max_bytes = 16 * 2000;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  memset(header, ' ', sizeof header);
  header[1000] = '\0';
  for (int i = 0; i < 40; i++) {
    memcpy(header, &(char[4]){'/', '/', (char)('0' + i % 10), (char)('0' + i / 10)}, 4);
    headed_make(&headed, header, 1000);
    text_store_put(&world->builder->user, &headed.made.sources, &(struct text_store_skip){0});
    assert_true(is_kept(world, &headed.files[1]));
  }
  for (unsigned shard = 0; shard < 16; shard++) {
    char path[TEMP_PATH_BYTES];
    struct file_list *list = NULL;
    const char *name;
    int count = 0;
    const struct file_ops *ops = file_ops_system();
    snprintf(path, sizeof path, "texts/%x", shard);
    if (ops->list_open(ops->user, world->builder->user.dir.folder, path, &list) < 0) continue;
    while (ops->list_next(ops->user, list, &name) > 0)
      count++;
    ops->list_close(ops->user, list);
    assert_in_range(count, 1, 2);
  }
}

static void test_texts__clear_removes_them(void **state) {
  struct cache_world *world = *state;
  struct headed headed;
  compile(world, &headed, "#define VALUE 1\n");
  assert_true(is_kept(world, &headed.files[0]));
  assert_status(KJIT_OK, builder_cache_clear(world->builder, NULL, NULL), NULL);
  assert_false(is_kept(world, &headed.files[0]));
  assert_false(is_kept(world, &headed.files[1]));
}

static int fail_to_rename(void *user, int from_folder, const char *from, int to_folder, const char *to) {
  (void)user;
  if (strlen(to) == DIGEST_HEX_BYTES - 1) return -ENOSPC;
  return file_ops_system()->rename(NULL, from_folder, from, to_folder, to);
}

static void test_texts__a_full_disk_costs_no_kernel(void **state) {
  struct cache_world *world = *state;
  struct headed headed;
  struct file_ops ops = *file_ops_system();
  ops.rename = fail_to_rename;
  world->parts.ops = &ops;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  compile(world, &headed, "#define VALUE 1\n");
  assert_false(is_kept(world, &headed.files[0]));
  assert_int_equal(1, cache_world_count(world, COUNT_cache_errors));
  builder_destroy(world->builder);
  world->builder = NULL;
}

static void test_texts__a_misspelt_bound_is_refused(void **state) {
  struct cache_world *world = *state;
  kjit_error error = {0};
  world->options.flags = 0;
  assert_int_equal(0, setenv("KJIT_CACHE_SOURCES", "some", 1));
  assert_status(KJIT_ERR_INVALID_ARG, cache_world_open(world, &error), &error);
  assert_contains(error.message, "KJIT_CACHE_SOURCES");
  assert_int_equal(0, setenv("KJIT_CACHE_SOURCES", "off", 1));
  assert_status(KJIT_OK, cache_world_open(world, &error), &error);
  const struct builder *const builder = world->builder;
  assert_true(builder && builder->user.max_text_bytes == 0);
  assert_int_equal(0, unsetenv("KJIT_CACHE_SOURCES"));
}

#define TEXTS_TEST(test) cmocka_unit_test_setup_teardown(test, cache_world_setup, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEXTS_TEST(test_texts__a_changed_header_is_told_by_its_line),
      TEXTS_TEST(test_texts__a_deleted_text_leaves_the_name_of_the_file),
      TEXTS_TEST(test_texts__a_forged_text_is_removed_and_not_shown),
      TEXTS_TEST(test_texts__a_link_in_the_place_of_a_text_is_not_followed),
      TEXTS_TEST(test_texts__none_are_kept_when_the_option_says_so),
      TEXTS_TEST(test_texts__kjits_own_kernels_and_hits_keep_none),
      TEXTS_TEST(test_texts__the_toolkits_files_and_long_ones_are_left_out),
      TEXTS_TEST(test_texts__the_oldest_go_first),
      TEXTS_TEST(test_texts__clear_removes_them),
      TEXTS_TEST(test_texts__a_full_disk_costs_no_kernel),
      TEXTS_TEST(test_texts__a_misspelt_bound_is_refused),
  };
  return cmocka_run_group_tests_name("texts", tests, NULL, NULL);
}
