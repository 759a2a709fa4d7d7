/* The headers that kjit gives to users' kernels, <kjit/...>, through the real NVRTC: each alone, all beside the
 * toolkit's, and every function of theirs that a kernel of this repository does not use. */
#include <stdbool.h>
#include <stdio.h>

#include "jit/real_nvrtc.h"
#include "jit/source/embedded_sources.h"

#define KERNEL "extern \"C\" __global__ void k() {}\n"

static struct real_nvrtc *setup_for_hopper(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  if (!embedded_source_count || embedded_sources[0].digest) skip(); /* built with KJIT_EMBED_SOURCES=OFF */
  real->request.arch = "sm_90a";
  return real;
}

static bool is_library_header(size_t index) {
  return !strncmp(embedded_sources[index].name, "kjit/", 5);
}

static void assert_compiles(struct real_nvrtc *real, const char *text) {
  assert_status(KJIT_OK, real_nvrtc_compile(real, text), &real->error);
  assert_string_equal("", real->result.log);
}

static void test_library_headers__each_compiles_alone(void **state) {
  struct real_nvrtc *real = setup_for_hopper(state);
  size_t count = 0;
  for (size_t i = 0; i < embedded_source_count; i++) {
    char text[256];
    if (!is_library_header(i)) continue;
    (void)snprintf(text, sizeof text, "#include <%s>\n" KERNEL, embedded_sources[i].name);
    assert_compiles(real, text);
    count++;
  }
  assert_true(count > 10);
}

static void test_library_headers__stand_beside_those_of_the_toolkit(void **state) {
  struct real_nvrtc *real = setup_for_hopper(state);
  static const char *const dirs[] = {CUDA_INCLUDE_DIR, CUDA_INCLUDE_DIR "/cccl"};
  char text[8192] = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda/std/cstdint>\n";
  for (size_t i = 0; i < embedded_source_count; i++) {
    if (is_library_header(i)) {
      const size_t used = strlen(text);
      (void)snprintf(text + used, sizeof text - used, "#include <%s>\n", embedded_sources[i].name);
    }
  }
  strncat(text, "extern \"C\" __global__ void k(__half *h, uint64_t *u) { using namespace kjit; *h = 1.0f; *u = 2; }\n",
          sizeof text - strlen(text) - 1);
  real->request.include_dirs = dirs;
  real->request.include_dir_count = 2;
  assert_compiles(real, text);
}

static const char unused_here[] =
    "#include <kjit/ptx/cluster.cuh>\n#include <kjit/ptx/mbarrier.cuh>\n#include <kjit/ptx/memory.cuh>\n"
    "#include <kjit/ptx/tma.cuh>\n#include <kjit/ptx/wgmma.cuh>\n"
    "KJIT_WGMMA(24, Fp16)\nKJIT_WGMMA(256, Bf16)\n"
    "struct P { kjit::TensorMap map; float *out; };\n"
    "extern \"C\" __global__ void __launch_bounds__(128, 1) k(const __grid_constant__ P p) {\n"
    "  using namespace kjit;\n"
    "  extern __shared__ __align__(1024) char raw[];\n"
    "  const uint32_t at = cvta_to_shared(raw), full = at + 65536;\n"
    "  if (threadIdx.x == 0) {\n"
    "    mbarrier_init(full, 1);\n    fence_mbarrier_init();\n    prefetch_tensormap(&p.map);\n  }\n"
    "  cluster_arrive();\n  cluster_wait();\n"
    "  if (threadIdx.x == 0) {\n"
    "    mbarrier_arrive_expect_tx(full, 1024);\n"
    "    tma_load(at, &p.map, full, 0, 0);\n    tma_load(at, &p.map, full, 0, 0, 0);\n"
    "    tma_load_multicast(at, &p.map, full, 3, 0, 0);\n    tma_load_multicast(at, &p.map, full, 3, 0, 0, 0);\n"
    "    mbarrier_arrive_cluster(mapa(full, cluster_ctarank() ^ 1));\n  }\n"
    "  mbarrier_wait_parity(full, 0);\n"
    "  float d[3][4], e[32][4];\n"
    "  const uint32_t a[4] = {1, 2, 3, 4};\n"
    "  const uint64_t x = wgmma_descriptor(at, 8192), y = wgmma_descriptor(at + 8192, 8192);\n"
    "  wgmma_fence();\n"
    "  Wgmma<Fp16, 24>::mma_async_ss<true, false>(d, x, y, 0);\n"
    "  Wgmma<Fp16, 24>::mma_async_ss<false, true>(d, x, y, 1);\n"
    "  Wgmma<Bf16, 256>::mma_async_rs(e, a, y, 0);\n"
    "  wgmma_commit_group();\n  wgmma_wait_group<0>();\n"
    "  float sum = 0;\n"
    "  for (int n = 0; n < 32; n++)\n    for (int i = 0; i < 4; i++) sum += e[n][i] + d[n % 3][i];\n"
    "  p.out[threadIdx.x] = sum;\n"
    "  if (threadIdx.x == 0) {\n"
    "    tma_store(&p.map, at, 0, 0);\n    tma_store(&p.map, at, 0, 0, 0);\n"
    "    cp_async_bulk_commit_group();\n    cp_async_bulk_wait_group_read<1>();\n    cp_async_bulk_wait_group<0>();\n  "
    "}\n"
    "}\n";

static void test_library_headers__functions_that_no_kernel_here_uses_compile(void **state) {
  struct real_nvrtc *real = setup_for_hopper(state);
  assert_compiles(real, unused_here);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      REAL_NVRTC_TEST(test_library_headers__each_compiles_alone),
      REAL_NVRTC_TEST(test_library_headers__stand_beside_those_of_the_toolkit),
      REAL_NVRTC_TEST(test_library_headers__functions_that_no_kernel_here_uses_compile),
  };
  return cmocka_run_group_tests_name("library_headers", tests, NULL, NULL);
}
