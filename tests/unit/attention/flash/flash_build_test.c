/* Building and showing a config over a fake compiler. */
#include "support/configs.h"

#include "unit/attention/configs.h"
#include "unit/attention/flash/variants.h"
#include "unit/runtime/fixture.h"
#include <stdbool.h>

#include "family/config_build.h"

static int setup(void **state) {
  const int failed = fixture_setup(state);
  fake_nvrtc.entry = "flash_forward";
  return failed;
}

#define BUILD_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

/* The key of what is built, in `key`. */
static void build(struct fixture *f, const kjit_flash_config *config, const char *arch, char key[65]) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, plain_build(f->runtime, config, arch, 0, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &f->error), &f->error);
  snprintf(key, 65, "%s", info.key);
  kjit_artifact_release(artifact);
}

static void expect_refused(struct fixture *f, kjit_status wanted, const kjit_flash_config *config, const char *arch,
                           uint32_t flags, const char *part) {
  kjit_artifact *artifact = (kjit_artifact *)f;
  assert_status(wanted, plain_build(f->runtime, config, arch, flags, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, part);
  assert_null(artifact);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 0);
}

static void test_flash_build__aliases_have_one_key(void **state) {
  kjit_flash_config plain = config_base(), alias = config_base();
  char plain_key[65], alias_key[65];
  plain.V_mma_load_K_tiles = 0;
  alias.V_mma_load_K_tiles = 8;
  build(*state, &plain, "sm_80", plain_key);
  build(*state, &alias, "sm_80", alias_key);
  assert_string_equal(plain_key, alias_key);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), 1);
}

static void test_flash_build__prebuilt_has_as_many_keys_as_canonical_configs(void **state) {
  struct fixture *f = *state;
  kjit_flash_config configs[85];
  char keys[85][65];
  size_t count, distinct_keys = 0, distinct_configs = 0;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", configs, 85, &count, &f->error), &f->error);
  for (size_t i = 0; i < count; i++) {
    bool new_key = true, new_config = true;
    build(f, &configs[i], "sm_80", keys[i]);
    configs[i] = plain_canonical(&configs[i]);
    for (size_t j = 0; j < i; j++) {
      new_key = new_key && strcmp(keys[i], keys[j]) != 0;
      new_config = new_config && plain_compare(&configs[i], &configs[j]) != 0;
    }
    distinct_keys += new_key;
    distinct_configs += new_config;
  }
  assert_int_equal(distinct_keys, distinct_configs);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), distinct_configs);
}

static void test_flash_build__architecture_is_part_of_the_key(void **state) {
  const kjit_flash_config config = config_base();
  char ampere[65], hopper[65];
  build(*state, &config, "sm_80", ampere);
  build(*state, &config, "sm_90", hopper);
  assert_string_not_equal(ampere, hopper);
}

static void test_flash_build__illegal_config_is_refused(void **state) {
  kjit_flash_config config = config_base();
  config.B_c = 40;
  expect_refused(*state, KJIT_ERR_INVALID_CONFIG, &config, "sm_80", 0, "B_c is 40");
  expect_refused(*state, KJIT_ERR_INVALID_ARG, NULL, "sm_80", 0, "config");
}

static void test_flash_build__unfit_architecture_is_refused(void **state) {
  kjit_flash_config config = config_base();
  expect_refused(*state, KJIT_ERR_UNSUPPORTED, &config, "sm_75", 0, "sm_75");
  expect_refused(*state, KJIT_ERR_INVALID_ARG, &config, NULL, 0, "arch");
  config.d_head = 256;
  config.B_c = 128;
  expect_refused(*state, KJIT_ERR_UNSUPPORTED, &config, "sm_86", 0, "bytes of shared memory");
}

static void test_flash_build__flags_are_obeyed(void **state) {
  const kjit_flash_config config = config_base();
  expect_refused(*state, KJIT_ERR_NOT_RESIDENT, &config, "sm_80", KJIT_BUILD_RESIDENT_ONLY, "");
  expect_refused(*state, KJIT_ERR_NOT_FOUND, &config, "sm_80", KJIT_BUILD_NO_COMPILE, "");
  expect_refused(*state, KJIT_ERR_INVALID_ARG, &config, "sm_80", 0x80, "flags");
}

