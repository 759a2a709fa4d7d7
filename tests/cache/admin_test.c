/* Looking after the folder: list, show, why, export, import, prune, clear and the tag. */
#include <fcntl.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"
#include "support/faulty_ops.h"

struct seen {
  int count, damaged;
  char label[64], arch[16], key[65], key_text[2048];
  uint64_t cubin_bytes;
};

static int note_entry(void *user, const kjit_cache_entry *entry) {
  struct seen *seen = user;
  seen->count++;
  seen->damaged += entry->status != KJIT_OK;
  snprintf(seen->label, sizeof seen->label, "%s", entry->label);
  snprintf(seen->arch, sizeof seen->arch, "%s", entry->arch);
  snprintf(seen->key, sizeof seen->key, "%s", entry->key);
  snprintf(seen->key_text, sizeof seen->key_text, "%s", entry->key_text);
  seen->cubin_bytes = entry->cubin_bytes;
  return 0;
}

static int setup_with_three(void **state) {
  if (cache_world_setup(state)) return -1;
  for (long number = 1; number <= 3; number++)
    if (cache_world_get(*state, number, 0, NULL, NULL) != KJIT_OK) return -1;
  return 0;
}

static void test_admin__list_visits_every_entry(void **state) {
  struct cache_world *world = *state;
  struct seen seen = {0};
  assert_status(KJIT_OK, builder_cache_list(world->builder, note_entry, &seen, NULL), NULL);
  assert_int_equal(3, seen.count);
  assert_int_equal(0, seen.damaged);
  assert_string_equal("sm_80", seen.arch);
  assert_contains(seen.label, "number ");
  assert_true(seen.cubin_bytes >= FAKE_CUBIN_LEAST_BYTES);
}

static int stop_at_once(void *user, const kjit_cache_entry *entry) {
  (void)entry;
  ++*(int *)user;
  return 1;
}

static void test_admin__visitor_can_stop_the_list(void **state) {
  struct cache_world *world = *state;
  int count = 0;
  assert_status(KJIT_OK, builder_cache_list(world->builder, stop_at_once, &count, NULL), NULL);
  assert_int_equal(1, count);
}

static void test_admin__show_finds_by_the_first_digits(void **state) {
  struct cache_world *world = *state;
  struct entry_name name;
  struct seen seen = {0};
  char prefix[13];
  cache_world_name(world, 2, &name);
  snprintf(prefix, sizeof prefix, "%.12s", entry_name_key(&name));
  assert_status(KJIT_OK, builder_cache_show(world->builder, prefix, note_entry, &seen, NULL), NULL);
  assert_int_equal(1, seen.count);
  assert_string_equal("number 2", seen.label);
  assert_string_equal(entry_name_key(&name), seen.key);
}

static void test_admin__show_refuses_what_is_no_key(void **state) {
  struct cache_world *world = *state;
  struct seen seen = {0};
  kjit_error error = {0};
  static const char *const bad[] = {"", "abc", "xyzw", "ABCD"};
  for (size_t i = 0; i < 4; i++)
    assert_status(KJIT_ERR_INVALID_ARG, builder_cache_show(world->builder, bad[i], note_entry, &seen, &error), &error);
  const kjit_status status = builder_cache_show(world->builder, "0123456789abcdef", note_entry, &seen, &error);
  assert_status(KJIT_ERR_NOT_FOUND, status, &error);
}

struct differences {
  int count;
  char field[64], wanted[128], found[128];
};

static int note_difference(void *user, const kjit_cache_difference *difference) {
  struct differences *noted = user;
  noted->count++;
  snprintf(noted->field, sizeof noted->field, "%s", difference->field);
  snprintf(noted->wanted, sizeof noted->wanted, "%s", difference->wanted);
  snprintf(noted->found, sizeof noted->found, "%s", difference->found);
  return 0;
}

static void why(struct cache_world *world, const struct jit_request *request, const char *compiler,
                struct differences *noted) {
  struct key key;
  char nearest[65];
  kjit_error error = {0};
  *noted = (struct differences){0};
  assert_status(KJIT_OK, key_make(&key, &world->mem, request, compiler, NULL), NULL);
  const kjit_status status = builder_cache_why(world->builder, key.text.data, nearest, note_difference, noted, &error);
  key_finish(&key);
  assert_status(KJIT_OK, status, &error);
  assert_int_equal(64, strlen(nearest));
}

