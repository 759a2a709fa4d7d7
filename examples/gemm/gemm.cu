// C = act(alpha * A * B + bias), or alpha * A * B + residual, for fp16 and bf16 with fp32 accumulation.
//
// Tensors   A (m x k), B (k x n), each row- or column-major; C, residual (m x n) row-major; bias (n). Rows (columns, if
//           column-major) begin at multiples of 16 bytes; m, n and k are any numbers from 1 on.
// Kernel    instruction = 1: sm90.cuh, TMA and wgmma; instruction = 0: sm80.cuh, cp.async and mma.sync.
// Result    rounded once, from fp32. Sums run in a fixed order, so that equal calls give equal bits.
#include "config.cuh"

#if KJIT_instruction == 1
#include "sm90.cuh"
#else
#include "sm80.cuh"
#endif

extern "C" __global__ __launch_bounds__(cfg::kThreads, cfg::kBlocksPerSm) void gemm(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap c_map, const void *a, const void *b, void *c, const void *bias,
    const void *residual, int m, int n, int k, int lda, int ldb, int ldc, int ldr, float alpha) {
  extern __shared__ __align__(128) char shared_memory[];
  const gemm_params p = {&a_map, &b_map, &c_map, a, b, c, bias, residual, m, n, k, lda, ldb, ldc, ldr, alpha};
  run_block(p, shared_memory);
}
