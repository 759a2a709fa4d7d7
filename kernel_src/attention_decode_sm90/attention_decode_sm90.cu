// Attention forward for Hopper (sm_90a) with few query rows over many keys: decoding, at the speed of memory.
//
//   O = softmax(scale * Q K^T) V,  lse = ln(sum(exp(scale * Q K^T))), each (batch, head) by itself
//
// Tensors   q (batch, seq_q, heads_q, head_dim), k (batch, seq_kv, heads_kv, head_dim), v (…, head_dim_v),
//           o (batch, seq_q, heads_q, head_dim_v), fp16 or bf16, any strides that are multiples of 16 bytes; lse
//           (batch, heads_q, seq_q) fp32, optional. Causal: row i sees keys up to i + seq_kv - seq_q; a row that sees
//           none gives 0 and -inf.
// Grid      p.runs blocks: the key blocks of all tiles, one after the other, are cut into as many runs of equal length
//           (schedule.cuh), so that every block reads the same number of bytes.
// Threads   one warpgroup, which multiplies (worker.cuh); its first thread also issues all TMA loads. blocks_per_sm
//           blocks share an SM, and take turns with each other in loading, multiplying and computing the softmax.
// Shared    stages * (K + V), Q where head_dim is above 128, and barriers (shared.cuh).
// Results   a tile that lies in several runs is merged by the blocks that worked on it (merge.cuh).
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/memory.cuh>

#include "attention_decode_sm90/worker.cuh"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_decode_sm90 requires sm_90a"
#endif

extern "C" __global__ __launch_bounds__(cfg::kThreads, cfg::kBlocksPerSm) void attention_decode_sm90(
    const __grid_constant__ attention_decode_sm90_params p) {
  extern __shared__ char raw[];
  const Layout layout{(cvta_to_shared(raw) + DECODE_ALIGNMENT - 1) & ~(DECODE_ALIGNMENT - 1u)};
  Worker(p, layout).run();
}