static void test_admin__why_names_the_one_field_that_differs(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  struct differences noted;
  cache_request_make(&made, 2);
  why(world, &made.request, "nvrtc-other", &noted);
  assert_int_equal(1, noted.count);
  assert_string_equal("compiler", noted.field);
  assert_string_equal("nvrtc-other", noted.wanted);
  assert_string_equal("nvrtc-fake-1", noted.found);
  strcpy(made.request.target.name, "sm_90");
  why(world, &made.request, "nvrtc-fake-1", &noted);
  assert_int_equal(1, noted.count);
  assert_string_equal("target", noted.field);
  cache_request_make(&made, 77);
  why(world, &made.request, "nvrtc-fake-1", &noted);
  assert_int_equal(1, noted.count);
  assert_string_equal("prologue", noted.field);
  assert_string_equal("#define KJIT_NUMBER 77", noted.wanted);
  assert_contains(noted.found, "#define KJIT_NUMBER ");
  cache_request_make(&made, 2);
  made.file.digest.bytes[0] ^= 1;
  why(world, &made.request, "nvrtc-fake-1", &noted);
  assert_int_equal(1, noted.count);
  assert_string_equal("source k.cu", noted.field);
}

static void test_admin__why_compares_an_entry_with_its_nearest_neighbour(void **state) {
  struct cache_world *world = *state;
  struct entry_name name;
  struct differences noted = {0};
  char nearest[65];
  cache_world_name(world, 1, &name);
  const kjit_status status =
      builder_cache_why(world->builder, entry_name_key(&name), nearest, note_difference, &noted, NULL);
  assert_status(KJIT_OK, status, NULL);
  assert_string_equal("prologue", noted.field);
  assert_string_not_equal(entry_name_key(&name), nearest);
}

static void test_admin__why_in_an_empty_cache_finds_nothing(void **state) {
  struct cache_world *world = *state;
  struct cache_request made;
  struct key key;
  struct differences noted = {0};
  char nearest[65];
  assert_status(KJIT_OK, builder_cache_clear(world->builder, NULL, NULL), NULL);
  cache_request_make(&made, 1);
  assert_status(KJIT_OK, key_make(&key, &world->mem, &made.request, "x", NULL), NULL);
  const kjit_status status = builder_cache_why(world->builder, key.text.data, nearest, note_difference, &noted, NULL);
  key_finish(&key);
  assert_status(KJIT_ERR_NOT_FOUND, status, NULL);
  assert_string_equal("", nearest);
}

static void export_to(struct cache_world *world, const char *filter, char path[TEMP_PATH_BYTES],
                      kjit_cache_report *report) {
  kjit_error error = {0};
  *report = (kjit_cache_report){.struct_size = sizeof *report};
  temp_folder_path(&world->folder, "export", path);
  assert_status(KJIT_OK, builder_cache_export(world->builder, path, filter, report, &error), &error);
}

static void test_admin__export_then_import_restores_every_entry(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report;
  char path[TEMP_PATH_BYTES];
  kjit_origin origin;
  export_to(world, NULL, path, &report);
  assert_int_equal(3, report.entries);
  assert_status(KJIT_OK, builder_cache_clear(world->builder, NULL, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_import(world->builder, path, &report, NULL), NULL);
  assert_int_equal(3, report.entries);
  assert_int_equal(0, report.damaged);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  for (long number = 1; number <= 3; number++) {
    assert_status(KJIT_OK, cache_world_get(world, number, 0, &origin, NULL), NULL);
    assert_int_equal(KJIT_ORIGIN_USER, origin);
  }
  assert_int_equal(3, atomic_load(&fake_nvrtc.compiles));
}

static off_t file_bytes(const char *path) {
  struct stat status;
  assert_int_equal(0, lstat(path, &status));
  assert_true(S_ISREG(status.st_mode));
  return status.st_size;
}

static void test_admin__export_follows_a_link_to_a_file(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report;
  char path[TEMP_PATH_BYTES], real[TEMP_PATH_BYTES], target[16];
  temp_folder_path(&world->folder, "export", path);
  temp_folder_path(&world->folder, "real", real);
  assert_int_equal(0, symlink("real", path));
  const int file = open(real, O_WRONLY | O_CREAT | O_EXCL, 0666);
  assert_int_equal(0, close(file));
  export_to(world, NULL, path, &report);
  assert_int_equal(4, readlink(path, target, sizeof target));
  assert_true(file_bytes(real) > 0);
  assert_status(KJIT_OK, builder_cache_import(world->builder, path, &report, NULL), NULL);
  assert_int_equal(3, report.entries);
}

static void test_admin__export_replaces_files_alone(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES];
  struct stat status;
  kjit_error error = {0};
  temp_folder_path(&world->folder, "pipe", path);
  assert_int_equal(0, mkfifo(path, 0666));
  assert_status(KJIT_ERR_IO, builder_cache_export(world->builder, path, NULL, NULL, &error), &error);
  assert_contains(error.message, "no regular file");
  assert_int_equal(0, lstat(path, &status));
  assert_true(S_ISFIFO(status.st_mode));
}

