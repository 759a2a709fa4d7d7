/* Modules on a card: templates, globals, links, graphs, unloading. */
#include "user_kernel.h"

/* -- Modules ------------------------------------------------------------------------------------------------------ */

static const char template_source[] =
    "namespace n {\n"
    "__constant__ float table[4];\n"
    "__device__ unsigned calls;\n"
    "template <class T, int N> __global__ void k(T *p) { p[threadIdx.x] = T(N * table[threadIdx.x]); calls++; }\n"
    "}\n";

static void test_user_module__template_reads_a_table_that_the_host_wrote(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const char *const names[] = {"n::k<float, 3>", "n::k<int, 5>", "n::table", "&n::calls"};
  const float table[4] = {1, 2, 3, 4};
  struct card_buffer out = zeros(fixture, 8 * sizeof(float));
  kjit_build_request request = request_for(template_source, NULL);
  kjit_launch shape = kjit_launch_default();
  kjit_error error = {0};
  kjit_module *module = NULL;
  kjit_kernel *kernels[2];
  request.names = names;
  request.name_count = 4;
  assert_status(KJIT_OK, kjit_module_get(fixture->runtime, &request, &module, &error), &error);
  const CUstream stream = fixture->card.stream;
  kjit_status status = kjit_module_write_global(module, "n::table", 0, table, sizeof table, stream, &error);
  assert_status(KJIT_OK, status, &error);
  shape.block[0] = 4;
  for (int i = 0; i < 2; i++) {
    const uint64_t address = out.address + (uint64_t)i * 4 * sizeof(float);
    const kjit_arg arg = KJIT_ARG(address);
    assert_status(KJIT_OK, kjit_module_get_kernel(module, names[i], &kernels[i], &error), &error);
    launch(fixture, kernels[i], &shape, &arg, 1);
  }
  union {
    float floats[4];
    int ints[4];
  } result[2];
  unsigned calls = 0;
  read_back(fixture, result, &out, sizeof result);
  for (int i = 0; i < 4; i++) {
    assert_true(result[0].floats[i] == 3 * table[i]);
    assert_int_equal(5 * (i + 1), result[1].ints[i]);
  }
  status = kjit_module_read_global(module, "&n::calls", 0, &calls, sizeof calls, stream, &error);
  assert_status(KJIT_OK, status, &error);
  assert_in_range(calls, 1, 8);
  kjit_kernel_release(kernels[0]);
  kjit_kernel_release(kernels[1]);
  kjit_module_release(module);
  card_buffer_destroy(&fixture->card, &out);
}

static void test_user_module__linked_pair_runs(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  static const char *const lto = "-dlto";
  kjit_build_request request = request_for("__device__ int twice(int x) { return 2 * x; }\n", NULL);
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_artifact *object = NULL;
  kjit_kernel *kernel = NULL;
  kjit_error error = {0};
  int result = 0;
  request.arch = fixture->card.arch;
  request.options = &lto;
  request.option_count = 1;
  request.flags = KJIT_BUILD_OBJECT;
  const kjit_status built = kjit_build(fixture->runtime, &request, &object, &error);
  assert_status(KJIT_OK, built, &error);
  assert_status(KJIT_OK, kjit_artifact_get_info(object, &info, &error), &error);
  const kjit_part part = {.data = info.cubin, .bytes = info.cubin_bytes, .kind = KJIT_PART_LTOIR};
  request = request_for("__device__ int twice(int x);\n"
                        "extern \"C\" __global__ void k(int *p) { *p = twice(21); }\n",
                        "k");
  request.arch = fixture->card.arch;
  request.parts = &part;
  request.part_count = 1;
  const kjit_status status = kjit_kernel_get(fixture->runtime, &request, &kernel, &error);
  kjit_artifact_release(object);
  if (status == KJIT_ERR_NO_NVRTC) {
    print_message("no nvJitLink: %s\n", error.message);
    skip();
  }
  assert_status(KJIT_OK, status, &error);
  struct card_buffer out = zeros(fixture, sizeof result);
  const uint64_t address = out.address;
  const kjit_arg arg = KJIT_ARG(address);
  const kjit_launch shape = kjit_launch_default();
  launch(fixture, kernel, &shape, &arg, 1);
  read_back(fixture, &result, &out, sizeof result);
  assert_int_equal(42, result);
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &out);
}

