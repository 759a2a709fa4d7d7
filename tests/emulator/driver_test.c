/* The emulator itself: what it refuses, what it notices, what it says. */
#include "emulator_fixture.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static kjit_build_request request_for(const char *text) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = "k";
  request.source = (kjit_source){"k.cu", text, 0};
  return request;
}

static void assert_not_compiled(struct gpu_fixture *fixture, const char *text, const char *words) {
  const kjit_build_request request = request_for(text);
  kjit_kernel *kernel = NULL;
  kjit_error error = {0};
  assert_status(KJIT_ERR_COMPILE, kjit_kernel_get(fixture->runtime, &request, &kernel, &error), &error);
  assert_contains(error.message, words);
}

static void test_emulator__a_mistake_in_the_source_is_named_by_its_line(void **state) {
  assert_not_compiled(gpu_require(state), "\nextern \"C\" __global__ void k(int *p) { *p = nothing; }\n", "k.cu:2:");
}

static void test_emulator__ptx_that_it_does_not_know_is_no_guess(void **state) {
  assert_not_compiled(gpu_require(state),
                      "extern \"C\" __global__ void k(int *p) { asm volatile(\"bfind.u32 %0, %0;\" : \"+r\"(*p)); }\n",
                      "does not know this inline PTX");
}

struct pointer {
  int *data;
};

static kjit_status run(struct gpu_fixture *fixture, const char *text, int *data, uint32_t threads, kjit_error *error) {
  const kjit_build_request request = request_for(text);
  const struct pointer argument = {data};
  kjit_launch launch = kjit_launch_default();
  kjit_kernel *kernel = NULL;
  launch.block[0] = threads;
  kjit_status status = kjit_kernel_get(fixture->runtime, &request, &kernel, error);
  if (status == KJIT_OK)
    status = kjit_kernel_launch(kernel, &launch, &argument, sizeof argument, fixture->card.stream, error);
  kjit_kernel_release(kernel);
  return status;
}

static void test_emulator__a_write_beside_an_allocation_is_noticed(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  struct card_buffer buffer;
  assert_status(KJIT_OK, card_buffer_create(&fixture->card, &buffer, 40 * sizeof(int), &error), &error);
  (void)run(fixture,
            "struct arguments { int *data; };\nextern \"C\" __global__ void k(arguments a) { a.data[40] = 7; }\n",
            (int *)(uintptr_t)buffer.address, 1, &error);
  card_buffer_destroy(&fixture->card, &buffer);
  assert_true(*emulator_complaint(&fixture->card) != '\0');
  emulator_clear_complaint(&fixture->card);
}

static void test_emulator__threads_that_wait_forever_are_an_error(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  const char *text =
      "struct arguments { int *data; };\n"
      "extern \"C\" __global__ void k(arguments a) { if (threadIdx.x < 32) __syncthreads(); else for (;;) "
      "__syncwarp(), asm volatile(\"\"); }\n";
  (void)text;
  (void)fixture;
  (void)error;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_emulator__a_mistake_in_the_source_is_named_by_its_line),
      cmocka_unit_test(test_emulator__ptx_that_it_does_not_know_is_no_guess),
      cmocka_unit_test(test_emulator__a_write_beside_an_allocation_is_noticed),
      cmocka_unit_test(test_emulator__threads_that_wait_forever_are_an_error),
  };
  return cmocka_run_group_tests_name("the emulator", tests, emulator_setup, gpu_teardown);
}
