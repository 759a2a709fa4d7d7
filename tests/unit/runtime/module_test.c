/* Modules: kernels by name and by expression, and global variables. */
#include "fixture.h"

#include <kjit/module.h>

static kjit_module *module_of(struct fixture *f, const char *const *names, size_t count) {
  kjit_build_request request = fixture_request(NULL, "a");
  kjit_module *module = NULL;
  request.names = names;
  request.name_count = count;
  assert_status(KJIT_OK, kjit_module_get(f->runtime, &request, &module, &f->error), &f->error);
  return module;
}

static void test_module__kernels_of_one_compile_share_one_load(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"n::k<float, 4>"};
  kjit_kernel *plain, *template, *again;
  kjit_module *const module = module_of(f, names, 1);
  assert_status(KJIT_OK, kjit_module_get_kernel(module, "k", &plain, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_module_get_kernel(module, "n::k<float, 4>", &template, &f->error), &f->error);
  assert_string_equal("lownkfloat", fake_driver.kernel_name);
  assert_status(KJIT_OK, kjit_module_get_kernel(module, "lownkfloat", &again, &f->error), &f->error);
  assert_ptr_not_equal(plain, template);
  assert_ptr_equal(template, again);
  assert_int_equal(1, fake_driver_calls_of(FAKE_LibraryLoadData));
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  kjit_kernel_release(plain);
  kjit_kernel_release(template);
  kjit_kernel_release(again);
  kjit_module_release(module);
}

static void test_module__without_entry_is_read_by_the_driver_at_once(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = fixture_request(NULL, "a");
  kjit_module *module = NULL;
  request.entry = NULL;
  atomic_store(&fake_driver.refuse_images, 1);
  assert_status(KJIT_ERR_DRIVER, kjit_module_get(f->runtime, &request, &module, &f->error), &f->error);
  assert_null(module);
  assert_status(KJIT_OK, kjit_module_get(f->runtime, &request, &module, &f->error), &f->error);
  kjit_module_release(module);
}

static void test_module__unknown_kernel_is_not_found_and_the_others_are_listed(void **state) {
  struct fixture *f = *state;
  kjit_kernel *kernel = NULL;
  kjit_module *const module = module_of(f, NULL, 0);
  assert_status(KJIT_ERR_NOT_FOUND, kjit_module_get_kernel(module, "absent", &kernel, &f->error), &f->error);
  assert_contains(f->error.message, "no kernel \"absent\"; it has k");
  assert_null(kernel);
  kjit_module_release(module);
}

static void test_module__kernel_get_without_entry_is_refused(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = fixture_request(NULL, "a");
  kjit_kernel *kernel;
  request.entry = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  assert_contains(f->error.message, "request.entry");
}

static void test_module__expressions_survive_the_cache_folder(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"n::k<float, 4>"};
  kjit_kernel *kernel = NULL;
  kjit_module_release(module_of(f, names, 1));
  fixture_close(f);
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  kjit_module *const module = module_of(f, names, 1);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  assert_status(KJIT_OK, kjit_module_get_kernel(module, names[0], &kernel, &f->error), &f->error);
  assert_string_equal("lownkfloat", fake_driver.kernel_name);
  kjit_kernel_release(kernel);
  kjit_module_release(module);
}

static void test_module__other_names_are_another_key(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"n::k<float, 4>", "n::k<float, 8>"};
  kjit_module_release(module_of(f, names, 1));
  kjit_module_release(module_of(f, names, 2));
  kjit_module_release(module_of(f, names + 1, 1));
  assert_int_equal(3, atomic_load(&fake_nvrtc.compiles));
}

static void test_module__globals_are_found_written_and_read(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"&n::table"};
  const uint32_t written[2] = {7, 9};
  uint32_t read[2] = {0};
  kjit_global global = {.struct_size = sizeof global};
  kjit_module *const module = module_of(f, names, 1);
  assert_status(KJIT_OK, kjit_module_get_global(module, "&n::table", &global, &f->error), &f->error);
  assert_string_equal("lowntable", fake_driver.kernel_name);
  assert_int_equal(64, global.bytes);
  assert_int_equal((uintptr_t)fake_driver.global, global.address);
  kjit_status status = kjit_module_write_global(module, names[0], 56, written, sizeof written, NULL, &f->error);
  assert_status(KJIT_OK, status, &f->error);
  assert_memory_equal(written, fake_driver.global + 56, sizeof written);
  status = kjit_module_read_global(module, names[0], 56, read, sizeof read, NULL, &f->error);
  assert_status(KJIT_OK, status, &f->error);
  assert_memory_equal(written, read, sizeof read);
  kjit_module_release(module);
}

static void test_module__range_beyond_a_global_is_refused(void **state) {
  struct fixture *f = *state;
  const uint32_t data[2] = {0};
  kjit_module *const module = module_of(f, NULL, 0);
  kjit_status status = kjit_module_write_global(module, "table", 57, data, sizeof data, NULL, &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, status, &f->error);
  assert_contains(f->error.message, "8 from offset 57 on; the variable \"table\" has 64");
  status = kjit_module_write_global(module, "table", SIZE_MAX, data, sizeof data, NULL, &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, status, &f->error);
  status = kjit_module_write_global(module, "absent", 0, data, sizeof data, NULL, &f->error);
  assert_status(KJIT_ERR_NOT_FOUND, status, &f->error);
  assert_contains(f->error.message, "no variable \"absent\"");
  kjit_module_release(module);
}

static void test_module__single_cubin_is_loaded_as_it_is(void **state) {
  struct fixture *f = *state;
  unsigned char cubin[FAKE_CUBIN_LEAST_BYTES];
  fake_nvrtc_cubin("from elsewhere", cubin, sizeof cubin);
  const kjit_part part = {.data = cubin, .bytes = sizeof cubin, .kind = KJIT_PART_CUBIN};
  kjit_build_request request = kjit_build_request_default();
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_kernel *kernel = NULL;
  request.entry = "k";
  request.parts = &part;
  request.part_count = 1;
  assert_status(KJIT_OK, kjit_kernel_get(f->runtime, &request, &kernel, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(kjit_kernel_artifact(kernel), &info, &f->error), &f->error);
  assert_int_equal(sizeof cubin, info.cubin_bytes);
  assert_memory_equal(cubin, info.cubin, sizeof cubin);
  assert_int_equal(0, atomic_load(&fake_nvrtc.compiles));
  kjit_kernel_release(kernel);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_module__kernels_of_one_compile_share_one_load),
      FIXTURE_TEST(test_module__without_entry_is_read_by_the_driver_at_once),
      FIXTURE_TEST(test_module__unknown_kernel_is_not_found_and_the_others_are_listed),
      FIXTURE_TEST(test_module__kernel_get_without_entry_is_refused),
      FIXTURE_TEST(test_module__expressions_survive_the_cache_folder),
      FIXTURE_TEST(test_module__other_names_are_another_key),
      FIXTURE_TEST(test_module__globals_are_found_written_and_read),
      FIXTURE_TEST(test_module__range_beyond_a_global_is_refused),
      FIXTURE_TEST(test_module__single_cubin_is_loaded_as_it_is),
  };
  return cmocka_run_group_tests_name("module", tests, NULL, NULL);
}
