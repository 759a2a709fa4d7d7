// The kernel's parameters, as its parts hand them on.
#pragma once
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

using namespace kjit;

// C (m x n) = act(alpha * A (m x k) * B (k x n) + bias) or alpha * A * B + residual; C and residual are row-major. The
// maps are two-dimensional with the 128-byte swizzle: boxes of 64 x BM / cluster_n (A, K-major), 64 x BN / cluster_m
// (B, K-major) or 64 x BK / as much (the others), and of 64 x 64 (C); with `swap` A and B change places.
struct gemm_params {
  const TensorMap *a_map; // wgmma only
  const TensorMap *b_map; // wgmma only
  const TensorMap *c_map; // wgmma only, and there only where C leaves by TMA
  const void *a;          // mma only, 16-byte aligned
  const void *b;          // mma only, 16-byte aligned
  void *c;                // 16-byte aligned
  const void *bias;       // n elements of the operands' type, 4-byte aligned; null without a bias
  const void *residual;   // m x n elements of the operands' type, 4-byte aligned; null without one
  int m, n, k;            // at least 1
  int lda, ldb, ldc, ldr; // elements between rows (columns, if column-major); multiples of 8, ldr of 2
  float alpha;
};
