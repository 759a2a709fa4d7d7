/* A request for a caller's own kernel, and what custom_request_init() makes of it. */
#ifndef KJIT_TESTS_UNIT_JIT_CUSTOM_FIXTURE_H
#define KJIT_TESTS_UNIT_JIT_CUSTOM_FIXTURE_H

#include "base/error.h"
#include "jit/request/custom_request.h"
#include "support/test.h"

static struct failing_allocator allocator;
static struct mem mem;

struct fixture {
  struct temp_folder folder;
  kjit_build_request request;
  struct custom_request custom;
  kjit_error error;
};

static inline int setup(void **state) {
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  struct fixture *fixture = calloc(1, sizeof *fixture);
  *state = fixture;
  if (!fixture || !mem_init(&mem, &hooks) || temp_folder_create(&fixture->folder)) return -1;
  fixture->request = kjit_build_request_default();
  fixture->request.arch = "sm_80";
  fixture->request.entry = "k";
  fixture->request.source = (kjit_source){"main.cu", "__global__ void k() {}\n", 0};
  return 0;
}

static inline int teardown(void **state) {
  struct fixture *fixture = *state;
  custom_request_finish(&fixture->custom);
  temp_folder_remove(&fixture->folder);
  free(fixture);
  return atomic_load(&allocator.live) ? -1 : 0;
}

static inline kjit_status make(struct fixture *f) {
  error_clear(&f->error);
  custom_request_finish(&f->custom);
  return custom_request_init(&f->custom, &mem, &f->request, NULL, &f->error);
}

static inline void assert_made(struct fixture *f) {
  assert_status(KJIT_OK, make(f), &f->error);
}

static inline void assert_refused(struct fixture *f, kjit_status status, const char *part) {
  assert_status(status, make(f), &f->error);
  assert_contains(f->error.message, part);
  assert_null(f->custom.storage);
}

/* The names of the closure, main first: "main.cu a.h b.h". */
static inline const char *names(const struct fixture *f) {
  static char text[4096];
  const struct source_set *set = f->custom.request.sources;
  text[0] = '\0';
  for (size_t i = 0; i < set->count; i++) {
    strcat(text, i ? " " : "");
    strcat(text, set->files[i].name);
  }
  return text;
}

static inline const char *text_of(const struct fixture *f, const char *name) {
  const struct source_set *set = f->custom.request.sources;
  for (size_t i = 0; i < set->count; i++) {
    if (!strcmp(set->files[i].name, name)) return set->files[i].text;
  }
  return NULL;
}

static inline void set_source(struct fixture *f, const char *text) {
  f->request.source = (kjit_source){"main.cu", text, 0};
}

#endif
