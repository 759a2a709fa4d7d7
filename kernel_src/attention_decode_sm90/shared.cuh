// The layout of shared memory, and the mbarriers between the producer and the consumers.
//
//   K, V       [stages][band][tile_n rows][64] each. "Full" completes when TMA has written a block; "empty" when the
//              warpgroup that multiplied it is done with it. Blocks go to the warpgroups in turn.
//   Q          [band][64 rows][64], only where Q is not in registers
//   exchange   [key_groups]{ O [rows][head_dim_v + 8], maximum [rows], sum [rows] } fp32: each warpgroup's result of a
//              segment, which all blocks of the cluster read. "Written" completes when all warpgroups of the cluster
//              have written theirs, "read" when they have read all of them.
//   scratch    [consumer threads][6] fp32, for adding up partial results in global memory (merge.cuh)
//   mbarriers, and one word by which thread 0 tells the others whether this block merges
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/types.cuh>

#include "attention_decode_sm90/config.cuh"

namespace shared {

constexpr int kExchangeRow = cfg::kHeadDimV + DECODE_EXCHANGE_PAD;          // floats
constexpr int kExchangeFloats = cfg::kRows * kExchangeRow + 2 * cfg::kRows; // of one warpgroup
constexpr int kValuesAt = cfg::kStages * cfg::kKeyBytes;
constexpr int kQueryAt = kValuesAt + cfg::kStages * cfg::kValueBytes;
constexpr int kExchangeAt = kQueryAt + cfg::kQueryBytes;
constexpr int kScratchAt = kExchangeAt + 4 * kExchangeFloats * cfg::kGroups;
constexpr int kBarriersAt = kScratchAt + 4 * DECODE_SCRATCH_FLOATS * cfg::kConsumerThreads;
constexpr int kBarriers = 4 * cfg::kStages + 2;
constexpr int kWordAt = kBarriersAt + DECODE_BARRIER_BYTES * kBarriers;
constexpr int kBytes = kWordAt + DECODE_BARRIER_BYTES;

// The start is rounded up to the swizzle's pattern. Were the host to reckon with less, the last words would lie
// outside.
static_assert(kBytes + DECODE_ALIGNMENT - 1 == KJIT_shared_bytes, "shared_bytes: the host asks for what is used");

} // namespace shared

// The shared::cta addresses of buffers and mbarriers, from the address of the whole.
struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t keys(int slot) const { return base + slot * cfg::kKeyBytes; }
  KJIT_DEVICE uint32_t values(int slot) const { return base + shared::kValuesAt + slot * cfg::kValueBytes; }
  KJIT_DEVICE uint32_t query() const { return base + shared::kQueryAt; }
  KJIT_DEVICE uint32_t exchange_row(int group, int row) const {
    return base + shared::kExchangeAt + 4 * (group * shared::kExchangeFloats + row * shared::kExchangeRow);
  }
  KJIT_DEVICE uint32_t exchange_maximum(int group, int row) const { return exchange_row(group, cfg::kRows) + 4 * row; }
  KJIT_DEVICE uint32_t exchange_sum(int group, int row) const { return exchange_maximum(group, row) + 4 * cfg::kRows; }
  KJIT_DEVICE uint32_t scratch(int thread) const {
    return base + shared::kScratchAt + 4 * DECODE_SCRATCH_FLOATS * thread;
  }
  KJIT_DEVICE uint32_t word() const { return base + shared::kWordAt; }

  KJIT_DEVICE uint32_t keys_full(int slot) const { return barrier(slot); }
  KJIT_DEVICE uint32_t keys_empty(int slot) const { return barrier(cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_full(int slot) const { return barrier(2 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_empty(int slot) const { return barrier(3 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t exchange_written() const { return barrier(4 * cfg::kStages); }
  KJIT_DEVICE uint32_t exchange_read() const { return barrier(4 * cfg::kStages + 1); }

  // Initialise the mbarriers. One thread, before a barrier of the block or, with clusters, of the cluster.
  KJIT_DEVICE void initialise() const {
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(keys_full(i), 1);
      mbarrier_init(keys_empty(i), 1);
      mbarrier_init(values_full(i), 1);
      mbarrier_init(values_empty(i), 1);
    }
    mbarrier_init(exchange_written(), cfg::kGroups * cfg::kCluster);
    mbarrier_init(exchange_read(), cfg::kGroups * cfg::kCluster);
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const { return base + shared::kBarriersAt + DECODE_BARRIER_BYTES * index; }
};

// A position in a ring of kStages blocks: the slot of block `number`, and the parity of its "full" phase.
KJIT_DEVICE int slot_of(int number) {
  return number % cfg::kStages;
}
KJIT_DEVICE int parity_of(int number) {
  return number / cfg::kStages & 1;
}
