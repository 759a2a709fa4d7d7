/* A runtime as a user makes one: public headers only, a cache folder of its own, no environment. */
#ifndef KJIT_TESTS_API_FIXTURE_H
#define KJIT_TESTS_API_FIXTURE_H

#include "support/test.h"

#include <kjit/kjit.h>

struct fixture {
  struct failing_allocator memory;
  struct temp_folder folder;
  kjit_runtime *runtime;
  kjit_error error;
};

static inline kjit_runtime_options fixture_options(struct fixture *f) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = f->folder.path;
  options.allocator = failing_allocator_hooks(&f->memory);
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  /* The one variable that says where a machine has NVRTC, so that all of them can run these tests. */
  options.nvrtc_path = getenv("KJIT_NVRTC");
  return options;
}

static inline void fixture_close(struct fixture *f) {
  kjit_runtime_destroy(f->runtime);
  f->runtime = NULL;
}

static inline void fixture_open_with(struct fixture *f, const kjit_runtime_options *options) {
  fixture_close(f);
  assert_status(KJIT_OK, kjit_runtime_create(&f->runtime, options, &f->error), &f->error);
}

static inline void fixture_open(struct fixture *f) {
  const kjit_runtime_options options = fixture_options(f);
  fixture_open_with(f, &options);
}

static inline int fixture_setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  *state = f;
  if (!f || temp_folder_create(&f->folder)) return -1;
  failing_allocator_reset(&f->memory, FAIL_NEVER);
  fixture_open(f);
  return 0;
}

static inline int fixture_teardown(void **state) {
  struct fixture *f = *state;
  if (!f) return 0;
  fixture_close(f);
  const long blocks = atomic_load(&f->memory.live);
  if (blocks) print_error("left over: %ld blocks of memory\n", blocks);
  temp_folder_remove(&f->folder);
  free(f);
  *state = NULL;
  return blocks ? -1 : 0;
}

#define FIXTURE_TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

/* Skip, visibly, where there is no compiler. */
static inline void fixture_need_nvrtc(struct fixture *f) {
  kjit_doctor_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, kjit_doctor(f->runtime, &report, &f->error), &f->error);
  if (report.nvrtc_status == KJIT_OK) return;
  print_message("no NVRTC: %s\n", report.nvrtc_message);
  skip();
}

#endif
