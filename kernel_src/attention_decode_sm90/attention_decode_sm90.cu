// Attention forward for Hopper (sm_90a) with few query rows over many keys: decoding, at the speed of memory.
//
//   O = softmax(scale * Q K^T) V,  lse = ln(sum(exp(scale * Q K^T))), each (batch, head) by itself
//
// Tensors   q (batch, seq_q, heads_q, head_dim), k (batch, seq_kv, heads_kv, head_dim), v (…, head_dim_v),
//           o (batch, seq_q, heads_q, head_dim_v), fp16 or bf16, any strides that are multiples of 16 bytes; lse
//           (batch, heads_q, seq_q) fp32, optional. Causal: row i sees keys up to i + seq_kv - seq_q; a row that sees
//           none gives 0 and -inf.
// Grid      p.runs clusters; the key blocks of all tiles, one after the other, are cut into as many runs of equal
//           length (schedule.cuh), so that every SM reads the same number of bytes.
// Warps     key_groups warpgroups that take the key blocks in turn (consumer.cuh), then one of which one thread issues
// all
//           TMA loads (producer.cuh).
// Shared    stages * (K + V), Q where head_dim is above 128, the exchange of results, barriers (shared.cuh).
// Results   the warpgroups of a cluster exchange theirs through shared memory; what lies in several runs is merged
//           through global memory by the last to arrive (result.cuh).
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/cluster.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>

#include "attention_decode_sm90/consumer.cuh"
#include "attention_decode_sm90/producer.cuh"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_decode_sm90 requires sm_90a"
#endif

extern "C" __global__ DECODE_CLUSTER_DIMS __launch_bounds__(cfg::kThreads, 1) void attention_decode_sm90(
    const __grid_constant__ attention_decode_sm90_params p) {
  extern __shared__ char raw[];
  const Layout layout{(cvta_to_shared(raw) + DECODE_ALIGNMENT - 1) & ~(DECODE_ALIGNMENT - 1u)};
  if (threadIdx.x == cfg::kConsumerThreads) layout.initialise();
  __syncwarp();
  if constexpr (cfg::kCluster > 1) {
    cluster_arrive();
    cluster_wait(); // the mbarriers are initialised for every thread of the cluster
  } else {
    __syncthreads();
  }
  // The shuffle tells the compiler that the number is the same in all threads of a warp.
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kThreadsPerWarpgroup, 0);
  if (warpgroup == cfg::kGroups) {
    setmaxnreg_dec<cfg::kProducerRegisters>();
    if (threadIdx.x == cfg::kConsumerThreads) Producer{p, layout}.run();
  } else {
    setmaxnreg_inc<cfg::kConsumerRegisters>();
    Consumer(p, layout, warpgroup, threadIdx.x % kThreadsPerWarpgroup).run();
  }
}
