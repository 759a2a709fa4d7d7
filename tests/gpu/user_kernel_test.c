/* What only a card can show of a user's kernels: every way to launch, modules, globals, links, tensor maps, unloading.
 */
#include "gpu_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static kjit_build_request request_for(const char *text, const char *entry) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = entry;
  request.source = (kjit_source){"user.cu", text, 0};
  return request;
}

static kjit_kernel *get_kernel(struct gpu_fixture *fixture, const char *text, const char *entry) {
  const kjit_build_request request = request_for(text, entry);
  kjit_error error = {0};
  kjit_kernel *kernel = NULL;
  assert_status(KJIT_OK, kjit_kernel_get(fixture->runtime, &request, &kernel, &error), &error);
  return kernel;
}

static struct card_buffer zeros(struct gpu_fixture *fixture, size_t bytes) {
  kjit_error error = {0};
  struct card_buffer buffer;
  void *const nothing = test_calloc(1, bytes);
  assert_status(KJIT_OK, card_buffer_create(&fixture->card, &buffer, bytes, &error), &error);
  assert_status(KJIT_OK, card_write(&fixture->card, buffer.address, nothing, bytes, &error), &error);
  test_free(nothing);
  return buffer;
}

static void launch(struct gpu_fixture *fixture, kjit_kernel *kernel, const kjit_launch *shape, const kjit_arg *args,
                   size_t count) {
  kjit_error error = {0};
  const kjit_status status = kjit_kernel_launch(kernel, shape, args, count, fixture->card.stream, &error);
  assert_status(KJIT_OK, status, &error);
}

static void read_back(struct gpu_fixture *fixture, void *to, const struct card_buffer *from, size_t bytes) {
  kjit_error error = {0};
  assert_status(KJIT_OK, card_synchronize(&fixture->card, fixture->card.stream, &error), &error);
  assert_status(KJIT_OK, card_read(&fixture->card, to, from->address, bytes, &error), &error);
}

static _Bool is_hopper_or_later(const struct gpu_fixture *fixture) {
  return atoi(fixture->card.arch + 3) >= 90;
}

static void need_hopper(const struct gpu_fixture *fixture) {
  if (is_hopper_or_later(fixture)) return;
  print_message("needs sm_90, this card is %s\n", fixture->card.arch);
  skip();
}

/* -- Arguments ---------------------------------------------------------------------------------------------------- */

static const char five_source[] =
    "extern \"C\" __global__ void five(double *y, float x, double a, short n, char tag) {\n"
    "  if (threadIdx.x < n) y[threadIdx.x] += x * a + tag;\n"
    "}\n";

static void test_user_kernel__five_arguments_arrive(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct card_buffer y = zeros(fixture, 8 * sizeof(double));
  const uint64_t address = y.address;
  const float x = 1.5f;
  const double a = 4.0;
  const short n = 5;
  const char tag = 7;
  const kjit_arg args[] = {KJIT_ARG(address), KJIT_ARG(x), KJIT_ARG(a), KJIT_ARG(n), KJIT_ARG(tag)};
  kjit_launch shape = kjit_launch_default();
  double result[8];
  kjit_kernel *const kernel = get_kernel(fixture, five_source, "five");
  assert_int_equal(5, kjit_kernel_parameter_count(kernel));
  shape.block[0] = 8;
  launch(fixture, kernel, &shape, args, 5);
  read_back(fixture, result, &y, sizeof result);
  for (int i = 0; i < 8; i++)
    assert_true(result[i] == (i < 5 ? 13.0 : 0.0));
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &y);
}

static const char large_source[] = "struct large { int first; char between[9000]; int last; };\n"
                                   "extern \"C\" __global__ void k(const __grid_constant__ large s, int *out) {\n"
                                   "  *out = s.first + s.last;\n"
                                   "}\n";