/* An export that cannot learn what is there is refused, because it could replace a device. */
static void test_admin__export_needs_to_know_what_is_there(void **state) {
  static struct faulty_ops faulty;
  struct cache_world *world = *state;
  kjit_error error = {0};
  char path[TEMP_PATH_BYTES];
  faulty_ops_init(&faulty);
  world->parts.ops = &faulty.ops;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  temp_folder_path(&world->folder, "export", path);
  const enum faulty_call calls[] = {FAULTY_STAT_PATH, FAULTY_REAL_PATH};
  assert_int_equal(0, close(open(path, O_WRONLY | O_CREAT | O_EXCL, 0666)));
  for (int i = 0; i < 2; i++) {
    atomic_store(&faulty.kind, calls[i]);
    assert_status(KJIT_ERR_IO, builder_cache_export(world->builder, path, NULL, NULL, &error), &error);
    assert_int_equal(0, file_bytes(path));
  }
}

static void test_admin__export_filters(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report;
  char path[TEMP_PATH_BYTES];
  kjit_error error = {0};
  export_to(world, "label=number 2,arch=sm_80,family=custom,entry=k", path, &report);
  assert_int_equal(1, report.entries);
  export_to(world, "arch=sm_90", path, &report);
  assert_int_equal(0, report.entries);
  const kjit_status status = builder_cache_export(world->builder, path, "color=red", &report, &error);
  assert_status(KJIT_ERR_INVALID_ARG, status, &error);
  assert_contains(error.message, "color=red");
}

/* The first `bytes` of a file. */
static void copy_head(const char *from, off_t bytes, const char *to) {
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_true(in && out);
  for (off_t i = 0; i < bytes; i++)
    assert_true(fputc(fgetc(in), out) != EOF);
  assert_int_equal(0, fclose(in));
  assert_int_equal(0, fclose(out));
}

static void test_admin__truncated_import_publishes_nothing(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report;
  char path[TEMP_PATH_BYTES];
  struct stat status;
  export_to(world, NULL, path, &report);
  assert_int_equal(0, stat(path, &status));
  for (off_t bytes = 0; bytes < status.st_size; bytes += 97) {
    char cut[TEMP_PATH_BYTES];
    temp_folder_path(&world->folder, "cut", cut);
    copy_head(path, bytes, cut);
    report = (kjit_cache_report){.struct_size = sizeof report};
    assert_status(KJIT_ERR_CORRUPT, builder_cache_import(world->builder, cut, &report, NULL), NULL);
    assert_int_equal(0, report.entries);
  }
}

