/* Ways to launch that only a card can show: arguments, attributes, tensor maps. */
#include "user_kernel.h"

#include <stdbool.h>

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
      const bool inside = row + r < ROWS && column + c < COLUMNS;
      assert_true(result[r * BOX_COLUMNS + c] == (inside ? in[(row + r) * COLUMNS + column + c] : 0));
    }
  kjit_kernel_release(kernel);
  card_buffer_destroy(&fixture->card, &from);
  card_buffer_destroy(&fixture->card, &to);
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
  };
  return cmocka_run_group_tests_name("user kernels on the GPU", tests, gpu_setup, gpu_teardown);
}
