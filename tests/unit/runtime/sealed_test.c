/* Kernels of sealed programs over fakes: found, compiled and launched as those of their sources, and chosen by entry,
 * architecture and defines. */
#include "fixture.h"

#include <kjit/bundle.h>
#include <kjit/sealed.h>

#define SOURCE "#include <h.h>\nextern \"C\" __global__ void k() {}\n"

static const kjit_source header = {.name = "h.h", .text = "#define H 1\n"};
static const kjit_define one = {"N", "1"}, two = {"N", "2"};

static kjit_build_request sealed_request(const char *entry, const char *arch, const kjit_define *define) {
  kjit_build_request request = fixture_request(arch, SOURCE);
  request.entry = entry;
  request.headers = &header;
  request.header_count = 1;
  request.defines = define;
  request.define_count = define ? 1 : 0;
  return request;
}

/* The fake compiler makes kernels named "k" alone; others are sealed without compiling. */
static void seal(struct fixture *f, kjit_sealer *sealer, const char *entry, const char *arch,
                 const kjit_define *define) {
  kjit_build_request request = sealed_request(entry, arch, define);
  if (strcmp(entry, "k") != 0) request.flags = KJIT_BUILD_KEY_ONLY;
  assert_status(KJIT_OK, kjit_sealer_add(sealer, f->runtime, &request, NULL, &f->error), &f->error);
}

static kjit_sealer *begin(struct fixture *f) {
  kjit_sealer *sealer;
  assert_status(KJIT_OK, kjit_sealer_create(&sealer, NULL, NULL, &f->error), &f->error);
  return sealer;
}

static kjit_program *open_sealed(struct fixture *f, kjit_sealer *sealer, uint32_t flags) {
  kjit_bundle_blob blob;
  kjit_program *program;
  assert_status(KJIT_OK, kjit_sealer_finish(sealer, flags, &blob, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_program_open(f->runtime, NULL, &blob, &program, &f->error), &f->error);
  return program;
}

static kjit_program_variant variant_of(const char *entry, const char *arch, const kjit_define *define) {
  return (kjit_program_variant){.struct_size = sizeof(kjit_program_variant),
                                .entry = entry,
                                .arch = arch,
                                .defines = define,
                                .define_count = define ? 1 : 0};
}

/* The artifact's key and origin. */
static kjit_status get(struct fixture *f, kjit_program *program, const kjit_program_variant *variant, char key[65],
                       uint32_t *origin) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  const kjit_status status = kjit_program_get(program, variant, &artifact, &f->error);
  if (status == KJIT_OK) {
    assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &f->error), &f->error);
    snprintf(key, 65, "%s", info.key);
    *origin = info.origin;
  }
  kjit_artifact_release(artifact);
  return status;
}

