#include "jit/compile/compile.h"

#include "jit/request/compile_options.h"
#include <stdbool.h>

#include "scripted_nvrtc.h"
#include "support/fake_elf.h"
#include "support/test.h"

struct fixture {
  struct nvrtc_api api;
  struct source_file files[2];
  struct source_set sources;
  struct jit_request request;
  struct compile_result result;
  kjit_error error;
};

static struct failing_allocator allocator;
static struct mem mem;

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  *state = f;
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  if (!f || !mem_init(&mem, &hooks)) return -1;
  script = (struct script){.major = 13, .log = "", .cubin = "machine code", .cubin_bytes = 12};
  f->api = scripted;
  f->files[0] = (struct source_file){.name = "dir/main.cu", .text = "int main;\n", .bytes = 10};
  f->files[1] = (struct source_file){.name = "a.h", .text = "int a;", .bytes = 6};
  f->sources = (struct source_set){.files = f->files, .count = 2};
  f->request = (struct jit_request){.family = "custom",
                                    .label = "main",
                                    .entry = "k",
                                    .prologue = "#define A 1\n#line 1 \"dir/main.cu\"\n",
                                    .sources = &f->sources};
  return target_parse(&f->request.target, "sm_80", NULL) == KJIT_OK ? 0 : -1;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  compile_result_finish(&f->result, &mem);
  free(f);
  return atomic_load(&allocator.live) || script.alive ? -1 : 0;
}

static kjit_status run_with(struct fixture *f, compile_stop stop, void *user) {
  struct nvrtc *nvrtc;
  compile_result_finish(&f->result, &mem);
  memset(&f->error, 0, sizeof f->error);
  const kjit_status made = nvrtc_create_fake(&nvrtc, &mem, &f->api, "nvrtc-fake", &f->error);
  if (made != KJIT_OK) return made;
  const kjit_status status = compile_run(nvrtc, &f->request, &mem, stop, user, &f->result, &f->error);
  nvrtc_destroy(nvrtc);
  return status;
}

static kjit_status run(struct fixture *f) {
  return run_with(f, NULL, NULL);
}

/* -- What NVRTC is given ---------------------------------------------------------------------------------------------
 */

static void test_compile__source_is_prologue_and_main_file_headers_by_name(void **state) {
  struct fixture *f = *state;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_string_equal("#define A 1\n#line 1 \"dir/main.cu\"\nint main;\n", script.source);
  assert_string_equal("dir/main.cu", script.name);
  assert_string_equal("a.h=int a;;", script.headers);
}

static void test_compile__options_are_standing_then_arch_then_the_requests(void **state) {
  struct fixture *f = *state;
  const char *const options[] = {"--maxrregcount=64", "-lineinfo"}, *const * standing;
  char expected[512] = "";
  f->request.options = options;
  f->request.option_count = 2;
  assert_status(KJIT_OK, run(f), &f->error);
  const size_t count = compile_standing_options(&standing);
  for (size_t i = 0; i < count; i++) {
    strcat(expected, standing[i]);
    strcat(expected, " ");
  }
  strcat(expected, "--gpu-architecture=sm_80 --no-cache --maxrregcount=64 -lineinfo ");
  assert_string_equal(expected, script.options);
}

static void test_compile__standing_options_keep_nvrtc_from_the_working_directory(void **state) {
  struct fixture *f = *state;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_contains(script.options, "--no-source-include");
  assert_contains(script.options, "--std=c++17");
}

static void test_compile__no_cache_is_for_those_that_know_it(void **state) {
  struct fixture *f = *state;
  script.major = 12;
  script.minor = 8;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_lacks(script.options, "--no-cache");
  script.minor = 9;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_contains(script.options, "--no-cache");
}

static void test_compile__minimal_is_for_those_that_know_it(void **state) {
  struct fixture *f = *state;
  const char *const options[] = {"--minimal", "--fmad=false"};
  f->request.options = options;
  f->request.option_count = 2;
  script.major = 12;
  script.minor = 3;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_lacks(script.options, "--minimal");
  assert_contains(script.options, "--fmad=false");
  script.minor = 4;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_contains(script.options, "--minimal");
}

/* -- Which architectures ---------------------------------------------------------------------------------------------
 */

static void test_compile__unknown_architecture_is_refused_with_the_list(void **state) {
  struct fixture *f = *state;
  assert_int_equal(KJIT_OK, target_parse(&f->request.target, "sm_99", NULL));
  assert_status(KJIT_ERR_UNSUPPORTED, run(f), &f->error);
  assert_string_equal("arch: NVRTC 13.0 does not compile for sm_99, but for sm_80, sm_90, sm_100", f->error.message);
  assert_int_equal(0, script.compiles);
}

