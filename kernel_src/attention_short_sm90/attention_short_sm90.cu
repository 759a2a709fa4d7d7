// Attention forward over few keys for Hopper (sm_90a): all keys of a head in shared memory, whole rows in registers.
//
//   O = softmax(scale * Q K^T) V,  lse = ln(sum(exp(scale * Q K^T))), each (batch, head) by itself
//
// Tensors   q (batch, seq_q, heads_q, head_dim), k (batch, seq_kv, heads_kv, head_dim), v (…, head_dim_v),
//           o (batch, seq_q, heads_q, head_dim_v), fp16 or bf16, through tensor maps, so any strides that are multiples
//           of 16 bytes; seq_kv is at most tile_n; lse (batch, heads_q, seq_q) fp32, optional. Causal: row i sees keys
//           up to i + seq_kv - seq_q; a row that sees none gives 0 and -inf.
// Grid      up to blocks_per_sm blocks a multiprocessor, each with a run of neighbouring tiles of 64 queries
//           (schedule.cuh). Such problems are bound by memory, so what counts is that loads are always under way: those
//           of the next key heads and queries while this one is computed, in several blocks of threads.
// Warps     1 to 4 consumer warpgroups, which take the tiles in turn (consumer.cuh), and behind them one warp, or with
//           three consumers one warpgroup, of which one thread issues all loads (producer.cuh).
// Shared    consumers * q_buffers * Q + stages * (K + V), each padded to bands of 64 columns, and barriers
// (shared.cuh);
//           up to 1023 bytes more, as the start is rounded up to the swizzle's 1024.
// Registers a consumer thread holds S (tile_n / 2), then P (tile_n / 4) and O (head_dim_v / 2).
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>

#include "attention_short_sm90/consumer.cuh"
#include "attention_short_sm90/producer.cuh"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_short_sm90 requires sm_90a"
#endif

extern "C" __global__
__launch_bounds__(cfg::kThreads,
                  cfg::kBlocksPerSm) void attention_short_sm90(const __grid_constant__ attention_short_sm90_params p) {
  extern __shared__ char raw[];
  const Layout layout{(cvta_to_shared(raw) + SHORT_ALIGNMENT - 1) & ~(SHORT_ALIGNMENT - 1u)};
  if (threadIdx.x == 0) layout.initialise();
  __syncthreads(); // the mbarriers are initialised for every thread
  // The shuffle tells the compiler that the number is the same in all threads of a warp.
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kThreadsPerWarpgroup, 0);
  if (warpgroup < cfg::kConsumers) {
    if constexpr (cfg::kMovesRegisters) setmaxnreg_inc<SHORT_CONSUMER_REGISTERS>();
    Consumer(p, layout, warpgroup, threadIdx.x % kThreadsPerWarpgroup).run();
  } else {
    if constexpr (cfg::kMovesRegisters) setmaxnreg_dec<SHORT_PRODUCER_REGISTERS>();
    if (threadIdx.x % kThreadsPerWarpgroup == 0) Producer{p, layout}.run();
  }
}
