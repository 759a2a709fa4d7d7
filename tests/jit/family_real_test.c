/* The softmax of examples/family_softmax, from its family file to cubins, through the real NVRTC and the cache. */
#include "jit/real_nvrtc.h"

#include <kjit/family_description.h>

static kjit_family *open_softmax(void) {
  kjit_family *family;
  kjit_error error;
  assert_status(KJIT_OK, kjit_family_open(&family, KJIT_SOFTMAX, &error), &error);
  assert_null(kjit_family_warning(family, 0));
  return family;
}

/* Of a config's artifact. */
static kjit_artifact_info build(kjit_runtime *runtime, const kjit_config *config, const char *arch) {
  kjit_artifact *artifact;
  kjit_error error = {0};
  kjit_artifact_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, kjit_config_build(runtime, config, arch, 0, &artifact, &error), &error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &error), &error);
  assert_string_equal(info.log, "");
  kjit_artifact_release(artifact);
  return info;
}

static kjit_runtime *make_runtime(struct real_nvrtc *real) {
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime;
  options.cache_dir = real->folder.path;
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, &options, &real->error), &real->error);
  return runtime;
}

/* Every sixteenth of the candidates: each compile takes some tens of milliseconds. */
static void test_family_real__candidates_compile_without_a_word(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  kjit_family *const family = open_softmax();
  kjit_runtime *const runtime = make_runtime(real);
  size_t count;
  assert_int_equal(kjit_family_set(family, "candidates", 0, NULL, &count, NULL), KJIT_OK);
  assert_true(count > 100);
  for (size_t i = 0; i < count; i += 16) {
    kjit_config config;
    assert_int_equal(kjit_family_set(family, "candidates", i, &config, NULL, NULL), KJIT_OK);
    assert_int_equal(build(runtime, &config, i % 32 ? "sm_80" : "sm_90").spill_bytes, 0);
  }
  kjit_runtime_destroy(runtime);
  kjit_family_release(family);
}

static uint32_t origin_of(kjit_runtime *runtime, const kjit_family *family, const char *text) {
  kjit_config config;
  kjit_error error = {0};
  assert_status(KJIT_OK, kjit_config_parse(family, text, &config, &error), &error);
  return build(runtime, &config, "sm_80").origin;
}

/* A template is compiled by its name expression, and finds its headers as kjit_build() does. */
static void test_family_real__template_is_instantiated_for_its_config(void **state) {
  static const char text[] = "family: fill\nsource: fill.cu\ntemplate: 'fill<{type}, {each}>'\nfields:\n"
                             "  type: {kind: dtype, values: [fp16, fp32], default: fp16}\n"
                             "  each: {kind: int, values: [1, 2], default: 1}\nblock: 64\n";
  static const char source[] = "#include <cuda_fp16.h>\n"
                               "template <class T, int kEach> __global__ void fill(T *out) {\n"
                               "  for (int i = 0; i < kEach; i++) out[threadIdx.x * kEach + i] = T(1.0f);\n}\n";
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  kjit_runtime *const runtime = make_runtime(real);
  kjit_family *family;
  assert_int_equal(temp_folder_write_text(&real->folder, "fill.cu", source), 0);
  assert_status(KJIT_OK, kjit_family_parse(&family, text, strlen(text), "fill.yaml", real->folder.path, &real->error),
                &real->error);
  assert_int_equal(origin_of(runtime, family, "type=fp32,each=2"), KJIT_ORIGIN_BUILT);
  assert_int_equal(origin_of(runtime, family, "each=2"), KJIT_ORIGIN_BUILT);
  assert_int_equal(origin_of(runtime, family, "each=2,type=half"), KJIT_ORIGIN_MEMORY);
  kjit_runtime_destroy(runtime);
  kjit_family_release(family);
}

static void test_family_real__equal_code_is_compiled_once_and_found_again(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  for (int round = 0; round < 2; round++) {
    kjit_runtime *const runtime = make_runtime(real);
    kjit_family *const family = open_softmax();
    const uint32_t first = origin_of(runtime, family, "threads=64");
    assert_int_equal(first, round ? KJIT_ORIGIN_USER : KJIT_ORIGIN_BUILT);
    /* max_columns means nothing where the row is not cached. */
    assert_int_equal(origin_of(runtime, family, "threads=64,max_columns=1024"), KJIT_ORIGIN_MEMORY);
    assert_int_equal(origin_of(runtime, family, "threads=64,max_columns=1024,cached=true"),
                     round ? KJIT_ORIGIN_USER : KJIT_ORIGIN_BUILT);
    kjit_runtime_destroy(runtime);
    kjit_family_release(family);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_family_real__candidates_compile_without_a_word, real_nvrtc_setup,
                                      real_nvrtc_teardown),
      cmocka_unit_test_setup_teardown(test_family_real__equal_code_is_compiled_once_and_found_again, real_nvrtc_setup,
                                      real_nvrtc_teardown),
      cmocka_unit_test_setup_teardown(test_family_real__template_is_instantiated_for_its_config, real_nvrtc_setup,
                                      real_nvrtc_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
