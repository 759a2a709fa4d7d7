// Attention for serving with few query rows over many keys, for Hopper (sm_90a): decoding at the speed of memory.
//
//   O = softmax(scale * Q K^T) V for each (sequence, head), over the keys that a row sees
//   (attention_serving/lengths.cuh)
//
// Tensors    attention_serving/params.h; fp16 or bf16, K and V also e4m3. K and V are read by TMA, over a cache, over
//            the keys of all sequences, or over pages of a multiple of 8 positions; with one_part over pages of fewer
//            positions row by row. Lengths, offsets and page tables are read on the device. There is no padding on the
//            left.
// Grid       blocks_per_sm blocks of threads for each multiprocessor, each with an equal run of all work, whatever the
//            batch (few.cuh, attention_serving/plan.cuh); with one_part, each with one part of one tile (part.cuh).
// Threads    one warpgroup that multiplies, stores and merges (worker.cuh, worker_e4m3.cuh), and a warp that loads
//            (producer.cuh). With one_part a second warpgroup loads (one_part.cuh), or, where new keys are appended,
//            boxes by a warp of the first; with K and V of 8 bits a warp beside it (one_part_e4m3.cuh); with tiles of
//            128 rows two warpgroups multiply in turns, and a warp of a third one loads (one_part_turns.cuh).
// Shared     stages * (K + V), memory for Q or for merging, and mbarriers (shared.cuh).
// Results    a tile whose keys lie in several runs leaves partial results, which the tile's blocks of threads merge
//            together in a fixed order (slice_merge.cuh).
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_serving_sm90/config.cuh"

#if KJIT_one_part && KJIT_cache == 24
#include "attention_serving_sm90/one_part_e4m3.cuh"
#elif KJIT_one_part && KJIT_rows > 64
#include "attention_serving_sm90/one_part_turns.cuh"
#elif KJIT_one_part
#include "attention_serving_sm90/one_part.cuh"
#elif KJIT_cache == 24
#include "attention_serving_sm90/producer.cuh"
#include "attention_serving_sm90/worker_e4m3.cuh"
#else
#include "attention_serving_sm90/producer.cuh"
#include "attention_serving_sm90/worker.cuh"
#endif

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_serving_sm90 requires sm_90a"
#endif

#if KJIT_one_part
using Params = attention_serving_one_part_params;
#else
using Params = attention_serving_sm90_params;
#endif

extern "C" __global__
__launch_bounds__(cfg::kThreads, cfg::kBlocksPerSm) void attention_serving_sm90(const __grid_constant__ Params p) {
  extern __shared__ char raw[];
  const uint32_t start = cvta_to_shared(raw);
  const uint32_t aligned = (start + SERVING_SM90_ALIGNMENT - 1) & ~(SERVING_SM90_ALIGNMENT - 1u);
  const Layout layout{aligned, raw + (aligned - start)};
#if KJIT_one_part
  OnePart(p, layout, __shfl_sync(0xffffffffu, threadIdx.x / kLanesPerWarp, 0)).run();
#else
  if (threadIdx.x == 0) layout.initialise();
  if (threadIdx.x == cfg::kWorkers) { // of the warp that will load
    prefetch_tensormap((const TensorMap *)&p.k);
    prefetch_tensormap((const TensorMap *)&p.v);
  }
  // The shuffle tells the compiler that the number is the same in all threads of a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kLanesPerWarp, 0), lane = (int)threadIdx.x % kLanesPerWarp;
  const int alignment = p.serving.page_table ? p.box_rows : 1;
  const bool loads = warp == cfg::kWorkers / kLanesPerWarp;
  Few few(p.serving, lane, alignment);
  Walk walk(p.serving, alignment);
  volatile int *const word = (volatile int *)layout.work();
  if (warp == 0) layout.clear_no_job(lane);
  if (loads) {
    const bool is_few = few.plan();
    if (lane == 0) *word = is_few;
  }
  __syncthreads(); // the mbarriers are initialised, and the word is written
  const bool is_few = *word;
  bool found = false;
  if (!is_few) {
    found = walk.begin(*(plan::Chunk *)layout.work());
    __syncthreads(); // everybody has read the plan
    if (!found) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
  }
  if (loads)
    Producer(p, layout, lane, is_few, few, walk).run(found);
  else
    Worker(p.serving, layout, warp, lane).run();
#endif
}