static kjit_status run_for(struct fixture *f, const char *arch) {
  assert_int_equal(KJIT_OK, target_parse(&f->request.target, arch, NULL));
  return run(f);
}

static void test_compile__suffixes_exist_from_their_architecture_on(void **state) {
  struct fixture *f = *state;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, run_for(f, "sm_80a"));
  assert_int_equal(KJIT_OK, run_for(f, "sm_90a"));
  assert_int_equal(KJIT_ERR_UNSUPPORTED, run_for(f, "sm_90f"));
  assert_int_equal(KJIT_OK, run_for(f, "sm_100f"));
  script.major = 12;
  script.minor = 8;
  assert_int_equal(KJIT_ERR_UNSUPPORTED, run_for(f, "sm_100f"));
}

/* -- What comes out --------------------------------------------------------------------------------------------------
 */

static void test_compile__cubin_log_and_figures_are_handed_over(void **state) {
  struct fixture *f = *state;
  script.log = "main.cu(1): warning: careful\n"
               "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
               "ptxas info    : Function properties for k\n"
               "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
               "ptxas info    : Used 40 registers, 256 bytes smem, 360 bytes cmem[0]\n";
  assert_status(KJIT_OK, run(f), &f->error);
  assert_int_equal(12, f->result.cubin_bytes);
  assert_memory_equal("machine code", f->result.cubin, 12);
  assert_string_equal("main.cu(1): warning: careful\n", f->result.log);
  assert_int_equal(40, f->result.registers);
  assert_int_equal(16, f->result.spill_bytes);
  assert_int_equal(8, f->result.local_bytes);
  assert_int_equal(256, f->result.shared_bytes);
}

static void make_cubin(struct fake_elf *elf) {
  static const unsigned char info[] = {0x04, 0x05, 12, 0, 128, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
  const struct fake_section sections[] = {{".text.k", SHT_PROGBITS, "code", 4},
                                          {".nv.info.k", 0x70000000, info, sizeof info}};
  fake_elf_begin(elf);
  fake_elf_add_sections(elf, sections, 2);
  script.cubin = elf->data;
  script.cubin_bytes = elf->bytes;
}

static void test_compile__launch_bounds_come_from_the_cubin(void **state) {
  struct fixture *f = *state;
  struct fake_elf elf;
  make_cubin(&elf);
  assert_status(KJIT_OK, run(f), &f->error);
  assert_int_equal(128, f->result.max_threads);
}

static void test_compile__cubin_without_the_entry_is_a_failed_compile(void **state) {
  struct fixture *f = *state;
  struct fake_elf elf;
  make_cubin(&elf);
  f->request.entry = "other";
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
  assert_contains(f->error.message, "no kernel named \"other\"");
  assert_contains(f->error.message, "Kernels in it: k");
  assert_null(f->result.cubin);
  assert_int_equal(0, f->result.cubin_bytes);
  assert_non_null(f->result.log);
}

/* -- What goes wrong -------------------------------------------------------------------------------------------------
 */

static void test_compile__rejected_source_gives_the_first_error_and_the_log(void **state) {
  struct fixture *f = *state;
  script.result = NVRTC_ERROR_COMPILATION;
  script.log = "a.h(2): warning: careful\nmain.cu(3): error: identifier \"x\" is undefined\nmain.cu(4): error: more\n";
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
  assert_string_equal("main.cu(3): error: identifier \"x\" is undefined", f->error.message);
  assert_int_equal(KJIT_CAUSE_NVRTC, f->error.cause_domain);
  assert_int_equal(NVRTC_ERROR_COMPILATION, f->error.cause);
  assert_string_equal(script.log, f->result.log);
  assert_null(f->result.cubin);
}

static void test_compile__fatal_line_of_ptxas_counts_as_the_error(void **state) {
  struct fixture *f = *state;
  script.result = NVRTC_ERROR_COMPILATION;
  script.log = "\nptxas fatal   : Too much of it\n";
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
  assert_string_equal("ptxas fatal   : Too much of it", f->error.message);
}

static void test_compile__failure_without_a_log_has_nvrtcs_word(void **state) {
  struct fixture *f = *state;
  script.result = NVRTC_ERROR_INTERNAL_ERROR;
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
  assert_string_equal("NVRTC: NVRTC_SAYS_SO", f->error.message);
  f->api.nvrtcGetErrorString = NULL;
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
}

static void test_compile__each_kind_of_failure_has_its_status(void **state) {
  struct fixture *f = *state;
  script.log = "nvrtc: error: it says why\n";
  script.result = NVRTC_ERROR_INVALID_OPTION;
  assert_status(KJIT_ERR_INVALID_ARG, run(f), &f->error);
  assert_string_equal("nvrtc: error: it says why", f->error.message);
  script.result = NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
  assert_status(KJIT_ERR_NO_NVRTC, run(f), &f->error);
  script.result = NVRTC_ERROR_OUT_OF_MEMORY;
  assert_status(KJIT_ERR_NO_MEMORY, run(f), &f->error);
}

static void test_compile__empty_cubin_is_an_error(void **state) {
  struct fixture *f = *state;
  script.cubin_bytes = 0;
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
  assert_contains(f->error.message, "no machine code");
}

static void test_compile__sizes_beyond_reason_are_refused_unread(void **state) {
  struct fixture *f = *state;
  script.cubin_bytes = (size_t)1 << 40;
  assert_status(KJIT_ERR_COMPILE, run(f), &f->error);
  assert_contains(f->error.message, "256 MiB");
  script.cubin_bytes = 12;
  script.log_bytes = (size_t)1 << 40;
  assert_status(KJIT_OK, run(f), &f->error);
  assert_contains(f->result.log, "16 MiB");
}

static void test_compile__every_failed_allocation_is_no_memory_and_leaks_nothing(void **state) {
  struct fixture *f = *state;
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    failing_allocator_reset(&allocator, n);
    script.headers[0] = '\0';
    status = run(f);
    assert_int_equal(0, script.alive);
    if (status == KJIT_OK) break;
    assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
    compile_result_finish(&f->result, &mem);
    assert_int_equal(0, atomic_load(&allocator.live));
  }
}

