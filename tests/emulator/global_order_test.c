/* Which orders of accesses to global memory by different blocks the emulator takes for none (machine/global_order.cc):
 * small kernels whose argument says what is left out of them. The mutation tests do the same with kjit's kernels. */
#include "emulator_fixture.h"

#include <stdlib.h>

#include "support/test.h"
#include "user_kernel.h"

enum { WORDS = 64 };

/* What a kernel gets. Zero words are left. */
struct arguments {
  int *data;
  int left_out;
};

struct variant {
  int left_out;
  const char *complaint; /* a part of what the emulator says; NULL: it says nothing */
};

/* Block 0 writes, by thread 1; its thread 0 hands that to block 1, and block 1 to block 2, which reads by thread 1. */
static const char hand_over[] = "struct arguments { int *data; int left_out; };\n"
                                "__device__ void pass_on(int *word, int left_out) {\n"
                                "  if (left_out != 2) __threadfence();\n"
                                "  if (left_out == 3) *(volatile int *)word = 1; else atomicAdd(word, 1);\n"
                                "}\n"
                                "__device__ void take(int *word, int left_out) {\n"
                                "  while (*(volatile int *)word == 0) __nanosleep(20);\n"
                                "  if (left_out != 4) __threadfence();\n"
                                "}\n"
                                "extern \"C\" __global__ void k(arguments a) {\n"
                                "  int *const words = a.data + 32;\n"
                                "  if (blockIdx.x == 0) {\n"
                                "    if (threadIdx.x == 1) a.data[0] = 7;\n"
                                "    if (a.left_out != 1) __syncthreads();\n"
                                "    if (threadIdx.x == 0) pass_on(words, a.left_out);\n"
                                "  } else if (blockIdx.x == 1 && threadIdx.x == 0) {\n"
                                "    atomicAdd(words + 1, 0);\n"
                                "    take(words, a.left_out == 5 ? 4 : 0);\n"
                                "    pass_on(words + 1, a.left_out == 5 ? 2 : 0);\n"
                                "  } else if (blockIdx.x == 2) {\n"
                                "    if (threadIdx.x == 0) take(words + 1, a.left_out);\n"
                                "    if (a.left_out != 6) __syncthreads();\n"
                                "    if (threadIdx.x == 1) a.data[1] = a.data[0];\n"
                                "  }\n"
                                "}\n";

/* Block 0 stores 16 bytes by TMA; block 1 adds to them, by TMA too. */
static const char copies[] =
    "#include <kjit/ptx/bulk_reduce.cuh>\n"
    "#include <kjit/ptx/memory.cuh>\n"
    "#include <kjit/ptx/tma.cuh>\n"
    "using namespace kjit;\n"
    "struct arguments { int *data; int left_out; };\n"
    "extern \"C\" __global__ void k(arguments a) {\n"
    "  extern __shared__ __align__(128) char shared[];\n"
    "  const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);\n"
    "  int *const word = a.data + 32;\n"
    "  if (threadIdx.x != 0 || blockIdx.x > 1) return;\n"
    "  st_shared_f32_x4(at, 1.0f, 2.0f, 3.0f, 4.0f);\n"
    "  fence_async_proxy();\n"
    "  if (blockIdx.x == 0) {\n"
    "    bulk_store(a.data, at, 16);\n"
    "    cp_async_bulk_commit_group();\n"
    "    if (a.left_out == 1) cp_async_bulk_wait_group_read<0>(); else cp_async_bulk_wait_group<0>();\n"
    "    if (a.left_out == 2) atomicAdd(word, 1); else red_release_add(word, 1);\n"
    "    cp_async_bulk_wait_group<0>();\n"
    "    return;\n"
    "  }\n"
    "  while ((a.left_out == 3 ? *(volatile int *)word : ld_acquire(word)) == 0) __nanosleep(20);\n"
    "  if (a.left_out != 4) fence_async_proxy_global();\n"
    "  if (a.left_out == 5) { a.data[0] = 0; return; }\n"
    "  bulk_reduce_add_f32(a.data, at, 16);\n"
    "  cp_async_bulk_commit_group();\n"
    "  cp_async_bulk_wait_group<0>();\n"
    "}\n";

