/* From a config of a user's family to a loaded kernel, over a fake driver and compiler. */
#include <kjit/family_description.h>

#include "fixture.h"

#include <string.h>

static const char family_text[] = "family: toy\nsource: toy.cu\nentry: toy\n"
                                  "fields:\n"
                                  "  BM: {kind: int, values: [32, 64, 128], default: 64}\n"
                                  "  fast: {kind: bool, default: false}\n"
                                  "rules:\n  - {require: BM < 128 || fast, because: a large tile is for the fast way}\n"
                                  "means_nothing_when:\n  fast: BM == 32\n"
                                  "block: BM\n"
                                  "shared: BM * 1024\n"
                                  "parameters: {n: int32}\n";
static const char source_text[] = "extern \"C\" __global__ void toy(int n) { int x = KJIT_BM + KJIT_fast; (void)x; }\n";

static kjit_config config_of(struct fixture *f, const char *text) {
  kjit_family *family = NULL;
  kjit_config config;
  char path[TEMP_PATH_BYTES];
  assert_int_equal(0, temp_folder_write_text(&f->folder, "toy.cu", source_text));
  assert_int_equal(0, temp_folder_write_text(&f->folder, "toy.yaml", family_text));
  temp_folder_path(&f->folder, "toy.yaml", path);
  fake_nvrtc.entry = "toy";
  assert_status(KJIT_OK, kjit_family_open(&family, path, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_config_parse(family, text, &config, &f->error), &f->error);
  return config;
}

static kjit_status get(struct fixture *f, const kjit_config *config, kjit_kernel **out) {
  return kjit_config_get_kernel(f->runtime, config, NULL, 0, out, &f->error);
}

static void test_config_kernel__is_loaded_and_may_use_its_shared_memory(void **state) {
  struct fixture *f = *state;
  const kjit_config config = config_of(f, "BM=64");
  kjit_kernel *kernel = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, get(f, &config, &kernel), &f->error);
  assert_int_equal(atomic_load(&fake_driver.device[0].raised), 1);
  assert_true(atomic_load(&fake_driver.device[0].raised_bytes) >= 64 * 1024);
  assert_status(KJIT_OK, kjit_artifact_get_info(kjit_kernel_artifact(kernel), &info, &f->error), &f->error);
  assert_string_equal(info.arch, "sm_90a");
  assert_string_equal(fake_driver.kernel_name, "toy");
  kjit_kernel_release(kernel);
  kjit_family_release((kjit_family *)(uintptr_t)config.family);
}

static void test_config_kernel__equal_code_is_one_kernel(void **state) {
  struct fixture *f = *state;
  const kjit_config first = config_of(f, "BM=32,fast=0");
  kjit_config second = first;
  kjit_kernel *kernels[2] = {NULL, NULL};
  assert_status(KJIT_OK, kjit_config_set(&second, "fast", 1, &f->error), &f->error);
  assert_status(KJIT_OK, get(f, &first, &kernels[0]), &f->error);
  assert_status(KJIT_OK, get(f, &second, &kernels[1]), &f->error);
  assert_ptr_equal(kernels[0], kernels[1]);
  assert_int_equal(fake_driver_calls_of(FAKE_LibraryLoadData), 1);
  for (int i = 0; i < 2; i++)
    kjit_kernel_release(kernels[i]);
  kjit_family_release((kjit_family *)(uintptr_t)first.family);
}

static void test_config_kernel__outlives_its_family(void **state) {
  struct fixture *f = *state;
  const kjit_config config = config_of(f, "BM=64");
  kjit_kernel *kernel = NULL;
  kjit_launch how = kjit_launch_default();
  const int32_t count = 1;
  const kjit_arg args[] = {KJIT_ARG(count)};
  assert_status(KJIT_OK, get(f, &config, &kernel), &f->error);
  fake_driver.parameter_count = 1;
  kjit_family_release((kjit_family *)(uintptr_t)config.family);
  (void)!kjit_kernel_launch(kernel, &how, args, 1, NULL, &f->error);
  assert_int_equal(fake_driver_calls_of(FAKE_LibraryUnload), 0);
  kjit_kernel_release(kernel);
}

