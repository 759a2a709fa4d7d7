#include "jit/toolkit/nvrtc.h"

#include <stdbool.h>

#include "base/dynlib.h"
#include "jit/toolkit/nvrtc_find.h"
#include "support/fake_elf.h"
#include "support/fake_nvrtc.h"
#include "support/test.h"

static const unsigned char id_one[20] = {0x11, 0x22, 0x33}, id_two[20] = {0xaa, 0xbb}, id_short[4] = {1, 2, 3, 4};
#define HEX_ONE "1122330000000000000000000000000000000000"
#define HEX_TWO "aabb000000000000000000000000000000000000"

static struct mem mem;
static const char *const variables[] = {"KJIT_NVRTC", "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX"};

/* A folder, and an environment that names no NVRTC. */
static int setup(void **state) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    unsetenv(variables[i]);
  return mem_init(&mem, NULL) ? temp_folder_setup(state) : -1;
}

static void put_library(void **state, const char *name, const void *id, size_t id_bytes) {
  struct fake_elf elf;
  fake_elf_library(&elf, id, id_bytes);
  assert_int_equal(0, temp_folder_write(*state, name, elf.data, elf.bytes));
}

static const char *path_of(void **state, const char *name) {
  static char path[TEMP_PATH_BYTES];
  temp_folder_path(*state, name, path);
  return path;
}

static kjit_status find(struct nvrtc_place *place, void **state, const char *asked, kjit_error *error) {
  char root[TEMP_PATH_BYTES];
  temp_folder_path(*state, "root", root);
  const struct nvrtc_search search = {asked, "nvrtc_path", root};
  memset(error, 0, sizeof *error);
  return nvrtc_find(place, &search, error);
}

static void assert_found(void **state, const char *asked, const char *library, const char *identity) {
  struct nvrtc_place place;
  kjit_error error;
  assert_status(KJIT_OK, find(&place, state, asked, &error), &error);
  assert_string_equal(path_of(state, library), place.library);
  assert_string_equal(identity, place.identity);
}

/* -- Where it is ----------------------------------------------------------------------------------------------------
 */

static void test_nvrtc_find__asked_file_or_folder_is_taken(void **state) {
  put_library(state, "a/libnvrtc.so.12", id_one, sizeof id_one);
  put_library(state, "a/other.so", id_two, sizeof id_two);
  assert_found(state, path_of(state, "a"), "a/libnvrtc.so.12", "nvrtc-" HEX_ONE);
  assert_found(state, path_of(state, "a/other.so"), "a/other.so", "nvrtc-" HEX_TWO);
}

static void test_nvrtc_find__asked_relative_path_becomes_absolute(void **state) {
  struct nvrtc_place file, folder;
  kjit_error error;
  char *before = getcwd(NULL, 0);
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  assert_int_equal(0, chdir(path_of(state, "a")));
  const kjit_status by_file = find(&file, state, "libnvrtc.so.13", &error);
  const kjit_status by_folder = find(&folder, state, ".", &error);
  assert_int_equal(0, chdir(before));
  free(before);
  assert_int_equal(KJIT_OK, by_file);
  assert_int_equal(KJIT_OK, by_folder);
  assert_string_equal(path_of(state, "a/libnvrtc.so.13"), file.library);
  assert_string_equal(path_of(state, "a/libnvrtc.so.13"), folder.library);
}

static void test_nvrtc_find__newest_name_of_a_folder_wins(void **state) {
  put_library(state, "a/libnvrtc.so.12", id_one, sizeof id_one);
  put_library(state, "a/libnvrtc.so.13", id_two, sizeof id_two);
  assert_found(state, path_of(state, "a"), "a/libnvrtc.so.13", "nvrtc-" HEX_TWO);
}

static void test_nvrtc_find__asked_path_without_it_is_an_error_even_if_others_have_it(void **state) {
  struct nvrtc_place place;
  kjit_error error;
  put_library(state, "root/usr/local/cuda/lib64/libnvrtc.so.13", id_one, sizeof id_one);
  assert_status(KJIT_ERR_NO_NVRTC, find(&place, state, "/no/such/folder", &error), &error);
  assert_contains(error.message, "nvrtc_path: \"/no/such/folder\"");
  assert_status(KJIT_ERR_NO_NVRTC, find(&place, state, path_of(state, "root"), &error), &error);
}