/* All blocks add to the same word, in no order; each may write a byte, two of them the same one or each its own. */
static const char additions[] = "struct arguments { float *data; int left_out; };\n"
                                "extern \"C\" __global__ void k(arguments a) {\n"
                                "  if (threadIdx.x != 0) return;\n"
                                "  atomicAdd(a.data, 1.0f);\n"
                                "  if (blockIdx.x == 2 && a.left_out == 1) a.data[1] = a.data[0];\n"
                                "  if (blockIdx.x == 2 && a.left_out == 2) a.data[0] = 0.0f;\n"
                                "  if (a.left_out == 3) a.data[2] = 1.0f;\n"
                                "  if (a.left_out >= 4) ((char *)a.data)[16 + blockIdx.x % (a.left_out - 2)] = 1;\n"
                                "}\n";

static void run_variants(void **state, const char *text, const struct variant *variants, size_t count) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_kernel *const kernel = get_kernel(fixture, text, "k");
  for (size_t i = 0; i < count; i++) {
    struct card_buffer buffer = zeros(fixture, WORDS * sizeof(int));
    const struct arguments arguments = {(int *)(uintptr_t)buffer.address, variants[i].left_out};
    const kjit_arg arg = KJIT_ARG(arguments);
    kjit_launch launch = kjit_launch_default();
    launch.grid[0] = 3;
    launch.block[0] = 64;
    launch.dynamic_shared_bytes = 1024;
    kjit_error error = {0};
    const kjit_status status = kjit_kernel_launch(kernel, &launch, &arg, 1, fixture->card.stream, &error);
    assert_status(variants[i].complaint ? KJIT_ERR_DRIVER : KJIT_OK, status, &error);
    assert_contains(emulator_complaint(&fixture->card), variants[i].complaint ? variants[i].complaint : "");
    emulator_clear_complaint(&fixture->card);
    card_buffer_destroy(&fixture->card, &buffer);
  }
  kjit_kernel_release(kernel);
}

#define RUN(text, variants) run_variants(state, text, variants, sizeof(variants) / sizeof *(variants))

static void test_global_order__what_a_block_hands_over_needs_fences_and_barriers(void **state) {
  static const char race[] = "block 0, counted from 0, wrote there, and nothing orders the two";
  static const struct variant variants[] = {{0, NULL}, {1, race}, {2, race}, {3, race},
                                            {4, race}, {5, race}, {6, race}};
  RUN(hand_over, variants);
}

static void test_global_order__what_tma_writes_needs_waits_and_proxy_fences(void **state) {
  static const char race[] = "cp.async.bulk to global memory at global";
  static const struct variant variants[] = {{0, NULL}, {1, race}, {2, race}, {3, race}, {4, race}, {5, NULL}};
  RUN(copies, variants);
}

static void test_global_order__additions_are_in_no_order_but_with_other_accesses(void **state) {
  static const struct variant variants[] = {{0, NULL},          {1, "added to it there"}, {2, "added to it there"},
                                            {3, "wrote there"}, {4, "wrote there"},       {5, NULL}};
  RUN(additions, variants);
}

static int setup(void **state) {
  (void)setenv("KJIT_EMULATOR_QUIET", "1", 1); /* complaints are what is wanted here */
  return emulator_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_global_order__what_a_block_hands_over_needs_fences_and_barriers),
      cmocka_unit_test(test_global_order__what_tma_writes_needs_waits_and_proxy_fences),
      cmocka_unit_test(test_global_order__additions_are_in_no_order_but_with_other_accesses),
  };
  return cmocka_run_group_tests_name("the order of blocks", tests, setup, gpu_teardown);
}