/* -- Stopping --------------------------------------------------------------------------------------------------------
 */

/* True on the call that `user` counts down to, and only then. */
static bool stop_once(void *user) {
  return (*(int *)user)-- == 0;
}

static void test_compile__stop_before_the_start_compiles_nothing(void **state) {
  struct fixture *f = *state;
  int countdown = 0;
  assert_status(KJIT_ERR_CANCELLED, run_with(f, stop_once, &countdown), &f->error);
  assert_int_equal(0, script.compiles);
}

static void test_compile__stop_during_the_compile_stays_stopped(void **state) {
  struct fixture *f = *state;
  int countdown = 3;
  script.flow_calls = 10;
  assert_status(KJIT_ERR_CANCELLED, run_with(f, stop_once, &countdown), &f->error);
  assert_int_equal(1, script.compiles);
  assert_int_equal(8, script.flow_answers); /* the third of ten, and all after it */
  assert_null(f->result.cubin);
}

static void test_compile__old_nvrtc_without_the_callback_compiles_to_the_end(void **state) {
  struct fixture *f = *state;
  int countdown = 3;
  f->api.nvrtcSetFlowCallback = NULL;
  script.flow_calls = 10;
  assert_status(KJIT_OK, run_with(f, stop_once, &countdown), &f->error);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_compile__##name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(source_is_prologue_and_main_file_headers_by_name),
      TEST(options_are_standing_then_arch_then_the_requests),
      TEST(standing_options_keep_nvrtc_from_the_working_directory),
      TEST(no_cache_is_for_those_that_know_it),
      TEST(minimal_is_for_those_that_know_it),
      TEST(unknown_architecture_is_refused_with_the_list),
      TEST(suffixes_exist_from_their_architecture_on),
      TEST(cubin_log_and_figures_are_handed_over),
      TEST(launch_bounds_come_from_the_cubin),
      TEST(cubin_without_the_entry_is_a_failed_compile),
      TEST(rejected_source_gives_the_first_error_and_the_log),
      TEST(fatal_line_of_ptxas_counts_as_the_error),
      TEST(failure_without_a_log_has_nvrtcs_word),
      TEST(each_kind_of_failure_has_its_status),
      TEST(empty_cubin_is_an_error),
      TEST(sizes_beyond_reason_are_refused_unread),
      TEST(every_failed_allocation_is_no_memory_and_leaks_nothing),
      TEST(stop_before_the_start_compiles_nothing),
      TEST(stop_during_the_compile_stays_stopped),
      TEST(old_nvrtc_without_the_callback_compiles_to_the_end),
  };
  return cmocka_run_group_tests_name("compile", tests, NULL, NULL);
}