static void test_nvrtc_find__library_path_comes_before_the_usual_places(void **state) {
  char folders[3 * TEMP_PATH_BYTES];
  put_library(state, "root/usr/local/cuda/lib64/libnvrtc.so.13", id_one, sizeof id_one);
  put_library(state, "b/libnvrtc.so.12", id_two, sizeof id_two);
  assert_found(state, NULL, "root/usr/local/cuda/lib64/libnvrtc.so.13", "nvrtc-" HEX_ONE);
  snprintf(folders, sizeof folders, ":/no/such:%s", path_of(state, "b"));
  setenv("LD_LIBRARY_PATH", folders, 1);
  assert_found(state, NULL, "b/libnvrtc.so.12", "nvrtc-" HEX_TWO);
}

static void put_toolkit(void **state, const char *folder, const char *version, const void *id, size_t id_bytes) {
  char name[128];
  snprintf(name, sizeof name, "%s/libnvrtc.so.%.2s", folder, version);
  put_library(state, name, id, id_bytes);
  snprintf(name, sizeof name, "%s/libnvrtc-builtins.so.%s", folder, version);
  put_library(state, name, id, id_bytes);
}

static void test_nvrtc_find__best_version_wins_over_the_first_place(void **state) {
  struct nvrtc_place place;
  kjit_error error;
  put_toolkit(state, "root/usr/local/cuda/lib64", "12.6", id_one, sizeof id_one);
  put_toolkit(state, "venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib", "12.9", id_two, sizeof id_two);
  setenv("VIRTUAL_ENV", path_of(state, "venv"), 1);
  assert_status(KJIT_OK, find(&place, state, NULL, &error), &error);
  assert_contains(place.library, "venv/lib/python3.11");
}

static void test_nvrtc_find__12_5_is_taken_last(void **state) {
  struct nvrtc_place place;
  kjit_error error;
  put_toolkit(state, "root/usr/local/cuda-12.5/lib64", "12.5", id_one, sizeof id_one);
  assert_status(KJIT_OK, find(&place, state, NULL, &error), &error);
  assert_contains(place.library, "cuda-12.5");
  put_toolkit(state, "root/usr/local/cuda-12.4/lib64", "12.4", id_two, sizeof id_two);
  assert_status(KJIT_OK, find(&place, state, NULL, &error), &error);
  assert_contains(place.library, "cuda-12.4");
}

static void test_nvrtc_find__relative_library_path_is_passed_over(void **state) {
  struct nvrtc_place place;
  kjit_error error;
  char *before = getcwd(NULL, 0);
  put_library(state, "b/libnvrtc.so.12", id_two, sizeof id_two);
  assert_int_equal(0, chdir(((struct temp_folder *)*state)->path));
  setenv("LD_LIBRARY_PATH", "b::.", 1);
  const kjit_status status = find(&place, state, NULL, &error);
  assert_int_equal(0, chdir(before));
  free(before);
  assert_status(KJIT_ERR_NO_NVRTC, status, &error);
}

static void test_nvrtc_find__newest_toolkit_wins(void **state) {
  put_library(state, "root/usr/local/cuda-12.9/lib64/libnvrtc.so.12", id_one, sizeof id_one);
  put_library(state, "root/usr/local/cuda-12.10/lib64/libnvrtc.so.12", id_two, sizeof id_two);
  assert_found(state, NULL, "root/usr/local/cuda-12.10/lib64/libnvrtc.so.12", "nvrtc-" HEX_TWO);
}