/* Beyond the 4 KiB that parameters had before CUDA 12.1: another record in the cubin says their sizes. */
static void test_user_kernel__argument_of_nine_kilobytes_arrives(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  need_hopper(fixture);
  static struct {
    int first;
    char between[9000];
    int last;
  } large = {.first = 30, .last = 12};
  struct card_buffer out = zeros(fixture, sizeof(int));
  const uint64_t address = out.address;
  const kjit_arg args[] = {KJIT_ARG(large), KJIT_ARG(address)};
  const kjit_launch shape = kjit_launch_default();
  int sum = 0;
  kjit_kernel *const kernel = get_kernel(fixture, large_source, "k");
  assert_int_equal(sizeof large, kjit_kernel_parameter_bytes(kernel, 0));
  launch(fixture, kernel, &shape, args, 2);
  read_back(fixture, &sum, &out, sizeof sum);
  assert_int_equal(42, sum);
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &out);
}

/* -- Attributes --------------------------------------------------------------------------------------------------- */

/* Every block waits for all others, which ends only if all run at once. */
static const char meet_source[] = "extern \"C\" __global__ void meet(unsigned *count, unsigned *seen) {\n"
                                  "  if (threadIdx.x) return;\n"
                                  "  __threadfence();\n"
                                  "  atomicAdd(count, 1u);\n"
                                  "  while (atomicAdd(count, 0u) < gridDim.x) ;\n"
                                  "  atomicAdd(seen, 1u);\n"
                                  "}\n";

static void test_user_kernel__cooperative_grid_meets(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct card_buffer counts = zeros(fixture, 2 * sizeof(unsigned));
  const uint64_t count = counts.address, seen = counts.address + sizeof(unsigned);
  const kjit_arg args[] = {KJIT_ARG(count), KJIT_ARG(seen)};
  kjit_occupancy occupancy = {.struct_size = sizeof occupancy};
  kjit_launch shape = kjit_launch_default();
  kjit_error error = {0};
  unsigned result[2];
  kjit_kernel *const kernel = get_kernel(fixture, meet_source, "meet");
  shape.flags = KJIT_LAUNCH_COOPERATIVE;
  shape.block[0] = 256;
  assert_status(KJIT_OK, kjit_kernel_get_occupancy(kernel, &shape, &occupancy, &error), &error);
  assert_true(occupancy.blocks > 0 && occupancy.block_threads > 0 && occupancy.grid_blocks > 0);
  shape.grid[0] = occupancy.blocks * (uint32_t)fixture->card.multiprocessors;
  launch(fixture, kernel, &shape, args, 2);
  read_back(fixture, result, &counts, sizeof result);
  assert_int_equal(shape.grid[0], result[0]);
  assert_int_equal(shape.grid[0], result[1]);
  shape.grid[0]++;
  assert_status(KJIT_ERR_DRIVER, kjit_kernel_launch(kernel, &shape, args, 2, fixture->card.stream, &error), &error);
  assert_int_equal(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, error.cause);
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &counts);
}

/* The first lets the second start at once and then takes its time before it writes. */
static const char pair_source[] = "extern \"C\" __global__ void first(unsigned *p) {\n"
                                  "  asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
                                  "  for (int i = 0; i < 200; i++) __nanosleep(1000);\n"
                                  "  *p = 41;\n"
                                  "}\n"
                                  "extern \"C\" __global__ void second(unsigned *p) {\n"
                                  "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
                                  "  p[1] = *p + 1;\n"
                                  "}\n";

static void test_user_kernel__dependent_launch_sees_what_the_first_wrote(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  need_hopper(fixture);
  struct card_buffer words = zeros(fixture, 2 * sizeof(unsigned));
  const uint64_t address = words.address;
  const kjit_arg arg = KJIT_ARG(address);
  const kjit_build_request request = request_for(pair_source, NULL);
  kjit_launch shape = kjit_launch_default();
  kjit_error error = {0};
  kjit_module *module = NULL;
  kjit_kernel *first = NULL, *second = NULL;
  unsigned result[2];
  assert_status(KJIT_OK, kjit_module_get(fixture->runtime, &request, &module, &error), &error);
  assert_status(KJIT_OK, kjit_module_get_kernel(module, "first", &first, &error), &error);
  assert_status(KJIT_OK, kjit_module_get_kernel(module, "second", &second, &error), &error);
  launch(fixture, first, &shape, &arg, 1);
  shape.flags = KJIT_LAUNCH_PROGRAMMATIC;
  launch(fixture, second, &shape, &arg, 1);
  read_back(fixture, result, &words, sizeof result);
  assert_int_equal(42, result[1]);
  kjit_kernel_release(first);
  kjit_kernel_release(second);
  kjit_module_release(module);
  card_buffer_destroy(&fixture->card, &words);
}

