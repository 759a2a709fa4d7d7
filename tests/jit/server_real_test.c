/* The compile server over the machine's NVRTC: precompiled headers give the same bytes and the same log. */
#include <stdio.h>
#include <string.h>

#include <kjit/kjit.h>

#include "support/test.h"

struct built {
  kjit_artifact *artifact;
  kjit_artifact_info info;
  kjit_status status;
  kjit_error error;
};

static kjit_runtime *open_runtime(kjit_compile_server server, kjit_pch_mode pch) {
  kjit_runtime *runtime = NULL;
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF;
  options.compile_server = server;
  options.pch = pch;
  options.worker_path = WORKER;
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, &options, NULL), NULL);
  return runtime;
}

/* The request that build() makes: "k", or a template's instance, or linked. */
struct asked {
  const char *entry, *option;
};
static struct asked asked = {"k", NULL};

static void build(struct built *built, kjit_runtime *runtime, const char *text) {
  static const char *const folders[] = {CUDA_INCLUDE_DIR, CUDA_INCLUDE_DIR "/cccl"};
  kjit_build_request request = kjit_build_request_default();
  request.arch = "sm_80";
  request.entry = asked.entry;
  request.options = &asked.option;
  request.option_count = asked.option != NULL;
  request.source = (kjit_source){"k.cu", text, 0};
  request.include_dirs = folders;
  request.include_dir_count = 2;
  *built = (struct built){.info.struct_size = sizeof built->info};
  built->status = kjit_build(runtime, &request, &built->artifact, &built->error);
  if (built->status == KJIT_ERR_NO_NVRTC || built->status == KJIT_ERR_NOT_FOUND) {
    print_message("not here: %s\n", built->error.message);
    kjit_runtime_destroy(runtime);
    skip();
  }
  assert_non_null(built->artifact);
  assert_status(KJIT_OK, kjit_artifact_get_info(built->artifact, &built->info, NULL), NULL);
}

static void assert_same(kjit_runtime *with, const char *text, kjit_status status) {
  kjit_runtime *without = open_runtime(KJIT_COMPILE_SERVER_OFF, KJIT_PCH_OFF);
  struct built a, b;
  build(&a, without, text);
  build(&b, with, text);
  assert_status(status, a.status, &a.error);
  assert_status(status, b.status, &b.error);
  assert_string_equal(a.info.log, b.info.log);
  assert_string_equal(a.error.message, b.error.message);
  assert_int_equal(a.info.cubin_bytes, b.info.cubin_bytes);
  if (a.info.cubin_bytes) assert_memory_equal(a.info.cubin, b.info.cubin, a.info.cubin_bytes);
  assert_int_equal(a.info.registers, b.info.registers);
  kjit_artifact_release(a.artifact);
  kjit_artifact_release(b.artifact);
  kjit_runtime_destroy(without);
}

#define HEADERS "// A comment that differs\n#include <cuda_fp16.h>\n#include <cuda_bf16.h> // why\n"

static void test_server_real__precompiled_header_changes_neither_bytes_nor_log(void **state) {
  (void)state;
  kjit_runtime *with = open_runtime(KJIT_COMPILE_SERVER_ON, KJIT_PCH_ALWAYS);
  assert_same(with, HEADERS "extern \"C\" __global__ void k(__half *x) { *x = __hmul(*x, *x); }\n", KJIT_OK);
  assert_same(with, HEADERS "\nextern \"C\" __global__ void k(__half *x) { int unused; *x = __hadd(*x, *x); }\n",
              KJIT_OK);
  assert_same(with, HEADERS "\n\nextern \"C\" __global__ void k(__half *x) { *x = nothing; }\n", KJIT_ERR_COMPILE);
  kjit_runtime_destroy(with);
}

/* In the second use it is made, in the third or later it may be used: whatever it was, the bytes are the same. */
static void test_server_real__second_use_makes_it_and_later_ones_agree(void **state) {
  (void)state;
  kjit_runtime *with = open_runtime(KJIT_COMPILE_SERVER_ON, KJIT_PCH_AUTO);
  char text[300];
  for (int i = 0; i < 5; i++) {
    snprintf(text, sizeof text, HEADERS "extern \"C\" __global__ void k(int *x) { *x = %d; }\n", i);
    assert_same(with, text, KJIT_OK);
  }
  kjit_runtime_destroy(with);
}

/* The instances are made behind the preamble, in a file that NVRTC hides. */
static void test_server_real__name_expressions_go_with_precompiled_headers(void **state) {
  (void)state;
  kjit_runtime *with = open_runtime(KJIT_COMPILE_SERVER_ON, KJIT_PCH_ALWAYS);
  asked.entry = "n::k<float, 4>";
  assert_same(with, HEADERS "namespace n { template <class T, int N> __global__ void k(T *x) { *x = T(N); } }\n",
              KJIT_OK);
  assert_same(with, HEADERS "namespace n { template <class T> __global__ void k(T *x) { *x = T(1); } }\n",
              KJIT_ERR_COMPILE);
  asked.entry = "k";
  kjit_runtime_destroy(with);
}

static void test_server_real__links_go_with_precompiled_headers(void **state) {
  (void)state;
  kjit_runtime *with = open_runtime(KJIT_COMPILE_SERVER_ON, KJIT_PCH_ALWAYS);
  asked.option = "-dlto";
  assert_same(with, HEADERS "extern \"C\" __global__ void k(__half *x) { *x = __hmul(*x, *x); }\n", KJIT_OK);
  asked.option = NULL;
  kjit_runtime_destroy(with);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_server_real__precompiled_header_changes_neither_bytes_nor_log),
      cmocka_unit_test(test_server_real__name_expressions_go_with_precompiled_headers),
      cmocka_unit_test(test_server_real__links_go_with_precompiled_headers),
      cmocka_unit_test(test_server_real__second_use_makes_it_and_later_ones_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
