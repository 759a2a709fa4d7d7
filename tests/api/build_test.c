/* A caller's own kernel through the real NVRTC. */
#include "fixture.h"

static const char scale_source[] = "#include \"scale_params.h\"\n"
                                   "extern \"C\" __global__ void scale(const __grid_constant__ scale_params p) {\n"
                                   "  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                   "  if (i < p.count) p.data[i] *= FACTOR;\n"
                                   "}\n";

static const kjit_source scale_header = {
    .name = "scale_params.h",
    .text = "struct scale_params { float *data; unsigned count; };\n",
};

static const kjit_define twice = {.name = "FACTOR", .value = "2.0f"};

static kjit_build_request scale_request(void) {
  kjit_build_request request = kjit_build_request_default();
  request.arch = "sm_80";
  request.entry = "scale";
  request.source = (kjit_source){.name = "scale.cu", .text = scale_source};
  request.headers = &scale_header;
  request.header_count = 1;
  request.defines = &twice;
  request.define_count = 1;
  return request;
}

/* Build, and describe; the strings in `info` are gone. */
static void build(struct fixture *f, const kjit_build_request *request, kjit_artifact_info *info) {
  kjit_artifact *artifact = NULL;
  *info = (kjit_artifact_info){.struct_size = sizeof *info};
  assert_status(KJIT_OK, kjit_build(f->runtime, request, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, info, &f->error), &f->error);
  assert_int_equal(64, strlen(info->key));
  assert_memory_equal("\177ELF", info->cubin, 4);
  assert_string_equal("scale", info->entry);
  assert_string_equal("sm_80", info->arch);
  assert_string_equal("", info->log);
  kjit_artifact_release(artifact);
}

static void test_build__first_is_built_second_is_in_memory(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = scale_request();
  kjit_artifact_info first, second;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  fixture_need_nvrtc(f);
  build(f, &request, &first);
  build(f, &request, &second);
  assert_int_equal(KJIT_ORIGIN_BUILT, first.origin);
  assert_int_equal(KJIT_ORIGIN_MEMORY, second.origin);
  assert_in_range(first.registers, 1, 255);
  assert_int_equal(0, first.spill_bytes);
  assert_true(first.compile_ms > 0);
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(1, stats.builds);
  assert_int_equal(1, stats.misses);
  assert_int_equal(1, stats.memory_hits);
  assert_int_equal(1, stats.published);
}

static void test_build__next_runtime_finds_it_in_the_users_folder(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = scale_request();
  kjit_artifact_info first, second;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  fixture_need_nvrtc(f);
  build(f, &request, &first);
  fixture_open(f);
  build(f, &request, &second);
  assert_int_equal(KJIT_ORIGIN_USER, second.origin);
  assert_int_equal(first.cubin_bytes, second.cubin_bytes);
  assert_int_equal(first.registers, second.registers);
  assert_true(first.compile_ms == second.compile_ms);
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(0, stats.builds);
  assert_int_equal(1, stats.user_hits);
}

static void test_build__warm_cache_needs_no_compiler(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = scale_request();
  kjit_artifact_info info;
  kjit_runtime_options options = fixture_options(f);
  fixture_need_nvrtc(f);
  build(f, &request, &info);
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  fixture_open_with(f, &options);
  build(f, &request, &info);
  assert_int_equal(KJIT_ORIGIN_USER, info.origin);
}

static void test_build__cold_cache_without_compiler_says_where_it_was_looked_for(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = scale_request();
  kjit_artifact *artifact = (kjit_artifact *)f;
  kjit_runtime_options options = fixture_options(f);
  options.nvrtc_path = "/nowhere/libnvrtc.so";
  fixture_open_with(f, &options);
  assert_status(KJIT_ERR_NO_NVRTC, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "/nowhere/libnvrtc.so");
  assert_null(artifact);
}