static const char cluster_source[] = "extern \"C\" __global__ void k(unsigned *out) {\n"
                                     "  unsigned blocks, rank;\n"
                                     "  asm volatile(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(blocks));\n"
                                     "  asm volatile(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
                                     "  out[blockIdx.x] = 100 * blocks + rank;\n"
                                     "}\n";

static void test_user_kernel__cluster_of_sixteen_runs(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  need_hopper(fixture);
  struct card_buffer out = zeros(fixture, 32 * sizeof(unsigned));
  const uint64_t address = out.address;
  const kjit_arg arg = KJIT_ARG(address);
  kjit_occupancy occupancy = {.struct_size = sizeof occupancy};
  kjit_launch shape = kjit_launch_default();
  kjit_error error = {0};
  unsigned result[32];
  kjit_kernel *const kernel = get_kernel(fixture, cluster_source, "k");
  shape.grid[0] = 32;
  shape.cluster[0] = 16;
  assert_status(KJIT_OK, kjit_kernel_get_occupancy(kernel, &shape, &occupancy, &error), &error);
  if (!occupancy.clusters) {
    print_message("this card has no room for a cluster of 16\n");
    kjit_kernel_release(kernel);
    card_buffer_destroy(&fixture->card, &out);
    skip();
  }
  shape.cluster_policy = KJIT_CLUSTER_POLICY_SPREAD;
  launch(fixture, kernel, &shape, &arg, 1);
  read_back(fixture, result, &out, sizeof result);
  for (unsigned i = 0; i < 32; i++)
    assert_int_equal(1600 + i % 16, result[i]);
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &out);
}

static void test_user_kernel__priority_carveout_and_domain_are_taken(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct card_buffer words = zeros(fixture, 2 * sizeof(unsigned));
  const uint64_t count = words.address, seen = words.address + sizeof(unsigned);
  const kjit_arg args[] = {KJIT_ARG(count), KJIT_ARG(seen)};
  kjit_launch shape = kjit_launch_default();
  unsigned result[2];
  kjit_kernel *const kernel = get_kernel(fixture, meet_source, "meet");
  shape.flags = KJIT_LAUNCH_PRIORITY | KJIT_LAUNCH_CARVEOUT;
  shape.priority = -1;
  shape.shared_carveout = 50;
  if (is_hopper_or_later(fixture)) shape.sync_domain = KJIT_SYNC_DOMAIN_REMOTE;
  launch(fixture, kernel, &shape, args, 2);
  read_back(fixture, result, &words, sizeof result);
  assert_int_equal(1, result[1]);
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &words);
}

/* -- Tensor maps -------------------------------------------------------------------------------------------------- */

/* One box of 8 rows and 16 columns from (column, row) on, as the copy engine brings it. */
static const char copy_source[] =
    "struct __align__(64) map { char bytes[128]; };\n"
    "extern \"C\" __global__ void copy(const __grid_constant__ map m, float *out, int column, int row) {\n"
    "  __shared__ __align__(128) float box[8 * 16];\n"
    "  __shared__ __align__(8) unsigned long long barrier;\n"
    "  const unsigned b = (unsigned)__cvta_generic_to_shared(&barrier);\n"
    "  const unsigned to = (unsigned)__cvta_generic_to_shared(box);\n"
    "  if (threadIdx.x == 0) {\n"
    "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(b) : \"memory\");\n"
    "    asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
    "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;\" :: \"r\"(b) : \"memory\");\n"
    "    asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \"\n"
    "                 \"[%0], [%1, {%2, %3}], [%4];\"\n"
    "                 :: \"r\"(to), \"l\"(&m), \"r\"(column), \"r\"(row), \"r\"(b) : \"memory\");\n"
    "  }\n"
    "  __syncthreads();\n"
    "  unsigned done = 0;\n"
    "  while (!done)\n"
    "    asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; \"\n"
    "                 \"selp.u32 %0, 1, 0, p; }\" : \"=r\"(done) : \"r\"(b) : \"memory\");\n"
    "  out[threadIdx.x] = box[threadIdx.x];\n"
    "}\n";

