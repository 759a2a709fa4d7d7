/* A kernel of one argument, and its launches on the fake driver: what the tests of launches share. */
#ifndef KJIT_TESTS_RUNTIME_LAUNCHING_H
#define KJIT_TESTS_RUNTIME_LAUNCHING_H

#include "fixture.h"

struct args {
  uint64_t a, b;
};

static const struct args args = {0x1122334455667788, 0x99aabbccddeeff00};
static const kjit_arg arg = KJIT_ARG(args);

/* For the current device. */
static inline kjit_kernel *kernel_of(struct fixture *f) {
  kjit_kernel *const kernel = fixture_kernel(f, NULL, "a");
  assert_non_null(kernel);
  return kernel;
}

static inline kjit_status launch(struct fixture *f, const kjit_launch *shape) {
  return kjit_kernel_launch(kernel_of(f), shape, &arg, 1, NULL, &f->error);
}

static inline void assert_refused(struct fixture *f, const kjit_launch *shape, kjit_status expected, const char *what) {
  assert_status(expected, launch(f, shape), &f->error);
  assert_contains(f->error.message, what);
  assert_int_equal(0, fake_driver_calls_of(FAKE_LaunchKernel) + fake_driver_calls_of(FAKE_LaunchKernelEx));
}

#endif