static void test_artifact__kernels_are_counted_and_described(void **state) {
  struct fixture *f = *state;
  static const char source[] = "extern \"C\" __global__ void one() {}\nextern \"C\" __global__ void two() {}\n";
  kjit_build_request request = kjit_build_request_default();
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_kernel_info kernel = {.struct_size = sizeof kernel};
  kjit_artifact *artifact = NULL;
  request.arch = "sm_80";
  request.source = (kjit_source){"two.cu", source, 0};
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &f->error), &f->error);
  assert_int_equal(2, info.kernel_count);
  for (uint32_t i = 0; i < info.kernel_count; i++) {
    assert_status(KJIT_OK, kjit_artifact_get_kernel(artifact, i, &kernel, &f->error), &f->error);
    assert_int_equal(3, kernel.name_bytes);
  }
  assert_status(KJIT_ERR_INVALID_ARG, kjit_artifact_get_kernel(artifact, 2, &kernel, &f->error), &f->error);
  kjit_artifact_release(artifact);
}

static kjit_key key_alone(struct fixture *f) {
  kjit_artifact *artifact = NULL;
  kjit_key key = {.struct_size = sizeof key};
  kjit_build_request request = scale_request();
  request.flags = KJIT_BUILD_KEY_ONLY;
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_key(artifact, &key, &f->error), &f->error);
  kjit_artifact_release(artifact);
  return key;
}

static void test_build__key_alone_is_that_of_the_kernel_and_builds_nothing(void **state) {
  struct fixture *f = *state;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_artifact *artifact = NULL;
  kjit_key built = {.struct_size = sizeof built};
  const kjit_build_request request = scale_request();
  const kjit_key alone = key_alone(f);
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(0, stats.builds + stats.misses + stats.memory_hits + stats.user_hits);
  assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &f->error), &f->error);
  assert_int_equal(KJIT_ORIGIN_BUILT, info.origin);
  assert_status(KJIT_OK, kjit_artifact_get_key(artifact, &built, &f->error), &f->error);
  assert_string_equal(info.key, alone.key);
  assert_memory_equal(&built, &alone, sizeof alone);
  kjit_artifact_release(artifact);
}

static void test_build__key_of_the_request_is_the_same_without_compiler(void **state) {
  struct fixture *f = *state;
  const kjit_key with = key_alone(f);
  kjit_runtime_options options = fixture_options(f);
  options.nvrtc_path = "/nonexistent/libnvrtc.so";
  fixture_open_with(f, &options);
  const kjit_key without = key_alone(f);
  assert_string_equal(with.request, without.request);
  assert_string_not_equal(with.request, with.key);
  assert_int_equal(64, strlen(with.key));
  assert_string_equal("", without.key);
}

static void test_build__each_part_of_the_request_makes_another_kernel(void **state) {
  struct fixture *f = *state;
  static const kjit_define thrice = {.name = "FACTOR", .value = "3.0f"};
  static const kjit_source wider = {.name = "scale_params.h",
                                    .text = "struct scale_params { float *data; unsigned count, unused; };\n"};
  static const char *const no_fma = "--fmad=false";
  kjit_build_request requests[4];
  kjit_artifact_info info;
  fixture_need_nvrtc(f);
  for (size_t i = 0; i < 4; i++)
    requests[i] = scale_request();
  requests[1].defines = &thrice;
  requests[2].headers = &wider;
  requests[3].options = &no_fma;
  requests[3].option_count = 1;
  for (size_t i = 0; i < 4; i++) {
    build(f, &requests[i], &info);
    assert_int_equal(KJIT_ORIGIN_BUILT, info.origin);
  }
}

static void test_build__rejected_source_gives_the_log_with_the_original_line(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = scale_request();
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  fixture_need_nvrtc(f);
  request.source.text = "extern \"C\" __global__ void scale() {\n  undeclared();\n}\n";
  for (int i = 0; i < 2; i++) {
    assert_status(KJIT_ERR_COMPILE, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
    assert_non_null(artifact);
    assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, NULL), NULL);
    assert_contains(info.log, "scale.cu(2)");
    assert_contains(info.log, "undeclared");
    assert_int_equal(0, info.cubin_bytes);
    kjit_artifact_release(artifact);
  }
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  assert_int_equal(1, stats.build_failures);
}

static void test_build__missing_parts_are_named(void **state) {
  struct fixture *f = *state;
  kjit_artifact *artifact = (kjit_artifact *)f;
  kjit_build_request request = scale_request();
  request.arch = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "arch");
  assert_null(artifact);
  request = scale_request();
  request.entry = "";
  assert_status(KJIT_ERR_INVALID_ARG, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "entry");
  request = scale_request();
  request.source.text = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "source");
  request = scale_request();
  request.header_count = 0;
  assert_status(KJIT_ERR_NOT_FOUND, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "scale_params.h");
}