static void test_user_kernel__tensor_map_brings_a_box_with_zeros_outside(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  need_hopper(fixture);
  enum { ROWS = 10, COLUMNS = 20, BOX_ROWS = 8, BOX_COLUMNS = 16 };
  float in[ROWS * COLUMNS], result[BOX_ROWS * BOX_COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; i++)
    in[i] = (float)(i + 1);
  struct card_buffer from = zeros(fixture, sizeof in), to = zeros(fixture, sizeof result);
  kjit_tensor_map_options options = kjit_tensor_map_options_default();
  kjit_tensor_map map;
  kjit_error error = {0};
  assert_status(KJIT_OK, card_write(&fixture->card, from.address, in, sizeof in, &error), &error);
  options.address = from.address;
  options.rank = 2;
  options.dtype = KJIT_MAP_FP32;
  options.sizes[0] = COLUMNS, options.sizes[1] = ROWS;
  options.strides[0] = COLUMNS * sizeof(float);
  options.box[0] = BOX_COLUMNS, options.box[1] = BOX_ROWS;
  assert_status(KJIT_OK, kjit_tensor_map_create(fixture->runtime, &options, &map, &error), &error);
  const uint64_t address = to.address;
  const int column = 8, row = 4;
  const kjit_arg args[] = {KJIT_ARG(map), KJIT_ARG(address), KJIT_ARG(column), KJIT_ARG(row)};
  kjit_launch shape = kjit_launch_default();
  kjit_kernel *const kernel = get_kernel(fixture, copy_source, "copy");
  shape.block[0] = BOX_ROWS * BOX_COLUMNS;
  launch(fixture, kernel, &shape, args, 4);
  read_back(fixture, result, &to, sizeof result);
  for (int r = 0; r < BOX_ROWS; r++)
    for (int c = 0; c < BOX_COLUMNS; c++) {
      const _Bool inside = row + r < ROWS && column + c < COLUMNS;
      assert_true(result[r * BOX_COLUMNS + c] == (inside ? in[(row + r) * COLUMNS + column + c] : 0));
    }
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &from);
  card_buffer_destroy(&fixture->card, &to);
}

/* -- Modules ------------------------------------------------------------------------------------------------------ */

static const char template_source[] =
    "namespace n {\n"
    "__constant__ float table[4];\n"
    "__device__ unsigned calls;\n"
    "template <class T, int N> __global__ void k(T *p) { p[threadIdx.x] = T(N * table[threadIdx.x]); calls++; }\n"
    "}\n";

static void test_user_kernel__template_reads_a_table_that_the_host_wrote(void **state) {
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

static void test_user_kernel__linked_pair_runs(void **state) {
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

static void test_user_kernel__captured_kernel_replays_after_others_were_unloaded(void **state) {
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
static void test_user_kernel__kernel_released_while_running_ends_well(void **state) {
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
      cmocka_unit_test(test_user_kernel__five_arguments_arrive),
      cmocka_unit_test(test_user_kernel__argument_of_nine_kilobytes_arrives),
      cmocka_unit_test(test_user_kernel__cooperative_grid_meets),
      cmocka_unit_test(test_user_kernel__dependent_launch_sees_what_the_first_wrote),
      cmocka_unit_test(test_user_kernel__cluster_of_sixteen_runs),
      cmocka_unit_test(test_user_kernel__priority_carveout_and_domain_are_taken),
      cmocka_unit_test(test_user_kernel__tensor_map_brings_a_box_with_zeros_outside),
      cmocka_unit_test(test_user_kernel__template_reads_a_table_that_the_host_wrote),
      cmocka_unit_test(test_user_kernel__linked_pair_runs),
      cmocka_unit_test(test_user_kernel__captured_kernel_replays_after_others_were_unloaded),
      cmocka_unit_test(test_user_kernel__kernel_released_while_running_ends_well),
  };
  return cmocka_run_group_tests_name("user kernels on the GPU", tests, gpu_setup, gpu_teardown);
}
