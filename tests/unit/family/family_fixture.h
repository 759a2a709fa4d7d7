/* A family from a file's text, with a kernel in memory, and how it fails. */
#ifndef KJIT_TESTS_UNIT_FAMILY_FAMILY_FIXTURE_H
#define KJIT_TESTS_UNIT_FAMILY_FAMILY_FIXTURE_H

#include "support/test.h"

#include <string.h>

#include "family/file/family_file.h"

/* The head of a small family; a test adds its own lines. */
#define FAMILY_HEAD                                                                                                    \
  "family: toy\n"                                                                                                      \
  "source: toy.cu\n"                                                                                                   \
  "entry: toy\n"                                                                                                       \
  "fields:\n"                                                                                                          \
  "  BM: {kind: int, values: [64, 96, 128], default: 128}\n"                                                           \
  "  warps: {kind: int, range: [1, 8], default: 4}\n"                                                                  \
  "  fast: {kind: bool, default: false}\n"                                                                             \
  "  dtype: {kind: dtype, values: [fp16, bf16, fp32], default: fp16}\n"                                                \
  "  epilogue: {kind: enum, values: [none, bias, gelu], default: none}\n"

/* Uses every field. */
#define FAMILY_SOURCE                                                                                                  \
  "extern \"C\" __global__ void toy(int *out) {\n"                                                                     \
  "  *out = KJIT_BM + KJIT_warps + KJIT_fast + KJIT_dtype + KJIT_epilogue;\n"                                          \
  "}\n"

struct family_fixture {
  struct failing_allocator allocator;
  struct mem mem;
  struct family_definition *definition;
  const kjit_family *family; /* of the definition */
  kjit_error error;
};

static inline kjit_status family_fixture_make(struct family_fixture *f, const char *text, const char *source) {
  kjit_family_description description;
  struct arena arena;
  memset(&f->error, 0, sizeof f->error);
  f->definition = NULL;
  f->family = NULL;
  arena_init(&arena, &f->mem, ARENA_UNLIMITED);
  kjit_status status = family_file_read(&description, &arena, text, strlen(text), "toy.yaml", NULL, &f->error);
  if (status == KJIT_OK) {
    description.source.text = source;
    status = definition_create(&f->definition, &f->mem, &description, &f->error);
  }
  arena_finish(&arena);
  if (f->definition) f->family = &f->definition->family;
  return status;
}

static inline void family_fixture_finish(struct family_fixture *f) {
  if (f->definition) definition_release(f->definition);
  f->definition = NULL;
  assert_int_equal(atomic_load(&f->allocator.live), 0);
}

static inline int family_fixture_setup(void **state) {
  static struct family_fixture fixture;
  const kjit_allocator hooks = failing_allocator_hooks(&fixture.allocator);
  fixture = (struct family_fixture){0};
  failing_allocator_reset(&fixture.allocator, FAIL_NEVER);
  (void)mem_init(&fixture.mem, &hooks);
  *state = &fixture;
  return 0;
}

static inline int family_fixture_teardown(void **state) {
  family_fixture_finish(*state);
  return 0;
}

/* The head with `lines` makes a family. */
static inline void assert_family(struct family_fixture *f, const char *lines) {
  char text[8192];
  (void)snprintf(text, sizeof text, "%s%s", FAMILY_HEAD, lines);
  assert_status(KJIT_OK, family_fixture_make(f, text, FAMILY_SOURCE), &f->error);
}

/* The head with `lines` is refused with `part` in the message. */
static inline void assert_no_family(struct family_fixture *f, const char *lines, const char *part) {
  char text[8192];
  (void)snprintf(text, sizeof text, "%s%s", FAMILY_HEAD, lines);
  assert_status(KJIT_ERR_PARSE, family_fixture_make(f, text, FAMILY_SOURCE), &f->error);
  assert_contains(f->error.message, part);
}

/* A config of the family, checked. The result is the status; the error is in the fixture. */
static inline kjit_status family_fixture_config(struct family_fixture *f, const char *text, int32_t *values) {
  memset(&f->error, 0, sizeof f->error);
  const kjit_status status = f->family->parse(f->family, text, values, &f->error);
  return status == KJIT_OK ? f->family->check(f->family, values, &f->error) : status;
}

#define family_unit_test(test) cmocka_unit_test_setup_teardown(test, family_fixture_setup, family_fixture_teardown)

#endif
