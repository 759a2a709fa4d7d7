/* Requests that are recorded with their sources, and built again from the files. */
#include <kjit/record.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jit/builder_recorded.h"
#include "jit/cache/temp_file.h"
#include "jit/record/record_sources.h"
#include "support/cache_world.h"

#define KEY_TEXT_BYTES sizeof(((kjit_key *)0)->key)

/* A world that records, and where the record's files are. */
struct recording {
  struct cache_world *world;
  char manifest[TEMP_PATH_BYTES], sources[TEMP_PATH_BYTES], request[2 * TEMP_PATH_BYTES];
  kjit_error error;
};

static int setup(void **state) {
  struct recording *r = calloc(1, sizeof *r);
  *state = r;
  if (!r || cache_world_setup((void **)&r->world)) return -1;
  temp_folder_path(&r->world->folder, "asked", r->manifest);
  temp_folder_path(&r->world->folder, "asked" RECORDED_FOLDER_SUFFIX, r->sources);
  r->world->options.record_path = r->manifest;
  return cache_world_open(r->world, NULL) == KJIT_OK ? 0 : -1;
}

static int teardown(void **state) {
  struct recording *r = *state;
  cache_world_teardown((void **)&r->world);
  free(r);
  return 0;
}

static char *text_of(const char *path) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  char *text = calloc(1, 1 << 16);
  (void)!fread(text, 1, (1 << 16) - 1, file);
  fclose(file);
  return text;
}

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(strlen(text), fwrite(text, 1, strlen(text), file));
  fclose(file);
}

