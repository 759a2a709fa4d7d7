/* Bundles opened, asked and closed by many threads at once; what ThreadSanitizer watches. */
#include <pthread.h>
#include <stdbool.h>

#include <kjit/kjit.h>

#include "bundle_sample.h"

#define THREADS 6
#define ROUNDS  10
#define KERNELS 12 /* for each of the two architectures */

struct shared {
  struct sample sample;
  char path[TEMP_PATH_BYTES], spare[TEMP_PATH_BYTES];
  struct bundle *open; /* of all threads */
  pthread_barrier_t start;
};

/* What a thread found wrong: cmocka's asserts belong to its own thread. */
static const char *read_kernel(struct bundle *bundle, const struct mem *mem, unsigned number, const char *arch) {
  struct sample_kernel kernel;
  struct digest request;
  struct entry_image image;
  uint32_t index;
  sample_kernel_make(&kernel, number, arch, "nvrtc-sample");
  sample_digest(&kernel, &request);
  if (!bundle_table_find(bundle_table(bundle), &request, &index)) return "a kernel is missing";
  if (bundle_read(bundle, index, &image, NULL) != KJIT_OK) return "a kernel cannot be read";
  const bool equal = image.entry.cubin_bytes == sizeof kernel.cubin &&
                     !memcmp(image.entry.cubin, kernel.cubin, sizeof kernel.cubin) &&
                     !strcmp(image.entry.key_text.data, kernel.key_text);
  entry_image_finish(&image, mem);
  return equal ? NULL : "a kernel is another";
}

static const char *read_all(struct bundle *bundle, const struct mem *mem) {
  const char *wrong = NULL;
  for (unsigned i = 0; i < 2 * KERNELS && !wrong; i++)
    wrong = read_kernel(bundle, mem, i / 2, sample_archs[i % 2]);
  return wrong;
}

static int count_kernel(void *user, const kjit_cache_entry *entry) {
  *(unsigned *)user += entry->status == KJIT_OK;
  return 0;
}

/* As a program does that looks into one. */
static const char *list_file(const struct shared *shared) {
  kjit_bundle *bundle = NULL;
  unsigned sound = 0;
  if (kjit_bundle_open(&bundle, shared->path, NULL, NULL, 0, NULL) != KJIT_OK) return "the file cannot be opened";
  const kjit_status listed = kjit_bundle_list(bundle, count_kernel, &sound, NULL);
  kjit_bundle_close(bundle);
  return listed == KJIT_OK && sound == 2 * KERNELS ? NULL : "the file's list is another";
}

/* As a program does that runs from two: a file and its own memory. */
static const char *make_runtime(const struct shared *shared) {
  const char *const path = shared->path;
  const kjit_bundle_blob blob = {shared->sample.data, shared->sample.bytes};
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  options.cache_mode = KJIT_CACHE_OFF;
  options.bundle_paths = &path;
  options.bundle_count = 1;
  options.bundle_blobs = &blob;
  options.bundle_blob_count = 1;
  const kjit_status status = kjit_runtime_create(&runtime, &options, NULL);
  kjit_runtime_destroy(runtime);
  return status == KJIT_OK ? NULL : "a runtime cannot be made";
}

static const char *open_and_read(const struct shared *shared, bool from_memory) {
  static const struct trust nobody;
  const struct bundle_source file = {shared->path, NULL, 0};
  const struct bundle_source blob = {NULL, shared->sample.data, shared->sample.bytes};
  struct bundle *bundle;
  if (bundle_open(&bundle, &shared->sample.mem, from_memory ? &blob : &file, &nobody, NULL) != KJIT_OK)
    return "a bundle cannot be opened";
  const char *const wrong = read_all(bundle, &shared->sample.mem);
  bundle_close(bundle);
  return wrong;
}

static void *open_query_close(void *user) {
  const struct shared *const shared = user;
  const char *wrong = NULL;
  pthread_barrier_wait(&((struct shared *)user)->start);
  for (unsigned i = 0; i < ROUNDS && !wrong; i++) {
    wrong = open_and_read(shared, i % 2);
    if (!wrong) wrong = list_file(shared);
    if (!wrong) wrong = make_runtime(shared);
  }
  return (void *)(uintptr_t)wrong;
}

static void *query(void *user) {
  struct shared *const shared = user;
  pthread_barrier_wait(&shared->start);
  return (void *)(uintptr_t)read_all(shared->open, &shared->sample.mem);
}

static void write_bundle(const struct shared *shared, const char *path) {
  FILE *const file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(1, fwrite(shared->sample.data, shared->sample.bytes, 1, file));
  assert_int_equal(0, fclose(file));
}

static void shared_begin(struct shared *shared, const struct temp_folder *folder) {
  sample_make(&shared->sample, KERNELS, sample_compress);
  temp_folder_path(folder, "b.kjb", shared->path);
  temp_folder_path(folder, "spare", shared->spare);
  write_bundle(shared, shared->path);
  assert_int_equal(0, pthread_barrier_init(&shared->start, NULL, THREADS));
}

static void shared_end(struct shared *shared) {
  pthread_barrier_destroy(&shared->start);
  sample_end(&shared->sample);
}

static void threads_start(pthread_t threads[THREADS], void *(*body)(void *shared), struct shared *shared) {
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, body, shared));
}

static void threads_end(const pthread_t threads[THREADS]) {
  const char *wrong = NULL;
  for (int i = 0; i < THREADS; i++) {
    void *found = NULL;
    assert_int_equal(0, pthread_join(threads[i], &found));
    if (found) wrong = found;
  }
  if (wrong) fail_msg("a thread says: %s", wrong);
}

static void test_bundle__threads_open_ask_and_close_while_the_file_is_replaced(void **state) {
  struct shared shared;
  pthread_t threads[THREADS];
  shared_begin(&shared, *state);
  threads_start(threads, open_query_close, &shared);
  for (int i = 0; i < ROUNDS; i++) {
    write_bundle(&shared, shared.spare);
    assert_int_equal(0, rename(shared.spare, shared.path));
  }
  threads_end(threads);
  shared_end(&shared);
}

/* Dictionaries are unpacked when the first kernel of a group is asked for: here by all threads at the same time. */
static void test_bundle__threads_ask_one_for_the_first_time(void **state) {
  static const struct trust nobody;
  struct shared shared;
  pthread_t threads[THREADS];
  shared_begin(&shared, *state);
  const struct bundle_source file = {shared.path, NULL, 0};
  for (int i = 0; i < ROUNDS; i++) {
    assert_status(KJIT_OK, bundle_open(&shared.open, &shared.sample.mem, &file, &nobody, NULL), NULL);
    threads_start(threads, query, &shared);
    threads_end(threads);
    bundle_close(shared.open);
  }
  shared_end(&shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_bundle__threads_open_ask_and_close_while_the_file_is_replaced,
                                      temp_folder_setup, temp_folder_teardown),
      cmocka_unit_test_setup_teardown(test_bundle__threads_ask_one_for_the_first_time, temp_folder_setup,
                                      temp_folder_teardown),
  };
  return cmocka_run_group_tests_name("bundle threads", tests, NULL, NULL);
}