/* Unlike a kernel that a family's own launches keep. */
static void test_config_kernel__is_unloaded_when_released_and_idle(void **state) {
  struct fixture *f = *state;
  fixture_close(f);
  f->modules_max_idle = 1;
  assert_int_equal(KJIT_OK, fixture_open(f));
  kjit_config config = config_of(f, "BM=64");
  for (int32_t i = 0; i < 6; i++) {
    kjit_kernel *kernel = NULL;
    assert_status(KJIT_OK, kjit_config_set(&config, "BM", i < 3 ? 32 << i : 32 << (i - 3), NULL), NULL);
    assert_status(KJIT_OK, kjit_config_set(&config, "fast", 1, NULL), NULL);
    assert_status(KJIT_OK, get(f, &config, &kernel), &f->error);
    kjit_kernel_release(kernel);
  }
  assert_true(fake_driver_calls_of(FAKE_LibraryUnload) > 0);
  kjit_family_release((kjit_family *)(uintptr_t)config.family);
}

static void test_config_kernel__broken_rule_is_named(void **state) {
  struct fixture *f = *state;
  const kjit_config config = config_of(f, "BM=128,fast=0");
  kjit_kernel *kernel = (kjit_kernel *)&config;
  assert_status(KJIT_ERR_INVALID_CONFIG, get(f, &config, &kernel), &f->error);
  assert_contains(f->error.message, "a large tile is for the fast way");
  assert_null(kernel);
  kjit_family_release((kjit_family *)(uintptr_t)config.family);
}

static void test_config_kernel__without_a_context_there_is_none(void **state) {
  struct fixture *f = *state;
  const kjit_config config = config_of(f, "BM=64");
  kjit_kernel *kernel = NULL;
  fake_driver_set_current(-1);
  assert_status(KJIT_ERR_NO_DRIVER, get(f, &config, &kernel), &f->error);
  fake_driver_set_current(0);
  kjit_family_release((kjit_family *)(uintptr_t)config.family);
}

static void test_config_kernel__bad_arguments_are_named(void **state) {
  struct fixture *f = *state;
  const kjit_config config = config_of(f, "BM=64"), none = {0};
  kjit_kernel *kernel = NULL;
  const kjit_status flags = kjit_config_get_kernel(f->runtime, &config, NULL, KJIT_BUILD_KEY_ONLY, &kernel, &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, flags, &f->error);
  assert_contains(f->error.message, "KJIT_BUILD_KEY_ONLY");
  assert_status(KJIT_ERR_INVALID_ARG, get(f, &none, &kernel), &f->error);
  assert_contains(f->error.message, "config.family");
  assert_int_equal(KJIT_ERR_INVALID_ARG, kjit_config_get_kernel(f->runtime, NULL, NULL, 0, &kernel, NULL));
  const kjit_status arch = kjit_config_get_kernel(f->runtime, &config, "sm_80", 0, &kernel, &f->error);
  assert_status(KJIT_ERR_UNSUPPORTED, arch, &f->error);
  kjit_family_release((kjit_family *)(uintptr_t)config.family);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_config_kernel__is_loaded_and_may_use_its_shared_memory),
      FIXTURE_TEST(test_config_kernel__equal_code_is_one_kernel),
      FIXTURE_TEST(test_config_kernel__outlives_its_family),
      FIXTURE_TEST(test_config_kernel__is_unloaded_when_released_and_idle),
      FIXTURE_TEST(test_config_kernel__broken_rule_is_named),
      FIXTURE_TEST(test_config_kernel__without_a_context_there_is_none),
      FIXTURE_TEST(test_config_kernel__bad_arguments_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
