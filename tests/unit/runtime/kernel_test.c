#include "fixture.h"

#include <stdbool.h>

static long compiles(void) {
  return atomic_load(&fake_nvrtc.compiles);
}

static void test_kernel__second_get_loads_nothing(void **state) {
  struct fixture *f = *state;
  kjit_kernel *const first = fixture_kernel(f, "sm_90", "a");
  assert_non_null(first);
  assert_ptr_equal(first, fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(1, fake_driver_calls_of(FAKE_LibraryLoadData));
  assert_ptr_not_equal(first, fixture_kernel(f, "sm_90", "b"));
  assert_int_equal(2, fake_driver_calls_of(FAKE_LibraryLoadData));
}

static void test_kernel__knows_its_artifact(void **state) {
  struct fixture *f = *state;
  kjit_artifact_info info = {.struct_size = sizeof info};
  const kjit_kernel *const kernel = fixture_kernel(f, "sm_90", "a");
  assert_status(KJIT_OK, kjit_artifact_get_info(kjit_kernel_artifact(kernel), &info, &f->error), &f->error);
  assert_string_equal("k", info.entry);
  assert_string_equal("sm_90", info.arch);
}

static void test_kernel__without_arch_is_for_the_current_device(void **state) {
  struct fixture *f = *state;
  kjit_artifact_info info = {.struct_size = sizeof info};
  fake_driver_set_current(1);
  const kjit_kernel *const kernel = fixture_kernel(f, NULL, "a");
  assert_non_null(kernel);
  assert_status(KJIT_OK, kjit_artifact_get_info(kjit_kernel_artifact(kernel), &info, &f->error), &f->error);
  assert_string_equal("sm_80", info.arch);
}

static void test_kernel__arch_that_the_device_cannot_run_is_refused_before_compiling(void **state) {
  struct fixture *f = *state;
  fake_driver_set_current(1);
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, f->error.status);
  assert_contains(f->error.message, "sm_90");
  assert_contains(f->error.message, "sm_80");
  assert_int_equal(0, compiles());
}

static void test_kernel__without_context_nothing_is_compiled(void **state) {
  struct fixture *f = *state;
  fake_driver_set_current(-1);
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(KJIT_ERR_NO_DRIVER, f->error.status);
  assert_int_equal(0, compiles());
}

static void *get_one(void *user) {
  struct fixture *f = user;
  const kjit_build_request request = fixture_request("sm_90", "shared");
  kjit_kernel *kernel;
  const kjit_status status = kjit_kernel_get(f->runtime, &request, &kernel, NULL);
  kjit_kernel_release(kernel);
  return status == KJIT_OK ? NULL : "no kernel";
}

static void test_kernel__eight_threads_make_one_load(void **state) {
  struct fixture *f = *state;
  fake_driver.load_us = 20000;
  fixture_in_threads(f, get_one);
  assert_int_equal(1, fake_driver_calls_of(FAKE_LibraryLoadData));
  assert_int_equal(1, compiles());
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(1, stats.kernels_loaded);
}

static void *get_a_refused_one(void *user) {
  struct fixture *f = user;
  const kjit_build_request request = fixture_request("sm_90", "shared");
  kjit_kernel *kernel;
  return kjit_kernel_get(f->runtime, &request, &kernel, NULL) == KJIT_ERR_DRIVER ? NULL : "no refusal";
}

static void test_kernel__eight_threads_and_a_refused_cubin_make_two_compiles_at_most(void **state) {
  struct fixture *f = *state;
  atomic_store(&fake_driver.refuse_images, 1000);
  fixture_in_threads(f, get_a_refused_one);
  assert_in_range(compiles(), 1, 2);
}