/* -- Graphs and unloading ----------------------------------------------------------------------------------------- */

struct addition {
  kjit_kernel *kernel;
  uint64_t address;
};

static const char add_source[] = "extern \"C\" __global__ void add(unsigned *p, unsigned x) { *p += x; }\n";

static kjit_status enqueue_addition(void *user, CUstream stream, kjit_error *error) {
  const struct addition *const it = user;
  const unsigned x = 7;
  const kjit_arg args[] = {KJIT_ARG(it->address), KJIT_ARG(x)};
  const kjit_launch shape = kjit_launch_default();
  return kjit_kernel_launch(it->kernel, &shape, args, 2, stream, error);
}

/* Load and release so many others that all idle ones have gone. */
static uint64_t churn(kjit_runtime *runtime, int count) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  kjit_error error = {0};
  for (int i = 0; i < count; i++) {
    char text[96];
    kjit_kernel *kernel = NULL;
    snprintf(text, sizeof text, "extern \"C\" __global__ void k(int *p) { *p = %d; }\n", i);
    const kjit_build_request request = request_for(text, "k");
    assert_status(KJIT_OK, kjit_kernel_get(runtime, &request, &kernel, &error), &error);
    kjit_kernel_release(kernel);
  }
  assert_status(KJIT_OK, kjit_runtime_get_stats(runtime, &stats, &error), &error);
  return stats.kernels_unloaded;
}

static void test_user_module__captured_kernel_replays_after_others_were_unloaded(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  const struct card *const card = &fixture->card;
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  struct card_buffer sum = zeros(fixture, sizeof(unsigned));
  struct addition addition = {.address = sum.address};
  const kjit_build_request request = request_for(add_source, "add");
  kjit_error error = {0};
  CUgraphExec graph = NULL;
  unsigned result = 0;
  options.modules_max_idle = 2;
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, &options, &error), &error);
  assert_status(KJIT_OK, kjit_kernel_get(runtime, &request, &addition.kernel, &error), &error);
  kjit_status status = card_capture(card, card->stream, enqueue_addition, &addition, &graph, &error);
  assert_status(KJIT_OK, status, &error);
  kjit_kernel_release(addition.kernel);
  assert_true(churn(runtime, 8) > 0);
  for (int i = 0; i < 3; i++)
    assert_int_equal(CUDA_SUCCESS, card->api.graph_launch(graph, card->stream));
  read_back(fixture, &result, &sum, sizeof result);
  assert_int_equal(21, result);
  card->api.graph_exec_destroy(graph);
  kjit_runtime_destroy(runtime);
  card_buffer_destroy(card, &sum);
}

/* Released while it runs, and unloaded by what comes next: the wait in between keeps its code there. */
static void test_user_module__kernel_released_while_running_ends_well(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  struct card_buffer out = zeros(fixture, sizeof(unsigned));
  const uint64_t address = out.address;
  const kjit_arg arg = KJIT_ARG(address);
  const kjit_launch shape = kjit_launch_default();
  const kjit_build_request request = request_for("extern \"C\" __global__ void slow(unsigned *p) {\n"
                                                 "  for (int i = 0; i < 20000; i++) __nanosleep(5000);\n"
                                                 "  *p = 42;\n"
                                                 "}\n",
                                                 "slow");
  kjit_kernel *kernel = NULL;
  unsigned result = 0;
  options.modules_max_idle = 1;
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, &options, &error), &error);
  assert_status(KJIT_OK, kjit_kernel_get(runtime, &request, &kernel, &error), &error);
  kjit_status status = kjit_kernel_launch(kernel, &shape, &arg, 1, fixture->card.stream, &error);
  assert_status(KJIT_OK, status, &error);
  kjit_kernel_release(kernel);
  assert_true(churn(runtime, 4) > 0);
  read_back(fixture, &result, &out, sizeof result);
  assert_int_equal(42, result);
  kjit_runtime_destroy(runtime);
  card_buffer_destroy(&fixture->card, &out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_user_module__template_reads_a_table_that_the_host_wrote),
      cmocka_unit_test(test_user_module__linked_pair_runs),
      cmocka_unit_test(test_user_module__captured_kernel_replays_after_others_were_unloaded),
      cmocka_unit_test(test_user_module__kernel_released_while_running_ends_well),
  };
  return cmocka_run_group_tests_name("user modules on the GPU", tests, gpu_setup, gpu_teardown);
}
