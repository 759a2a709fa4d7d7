// Attention forward for Hopper (sm_90a): TMA, mbarriers, warp-specialised wgmma.
//
//   O = softmax(scale * Q K^T) V,  lse = ln(sum(exp(scale * Q K^T))), each (batch, head) by itself
//
// Tensors   q (batch, seq_q, heads_q, head_dim), k (batch, seq_kv, heads_kv, head_dim), v (…, head_dim_v),
//           o (batch, seq_q, heads_q, head_dim_v), fp16 or bf16, through tensor maps, so any strides that are multiples
//           of 16 bytes; lse (batch, heads_q, seq_q) fp32, optional. Causal: row i sees keys up to i + seq_kv - seq_q;
//           a row that sees none gives 0 and -inf.
// Grid      as many blocks as run on the card at once, each working on one tile of 64 * consumers rows after the other
//           (schedule.cuh); with four consumers each pair of them works on tiles of 128 rows. With pack_gqa (the field
//           `packed`) a tile's rows are queries times query heads that share a key head; with split-KV (the field
//           `split`) a tile's key blocks are divided among blocks of threads, and the last of them to finish merges the
//           partial results (partials.cuh).
// Warps     the first warpgroup is the producer, of which one thread issues all TMA loads (producer.cuh); 1 to 4
//           consumer warpgroups of 64 query rows each multiply and store (consumer.cuh). An attention variant's second
//           warp finds the key blocks of the next tile (variant_producer.cuh), and where TMA brings its terms the other
//           two issue those loads, one for each consumer (variant_term_producer.cuh). Of four consumers each pair has
//           two of the producer's warps for itself.
// Shared    q_buffers * Q + stages * (K + V), each padded to bands of 64 columns, o_chunks bands of O, and barriers
//           (pipeline.cuh), for each pair of consumers where there are two; up to 1023 bytes more, as the start is
//           rounded up to the swizzle's 1024.
// Registers a consumer thread holds O (head_dim_v / 2), S (tile_n / 2) and P (tile_n / 4); setmaxnreg lets it have 256
//           (one consumer), 232 (two), 160 (three) or 112 (four). Spills: within the budget of sm90_codegen_test.c.
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>

#include "attention_sm90/consumer.cuh"
#include "attention_sm90/producer.cuh"
#ifdef KJIT_variant
#include "attention_sm90/variant_consumer.cuh"
#include "attention_sm90/variant_producer.cuh"
#include "attention_sm90/variant_term_producer.cuh"
using Parameters = attention_sm90_variant_params;
#else
using Parameters = attention_sm90_params;
#endif

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_sm90 requires sm_90a"
#endif

extern "C" __global__ __launch_bounds__(cfg::kThreads, 1) void attention_sm90(const __grid_constant__ Parameters p) {
  extern __shared__ char raw[];
  const uint32_t memory = (cvta_to_shared(raw) + 1023) & ~1023u;
  for (int i = 0; i < cfg::kPairs; i++)
    if (threadIdx.x == 0) Layout{memory + i * SM90_PAIR_BYTES}.initialise();
  __syncthreads(); // the mbarriers are initialised for every thread
  // The shuffle tells the compiler that the number is the same in all threads of a warp.
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kThreadsPerWarpgroup, 0);
  const int pair = cfg::kPairs == 1 ? 0 : __shfl_sync(0xffffffffu, pair_of_thread(), 0);
  const Layout layout{memory + pair * SM90_PAIR_BYTES};
  if (warpgroup == 0) {
    setmaxnreg_dec<cfg::kProducerRegisters>();
    const uint32_t thread = threadIdx.x - pair * cfg::kPairProducers; // of the pair's producers
#ifdef KJIT_variant
    if (thread == 0)
      VariantProducer(p, layout).run();
    else if (thread / kLanesPerWarp == 1)
      VariantPlanner(p, layout, thread % kLanesPerWarp).run();
    else if (shared::kTermSlots > 0 && thread % kLanesPerWarp == 0 && thread / kLanesPerWarp < 2 + cfg::kConsumers)
      TermProducer(p, layout, thread / kLanesPerWarp - 2).run();
#else
    if (thread == 0) Producer{p, layout}.run();
#endif
  } else {
    setmaxnreg_inc<cfg::kConsumerRegisters>();
#ifdef KJIT_variant
    VariantConsumer(p, layout, consumer_of_tile(warpgroup - 1), threadIdx.x % kThreadsPerWarpgroup).run();
#else
    Consumer(p, layout, consumer_of_tile(warpgroup - 1), threadIdx.x % kThreadsPerWarpgroup).run();
#endif
  }
}
