/* A caller's own kernel on the GPU: typed argument, shared memory, limits, loading and unloading. */
#include "gpu_fixture.h"
#include "support/configs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* What the kernel below takes; the same text on both sides. */
#define SAXPY_PARAMS                                                                                                   \
  struct saxpy_params {                                                                                                \
    const float *x;                                                                                                    \
    float *y;                                                                                                          \
    double a;                                                                                                          \
    int count;                                                                                                         \
    char tag;                                                                                                          \
  };
SAXPY_PARAMS

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

static const char saxpy_source[] =
    TEXT(SAXPY_PARAMS) "\n"
                       "extern \"C\" __global__ void saxpy(const __grid_constant__ saxpy_params p) {\n"
                       "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                       "  if (i < p.count && p.tag == 'k') p.y[i] = (float)(p.a * p.x[i]) + p.y[i];\n"
                       "}\n";

/* Each block reverses BLOCK words through dynamic shared memory. */
static const char reverse_source[] =
    "struct reverse_params { int *data; int words; };\n"
    "extern \"C\" __global__ void reverse(const __grid_constant__ reverse_params p) {\n"
    "  extern __shared__ int words_s[];\n"
    "  for (int i = threadIdx.x; i < p.words; i += blockDim.x) words_s[i] = p.data[i];\n"
    "  __syncthreads();\n"
    "  for (int i = threadIdx.x; i < p.words; i += blockDim.x) p.data[i] = words_s[p.words - 1 - i];\n"
    "}\n";

struct reverse_params {
  int *data;
  int words;
};

static kjit_build_request request_for(const char *text, const char *name, const char *entry) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = entry;
  request.source = (kjit_source){name, text, 0};
  return request;
}

static kjit_kernel *get_kernel(kjit_runtime *runtime, const kjit_build_request *request) {
  kjit_error error = {0};
  kjit_kernel *kernel = NULL;
  const kjit_status status = kjit_kernel_get(runtime, request, &kernel, &error);
  assert_status(KJIT_OK, status, &error);
  assert_non_null(kernel);
  return kernel;
}

static kjit_kernel *get_saxpy(kjit_runtime *runtime) {
  const kjit_build_request request = request_for(saxpy_source, "saxpy.cu", "saxpy");
  return get_kernel(runtime, &request);
}

static struct card_buffer device_copy(const struct card *card, const void *data, size_t bytes) {
  kjit_error error = {0};
  struct card_buffer buffer;
  kjit_status status = card_buffer_create(card, &buffer, bytes, &error);
  assert_status(KJIT_OK, status, &error);
  status = card_write(card, buffer.address, data, bytes, &error);
  assert_status(KJIT_OK, status, &error);
  return buffer;
}

static void test_kernel__typed_struct_argument_arrives_whole(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  enum { COUNT = 1000 };
  float x[COUNT], y[COUNT], result[COUNT];
  for (int i = 0; i < COUNT; i++)
    x[i] = (float)i, y[i] = (float)(3 * i + 1);
  struct card_buffer on_device[2] = {device_copy(&fixture->card, x, sizeof x),
                                     device_copy(&fixture->card, y, sizeof y)};
  const struct saxpy_params params = {.x = (const float *)(uintptr_t)on_device[0].address,
                                      .y = (float *)(uintptr_t)on_device[1].address,
                                      .a = 2.5,
                                      .count = COUNT,
                                      .tag = 'k'};
  kjit_launch launch = kjit_launch_default();
  launch.grid[0] = (COUNT + 127) / 128;
  launch.block[0] = 128;
  kjit_error error = {0};
  kjit_kernel *kernel = get_saxpy(fixture->runtime);
  kjit_status status =
      kjit_kernel_launch(kernel, &launch, &(kjit_arg)KJIT_ARG(params), 1, fixture->card.stream, &error);
  assert_status(KJIT_OK, status, &error);
  status = card_read(&fixture->card, result, on_device[1].address, sizeof result, &error);
  assert_status(KJIT_OK, status, &error);
  for (int i = 0; i < COUNT; i++)
    assert_true(fabsf(result[i] - (2.5f * x[i] + y[i])) <= 1e-3f);
  kjit_kernel_release(kernel);
  for (int i = 0; i < 2; i++)
    card_buffer_destroy(&fixture->card, &on_device[i]);
}

