// Attention over ragged batches for Hopper (sm_90a): TMA, mbarriers, warp-specialised wgmma.
//
//   O = softmax(scale * Q K^T) V for each (sequence, head), over the keys that a row sees
//   (attention_serving/lengths.cuh)
//
// Tensors   attention_serving/params.h; fp16 or bf16, K and V also e4m3. Q, K and V are read through tensor maps over
//           the rows of all sequences, over a cache, or over pages of a multiple of 8 positions that divide a key block
//           or are divided by it; K and V from other pages by cp.async. Lengths, offsets and page tables are read on
//           the device. No keys padded on the left, no rotary.
// Grid      a block of threads for each multiprocessor, each working on one tile of 64 * consumers packed rows after
//           the other, the longest sequences' first (order.cuh). A row's sums depend on its own sequence alone, unless
//           its keys are divided: those of a sequence of few rows may be (parts.cuh), and then on the lengths of all.
// Warps     of the first warpgroup, warp 0 is the producer (producer.cuh) and warp 1 clears what lies behind a
//           sequence's end (clipper.cuh), or warps 1 to 3 make fp16 of K and V in e4m3 and of Q (widener.cuh); 1 to 3
//           consumer warpgroups of 64 rows each multiply and store (consumer.cuh); from pages that no box of TMA fits,
//           one more warpgroup loads K and V row by row (gatherer.cuh).
// Shared    attention_sm90's (attention_sm90/pipeline.cuh), and behind it that of tile.cuh.
// Registers as attention_sm90's; spills: within the budget of serving_codegen_test.c.
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>

#include "attention_prefill_sm90/clipper.cuh"
#include "attention_prefill_sm90/consumer.cuh"
#include "attention_prefill_sm90/gatherer.cuh"
#include "attention_prefill_sm90/order.cuh"
#include "attention_prefill_sm90/producer.cuh"
#include "attention_prefill_sm90/widener.cuh"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_prefill_sm90 requires sm_90a"
#endif

// What the warps beside the producer do.
static KJIT_DEVICE void help(RaggedLayout layout, int helper, int lane) {
  if constexpr (cfg::kNarrow)
    Widener{layout, helper, lane}.run();
  else if (helper == 0)
    Clipper{layout, 0, lane}.run();
}

extern "C" __global__
__launch_bounds__(cfg::kLaunchThreads,
                  1) void attention_prefill_sm90(const __grid_constant__ attention_prefill_params p) {
  extern __shared__ char raw[];
  const uint32_t start = cvta_to_shared(raw), aligned = (start + SM90_ALIGNMENT - 1) & ~(SM90_ALIGNMENT - 1u);
  const RaggedLayout layout{{aligned}};
  int *const order = p.order + (int64_t)blockIdx.x * p.serving.batch;
  const order::Lists lists = order::write(p, raw + (aligned - start), order);
  if (threadIdx.x == 0) layout.initialise();
  __syncthreads();       // the mbarriers are initialised for every thread
  griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
  // The shuffle tells the compiler that the number is the same in all threads of a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kLanesPerWarp, 0), lane = (int)threadIdx.x % kLanesPerWarp;
  const int warpgroup = warp / (kThreadsPerWarpgroup / kLanesPerWarp);
  if (warpgroup == 0) {
    setmaxnreg_dec<cfg::kFirstRegisters>();
    if (warp == 0) RaggedProducer(p, layout, lane).run(order, lists);
    if (warp > 0) help(layout, warp - 1, lane);
  } else if (cfg::kGathers && warpgroup == cfg::kConsumers + 1) {
    if constexpr (cfg::kGathers) {
      setmaxnreg_dec<cfg::kGathererRegisters>();
      Gatherer{p, layout, warp % kWarpsPerWarpgroup, lane}.run();
    }
  } else {
    setmaxnreg_inc<cfg::kMultiplierRegisters>();
    RaggedConsumer(p, layout, warpgroup - 1, threadIdx.x % kThreadsPerWarpgroup).run();
  }
}
