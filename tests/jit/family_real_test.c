/* The softmax of examples/family_softmax, from its family file to cubins, through the real NVRTC and the cache. */
#include "family/definition.h"
#include "jit/real_nvrtc.h"
#include "runtime/runtime_internal.h"

#define PROLOGUE_MAX 8192

struct family_request {
  struct jit_request request;
  char prologue[PROLOGUE_MAX];
};

static kjit_family *open_softmax(void) {
  kjit_family *family;
  kjit_error error;
  assert_status(KJIT_OK, kjit_family_open(&family, KJIT_SOFTMAX, &error), &error);
  assert_null(kjit_family_warning(family, 0));
  return family;
}

/* What a legal config's canonical form is compiled from. */
static void make_request(const kjit_family *family, const int32_t *config, const char *arch,
                         struct family_request *out) {
  int32_t values[KJIT_FIELD_COUNT_MAX] = {0};
  struct text text;
  kjit_error error = {0};
  memcpy(values, config, family->table.config_bytes);
  assert_status(KJIT_OK, family->check(family, values, &error), &error);
  family->canonicalize(family, values);
  text_init_fixed(&text, out->prologue, sizeof out->prologue);
  field_table_defines(&family->table, values, &text);
  family->derive(family, values, &text);
  text_appendf(&text, "#line 1 \"%s\"\n", family->main_file);
  assert_false(text.failed);
  out->request = (struct jit_request){.family = family->table.family,
                                      .label = "softmax",
                                      .entry = family->entry,
                                      .prologue = out->prologue,
                                      .options = family->options,
                                      .option_count = family->option_count};
  assert_status(KJIT_OK, target_parse(&out->request.target, arch, &error), &error);
  assert_status(KJIT_OK, family->sources(family, NULL, &out->request.sources, &error), &error);
}

/* Every sixteenth of the candidates: each compile takes some tens of milliseconds. */
static void test_family_real__candidates_compile_without_a_word(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  kjit_family *const family = open_softmax();
  const size_t count = family->set_count(family, "candidates");
  assert_true(count > 100);
  for (size_t i = 0; i < count; i += 16) {
    int32_t values[KJIT_FIELD_COUNT_MAX];
    struct family_request request;
    family->set_get(family, "candidates", i, values);
    make_request(family, values, i % 32 ? "sm_80" : "sm_90", &request);
    compile_result_finish(&real->result, &real->mem);
    assert_status(KJIT_OK,
                  compile_run(real->nvrtc, &request.request, &real->mem, NULL, NULL, &real->result, &real->error),
                  &real->error);
    assert_string_equal(real->result.log, "");
    assert_int_equal(real->result.spill_bytes, 0);
  }
  kjit_family_release(family);
}

static uint32_t origin_of(kjit_runtime *runtime, const kjit_family *family, const char *text) {
  int32_t values[KJIT_FIELD_COUNT_MAX];
  struct family_request request;
  kjit_artifact *artifact;
  kjit_error error = {0};
  kjit_artifact_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, family->parse(family, text, values, &error), &error);
  make_request(family, values, "sm_80", &request);
  assert_status(KJIT_OK, builder_get(runtime_builder(runtime), &request.request, &artifact, &error), &error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &error), &error);
  kjit_artifact_release(artifact);
  return info.origin;
}

static void test_family_real__equal_code_is_compiled_once_and_found_again(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = real->folder.path;
  for (int round = 0; round < 2; round++) {
    kjit_runtime *runtime;
    kjit_family *const family = open_softmax();
    assert_status(KJIT_OK, kjit_runtime_create(&runtime, &options, &real->error), &real->error);
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