static void test_kernel__more_than_48_kib_of_shared_memory_works(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  enum { WORDS = 20 * 1024 }; /* 80 KiB: every GPU from sm_80 on has 99 */
  int *words = test_calloc(WORDS, sizeof *words);
  for (int i = 0; i < WORDS; i++)
    words[i] = i;
  struct card_buffer buffer = device_copy(&fixture->card, words, WORDS * sizeof *words);
  const kjit_build_request request = request_for(reverse_source, "reverse.cu", "reverse");
  kjit_kernel *kernel = get_kernel(fixture->runtime, &request);
  const struct reverse_params params = {(int *)(uintptr_t)buffer.address, WORDS};
  kjit_launch launch = kjit_launch_default();
  launch.block[0] = 256;
  launch.dynamic_shared_bytes = WORDS * sizeof *words;
  kjit_error error = {0};
  kjit_status status =
      kjit_kernel_launch(kernel, &launch, &(kjit_arg)KJIT_ARG(params), 1, fixture->card.stream, &error);
  assert_status(KJIT_OK, status, &error);
  status = card_read(&fixture->card, words, buffer.address, WORDS * sizeof *words, &error);
  assert_status(KJIT_OK, status, &error);
  for (int i = 0; i < WORDS; i++)
    assert_int_equal(WORDS - 1 - i, words[i]);
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &buffer);
  test_free(words);
}

/* Launch saxpy as `launch` says, with `bytes` of argument: it must be refused with `expected`. */
static void assert_refused(struct gpu_fixture *fixture, const kjit_launch *launch, size_t bytes, kjit_status expected) {
  struct saxpy_params params[2] = {{.count = 0}}; /* room for a wrong size; count 0 touches nothing */
  kjit_error error = {0};
  kjit_kernel *kernel = get_saxpy(fixture->runtime);
  const kjit_status status =
      kjit_kernel_launch(kernel, launch, &(kjit_arg){params, bytes}, 1, fixture->card.stream, &error);
  assert_status(expected, status, &error);
  assert_true(error.message[0] != '\0');
  kjit_kernel_release(kernel);
}

static void test_kernel__impossible_launches_are_refused(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const size_t bytes = sizeof(struct saxpy_params);
  kjit_launch launch = kjit_launch_default();
  launch.dynamic_shared_bytes = 1u << 20;
  assert_refused(fixture, &launch, bytes, KJIT_ERR_UNSUPPORTED);
  launch = kjit_launch_default();
  launch.block[0] = 2048;
  assert_refused(fixture, &launch, bytes, KJIT_ERR_INVALID_ARG);
  launch = kjit_launch_default();
  launch.grid[1] = 65536;
  assert_refused(fixture, &launch, bytes, KJIT_ERR_INVALID_ARG);
  launch = kjit_launch_default();
  assert_refused(fixture, &launch, bytes + 8, KJIT_ERR_INVALID_ARG);
  assert_refused(fixture, &launch, bytes - 8, KJIT_ERR_INVALID_ARG);
}

static void test_kernel__code_of_another_architecture_is_refused(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_build_request request = request_for(saxpy_source, "saxpy.cu", "saxpy");
  request.arch = strncmp(fixture->card.arch, "sm_8", 4) == 0 ? "sm_90" : "sm_80";
  kjit_error error = {0};
  kjit_kernel *kernel = NULL;
  const kjit_status status = kjit_kernel_get(fixture->runtime, &request, &kernel, &error);
  assert_status(KJIT_ERR_UNSUPPORTED, status, &error);
  assert_contains(error.message, request.arch);
  assert_null(kernel);
}

static void test_kernel__entry_that_is_not_there_is_refused(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const kjit_build_request request = request_for(saxpy_source, "saxpy.cu", "saxqy");
  kjit_error error = {0};
  kjit_kernel *kernel = NULL;
  const kjit_status status = kjit_kernel_get(fixture->runtime, &request, &kernel, &error);
  assert_true(status != KJIT_OK);
  assert_contains(error.message, "saxqy");
  assert_null(kernel);
}

static void test_kernel__asked_for_twice_is_loaded_once(void **state) {
  gpu_require(state);
  kjit_error error = {0};
  kjit_runtime *runtime = NULL;
  kjit_status status = kjit_runtime_create(&runtime, NULL, &error);
  assert_status(KJIT_OK, status, &error);
  kjit_kernel *first = get_saxpy(runtime), *second = get_saxpy(runtime);
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  status = kjit_runtime_get_stats(runtime, &stats, &error);
  assert_status(KJIT_OK, status, &error);
  assert_int_equal(1, stats.kernels_loaded);
  kjit_kernel_release(first);
  kjit_kernel_release(second);
  kjit_runtime_destroy(runtime);
}