static void test_flash_build__null_arguments_are_refused(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  kjit_artifact *artifact = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, plain_build(NULL, &config, "sm_80", 0, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "runtime");
  assert_status(KJIT_ERR_INVALID_ARG, plain_build(f->runtime, &config, "sm_80", 0, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "out");
}

static size_t occurrences(const char *text, const char *part) {
  size_t count = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
    count++;
  return count;
}

static void test_flash_source__is_the_prologue_and_the_kernels_text(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  const struct source_set *sources;
  char prologue[2048], *text = NULL;
  struct text out;
  assert_status(
      KJIT_OK, config_sources(&flash_forward_family, builder_sources(runtime_builder(f->runtime)), &sources, &f->error),
      &f->error);
  text_init_fixed(&out, prologue, sizeof prologue);
  const struct flash_variant plain = flash_variant_plain(&config);
  config_prologue(&flash_forward_family, (const int32_t *)&plain, &out);
  assert_status(KJIT_OK, plain_source(f->runtime, &config, &text, &f->error), &f->error);
  assert_int_equal(strlen(text), out.bytes + sources->files[0].bytes);
  assert_memory_equal(text, prologue, out.bytes);
  assert_memory_equal(text + out.bytes, sources->files[0].text, sources->files[0].bytes);
  kjit_text_free(f->runtime, text);
}

static void test_flash_source__defines_every_field_once(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  char *text = NULL;
  assert_status(KJIT_OK, plain_source(f->runtime, &config, &text, &f->error), &f->error);
  for (size_t i = 0; kjit_family_field(&flash_forward_family, i); i++) {
    char define[64];
    snprintf(define, sizeof define, "#define KJIT_%s ", kjit_family_field(&flash_forward_family, i)->name);
    assert_int_equal(occurrences(text, define), 1);
  }
  assert_int_equal(occurrences(text, "#line 1 \"flash_forward/flash_forward.cu\""), 1);
  kjit_text_free(f->runtime, text);
}

static void test_flash_source__is_that_of_the_canonical_config(void **state) {
  struct fixture *f = *state;
  kjit_flash_config config = config_base();
  char *text = NULL;
  config.V_mma_load_K_tiles = 8;
  assert_status(KJIT_OK, plain_source(f->runtime, &config, &text, &f->error), &f->error);
  assert_contains(text, "#define KJIT_V_mma_load_K_tiles 0\n");
  kjit_text_free(f->runtime, text);
}

static void test_flash_source__bad_arguments_give_no_text(void **state) {
  struct fixture *f = *state;
  kjit_flash_config config = config_base();
  char *text = (char *)f;
  assert_status(KJIT_ERR_INVALID_ARG, plain_source(NULL, &config, &text, &f->error), &f->error);
  assert_null(text);
  config.n_warps = 3;
  assert_status(KJIT_ERR_INVALID_CONFIG, plain_source(f->runtime, &config, &text, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, plain_source(f->runtime, &config, NULL, &f->error), &f->error);
}

static void test_flash_source__every_allocation_may_fail(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = config_base();
  char *text = NULL;
  for (long n = 0; !text; n++) {
    assert_true(n < 100);
    atomic_store(&f->memory.calls, 0);
    atomic_store(&f->memory.fail_at, n);
    const kjit_status status = plain_source(f->runtime, &config, &text, &f->error);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    assert_int_equal(status, text ? KJIT_OK : KJIT_ERR_NO_MEMORY);
  }
  kjit_text_free(f->runtime, text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BUILD_TEST(test_flash_build__aliases_have_one_key),
      BUILD_TEST(test_flash_build__prebuilt_has_as_many_keys_as_canonical_configs),
      BUILD_TEST(test_flash_build__architecture_is_part_of_the_key),
      BUILD_TEST(test_flash_build__illegal_config_is_refused),
      BUILD_TEST(test_flash_build__unfit_architecture_is_refused),
      BUILD_TEST(test_flash_build__flags_are_obeyed),
      BUILD_TEST(test_flash_build__null_arguments_are_refused),
      BUILD_TEST(test_flash_source__is_the_prologue_and_the_kernels_text),
      BUILD_TEST(test_flash_source__defines_every_field_once),
      BUILD_TEST(test_flash_source__is_that_of_the_canonical_config),
      BUILD_TEST(test_flash_source__bad_arguments_give_no_text),
      BUILD_TEST(test_flash_source__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("flash_build", tests, NULL, NULL);
}
