/* The NVRTC of this machine, for tests that need the real one. Where there is none they skip, and say so. */
#ifndef KJIT_TESTS_JIT_REAL_NVRTC_H
#define KJIT_TESTS_JIT_REAL_NVRTC_H

#include "jit/compile/compile.h"
#include "jit/request/custom_request.h"
#include "support/test.h"

struct real_nvrtc {
  struct temp_folder folder;
  struct mem mem;
  struct nvrtc *nvrtc;
  kjit_build_request request; /* sm_80, entry "k", source "main.cu" to be set */
  struct custom_request custom;
  struct compile_result result;
  kjit_error error;
};

static inline int real_nvrtc_setup(void **state) {
  struct real_nvrtc *real = calloc(1, sizeof *real);
  *state = real;
  if (!real || !mem_init(&real->mem, NULL) || temp_folder_create(&real->folder)) return -1;
  real->request = kjit_build_request_default();
  real->request.arch = "sm_80";
  real->request.entry = "k";
  return nvrtc_create(&real->nvrtc, &real->mem, NULL, 1, &real->error) == KJIT_OK ? 0 : -1;
}

static inline int real_nvrtc_teardown(void **state) {
  struct real_nvrtc *real = *state;
  compile_result_finish(&real->result, &real->mem);
  custom_request_finish(&real->custom);
  nvrtc_destroy(real->nvrtc);
  temp_folder_remove(&real->folder);
  free(real);
  return 0;
}

/* The machine's NVRTC, opened, or the end of the test. */
static inline struct real_nvrtc *real_nvrtc_or_skip(void **state, int *version) {
  struct real_nvrtc *real = *state;
  const struct nvrtc_api *api;
  int major, minor;
  if (nvrtc_open(real->nvrtc, &api, &major, &minor, &real->error) != KJIT_OK) {
    print_message("no NVRTC: %s\n", real->error.message);
    skip();
  }
  if (version) *version = 100 * major + minor;
  return real;
}

/* Compile `text` as main.cu. The result is in real->result, what went wrong in real->error. */
static inline kjit_status real_nvrtc_compile(struct real_nvrtc *real, const char *text) {
  compile_result_finish(&real->result, &real->mem);
  custom_request_finish(&real->custom);
  memset(&real->error, 0, sizeof real->error);
  real->request.source = (kjit_source){"main.cu", text, 0};
  const kjit_status status = custom_request_init(&real->custom, &real->mem, &real->request, NULL, &real->error);
  if (status != KJIT_OK) return status;
  return compile_run(real->nvrtc, &real->custom.request, &real->mem, NULL, NULL, &real->result, &real->error);
}

/* A copy of the last cubin, to be compared with the next; free(). */
static inline void *real_nvrtc_copy_cubin(const struct real_nvrtc *real) {
  void *copy = malloc(real->result.cubin_bytes);
  memcpy(copy, real->result.cubin, real->result.cubin_bytes);
  return copy;
}

#define REAL_NVRTC_TEST(name) cmocka_unit_test_setup_teardown(name, real_nvrtc_setup, real_nvrtc_teardown)

#endif