static size_t free_device_bytes(const struct card *card) {
  size_t free_bytes = 0, total = 0;
  assert_int_equal(CUDA_SUCCESS, card->api.memory_info(&free_bytes, &total));
  return free_bytes;
}

/* A runtime that loads an attention kernel, plans with it and ends. */
static void load_and_unload(const struct gpu_trial *trial, const kjit_flash_config *config) {
  kjit_error error = {0};
  kjit_runtime *runtime = NULL;
  kjit_attention_plan *plan = NULL;
  kjit_status status = kjit_runtime_create(&runtime, NULL, &error);
  assert_status(KJIT_OK, status, &error);
  status = plain_plan_create(&plan, runtime, config, &trial->data.args, &error);
  assert_status(KJIT_OK, status, &error);
  const struct card *card = trial->data.kernels->card;
  status = kjit_attention_plan_run(plan, card->stream, &error);
  assert_status(KJIT_OK, status, &error);
  status = card_synchronize(card, card->stream, &error);
  assert_status(KJIT_OK, status, &error);
  kjit_attention_plan_destroy(plan);
  kjit_runtime_destroy(runtime);
}

/* 200 leaked modules of some 30 KiB would show; the driver's own bookkeeping moves in steps of 2 MiB. */
static bool leaves_memory(struct gpu_fixture *fixture, const struct gpu_trial *trial, const kjit_flash_config *config) {
  const size_t before = free_device_bytes(&fixture->card);
  for (int i = 0; i < 200; i++)
    load_and_unload(trial, config);
  return free_device_bytes(&fixture->card) + ((size_t)2 << 20) < before;
}

/* The driver tells of the whole card's memory, which other programs may take meanwhile; a leak shows every time. */
static void test_runtime__many_of_them_leave_no_device_memory_behind(void **state) {
  enum { TRIES = 5 };
  struct gpu_fixture *fixture = gpu_require(state);
  const kjit_flash_config config = gpu_plain_config();
  const struct trial_problem problem = gpu_small_problem(fixture);
  struct gpu_trial trial;
  gpu_trial_create(&trial, &fixture->kernels, &problem);
  for (int i = 0; i < 5; i++)
    load_and_unload(&trial, &config); /* the driver's own pools have grown after that */
  bool leaves = true;
  for (int i = 0; i < TRIES && leaves; i++)
    leaves = leaves_memory(fixture, &trial, &config);
  assert_false(leaves);
  gpu_trial_destroy(&trial);
}

static void test_device__is_described_as_the_driver_has_it(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  uint32_t count = 0;
  kjit_device_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_device_count(fixture->runtime, &count, &error);
  assert_status(KJIT_OK, status, &error);
  assert_int_equal(fixture->card.device_count, count);
  status = kjit_device_get_info(fixture->runtime, -1, &info, &error);
  assert_status(KJIT_OK, status, &error);
  assert_int_equal(fixture->card.ordinal, info.ordinal);
  assert_string_equal(fixture->card.arch, info.arch);
  assert_string_equal(fixture->card.name, info.name);
  assert_int_equal(fixture->card.l2_bytes, info.l2_bytes);
  assert_true(info.multiprocessors > 0 && info.memory_bytes > 0 && info.clock_khz > 0);
  status = kjit_device_get_info(fixture->runtime, (int32_t)count, &info, &error);
  assert_status(KJIT_ERR_INVALID_ARG, status, &error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_device__is_described_as_the_driver_has_it),
      cmocka_unit_test(test_kernel__typed_struct_argument_arrives_whole),
      cmocka_unit_test(test_kernel__more_than_48_kib_of_shared_memory_works),
      cmocka_unit_test(test_kernel__impossible_launches_are_refused),
      cmocka_unit_test(test_kernel__code_of_another_architecture_is_refused),
      cmocka_unit_test(test_kernel__entry_that_is_not_there_is_refused),
      cmocka_unit_test(test_kernel__asked_for_twice_is_loaded_once),
      cmocka_unit_test(test_runtime__many_of_them_leave_no_device_memory_behind),
  };
  return cmocka_run_group_tests_name("runtime on the GPU", tests, gpu_setup, gpu_teardown);
}