static void test_kernel__resident_only_neither_compiles_nor_loads(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = fixture_request("sm_90", "a");
  kjit_kernel *kernel;
  request.flags = KJIT_BUILD_RESIDENT_ONLY;
  assert_status(KJIT_ERR_NOT_RESIDENT, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  assert_int_equal(0, compiles());

  kjit_artifact *artifact;
  request.flags = 0;
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  kjit_artifact_release(artifact);
  request.flags = KJIT_BUILD_RESIDENT_ONLY;
  assert_status(KJIT_ERR_NOT_RESIDENT, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  assert_contains(f->error.message, "not loaded");
  assert_int_equal(0, fake_driver_calls_of(FAKE_LibraryLoadData));

  assert_non_null(fixture_kernel(f, "sm_90", "a"));
  assert_status(KJIT_OK, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  kjit_kernel_release(kernel);
}

static void test_kernel__of_a_key_alone_is_refused(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = fixture_request("sm_90", "a");
  kjit_kernel *kernel;
  request.flags = KJIT_BUILD_KEY_ONLY;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  assert_contains(f->error.message, "KJIT_BUILD_KEY_ONLY");
  assert_null(kernel);
}

/* Compile in one runtime, so that the next finds the entry on disk. */
static void fill_cache(struct fixture *f) {
  const kjit_build_request request = fixture_request("sm_90", "a");
  kjit_artifact *artifact;
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  kjit_artifact_release(artifact);
  fixture_close(f);
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_int_equal(1, compiles());
}

static void refused_entry_from_disk_is_rebuilt_once(struct fixture *f) {
  fill_cache(f);
  atomic_store(&fake_driver.refuse_images, 1);
  assert_non_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(2, compiles());
  assert_int_equal(2, fake_driver_calls_of(FAKE_LibraryLoadData));
  assert_contains(f->warnings, "CUDA_ERROR_INVALID_IMAGE");
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(1, stats.rebuilt_entries);
}

static void test_kernel__refused_entry_from_disk_is_rebuilt_once(void **state) {
  refused_entry_from_disk_is_rebuilt_once(*state);
}

static void test_kernel__refused_entry_from_disk_is_rebuilt_once_under_eager_loading(void **state) {
  fake_driver.eager = true;
  refused_entry_from_disk_is_rebuilt_once(*state);
}

static void test_kernel__cubin_without_the_entry_says_so_and_is_not_built_again(void **state) {
  struct fixture *f = *state;
  fill_cache(f);
  fake_driver.fail_call = FAKE_LibraryGetKernel;
  fake_driver.failure = CUDA_ERROR_NOT_FOUND;
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_contains(f->error.message, "has no kernel \"k\"");
  assert_int_equal(1, compiles());
}

static void test_kernel__refused_again_fails_with_the_drivers_words(void **state) {
  struct fixture *f = *state;
  fill_cache(f);
  atomic_store(&fake_driver.refuse_images, 1000);
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(KJIT_ERR_DRIVER, f->error.status);
  assert_int_equal(CUDA_ERROR_INVALID_IMAGE, f->error.cause);
  assert_contains(f->error.message, "the image is bad");
  assert_int_equal(2, compiles());
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(2, compiles());
}

static void test_kernel__what_this_call_compiled_is_not_compiled_again(void **state) {
  struct fixture *f = *state;
  atomic_store(&fake_driver.refuse_images, 1);
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(KJIT_ERR_DRIVER, f->error.status);
  assert_int_equal(1, compiles());
}

static void test_kernel__refused_entry_that_no_longer_compiles_says_both(void **state) {
  struct fixture *f = *state;
  fill_cache(f);
  atomic_store(&fake_driver.refuse_images, 1);
  atomic_store(&fake_nvrtc.reject, 1);
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(KJIT_ERR_DRIVER, f->error.status);
  assert_contains(f->error.message, "CUDA_ERROR_INVALID_IMAGE");
  assert_contains(f->error.message, "rejected by the fake");
}

static void test_kernel__failure_that_is_no_refusal_compiles_nothing(void **state) {
  struct fixture *f = *state;
  fill_cache(f);
  fake_driver.fail_call = FAKE_LibraryLoadData;
  fake_driver.failure = CUDA_ERROR_OUT_OF_MEMORY;
  assert_null(fixture_kernel(f, "sm_90", "a"));
  assert_int_equal(CUDA_ERROR_OUT_OF_MEMORY, f->error.cause);
  assert_int_equal(1, compiles());
  fake_driver.fail_call = FAKE_CALLS;
  assert_non_null(fixture_kernel(f, "sm_90", "a"));
}

static void test_kernel__references_still_held_at_the_end_are_told(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = fixture_request("sm_90", "a");
  kjit_kernel *kernel;
  assert_status(KJIT_OK, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  fixture_close(f);
  assert_contains(f->warnings, "1 references to kernels");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_kernel__second_get_loads_nothing),
      FIXTURE_TEST(test_kernel__knows_its_artifact),
      FIXTURE_TEST(test_kernel__without_arch_is_for_the_current_device),
      FIXTURE_TEST(test_kernel__arch_that_the_device_cannot_run_is_refused_before_compiling),
      FIXTURE_TEST(test_kernel__without_context_nothing_is_compiled),
      FIXTURE_TEST(test_kernel__eight_threads_make_one_load),
      FIXTURE_TEST(test_kernel__eight_threads_and_a_refused_cubin_make_two_compiles_at_most),
      FIXTURE_TEST(test_kernel__resident_only_neither_compiles_nor_loads),
      FIXTURE_TEST(test_kernel__of_a_key_alone_is_refused),
      FIXTURE_TEST(test_kernel__refused_entry_from_disk_is_rebuilt_once),
      FIXTURE_TEST(test_kernel__refused_entry_from_disk_is_rebuilt_once_under_eager_loading),
      FIXTURE_TEST(test_kernel__cubin_without_the_entry_says_so_and_is_not_built_again),
      FIXTURE_TEST(test_kernel__refused_again_fails_with_the_drivers_words),
      FIXTURE_TEST(test_kernel__what_this_call_compiled_is_not_compiled_again),
      FIXTURE_TEST(test_kernel__refused_entry_that_no_longer_compiles_says_both),
      FIXTURE_TEST(test_kernel__failure_that_is_no_refusal_compiles_nothing),
      FIXTURE_TEST(test_kernel__references_still_held_at_the_end_are_told),
  };
  return cmocka_run_group_tests_name("kernel", tests, NULL, NULL);
}