static void test_build__flags_forbid_compiling(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = scale_request();
  kjit_artifact *artifact = NULL;
  request.flags = KJIT_BUILD_NO_COMPILE;
  assert_status(KJIT_ERR_NOT_FOUND, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  request.flags = KJIT_BUILD_RESIDENT_ONLY;
  assert_status(KJIT_ERR_NOT_RESIDENT, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
  fixture_need_nvrtc(f);
  request.flags = 0;
  kjit_artifact_info info;
  build(f, &request, &info);
  request.flags = KJIT_BUILD_RESIDENT_ONLY;
  build(f, &request, &info);
  assert_int_equal(KJIT_ORIGIN_MEMORY, info.origin);
}

struct listing {
  int entries;
  char key[65], label[64];
};

static int note_entry(void *user, const kjit_cache_entry *entry) {
  struct listing *listing = user;
  listing->entries++;
  snprintf(listing->key, sizeof listing->key, "%s", entry->key);
  snprintf(listing->label, sizeof listing->label, "%s", entry->label);
  return entry->status == KJIT_OK ? 0 : -1;
}

static void test_cache__lists_shows_and_clears_what_was_built(void **state) {
  struct fixture *f = *state;
  const kjit_build_request request = scale_request();
  kjit_artifact_info info;
  struct listing listed = {0}, shown = {0};
  kjit_cache_report report = {.struct_size = sizeof report};
  fixture_need_nvrtc(f);
  build(f, &request, &info);
  assert_status(KJIT_OK, kjit_cache_list(f->runtime, note_entry, &listed, &f->error), &f->error);
  assert_int_equal(1, listed.entries);
  assert_string_equal("scale.cu", listed.label);
  char prefix[9] = {0};
  memcpy(prefix, listed.key, 8);
  assert_status(KJIT_OK, kjit_cache_show(f->runtime, prefix, note_entry, &shown, &f->error), &f->error);
  assert_string_equal(listed.key, shown.key);
  assert_status(KJIT_OK, kjit_cache_verify(f->runtime, 0, &report, &f->error), &f->error);
  assert_int_equal(1, report.entries);
  assert_int_equal(0, report.damaged);
  assert_status(KJIT_OK, kjit_cache_clear(f->runtime, &report, &f->error), &f->error);
  assert_int_equal(1, report.removed);
}

static void test_cache__missing_runtime_is_named(void **state) {
  struct fixture *f = *state;
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  char nearest[65];
  assert_null(kjit_cache_path(NULL));
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_list(NULL, note_entry, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_show(NULL, "abcd", note_entry, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_verify(NULL, 0, &report, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_prune(NULL, 0, &report, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_clear(NULL, &report, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_get_stats(NULL, &stats, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_why(NULL, "abcd", nearest, NULL, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_export(NULL, "f", NULL, NULL, &f->error), &f->error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_cache_import(NULL, "f", NULL, &f->error), &f->error);
  assert_contains(f->error.message, "runtime");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_build__first_is_built_second_is_in_memory),
      FIXTURE_TEST(test_build__next_runtime_finds_it_in_the_users_folder),
      FIXTURE_TEST(test_build__warm_cache_needs_no_compiler),
      FIXTURE_TEST(test_build__cold_cache_without_compiler_says_where_it_was_looked_for),
      FIXTURE_TEST(test_artifact__kernels_are_counted_and_described),
      FIXTURE_TEST(test_build__key_alone_is_that_of_the_kernel_and_builds_nothing),
      FIXTURE_TEST(test_build__key_of_the_request_is_the_same_without_compiler),
      FIXTURE_TEST(test_build__each_part_of_the_request_makes_another_kernel),
      FIXTURE_TEST(test_build__rejected_source_gives_the_log_with_the_original_line),
      FIXTURE_TEST(test_build__missing_parts_are_named),
      FIXTURE_TEST(test_build__flags_forbid_compiling),
      FIXTURE_TEST(test_cache__lists_shows_and_clears_what_was_built),
      FIXTURE_TEST(test_cache__missing_runtime_is_named),
  };
  return cmocka_run_group_tests_name("api build", tests, NULL, NULL);
}