/* The path of the first name in the sources' folder that ends with `suffix`, or that does not when it is empty. */
static void find_file(const struct recording *r, bool request, char path[2 * TEMP_PATH_BYTES]) {
  DIR *folder = opendir(r->sources);
  assert_non_null(folder);
  path[0] = '\0';
  for (const struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.' && (strstr(entry->d_name, RECORDED_SUFFIX) != NULL) == request)
      snprintf(path, 2 * TEMP_PATH_BYTES, "%s/%s", r->sources, entry->d_name);
  closedir(folder);
  assert_true(path[0] != '\0');
}

/* Ask for the request, and keep its key. */
static void record(struct recording *r, const struct jit_request *request, char key[KEY_TEXT_BYTES]) {
  kjit_artifact *artifact = NULL;
  kjit_key made = {.struct_size = sizeof made};
  assert_status(KJIT_OK, builder_get(r->world->builder, request, &artifact, &r->error), &r->error);
  assert_status(KJIT_OK, kjit_artifact_get_key(artifact, &made, &r->error), &r->error);
  snprintf(key, KEY_TEXT_BYTES, "%s", made.key);
  kjit_artifact_release(artifact);
  find_file(r, true, r->request);
}

/* As another machine would: nothing in memory, and a cache folder of its own. */
static void move_away(struct recording *r) {
  r->world->options.record_path = NULL;
  temp_folder_path(&r->world->folder, "elsewhere", r->world->cache_dir);
  assert_status(KJIT_OK, cache_world_open(r->world, &r->error), &r->error);
}

static kjit_status rebuild(struct recording *r, const char *path, const char *arch, char key[KEY_TEXT_BYTES]) {
  kjit_artifact *artifact = NULL;
  kjit_key made = {.struct_size = sizeof made};
  r->error = (kjit_error){0};
  kjit_status status = builder_recorded(r->world->builder, path, arch, 0, &artifact, &r->error);
  if (status == KJIT_OK) status = kjit_artifact_get_key(artifact, &made, &r->error);
  if (key) snprintf(key, KEY_TEXT_BYTES, "%s", made.key);
  kjit_artifact_release(artifact);
  return status;
}

static void assert_refused(struct recording *r, kjit_status expected, const char *what) {
  assert_status(expected, rebuild(r, r->request, NULL, NULL), &r->error);
  if (!strstr(r->error.message, what)) fail_msg("\"%s\" does not say \"%s\"", r->error.message, what);
}

/* Write a request's file over again under the digest of its new content. */
static void forge(struct recording *r, const char *from, const char *to) {
  char *text = text_of(r->request), *found = strstr(text, from), hex[DIGEST_HEX_BYTES];
  struct digest digest;
  assert_non_null(found);
  char *made = calloc(1, 1 << 17);
  snprintf(made, 1 << 17, "%.*s%s%s", (int)(found - text), text, to, found + strlen(from));
  digest_of(&digest, made, strlen(made));
  digest_to_hex(&digest, hex);
  snprintf(r->request, sizeof r->request, "%s/%s" RECORDED_SUFFIX, r->sources, hex);
  write_text(r->request, made);
  free(made);
  free(text);
}

static void test_recorded__a_source_makes_the_same_key_elsewhere(void **state) {
  struct recording *r = *state;
  struct cache_request made;
  char before[KEY_TEXT_BYTES], after[KEY_TEXT_BYTES];
  cache_request_make(&made, 1);
  record(r, &made.request, before);
  move_away(r);
  assert_status(KJIT_OK, rebuild(r, r->request, "sm_80", after), &r->error);
  assert_string_equal(before, after);
  assert_int_equal(1, cache_world_count(r->world, COUNT_builds));
  assert_status(KJIT_OK, rebuild(r, r->request, NULL, NULL), &r->error);
  assert_int_equal(1, cache_world_count(r->world, COUNT_builds));
}

static void test_recorded__a_family_without_a_file_keeps_its_name_and_label(void **state) {
  struct recording *r = *state;
  struct cache_request made;
  char before[KEY_TEXT_BYTES], after[KEY_TEXT_BYTES];
  cache_request_make(&made, 1);
  made.request.family = "softmax";
  made.request.is_users = true;
  made.request.label = "threads=64,vec=4";
  record(r, &made.request, before);
  char *line = text_of(r->manifest);
  assert_non_null(strstr(line, RECORDED_SUFFIX " sm_80 softmax threads=64,vec=4\n"));
  free(line);
  move_away(r);
  assert_status(KJIT_OK, rebuild(r, r->request, NULL, after), &r->error);
  assert_string_equal(before, after);
}

static void test_recorded__what_is_not_built_is_recorded_with_options_and_names(void **state) {
  struct recording *r = *state;
  static const char *const options[] = {"--maxrregcount=64", "--use_fast_math"};
  static const char *const names[] = {"add<int>", "add<float>"};
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  char before[KEY_TEXT_BYTES];
  kjit_key key = {.struct_size = sizeof key};
  cache_request_make(&made, 1);
  made.request.options = options;
  made.request.names = names;
  made.request.option_count = made.request.name_count = 2;
  made.request.flags = KJIT_BUILD_NO_COMPILE;
  assert_int_not_equal(KJIT_OK, builder_get(r->world->builder, &made.request, &artifact, NULL));
  made.request.flags = KJIT_BUILD_KEY_ONLY;
  record(r, &made.request, before);
  assert_status(KJIT_OK, builder_recorded(r->world->builder, r->request, NULL, KJIT_BUILD_KEY_ONLY, &artifact, NULL),
                NULL);
  assert_status(KJIT_OK, kjit_artifact_get_key(artifact, &key, NULL), NULL);
  assert_string_equal(before, key.key);
  kjit_artifact_release(artifact);
}

static void test_recorded__equal_texts_are_one_file(void **state) {
  struct recording *r = *state;
  char key[KEY_TEXT_BYTES];
  for (long number = 0; number < 5; number++) {
    struct cache_request made;
    cache_request_make(&made, number);
    record(r, &made.request, key);
  }
  size_t count = 0;
  DIR *folder = opendir(r->sources);
  for (const struct dirent *entry; (entry = readdir(folder));)
    count += entry->d_name[0] != '.';
  closedir(folder);
  assert_int_equal(6, count); /* one text and five requests */
}

static void test_recorded__another_architecture_is_refused(void **state) {
  struct recording *r = *state;
  struct cache_request made;
  char key[KEY_TEXT_BYTES];
  cache_request_make(&made, 1);
  record(r, &made.request, key);
  assert_status(KJIT_ERR_UNSUPPORTED, rebuild(r, r->request, "sm_90", NULL), &r->error);
  assert_non_null(strstr(r->error.message, "recorded for sm_80"));
}

static void record_and_leave(struct recording *r) {
  struct cache_request made;
  char key[KEY_TEXT_BYTES];
  cache_request_make(&made, 1);
  record(r, &made.request, key);
  move_away(r);
}

static void test_recorded__a_damaged_source_is_named(void **state) {
  struct recording *r = *state;
  char path[2 * TEMP_PATH_BYTES];
  record_and_leave(r);
  find_file(r, false, path);
  write_text(path, "extern \"C\" __global__ void k(int) {}\n");
  assert_refused(r, KJIT_ERR_CORRUPT, strrchr(path, '/') + 1);
}

static void test_recorded__a_missing_source_is_named(void **state) {
  struct recording *r = *state;
  char path[2 * TEMP_PATH_BYTES];
  record_and_leave(r);
  find_file(r, false, path);
  assert_int_equal(0, unlink(path));
  assert_refused(r, KJIT_ERR_NOT_FOUND, "is not there");
}

static void test_recorded__a_symbolic_link_is_not_followed(void **state) {
  struct recording *r = *state;
  char path[2 * TEMP_PATH_BYTES], away[TEMP_PATH_BYTES];
  record_and_leave(r);
  find_file(r, false, path);
  temp_folder_path(&r->world->folder, "away", away);
  assert_int_equal(0, rename(path, away));
  assert_int_equal(0, symlink(away, path));
  assert_refused(r, KJIT_ERR_IO, "symbolic link");
}

static void test_recorded__a_damaged_request_is_refused(void **state) {
  struct recording *r = *state;
  record_and_leave(r);
  write_text(r->request, "kjit-request 1\n");
  assert_refused(r, KJIT_ERR_CORRUPT, "damaged");
}

static void test_recorded__a_path_that_is_no_recorded_request_is_refused(void **state) {
  struct recording *r = *state;
  snprintf(r->request, sizeof r->request, "/etc/passwd");
  assert_refused(r, KJIT_ERR_INVALID_ARG, "64 hexadecimal digits");
}

static void test_recorded__a_text_in_place_of_a_digest_is_refused(void **state) {
  struct recording *r = *state;
  record_and_leave(r);
  forge(r, "digest 64:", "digest 75:../../../..");
  assert_refused(r, KJIT_ERR_CORRUPT, "not a recorded request");
}

static void test_recorded__an_option_that_reads_files_is_refused(void **state) {
  struct recording *r = *state;
  record_and_leave(r);
  forge(r, "prologue ", "option 20:--include-path=/etc/\nprologue ");
  assert_refused(r, KJIT_ERR_INVALID_ARG, "include-path");
}

static void test_recorded__another_key_than_the_recorded_one_is_refused(void **state) {
  struct recording *r = *state;
  record_and_leave(r);
  forge(r, "entry-format 1:2", "entry-format 1:1");
  assert_refused(r, KJIT_ERR_UNSUPPORTED, "record it again");
}

static void test_recorded__a_source_cannot_include_a_file_of_the_machine(void **state) {
  struct recording *r = *state;
  char secret[TEMP_PATH_BYTES];
  struct cache_request made;
  char key[KEY_TEXT_BYTES];
  temp_folder_path(&r->world->folder, "secret", secret);
  write_text(secret, "int secret;\n");
  static const char *const forms[] = {"#include \"%s\"\n", "#define WHERE \"%s\"\n#include WHERE\n",
                                      "#if 0\n#include <%s>\n#endif\n"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    cache_request_make(&made, 10 + (long)i);
    char text[512];
    snprintf(text, sizeof text, forms[i], secret);
    snprintf(text + strlen(text), sizeof text - strlen(text), "extern \"C\" __global__ void k() {}\n");
    made.file.text = text;
    made.file.bytes = strlen(text);
    made.file.digest = (struct digest){0};
    cache_request_seal(&made);
    r->world->options.record_path = r->manifest;
    assert_status(KJIT_OK, cache_world_open(r->world, NULL), NULL);
    record(r, &made.request, key);
    char *line = text_of(r->manifest), *last = strrchr(line, '/');
    assert_non_null(last);
    snprintf(r->request, sizeof r->request, "%s/%.*s", r->sources, (int)strcspn(last + 1, " "), last + 1);
    free(line);
    r->world->options.record_path = NULL;
    char folder[32];
    snprintf(folder, sizeof folder, "elsewhere%zu", i);
    temp_folder_path(&r->world->folder, folder, r->world->cache_dir);
    assert_status(KJIT_OK, cache_world_open(r->world, &r->error), &r->error);
    assert_refused(r, KJIT_ERR_UNSUPPORTED, "not recorded with it");
  }
}

static void test_recorded__a_folder_that_cannot_be_made_costs_the_record_alone(void **state) {
  struct recording *r = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  write_text(r->sources, "a file");
  cache_request_make(&made, 1);
  assert_status(KJIT_OK, builder_get(r->world->builder, &made.request, &artifact, &r->error), &r->error);
  kjit_artifact_release(artifact);
  assert_int_equal(1, cache_world_count(r->world, COUNT_cache_errors));
  assert_int_not_equal(0, access(r->manifest, F_OK));
}

/* A file as a killed writer leaves it. */
static void leave(const struct recording *r, const char *name) {
  char path[2 * TEMP_PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s", r->sources, name);
  write_text(path, "half a file");
}

static bool is_there(const struct recording *r, const char *name) {
  char path[2 * TEMP_PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s", r->sources, name);
  return access(path, F_OK) == 0;
}

static void test_recorded__sweep_removes_what_killed_writers_left_and_nothing_else(void **state) {
  struct recording *r = *state;
  uint64_t removed = 0;
  record_and_leave(r);
  leave(r, ".0123456789abcdef");
  leave(r, ".fedcba9876543210");
  leave(r, ".gitignore");
  leave(r, ".0123456789abcde");
  assert_status(KJIT_OK, kjit_record_sweep(r->manifest, &removed, &r->error), &r->error);
  assert_int_equal(2, removed);
  assert_false(is_there(r, ".0123456789abcdef"));
  assert_true(is_there(r, ".gitignore"));
  assert_true(is_there(r, ".0123456789abcde"));
  assert_status(KJIT_OK, rebuild(r, r->request, NULL, NULL), &r->error);
}

static void test_recorded__sweep_leaves_what_is_being_written(void **state) {
  struct recording *r = *state;
  const struct file_ops *const ops = file_ops_system();
  struct temp_file temp;
  uint64_t removed = 7;
  record_and_leave(r);
  const int folder = ops->open_path(ops->user, r->sources, O_RDONLY | O_DIRECTORY, 0);
  assert_int_equal(0, temp_file_create_beside(&temp, ops, folder));
  assert_int_equal(0, temp_file_write(&temp, ops, "half", 4));
  assert_status(KJIT_OK, kjit_record_sweep(r->manifest, &removed, &r->error), &r->error);
  assert_int_equal(0, removed);
  assert_int_equal(0, temp_file_publish(&temp, ops, folder, "whole"));
  temp_file_finish(&temp, ops);
  (void)ops->close(ops->user, folder);
  assert_true(is_there(r, "whole"));
}

static void test_recorded__sweep_without_a_folder_has_nothing_to_do(void **state) {
  struct recording *r = *state;
  uint64_t removed = 7;
  assert_status(KJIT_OK, kjit_record_sweep(r->manifest, &removed, &r->error), &r->error);
  assert_int_equal(0, removed);
  write_text(r->sources, "a file");
  assert_status(KJIT_ERR_IO, kjit_record_sweep(r->manifest, &removed, &r->error), &r->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_record_sweep(NULL, NULL, &r->error), &r->error);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_recorded__a_source_makes_the_same_key_elsewhere),
      CASE(test_recorded__a_family_without_a_file_keeps_its_name_and_label),
      CASE(test_recorded__what_is_not_built_is_recorded_with_options_and_names),
      CASE(test_recorded__equal_texts_are_one_file),
      CASE(test_recorded__another_architecture_is_refused),
      CASE(test_recorded__a_damaged_source_is_named),
      CASE(test_recorded__a_missing_source_is_named),
      CASE(test_recorded__a_symbolic_link_is_not_followed),
      CASE(test_recorded__a_damaged_request_is_refused),
      CASE(test_recorded__a_path_that_is_no_recorded_request_is_refused),
      CASE(test_recorded__a_text_in_place_of_a_digest_is_refused),
      CASE(test_recorded__an_option_that_reads_files_is_refused),
      CASE(test_recorded__another_key_than_the_recorded_one_is_refused),
      CASE(test_recorded__a_source_cannot_include_a_file_of_the_machine),
      CASE(test_recorded__a_folder_that_cannot_be_made_costs_the_record_alone),
      CASE(test_recorded__sweep_removes_what_killed_writers_left_and_nothing_else),
      CASE(test_recorded__sweep_leaves_what_is_being_written),
      CASE(test_recorded__sweep_without_a_folder_has_nothing_to_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