static void test_sealed__has_the_key_of_its_source(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = sealed_request("k", "sm_90", &one);
  kjit_artifact *artifact;
  kjit_artifact_info info = {.struct_size = sizeof info};
  char key[65] = "";
  uint32_t origin = KJIT_ORIGIN_NONE;
  kjit_sealer *sealer = begin(f);
  seal(f, sealer, "k", "sm_90", &one);
  kjit_program *program = open_sealed(f, sealer, 0);
  assert_status(KJIT_OK, get(f, program, NULL, key, &origin), &f->error);
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &f->error), &f->error);
  assert_string_equal(info.key, key);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  kjit_artifact_release(artifact);
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static void test_sealed__compiles_from_its_own_texts_what_no_tier_has(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = sealed_request("k", "sm_90", &one);
  char key[65] = "";
  uint32_t origin = KJIT_ORIGIN_NONE;
  kjit_sealer *sealer = begin(f);
  request.flags = KJIT_BUILD_KEY_ONLY;
  assert_status(KJIT_OK, kjit_sealer_add(sealer, f->runtime, &request, NULL, &f->error), &f->error);
  assert_int_equal(0, atomic_load(&fake_nvrtc.compiles));
  kjit_program *program = open_sealed(f, sealer, 0);
  assert_status(KJIT_OK, get(f, program, NULL, key, &origin), &f->error);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
  assert_status(KJIT_OK, get(f, program, NULL, key, &origin), &f->error);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static void test_sealed__without_texts_the_cache_answers_and_a_miss_says_why(void **state) {
  struct fixture *f = *state;
  char key[65] = "";
  uint32_t origin = KJIT_ORIGIN_NONE;
  kjit_sealer *sealer = begin(f);
  seal(f, sealer, "k", "sm_90", &one);
  kjit_build_request unbuilt = sealed_request("k", "sm_80", &one);
  unbuilt.flags = KJIT_BUILD_KEY_ONLY;
  assert_status(KJIT_OK, kjit_sealer_add(sealer, f->runtime, &unbuilt, NULL, &f->error), &f->error);
  kjit_program *program = open_sealed(f, sealer, KJIT_SEAL_WITHOUT_TEXTS);
  kjit_program_variant variant = variant_of("k", "sm_90", NULL);
  assert_status(KJIT_OK, get(f, program, &variant, key, &origin), &f->error);
  variant.arch = "sm_80";
  assert_status(KJIT_ERR_NOT_FOUND, get(f, program, &variant, key, &origin), NULL);
  assert_contains(f->error.message, "without its texts");
  assert_contains(f->error.message, "sm_80");
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static void test_sealed__a_kernel_is_launched_on_the_device(void **state) {
  struct fixture *f = *state;
  kjit_kernel *kernel = NULL;
  kjit_sealer *sealer = begin(f);
  seal(f, sealer, "k", "sm_80", &one);
  seal(f, sealer, "k", "sm_90", &one);
  seal(f, sealer, "k", "sm_90a", &one);
  kjit_program *program = open_sealed(f, sealer, 0);
  assert_status(KJIT_OK, kjit_program_get_kernel(program, NULL, &kernel, &f->error), &f->error);
  kjit_artifact_info info = {.struct_size = sizeof info};
  assert_status(KJIT_OK, kjit_artifact_get_info(kjit_kernel_artifact(kernel), &info, &f->error), &f->error);
  assert_string_equal("sm_90a", info.arch);
  const char value[16] = {0};
  const kjit_arg arg = KJIT_ARG(value);
  kjit_launch launch = kjit_launch_default();
  launch.grid[0] = launch.block[0] = 1;
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &launch, &arg, 1, NULL, &f->error), &f->error);
  kjit_kernel_release(kernel);
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static void test_sealed__defines_tell_variants_apart(void **state) {
  struct fixture *f = *state;
  char first[65], second[65], plain[65];
  uint32_t origin = KJIT_ORIGIN_NONE;
  const kjit_define three = {"N", "3"};
  kjit_sealer *sealer = begin(f);
  seal(f, sealer, "k", "sm_90", &one);
  seal(f, sealer, "k", "sm_90", &two);
  kjit_program *program = open_sealed(f, sealer, 0);
  kjit_program_variant variant = variant_of("k", "sm_90", &one);
  assert_status(KJIT_OK, get(f, program, &variant, first, &origin), &f->error);
  variant.defines = &two;
  assert_status(KJIT_OK, get(f, program, &variant, second, &origin), &f->error);
  assert_status(KJIT_OK, get(f, program, NULL, plain, &origin), &f->error);
  assert_string_not_equal(first, second);
  assert_string_equal(first, plain);
  variant.defines = &three;
  assert_status(KJIT_ERR_NOT_FOUND, get(f, program, &variant, plain, &origin), NULL);
  assert_contains(f->error.message, "defines");
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static void test_sealed__what_was_not_sealed_is_named(void **state) {
  struct fixture *f = *state;
  static const struct {
    const char *entry, *arch;
    kjit_status status;
    const char *sentence;
  } cases[] = {
      {"nobody", "sm_90", KJIT_ERR_NOT_FOUND, "nobody"},
      {"k", "sm_100", KJIT_ERR_NOT_FOUND, "sm_80, sm_90"},
      {"k", NULL, KJIT_ERR_INVALID_ARG, "several architectures"},
      {NULL, "sm_90", KJIT_ERR_INVALID_ARG, "several kernels"},
  };
  char key[65] = "";
  uint32_t origin = KJIT_ORIGIN_NONE;
  kjit_sealer *sealer = begin(f);
  seal(f, sealer, "k", "sm_80", NULL);
  seal(f, sealer, "k", "sm_90", NULL);
  seal(f, sealer, "l", "sm_90", NULL);
  kjit_program *program = open_sealed(f, sealer, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const kjit_program_variant variant = variant_of(cases[i].entry, cases[i].arch, NULL);
    assert_status(cases[i].status, get(f, program, &variant, key, &origin), NULL);
    assert_contains(f->error.message, cases[i].sentence);
  }
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static int count_kernel(void *user, const kjit_program_kernel *kernel) {
  size_t *count = user;
  assert_string_equal("k.cu", kernel->source);
  assert_int_equal(2, kernel->files);
  assert_int_equal(1, kernel->variant.define_count);
  ++*count;
  return 0;
}

static void test_sealed__lists_its_kernels_once_each(void **state) {
  struct fixture *f = *state;
  size_t count = 0;
  kjit_sealer *sealer = begin(f);
  seal(f, sealer, "k", "sm_80", &one);
  seal(f, sealer, "l", "sm_80", &one);
  seal(f, sealer, "k", "sm_80", &one);
  seal(f, sealer, "k", "sm_90", &one);
  kjit_program *program = open_sealed(f, sealer, 0);
  assert_status(KJIT_OK, kjit_program_list(program, count_kernel, &count, &f->error), &f->error);
  assert_int_equal(3, count);
  kjit_program_release(program);
  kjit_sealer_destroy(sealer);
}

static void test_sealed__is_a_file_or_bytes_and_not_both(void **state) {
  struct fixture *f = *state;
  const kjit_bundle_blob blob = {"x", 1};
  kjit_program *program;
  kjit_bundle *bundle;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_program_open(f->runtime, NULL, NULL, &program, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_program_open(f->runtime, "x", &blob, &program, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_bundle_open(&bundle, NULL, NULL, NULL, 0, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_bundle_open(&bundle, "x", &blob, NULL, 0, &f->error), &f->error);
  assert_null(program);
  assert_null(bundle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_sealed__has_the_key_of_its_source),
      FIXTURE_TEST(test_sealed__is_a_file_or_bytes_and_not_both),
      FIXTURE_TEST(test_sealed__compiles_from_its_own_texts_what_no_tier_has),
      FIXTURE_TEST(test_sealed__without_texts_the_cache_answers_and_a_miss_says_why),
      FIXTURE_TEST(test_sealed__a_kernel_is_launched_on_the_device),
      FIXTURE_TEST(test_sealed__defines_tell_variants_apart),
      FIXTURE_TEST(test_sealed__what_was_not_sealed_is_named),
      FIXTURE_TEST(test_sealed__lists_its_kernels_once_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
