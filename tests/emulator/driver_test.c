/* The emulator itself: what it refuses, which mistakes of a kernel it notices, and what it says about them. */
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
  const kjit_arg arg = KJIT_ARG(argument);
  kjit_launch launch = kjit_launch_default();
  kjit_kernel *kernel = NULL;
  launch.block[0] = threads;
  launch.dynamic_shared_bytes = 1024;
  kjit_status status = kjit_kernel_get(fixture->runtime, &request, &kernel, error);
  if (status == KJIT_OK) status = kjit_kernel_launch(kernel, &launch, &arg, 1, fixture->card.stream, error);
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

/* The pieces in which a structure of 24 bytes is written are of 8 bytes, and so is what its address is a multiple of.
 */
static void test_emulator__structures_in_shared_memory_lie_where_c_allows(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  const kjit_status status = run(fixture,
                                 "struct arguments { int *data; };\nstruct three { long long one, two, three; };\n"
                                 "extern \"C\" __global__ void k(arguments) {\n"
                                 "  extern __shared__ three all[];\n"
                                 "  const three own[2] = {{1, 2, (int)threadIdx.x}, {3, 4, 5}};\n"
                                 "  all[threadIdx.x] = own[threadIdx.x % 2];\n}\n",
                                 NULL, 32, &error);
  assert_status(KJIT_OK, status, &error);
  assert_string_equal("", emulator_complaint(&fixture->card));
}

static void test_emulator__threads_that_wait_forever_are_an_error(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  const kjit_status status =
      run(fixture,
          "struct arguments { int *data; };\n"
          "extern \"C\" __global__ void k(arguments) { if (threadIdx.x == 31) __syncthreads(); else __syncwarp(); }\n",
          NULL, 32, &error);
  assert_status(KJIT_ERR_DRIVER, status, &error);
  assert_contains(error.message, "CUDA_ERROR_LAUNCH_FAILED");
  assert_contains(emulator_complaint(&fixture->card), "warp 0");
  emulator_clear_complaint(&fixture->card);
}

static void test_emulator__real_machine_code_is_no_image_of_its(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const char text[256] = "\177ELF";
  CUmodule module;
  assert_int_equal(CUDA_ERROR_INVALID_IMAGE, fixture->card.api.module_load(&module, text));
}

static void test_emulator__graphs_are_not_supported(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  assert_int_equal(CUDA_ERROR_NOT_SUPPORTED,
                   fixture->card.api.stream_begin_capture(fixture->card.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void test_emulator__copies_stay_within_an_allocation(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const struct card *card = &fixture->card;
  kjit_error error = {0};
  struct card_buffer buffer;
  char bytes[128] = {0};
  assert_status(KJIT_OK, card_buffer_create(card, &buffer, 64, &error), &error);
  assert_int_equal(CUDA_SUCCESS, card->api.copy_in(buffer.address + 32, bytes, 32, card->stream));
  assert_int_equal(CUDA_ERROR_INVALID_VALUE, card->api.copy_in(buffer.address + 32, bytes, 33, card->stream));
  assert_int_equal(CUDA_ERROR_INVALID_VALUE, card->api.copy_out(bytes, buffer.address - 1, 1, card->stream));
  card_buffer_destroy(card, &buffer);
  assert_int_equal(CUDA_ERROR_INVALID_VALUE, card->api.copy_out(bytes, buffer.address, 1, card->stream));
}

typedef CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                           const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                           CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* A map of 128 x 100 halves, row by row, with one thing changed. */
struct map {
  uint64_t address, rows, stride;
  uint32_t columns_of_box, rows_of_box, step;
};

static CUresult encode_map(const struct gpu_fixture *fixture, const struct map *map) {
  CUtensorMap encoded;
  encode function;
  void *symbol = dlsym(fixture->card.library, "cuTensorMapEncodeTiled");
  memcpy(&function, &symbol, sizeof symbol);
  const cuuint64_t sizes[2] = {128, map->rows}, strides[1] = {map->stride};
  const cuuint32_t box[2] = {map->columns_of_box, map->rows_of_box}, steps[2] = {1, map->step};
  return function(&encoded, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)(uintptr_t)map->address, sizes, strides, box,
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void test_emulator__tensor_maps_are_checked(void **state) {
  const struct gpu_fixture *fixture = gpu_require(state);
  const struct map good = {.address = 4096, .rows = 100, .stride = 256, .columns_of_box = 64, .rows_of_box = 64, 1};
  assert_int_equal(CUDA_SUCCESS, encode_map(fixture, &good));
  struct map bad[7];
  for (size_t i = 0; i < 7; i++)
    bad[i] = good;
  bad[0].address = 4104;      /* no multiple of 16 */
  bad[1].rows = 0;            /* none */
  bad[2].stride = 264;        /* no multiple of 16 */
  bad[3].stride = 1ull << 40; /* too far */
  bad[4].columns_of_box = 72; /* wider than the swizzle */
  bad[5].rows_of_box = 257;   /* more than 256 */
  bad[6].step = 9;            /* more than 8 */
  for (size_t i = 0; i < 7; i++)
    assert_int_equal(CUDA_ERROR_INVALID_VALUE, encode_map(fixture, &bad[i]));
}

/* A card of its own: what attention_sm90 needs is not there, and flash_forward does the work. */
static void test_emulator__an_a100_runs_what_is_for_it(void **unused) {
  (void)unused;
  void *state = NULL;
  assert_int_equal(0, setenv("KJIT_EMULATOR_CARD", "a100", 1));
  assert_int_equal(0, emulator_setup(&state));
  struct gpu_fixture *fixture = state;
  struct trial_problem problem = gpu_small_problem(fixture);
  problem.asked.seq_q = 40;
  problem.asked.seq_kv = 70;
  struct gpu_trial trial;
  kjit_error error = {0};
  gpu_trial_create(&trial, &fixture->kernels, &problem);
  assert_string_equal("sm_80", fixture->card.arch);
  assert_status(KJIT_OK, kjit_attention_forward(fixture->runtime, NULL, &trial.data.args, fixture->card.stream, &error),
                &error);
  gpu_assert_right(fixture, &trial, "on an A100");
  gpu_trial_destroy(&trial);
  assert_int_equal(0, gpu_teardown(&state));
  assert_int_equal(0, unsetenv("KJIT_EMULATOR_CARD"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_emulator__a_mistake_in_the_source_is_named_by_its_line),
      cmocka_unit_test(test_emulator__ptx_that_it_does_not_know_is_no_guess),
      cmocka_unit_test(test_emulator__a_write_beside_an_allocation_is_noticed),
      cmocka_unit_test(test_emulator__structures_in_shared_memory_lie_where_c_allows),
      cmocka_unit_test(test_emulator__threads_that_wait_forever_are_an_error),
      cmocka_unit_test(test_emulator__real_machine_code_is_no_image_of_its),
      cmocka_unit_test(test_emulator__graphs_are_not_supported),
      cmocka_unit_test(test_emulator__copies_stay_within_an_allocation),
      cmocka_unit_test(test_emulator__tensor_maps_are_checked),
      cmocka_unit_test(test_emulator__an_a100_runs_what_is_for_it),
  };
  return cmocka_run_group_tests_name("the emulator", tests, emulator_setup, gpu_teardown);
}