static void test_admin__export_is_a_bundle(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report;
  char path[TEMP_PATH_BYTES];
  export_to(world, NULL, path, &report);
  world->options.bundle_paths = (const char *const[]){path};
  world->options.bundle_count = 1;
  world->options.cache_mode = KJIT_CACHE_OFF;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_get(world, 2, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
}

static void test_admin__damaged_import_leaves_the_damaged_entry_out(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report;
  char path[TEMP_PATH_BYTES];
  export_to(world, NULL, path, &report);
  const int file = open(path, O_RDWR);
  uint8_t byte;
  assert_int_equal(1, pread(file, &byte, 1, 500));
  byte ^= 1;
  assert_int_equal(1, pwrite(file, &byte, 1, 500));
  close(file);
  assert_status(KJIT_OK, builder_cache_import(world->builder, path, &report, NULL), NULL);
  assert_int_equal(2, report.entries);
  assert_int_equal(1, report.damaged);
}

static void test_admin__clear_removes_entries_and_failures(void **state) {
  struct cache_world *world = *state;
  kjit_cache_report report = {.struct_size = sizeof report};
  struct seen seen = {0};
  atomic_store(&fake_nvrtc.reject, 1);
  assert_status(KJIT_ERR_COMPILE, cache_world_get(world, 9, 0, NULL, NULL), NULL);
  atomic_store(&fake_nvrtc.reject, 0);
  assert_status(KJIT_OK, builder_cache_clear(world->builder, &report, NULL), NULL);
  assert_int_equal(3, report.removed);
  assert_status(KJIT_OK, builder_cache_list(world->builder, note_entry, &seen, NULL), NULL);
  assert_int_equal(0, seen.count);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 9, 0, NULL, NULL), NULL);
}

static void test_admin__read_only_cache_refuses_changes(void **state) {
  struct cache_world *world = *state;
  kjit_error error = {0};
  world->options.cache_mode = KJIT_CACHE_RO;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_ERR_IO, builder_cache_clear(world->builder, NULL, &error), &error);
  assert_contains(error.message, "read-only");
  assert_status(KJIT_ERR_IO, builder_cache_prune(world->builder, 0, NULL, NULL), NULL);
  assert_status(KJIT_ERR_IO, builder_cache_verify(world->builder, KJIT_CACHE_REPAIR, NULL, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_verify(world->builder, 0, NULL, NULL), NULL);
}

static void test_admin__memory_only_cache_is_empty(void **state) {
  struct cache_world *world = *state;
  struct seen seen = {0};
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  world->options.cache_mode = KJIT_CACHE_OFF;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_null(builder_cache_path(world->builder));
  assert_status(KJIT_OK, builder_cache_list(world->builder, note_entry, &seen, NULL), NULL);
  assert_int_equal(0, seen.count);
  assert_status(KJIT_OK, builder_cache_verify(world->builder, 0, &report, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_clear(world->builder, &report, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_get_stats(world->builder, &stats, NULL), NULL);
  assert_int_equal(0, stats.entries);
  assert_status(KJIT_ERR_IO, builder_cache_import(world->builder, "/dev/null", NULL, NULL), NULL);
}

static void test_admin__folder_has_a_cache_tag(void **state) {
  struct cache_world *world = *state;
  char path[TEMP_PATH_BYTES], text[64] = "";
  temp_folder_path(&world->folder, "cache/CACHEDIR.TAG", path);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_non_null(fgets(text, sizeof text, file));
  fclose(file);
  assert_string_equal("Signature: 8a477f597d28d172789f06886806bc55\n", text);
}

#define ADMIN_TEST(test) cmocka_unit_test_setup_teardown(test, setup_with_three, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      ADMIN_TEST(test_admin__list_visits_every_entry),
      ADMIN_TEST(test_admin__visitor_can_stop_the_list),
      ADMIN_TEST(test_admin__show_finds_by_the_first_digits),
      ADMIN_TEST(test_admin__show_refuses_what_is_no_key),
      ADMIN_TEST(test_admin__why_names_the_one_field_that_differs),
      ADMIN_TEST(test_admin__why_compares_an_entry_with_its_nearest_neighbour),
      ADMIN_TEST(test_admin__why_in_an_empty_cache_finds_nothing),
      ADMIN_TEST(test_admin__export_then_import_restores_every_entry),
      ADMIN_TEST(test_admin__export_follows_a_link_to_a_file),
      ADMIN_TEST(test_admin__export_replaces_files_alone),
      ADMIN_TEST(test_admin__export_needs_to_know_what_is_there),
      ADMIN_TEST(test_admin__export_filters),
      ADMIN_TEST(test_admin__truncated_import_publishes_nothing),
      ADMIN_TEST(test_admin__export_is_a_bundle),
      ADMIN_TEST(test_admin__damaged_import_leaves_the_damaged_entry_out),
      ADMIN_TEST(test_admin__clear_removes_entries_and_failures),
      ADMIN_TEST(test_admin__read_only_cache_refuses_changes),
      ADMIN_TEST(test_admin__memory_only_cache_is_empty),
      ADMIN_TEST(test_admin__folder_has_a_cache_tag),
  };
  return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
