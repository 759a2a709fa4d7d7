// The layout of shared memory, and its mbarriers.
//
//   K, V       [stages][band][tile_n rows][64] each. "Full" completes when TMA has written a block, "empty" when every
//              warp is done multiplying it.
//   Q          [band][64 rows][64], only where Q is not in registers
//   scratch    [threads][6] fp32, for adding up partial results (merge.cuh)
//   then the mbarriers, and one word by which thread 0 tells the others what it read from global memory
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ring.cuh>
#include <kjit/types.cuh>

#include "attention_decode_sm90/config.cuh"

namespace shared {

constexpr int kValuesAt = cfg::kStages * cfg::kKeyBytes;
constexpr int kQueryAt = kValuesAt + cfg::kStages * cfg::kValueBytes;
constexpr int kScratchAt = kQueryAt + cfg::kQueryBytes;
constexpr int kBarriersAt = kScratchAt + 4 * DECODE_SCRATCH_FLOATS * cfg::kThreads;
constexpr int kBarriers = 4 * cfg::kStages;
constexpr int kWordAt = kBarriersAt + DECODE_BARRIER_BYTES * kBarriers;
constexpr int kBytes = kWordAt + DECODE_BARRIER_BYTES;

// The start is rounded up to the swizzle's pattern, so the host asks for that many bytes more.
static_assert(kBytes + DECODE_ALIGNMENT - 1 == KJIT_shared_bytes, "shared_bytes: the host asks for what is used");

} // namespace shared

// The shared::cta addresses of buffers and mbarriers, from the address of the whole.
struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t keys(int slot) const { return base + slot * cfg::kKeyBytes; }
  KJIT_DEVICE uint32_t values(int slot) const { return base + shared::kValuesAt + slot * cfg::kValueBytes; }
  KJIT_DEVICE uint32_t query() const { return base + shared::kQueryAt; }
  KJIT_DEVICE uint32_t scratch(int thread) const {
    return base + shared::kScratchAt + 4 * DECODE_SCRATCH_FLOATS * thread;
  }
  KJIT_DEVICE uint32_t word() const { return base + shared::kWordAt; }

  KJIT_DEVICE uint32_t keys_full(int slot) const { return barrier(slot); }
  KJIT_DEVICE uint32_t keys_empty(int slot) const { return barrier(cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_full(int slot) const { return barrier(2 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_empty(int slot) const { return barrier(3 * cfg::kStages + slot); }

  // Initialise the mbarriers. One thread, before a barrier of the block. "Full" takes one arrival, of the thread that
  // issues the load; "empty" takes one of each warp.
  KJIT_DEVICE void initialise() const {
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(keys_full(i), 1);
      mbarrier_init(keys_empty(i), cfg::kThreads / kLanesPerWarp);
      mbarrier_init(values_full(i), 1);
      mbarrier_init(values_empty(i), cfg::kThreads / kLanesPerWarp);
    }
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const { return base + shared::kBarriersAt + DECODE_BARRIER_BYTES * index; }
};
