/* Building, launching and reading back, for tests of users' kernels on the GPU. */
#ifndef KJIT_TESTS_GPU_USER_KERNEL_H
#define KJIT_TESTS_GPU_USER_KERNEL_H

#include "gpu_fixture.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static inline kjit_build_request request_for(const char *text, const char *entry) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = entry;
  request.source = (kjit_source){"user.cu", text, 0};
  return request;
}

static inline kjit_kernel *get_kernel(struct gpu_fixture *fixture, const char *text, const char *entry) {
  const kjit_build_request request = request_for(text, entry);
  kjit_error error = {0};
  kjit_kernel *kernel = NULL;
  assert_status(KJIT_OK, kjit_kernel_get(fixture->runtime, &request, &kernel, &error), &error);
  return kernel;
}

static inline struct card_buffer zeros(struct gpu_fixture *fixture, size_t bytes) {
  kjit_error error = {0};
  struct card_buffer buffer;
  void *const nothing = test_calloc(1, bytes);
  assert_status(KJIT_OK, card_buffer_create(&fixture->card, &buffer, bytes, &error), &error);
  assert_status(KJIT_OK, card_write(&fixture->card, buffer.address, nothing, bytes, &error), &error);
  test_free(nothing);
  return buffer;
}

static inline void launch(struct gpu_fixture *fixture, kjit_kernel *kernel, const kjit_launch *shape,
                          const kjit_arg *args, size_t count) {
  kjit_error error = {0};
  const kjit_status status = kjit_kernel_launch(kernel, shape, args, count, fixture->card.stream, &error);
  assert_status(KJIT_OK, status, &error);
}

static inline void read_back(struct gpu_fixture *fixture, void *to, const struct card_buffer *from, size_t bytes) {
  kjit_error error = {0};
  assert_status(KJIT_OK, card_synchronize(&fixture->card, fixture->card.stream, &error), &error);
  assert_status(KJIT_OK, card_read(&fixture->card, to, from->address, bytes, &error), &error);
}

static inline bool is_hopper_or_later(const struct gpu_fixture *fixture) {
  return strtol(fixture->card.arch + 3, NULL, 10) >= 90;
}

static inline void need_hopper(const struct gpu_fixture *fixture) {
  if (is_hopper_or_later(fixture)) return;
  print_message("needs sm_90, this card is %s\n", fixture->card.arch);
  skip();
}

#endif
