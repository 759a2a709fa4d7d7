/* Ranges for a profiler: what is told, in which order, and that nothing is told unasked. Each case runs in a process of
 * its own, because a profiler's library is loaded once. */
#include "fixture.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *told(const struct fixture *f, char *text, size_t bytes) {
  char path[PATH_MAX];
  (void)snprintf(path, sizeof path, "%s/told", f->folder.path);
  FILE *const file = fopen(path, "r");
  const size_t read = file ? fread(text, 1, bytes - 1, file) : 0;
  text[read] = '\0';
  if (file) (void)fclose(file);
  return text;
}

/* A runtime with these flags builds and loads one kernel twice. */
static int use(struct fixture *f, uint32_t flags) {
  kjit_runtime_options options = kjit_runtime_options_default();
  struct runtime_fakes fakes = {.driver = &fake_driver_api};
  const kjit_build_request request = fixture_request("sm_90", "a");
  kjit_kernel *kernel[2] = {NULL, NULL};
  char path[PATH_MAX];
  (void)snprintf(path, sizeof path, "%s/told", f->folder.path);
  (void)setenv("FAKE_NVTX_FILE", path, 1);
  options.cache_mode = KJIT_CACHE_OFF;
  options.flags = flags;
  if (nvrtc_create_fake(&fakes.nvrtc, &f->mem, fake_nvrtc_api(), "nvrtc-fake", &f->error) != KJIT_OK) return 1;
  if (runtime_create_with(&f->runtime, &options, &fakes, &f->error) != KJIT_OK) return 2;
  for (int i = 0; i < 2; i++)
    if (kjit_kernel_get(f->runtime, &request, &kernel[i], &f->error) != KJIT_OK) return 3;
  for (int i = 0; i < 2; i++)
    kjit_kernel_release(kernel[i]);
  return 0;
}

/* The same in a child process with these variables. */
static void use_apart(struct fixture *f, const char *library, const char *variable, uint32_t flags) {
  int status = 0;
  const pid_t child = fork();
  if (!child) {
    (void)unsetenv("NVTX_INJECTION64_PATH");
    if (library) (void)setenv("NVTX_INJECTION64_PATH", library, 1);
    if (variable) (void)setenv(variable, "on", 1);
    _exit(use(f, flags));
  }
  assert_true(child > 0);
  assert_int_equal(child, waitpid(child, &status, 0));
  assert_int_equal(0, status);
}

#define ALL_RANGES "domain kjit\npush compile k.cu sm_90\npop\npush load k.cu sm_90\npop\n"

static void test_nvtx__flag_tells_compile_and_load_once(void **state) {
  char text[1024];
  use_apart(*state, FAKE_NVTX, NULL, KJIT_RUNTIME_NVTX);
  assert_string_equal(ALL_RANGES, told(*state, text, sizeof text));
}

static void test_nvtx__variable_does_as_the_flag(void **state) {
  char text[1024];
  use_apart(*state, FAKE_NVTX, "KJIT_NVTX", 0);
  assert_string_equal(ALL_RANGES, told(*state, text, sizeof text));
}

static void test_nvtx__profiler_unasked_is_not_loaded(void **state) {
  char text[1024];
  use_apart(*state, FAKE_NVTX, NULL, 0);
  use_apart(*state, FAKE_NVTX, "KJIT_NVTX", KJIT_RUNTIME_IGNORE_ENVIRONMENT);
  assert_string_equal("", told(*state, text, sizeof text));
}

static void test_nvtx__without_a_usable_profiler_kernels_are_built_all_the_same(void **state) {
  char text[1024];
  use_apart(*state, NULL, NULL, KJIT_RUNTIME_NVTX);
  use_apart(*state, "/nowhere/libprofiler.so", NULL, KJIT_RUNTIME_NVTX);
  use_apart(*state, FAKE_NVTX, "FAKE_NVTX_REFUSES", KJIT_RUNTIME_NVTX);
  assert_string_equal("", told(*state, text, sizeof text));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_nvtx__flag_tells_compile_and_load_once),
      FIXTURE_TEST(test_nvtx__variable_does_as_the_flag),
      FIXTURE_TEST(test_nvtx__profiler_unasked_is_not_loaded),
      FIXTURE_TEST(test_nvtx__without_a_usable_profiler_kernels_are_built_all_the_same),
  };
  return cmocka_run_group_tests_name("nvtx", tests, NULL, NULL);
}
