/* A runtime over fakes: a driver with two devices, a compiler that takes no time, a cache folder of its own. */
#ifndef KJIT_TESTS_RUNTIME_FIXTURE_H
#define KJIT_TESTS_RUNTIME_FIXTURE_H

#include "support/test.h"

#include "fake_driver.h"
#include "runtime/runtime_internal.h"
#include "support/fake_nvrtc.h"

#include <pthread.h>

#define FIXTURE_THREADS 8
#define FIXTURE_KERNELS 256

struct fixture {
  struct failing_allocator memory;
  struct mem mem;
  struct temp_folder folder;
  kjit_runtime *runtime;
  kjit_error error;
  char warnings[4096];                   /* the lines logged as such */
  kjit_kernel *kernels[FIXTURE_KERNELS]; /* held until the runtime ends */
  size_t kernel_count;
  uint64_t modules_max_idle; /* of the runtime that is opened next */
};

static inline void fixture_log(void *user, kjit_log_level level, const char *line) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct fixture *f = user;
  if (level != KJIT_LOG_WARNING) return;
  pthread_mutex_lock(&lock);
  const size_t used = strlen(f->warnings);
  snprintf(f->warnings + used, sizeof f->warnings - used, "%s\n", line);
  pthread_mutex_unlock(&lock);
}

/* A runtime on the fixture's folder, over `driver`. */
static inline kjit_status fixture_open_over(struct fixture *f, const struct driver_api *driver) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = f->folder.path;
  options.allocator = failing_allocator_hooks(&f->memory);
  options.log = fixture_log;
  options.log_user = f;
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  options.modules_max_idle = f->modules_max_idle;
  struct runtime_fakes fakes = {.driver = driver};
  memset(&f->error, 0, sizeof f->error);
  const kjit_status status = nvrtc_create_fake(&fakes.nvrtc, &f->mem, fake_nvrtc_api(), "nvrtc-fake", &f->error);
  return status == KJIT_OK ? runtime_create_with(&f->runtime, &options, &fakes, &f->error) : status;
}

static inline kjit_status fixture_open(struct fixture *f) {
  return fixture_open_over(f, &fake_driver_api);
}

static inline void fixture_close(struct fixture *f) {
  while (f->kernel_count)
    kjit_kernel_release(f->kernels[--f->kernel_count]);
  kjit_runtime_destroy(f->runtime);
  f->runtime = NULL;
}

static inline int fixture_setup_closed(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  *state = f;
  if (!f || temp_folder_create(&f->folder)) return -1;
  failing_allocator_reset(&f->memory, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&f->memory);
  mem_init(&f->mem, &hooks);
  memset(&fake_nvrtc, 0, sizeof fake_nvrtc);
  fake_driver_reset();
  return 0;
}

static inline int fixture_setup(void **state) {
  return fixture_setup_closed(state) || fixture_open(*state) != KJIT_OK;
}

/* Nothing may be left over, in the driver or on the heap. */
static inline int fixture_teardown(void **state) {
  struct fixture *f = *state;
  if (!f) return 0;
  fake_driver.fail_call = FAKE_CALLS;
  fixture_close(f);
  const int live = atomic_load(&fake_driver.live);
  const long blocks = atomic_load(&f->memory.live);
  if (live || blocks) print_error("left over: %d driver objects, %ld blocks of memory\n", live, blocks);
  temp_folder_remove(&f->folder);
  free(f);
  *state = NULL;
  return live || blocks ? -1 : 0;
}

#define FIXTURE_TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

/* A kernel whose source is `text`: equal text, equal kernel. */
static inline kjit_build_request fixture_request(const char *arch, const char *text) {
  kjit_build_request request = kjit_build_request_default();
  request.arch = arch;
  request.entry = "k";
  request.source = (kjit_source){.name = "k.cu", .text = text};
  return request;
}

/* NULL on failure, with f->error. */
static inline kjit_kernel *fixture_kernel(struct fixture *f, const char *arch, const char *text) {
  const kjit_build_request request = fixture_request(arch, text);
  kjit_kernel *kernel = NULL;
  const kjit_status status = kjit_kernel_get(f->runtime, &request, &kernel, &f->error);
  assert_int_equal(status == KJIT_OK, kernel != NULL);
  if (kernel && f->kernel_count < FIXTURE_KERNELS) f->kernels[f->kernel_count++] = kernel;
  return kernel;
}

struct fixture_thread {
  struct fixture *fixture;
  void *(*body)(void *fixture);
};

/* A new thread has no context; a program's thread that launches has given itself one. */
static inline void *fixture_thread_main(void *user) {
  const struct fixture_thread *thread = user;
  fake_driver_set_current(0);
  return thread->body(thread->fixture);
}

/* Run `body` in many threads at once; each returns what is wrong, or NULL. cmocka's asserts belong to its own thread.
 */
static inline void fixture_in_threads(struct fixture *f, void *(*body)(void *fixture)) {
  pthread_t threads[FIXTURE_THREADS];
  struct fixture_thread thread = {f, body};
  const char *wrong = NULL;
  for (int i = 0; i < FIXTURE_THREADS; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, fixture_thread_main, &thread));
  for (int i = 0; i < FIXTURE_THREADS; i++) {
    void *result = NULL;
    assert_int_equal(0, pthread_join(threads[i], &result));
    if (result) wrong = result;
  }
  if (wrong) fail_msg("a thread says: %s", wrong);
}

#endif
