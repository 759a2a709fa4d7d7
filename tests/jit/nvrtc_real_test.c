/* Opening the real NVRTC. */
#include <pthread.h>

#include "base/dynlib.h"
#include "jit/real_nvrtc.h"

/* First in the group: NVRTC stays loaded. */
static void test_nvrtc_real__identity_is_known_without_loading_it(void **state) {
  struct real_nvrtc *real = *state;
  struct dynlib lib;
  const char *identity = nvrtc_identity(real->nvrtc, &real->error);
  if (!identity) skip();
  assert_contains(identity, "nvrtc-");
  assert_false(dynlib_open_loaded(&lib, nvrtc_file(real->nvrtc, NULL)));
}

static void *open_and_compile(void *user) {
  struct nvrtc *nvrtc = user;
  struct mem mem;
  const struct nvrtc_api *api;
  int major, minor;
  nvrtcProgram program;
  if (!mem_init(&mem, NULL) || nvrtc_open(nvrtc, &api, &major, &minor, NULL) != KJIT_OK) return NULL;
  if (api->nvrtcCreateProgram(&program, "extern \"C\" __global__ void k() {}", "k.cu", 0, NULL, NULL)) return NULL;
  const nvrtcResult result = api->nvrtcCompileProgram(program, 0, NULL);
  (void)api->nvrtcDestroyProgram(&program);
  return result == NVRTC_SUCCESS ? (void *)(uintptr_t)api : NULL;
}

static void test_nvrtc_real__threads_that_open_it_at_once_share_one_table(void **state) {
  struct real_nvrtc *real = *state;
  pthread_t threads[4];
  void *api[4];
  if (!nvrtc_identity(real->nvrtc, &real->error)) skip();
  for (int i = 0; i < 4; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, open_and_compile, real->nvrtc));
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], &api[i]);
  for (int i = 0; i < 4; i++) {
    assert_non_null(api[i]);
    assert_ptr_equal(api[0], api[i]);
  }
}

static void test_nvrtc_real__version_is_that_of_a_supported_toolkit(void **state) {
  int version;
  (void)real_nvrtc_or_skip(state, &version);
  assert_true(version >= 1200);
}

static void test_nvrtc_real__second_object_opens_the_same_library(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  struct nvrtc *second;
  const struct nvrtc_api *first_api, *second_api;
  int major, minor;
  assert_int_equal(KJIT_OK, nvrtc_create(&second, &real->mem, nvrtc_file(real->nvrtc, NULL), 0, NULL));
  assert_int_equal(KJIT_OK, nvrtc_open(second, &second_api, &major, &minor, NULL));
  assert_int_equal(KJIT_OK, nvrtc_open(real->nvrtc, &first_api, &major, &minor, NULL));
  assert_ptr_equal(first_api->nvrtcVersion, second_api->nvrtcVersion);
  assert_string_equal(nvrtc_identity(real->nvrtc, NULL), nvrtc_identity(second, NULL));
  nvrtc_destroy(second);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      REAL_NVRTC_TEST(test_nvrtc_real__identity_is_known_without_loading_it),
      REAL_NVRTC_TEST(test_nvrtc_real__threads_that_open_it_at_once_share_one_table),
      REAL_NVRTC_TEST(test_nvrtc_real__version_is_that_of_a_supported_toolkit),
      REAL_NVRTC_TEST(test_nvrtc_real__second_object_opens_the_same_library),
  };
  return cmocka_run_group_tests_name("nvrtc_real", tests, NULL, NULL);
}