static void test_nvrtc_find__active_virtual_environment_is_looked_into(void **state) {
  put_library(state, "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13", id_one, sizeof id_one);
  setenv("VIRTUAL_ENV", path_of(state, "venv"), 1);
  assert_found(state, NULL, "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "nvrtc-" HEX_ONE);
}

static void test_nvrtc_find__nowhere_says_where_and_what_to_do(void **state) {
  struct nvrtc_place place;
  kjit_error error;
  assert_status(KJIT_ERR_NO_NVRTC, find(&place, state, NULL, &error), &error);
  static const char *const parts[] = {"LD_LIBRARY_PATH", "/usr/local/cuda", "pip install nvidia-cuda-nvrtc",
                                      "KJIT_NVRTC", "bundle works without it"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    assert_contains(error.message, parts[i]);
}

/* -- What it is ------------------------------------------------------------------------------------------------------
 */

static void test_nvrtc_identity__same_build_elsewhere_is_the_same(void **state) {
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  put_library(state, "b/libnvrtc.so.13", id_one, sizeof id_one);
  assert_found(state, path_of(state, "a"), "a/libnvrtc.so.13", "nvrtc-" HEX_ONE);
  assert_found(state, path_of(state, "b"), "b/libnvrtc.so.13", "nvrtc-" HEX_ONE);
}

static void test_nvrtc_identity__builtins_of_the_folder_are_part_of_it(void **state) {
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  put_library(state, "a/libnvrtc-builtins.so.13.0", id_two, sizeof id_two);
  put_library(state, "a/libnvrtc-builtins.alt.so.13.0", id_short, sizeof id_short);
  assert_found(state, path_of(state, "a"), "a/libnvrtc.so.13", "nvrtc-" HEX_ONE "-" HEX_TWO);
}

static void test_nvrtc_identity__builtins_of_the_librarys_own_version_are_taken(void **state) {
  char link[TEMP_PATH_BYTES];
  put_library(state, "a/libnvrtc.so.12.0.140", id_one, sizeof id_one);
  put_library(state, "a/libnvrtc-builtins.so.12.0.140", id_two, sizeof id_two);
  put_library(state, "a/libnvrtc-builtins.so.12.9.86", id_one, sizeof id_one);
  put_library(state, "a/libnvrtc-builtins.so.13.0", id_one, sizeof id_one);
  temp_folder_path(*state, "a/libnvrtc.so.12", link);
  assert_int_equal(0, symlink("libnvrtc.so.12.0.140", link));
  assert_found(state, path_of(state, "a"), "a/libnvrtc.so.12", "nvrtc-" HEX_ONE "-" HEX_TWO);
}

static void test_nvrtc_identity__file_without_build_id_is_hashed(void **state) {
  struct nvrtc_place one, two;
  kjit_error error;
  temp_folder_write_text(*state, "a/libnvrtc.so.13", "not an ELF file");
  temp_folder_write_text(*state, "b/libnvrtc.so.13", "not an ELF file!");
  assert_status(KJIT_OK, find(&one, state, path_of(state, "a"), &error), &error);
  assert_status(KJIT_OK, find(&two, state, path_of(state, "b"), &error), &error);
  assert_contains(one.identity, "nvrtc-file-");
  assert_int_equal(strlen("nvrtc-file-") + 40, strlen(one.identity));
  assert_string_not_equal(one.identity, two.identity);
}

static void test_nvrtc_identity__build_id_too_short_to_tell_builds_apart_is_not_used(void **state) {
  struct nvrtc_place place;
  kjit_error error;
  put_library(state, "a/libnvrtc.so.13", id_short, sizeof id_short);
  assert_status(KJIT_OK, find(&place, state, path_of(state, "a"), &error), &error);
  assert_contains(place.identity, "nvrtc-file-");
}

static void test_nvrtc_identity__file_truncated_at_every_length_is_hashed(void **state) {
  struct fake_elf elf;
  struct nvrtc_place place;
  kjit_error error;
  fake_elf_library(&elf, id_one, sizeof id_one);
  for (size_t bytes = 0; bytes < elf.bytes; bytes++) {
    temp_folder_write(*state, "libnvrtc.so.13", elf.data, bytes);
    assert_status(KJIT_OK, find(&place, state, path_of(state, "libnvrtc.so.13"), &error), &error);
    assert_contains(place.identity, "nvrtc-file-");
  }
}

/* -- The object ------------------------------------------------------------------------------------------------------
 */

static struct nvrtc *create(const char *path, bool use_environment) {
  struct nvrtc *nvrtc;
  assert_int_equal(KJIT_OK, nvrtc_create(&nvrtc, &mem, path, use_environment, NULL));
  return nvrtc;
}

static void test_nvrtc__environment_is_used_only_where_allowed(void **state) {
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  setenv("KJIT_NVRTC", path_of(state, "a"), 1);
  struct nvrtc *nvrtc = create(NULL, 1);
  assert_string_equal("nvrtc-" HEX_ONE, nvrtc_identity(nvrtc, NULL));
  assert_string_equal(path_of(state, "a/libnvrtc.so.13"), nvrtc_file(nvrtc, NULL));
  nvrtc_destroy(nvrtc);
  nvrtc = create(NULL, 0);
  const char *identity = nvrtc_identity(nvrtc, NULL);
  assert_true(!identity || strcmp(identity, "nvrtc-" HEX_ONE) != 0);
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__option_wins_over_the_environment(void **state) {
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  put_library(state, "b/libnvrtc.so.13", id_two, sizeof id_two);
  setenv("KJIT_NVRTC", path_of(state, "a"), 1);
  struct nvrtc *nvrtc = create(path_of(state, "b"), 1);
  assert_string_equal("nvrtc-" HEX_TWO, nvrtc_identity(nvrtc, NULL));
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__missing_file_in_the_environment_is_named(void **state) {
  (void)state;
  kjit_error error = {0};
  setenv("KJIT_NVRTC", "/no/such/folder", 1);
  struct nvrtc *nvrtc = create(NULL, 1);
  assert_null(nvrtc_identity(nvrtc, &error));
  assert_int_equal(KJIT_ERR_NO_NVRTC, error.status);
  assert_contains(error.message, "KJIT_NVRTC: \"/no/such/folder\"");
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__library_installed_later_is_found(void **state) {
  struct nvrtc *nvrtc = create(path_of(state, "a"), 0);
  assert_null(nvrtc_identity(nvrtc, NULL));
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  assert_string_equal("nvrtc-" HEX_ONE, nvrtc_identity(nvrtc, NULL));
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__file_that_is_no_library_cannot_be_opened(void **state) {
  const struct nvrtc_api *api;
  int major, minor;
  kjit_error error = {0};
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  struct nvrtc *nvrtc = create(path_of(state, "a"), 0);
  assert_status(KJIT_ERR_NO_NVRTC, nvrtc_open(nvrtc, &api, &major, &minor, &error), &error);
  assert_contains(error.message, "NVRTC cannot be opened: ");
  assert_null(api);
  nvrtc_destroy(nvrtc);
}

/* Some library that can be opened. Not under NVRTC's name, at whose unloading ThreadSanitizer stops. */
static void copy_a_real_library(void **state, const char *name) {
  struct dynlib lib;
  char *data;
  size_t bytes;
  assert_int_equal(KJIT_OK, dynlib_open(&lib, "libm.so.6", NULL));
  assert_int_equal(KJIT_OK, file_read(&mem, lib.path, 100 << 20, &data, &bytes, NULL));
  dynlib_close(&lib);
  assert_int_equal(0, temp_folder_write(*state, name, data, bytes));
  mem_free(&mem, data);
}

static void test_nvrtc__library_that_lacks_a_function_is_named(void **state) {
  const struct nvrtc_api *api;
  int major, minor;
  kjit_error error = {0};
  copy_a_real_library(state, "a/math.so");
  struct nvrtc *nvrtc = create(path_of(state, "a/math.so"), 0);
  assert_status(KJIT_ERR_NO_NVRTC, nvrtc_open(nvrtc, &api, &major, &minor, &error), &error);
  assert_contains(error.message, "lacks nvrtcVersion");
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__library_replaced_after_its_identity_was_read_is_refused(void **state) {
  const struct nvrtc_api *api;
  int major, minor;
  kjit_error error = {0};
  char from[TEMP_PATH_BYTES];
  copy_a_real_library(state, "a/math.so");
  copy_a_real_library(state, "new");
  struct nvrtc *nvrtc = create(path_of(state, "a/math.so"), 0);
  assert_non_null(nvrtc_identity(nvrtc, NULL));
  temp_folder_path(*state, "new", from);
  assert_int_equal(0, rename(from, path_of(state, "a/math.so")));
  assert_status(KJIT_ERR_NO_NVRTC, nvrtc_open(nvrtc, &api, &major, &minor, &error), &error);
  assert_contains(error.message, "was replaced");
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__fake_is_handed_out(void **state) {
  (void)state;
  struct nvrtc *nvrtc;
  const struct nvrtc_api *api;
  int major, minor;
  assert_int_equal(KJIT_OK, nvrtc_create_fake(&nvrtc, &mem, fake_nvrtc_api(), "nvrtc-fake", NULL));
  assert_string_equal("nvrtc-fake", nvrtc_identity(nvrtc, NULL));
  assert_int_equal(KJIT_OK, nvrtc_open(nvrtc, &api, &major, &minor, NULL));
  assert_ptr_equal(fake_nvrtc_api()->nvrtcCompileProgram, api->nvrtcCompileProgram);
  assert_int_equal(13, major);
  nvrtc_destroy(nvrtc);
}

static void test_nvrtc__every_failed_allocation_is_no_memory(void **state) {
  static struct failing_allocator allocator;
  struct mem counting;
  kjit_status status = KJIT_ERR_NO_MEMORY;
  put_library(state, "a/libnvrtc.so.13", id_one, sizeof id_one);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  assert_true(mem_init(&counting, &hooks));
  for (long n = 0; status != KJIT_OK; n++) {
    struct nvrtc *nvrtc;
    kjit_error error = {0};
    failing_allocator_reset(&allocator, n);
    status = nvrtc_create(&nvrtc, &counting, path_of(state, "a"), 0, &error);
    if (status == KJIT_OK && !nvrtc_identity(nvrtc, &error)) status = (kjit_status)error.status;
    nvrtc_destroy(nvrtc);
    assert_int_equal(0, atomic_load(&allocator.live));
    if (status != KJIT_OK) assert_status(KJIT_ERR_NO_MEMORY, status, &error);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, temp_folder_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(nvrtc_find__asked_file_or_folder_is_taken),
      TEST(nvrtc_find__asked_relative_path_becomes_absolute),
      TEST(nvrtc_find__newest_name_of_a_folder_wins),
      TEST(nvrtc_find__asked_path_without_it_is_an_error_even_if_others_have_it),
      TEST(nvrtc_find__library_path_comes_before_the_usual_places),
      TEST(nvrtc_find__relative_library_path_is_passed_over),
      TEST(nvrtc_find__best_version_wins_over_the_first_place),
      TEST(nvrtc_find__12_5_is_taken_last),
      TEST(nvrtc_find__newest_toolkit_wins),
      TEST(nvrtc_find__active_virtual_environment_is_looked_into),
      TEST(nvrtc_find__nowhere_says_where_and_what_to_do),
      TEST(nvrtc_identity__same_build_elsewhere_is_the_same),
      TEST(nvrtc_identity__builtins_of_the_folder_are_part_of_it),
      TEST(nvrtc_identity__builtins_of_the_librarys_own_version_are_taken),
      TEST(nvrtc_identity__file_without_build_id_is_hashed),
      TEST(nvrtc_identity__build_id_too_short_to_tell_builds_apart_is_not_used),
      TEST(nvrtc_identity__file_truncated_at_every_length_is_hashed),
      TEST(nvrtc__environment_is_used_only_where_allowed),
      TEST(nvrtc__option_wins_over_the_environment),
      TEST(nvrtc__missing_file_in_the_environment_is_named),
      TEST(nvrtc__library_installed_later_is_found),
      TEST(nvrtc__file_that_is_no_library_cannot_be_opened),
      TEST(nvrtc__library_that_lacks_a_function_is_named),
      TEST(nvrtc__library_replaced_after_its_identity_was_read_is_refused),
      TEST(nvrtc__fake_is_handed_out),
      TEST(nvrtc__every_failed_allocation_is_no_memory),
  };
  return cmocka_run_group_tests_name("nvrtc", tests, NULL, NULL);
}
