#include <pthread.h>
#include <sys/wait.h>

#include "support/cache_world.h"

/* A world that records to a file of its folder, as family "flash_forward" unless told otherwise. */
struct recording {
  struct cache_world *world;
  char path[TEMP_PATH_BYTES];
};

static int setup(void **state) {
  struct recording *recording = calloc(1, sizeof *recording);
  *state = recording;
  if (!recording || cache_world_setup((void **)&recording->world)) return -1;
  temp_folder_path(&recording->world->folder, "asked.manifest", recording->path);
  recording->world->options.record_path = recording->path;
  return cache_world_open(recording->world, NULL) == KJIT_OK ? 0 : -1;
}

static int teardown(void **state) {
  struct recording *recording = *state;
  cache_world_teardown((void **)&recording->world);
  free(recording);
  return 0;
}

static kjit_status ask(struct builder *builder, long number, const char *family, uint32_t flags) {
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  cache_request_make(&made, number);
  made.request.family = family;
  made.request.flags = flags;
  const kjit_status status = builder_get(builder, &made.request, &artifact, NULL);
  kjit_artifact_release(artifact);
  return status;
}

/* The file's text; freed by the caller. */
static char *text_of(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return strdup("");
  char *text = calloc(1, 1 << 20);
  (void)!fread(text, 1, (1 << 20) - 1, file);
  fclose(file);
  return text;
}

static void assert_text(const char *path, const char *expected) {
  char *text = text_of(path);
  assert_string_equal(text, expected);
  free(text);
}

static void test_record__each_request_is_written_once(void **state) {
  struct recording *recording = *state;
  for (int i = 0; i < 3; i++) {
    assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
    assert_status(KJIT_OK, ask(recording->world->builder, 2, "flash_forward", 0), NULL);
  }
  assert_text(recording->path, "flash_forward sm_80 number 1\nflash_forward sm_80 number 2\n");
}

