// Attention for serving with mma.sync, sm_80 and later: ragged batches, paged caches, few query rows on long caches.
//
//   O = softmax(scale * Q K^T) V for each (sequence, head), over the keys that a row sees (lengths.cuh)
//
// Passes    attend   O and the log-sum-exp
//           plan     the schedule of an attend pass, for callers that use one schedule for many layers (schedule.cuh)
//           append   new keys and values into the cache, before attend
// Tensors   params.h; fp16 or bf16, any strides that are multiples of 8 elements, columns contiguous. Lengths, page
//           tables and offsets are read on the device, and nothing that they do not reach is read at all.
// Grid      attend: one block of threads for each place on the card (multiprocessors * blocks_per_sm), each with an
//           equal run of all work, whatever the batch; plan: one block; append: any number of blocks.
// Warps     `warps`, rows / 16 of them along the rows of a tile, the others along its keys.
// Shared    the larger of (rows * d + stages * keys * (d + dv)) * 2 bytes and O in fp32, and small tables: config.cuh.
// Registers O dv / 2, S keys of a warp / 2; docs/serving.md has ptxas's figures.
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/append.cuh"
#include "attention_serving/attend.cuh"
#include "attention_serving/config.cuh"
#include "attention_serving/params.h"
#include "attention_serving/schedule.cuh"

#if __CUDA_ARCH__ < 800
#error "attention_serving requires sm_80 or higher"
#endif

extern "C" __global__
__launch_bounds__(cfg::kThreads,
                  cfg::kBlocksPerSm) void attention_serving(const __grid_constant__ attention_serving_params p) {
  extern __shared__ __align__(128) char shared[];
  if constexpr (cfg::kPass == cfg::kPlan) {
    plan::Schedule(p, shared).write(p.runs);
  } else if constexpr (cfg::kPass == cfg::kAppend) {
    append::run(p);
  } else {
    Attend attend(p, shared, cvta_to_shared(shared));
    attend.run();
  }
}