static void test_record__hits_are_recorded_as_well(void **state) {
  struct recording *recording = *state;
  recording->world->options.record_path = NULL;
  assert_status(KJIT_OK, cache_world_open(recording->world, NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_status(KJIT_OK, builder_record(recording->world->builder, recording->path, NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_text(recording->path, "flash_forward sm_80 number 1\n");
}

static void test_record__can_be_stopped_and_sent_elsewhere(void **state) {
  struct recording *recording = *state;
  char other[TEMP_PATH_BYTES];
  temp_folder_path(&recording->world->folder, "other.manifest", other);
  assert_status(KJIT_OK, builder_record(recording->world->builder, NULL, NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_status(KJIT_OK, builder_record(recording->world->builder, other, NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_text(recording->path, "");
  assert_text(other, "flash_forward sm_80 number 1\n");
  assert_status(KJIT_ERR_INVALID_ARG, builder_record(recording->world->builder, "", NULL), NULL);
}

static void test_record__a_second_process_adds_only_what_is_new(void **state) {
  struct recording *recording = *state;
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_status(KJIT_OK, cache_world_open(recording->world, NULL), NULL); /* forgets what it has seen */
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 2, "flash_forward", 0), NULL);
  assert_text(recording->path, "flash_forward sm_80 number 1\nflash_forward sm_80 number 2\n");
}

static void test_record__a_line_inside_another_is_not_taken_for_it(void **state) {
  struct recording *recording = *state;
  temp_folder_write_text(&recording->world->folder, "asked.manifest", "# flash_forward sm_80 number 1\n");
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_text(recording->path, "# flash_forward sm_80 number 1\nflash_forward sm_80 number 1\n");
}

static void test_record__a_line_without_end_is_ended(void **state) {
  struct recording *recording = *state;
  temp_folder_write_text(&recording->world->folder, "asked.manifest", "flash_forward sm_9");
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_text(recording->path, "flash_forward sm_9\nflash_forward sm_80 number 1\n");
}

static void test_record__a_manifest_with_a_blank_in_its_name_gets_a_comment(void **state) {
  struct recording *recording = *state;
  temp_folder_path(&recording->world->folder, "what was asked", recording->path);
  assert_status(KJIT_OK, builder_record(recording->world->builder, recording->path, NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "custom", 0), NULL);
  assert_text(recording->path,
              "# custom sm_80 number 1: sources are recorded only beside a manifest whose name has no blank\n");
}

/* As of a library that was built without its kernels' sources, whose variants are found in a bundle. */
static void test_record__sources_that_are_not_there_are_a_comment(void **state) {
  struct recording *recording = *state;
  struct cache_request made;
  struct source_set withheld;
  kjit_artifact *artifact = NULL;
  assert_status(KJIT_OK, builder_record(recording->world->builder, NULL, NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "attention_sm90", 0), NULL);
  assert_status(KJIT_OK, builder_record(recording->world->builder, recording->path, NULL), NULL);
  cache_request_make(&made, 1);
  withheld = *made.request.sources;
  withheld.withheld = true;
  made.request.family = "attention_sm90";
  made.request.has_no_line = true;
  made.request.sources = &withheld;
  assert_status(KJIT_OK, builder_get(recording->world->builder, &made.request, &artifact, NULL), NULL);
  kjit_artifact_release(artifact);
  assert_text(recording->path, "# attention_sm90 sm_80 number 1: this library was built without its sources\n");
}

static void test_record__resident_only_touches_no_file(void **state) {
  struct recording *recording = *state;
  assert_status(KJIT_ERR_NOT_RESIDENT, ask(recording->world->builder, 1, "flash_forward", KJIT_BUILD_RESIDENT_ONLY),
                NULL);
  assert_text(recording->path, "");
}

static void test_record__a_file_that_cannot_be_written_costs_nothing_else(void **state) {
  struct recording *recording = *state;
  assert_status(KJIT_OK, builder_record(recording->world->builder, "/nonexistent/folder/asked.manifest", NULL), NULL);
  assert_status(KJIT_OK, ask(recording->world->builder, 1, "flash_forward", 0), NULL);
  assert_int_equal(1, cache_world_count(recording->world, COUNT_cache_errors));
}

#define PROCESSES 8
#define NUMBERS   25

/* All ask for the same, each beginning somewhere else. */
static void ask_all(struct builder *builder, long first) {
  for (long i = 0; i < NUMBERS; i++)
    if (ask(builder, (first * 3 + i) % NUMBERS, "flash_forward", 0) != KJIT_OK) abort();
}

static void assert_each_once(const char *path) {
  char *text = text_of(path);
  size_t lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++)
    lines++;
  assert_int_equal(lines, NUMBERS);
  for (long i = 0; i < NUMBERS; i++) {
    char line[64];
    snprintf(line, sizeof line, "flash_forward sm_80 number %ld\n", i);
    assert_contains(text, line);
  }
  free(text);
}

static void test_record__many_processes_write_each_once(void **state) {
  struct recording *recording = *state;
  builder_destroy(recording->world->builder);
  recording->world->builder = NULL;
  for (long i = 0; i < PROCESSES; i++)
    if (fork() == 0) {
      if (cache_world_open(recording->world, NULL) != KJIT_OK) _exit(1);
      ask_all(recording->world->builder, i);
      _exit(0);
    }
  for (int i = 0; i < PROCESSES; i++) {
    int how;
    assert_true(wait(&how) > 0 && how == 0);
  }
  assert_each_once(recording->path);
}

static void *thread_main(void *user) {
  ask_all(user, (long)(uintptr_t)&user >> 12);
  return NULL;
}

static void test_record__many_threads_write_each_once(void **state) {
  struct recording *recording = *state;
  pthread_t threads[PROCESSES];
  for (int i = 0; i < PROCESSES; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, thread_main, recording->world->builder), 0);
  for (int i = 0; i < PROCESSES; i++)
    pthread_join(threads[i], NULL);
  assert_each_once(recording->path);
}

#define RECORD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      RECORD_TEST(test_record__each_request_is_written_once),
      RECORD_TEST(test_record__hits_are_recorded_as_well),
      RECORD_TEST(test_record__can_be_stopped_and_sent_elsewhere),
      RECORD_TEST(test_record__a_second_process_adds_only_what_is_new),
      RECORD_TEST(test_record__a_line_inside_another_is_not_taken_for_it),
      RECORD_TEST(test_record__a_line_without_end_is_ended),
      RECORD_TEST(test_record__a_manifest_with_a_blank_in_its_name_gets_a_comment),
      RECORD_TEST(test_record__sources_that_are_not_there_are_a_comment),
      RECORD_TEST(test_record__resident_only_touches_no_file),
      RECORD_TEST(test_record__a_file_that_cannot_be_written_costs_nothing_else),
      RECORD_TEST(test_record__many_processes_write_each_once),
      RECORD_TEST(test_record__many_threads_write_each_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
