// How one_part.cuh's keys and values are loaded from pages that no box of TMA fits, such as pages of one position: row
// by row with cp.async, by all four warps of the warpgroup that loads, each a quarter of a block's rows.
//
// A lane holds the place in the page table of one row of one block of keys, looked up a round ahead, and uses it for K
// and for V. A warp has lanes for two blocks of 64 keys. A row is copied by as many neighbouring lanes as it has pieces
// of 16 bytes, so that each copy takes whole lines. Nobody waits for copies here: every thread arrives at "full" by
// cp.async.mbarrier.arrive when its copies are done. Nobody here can fence what was written off from wgmma either, so
// the threads that multiply do, when they have waited. Rows behind the sequence's last key, and rows of a page that
// does not exist, are written as zeros.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cp_async_hint.cuh>
#include <kjit/ptx/cp_async_mbarrier.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ring.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

struct OnePartRows {
  static constexpr bool kAllWarps = true; // of the warpgroup load
  // What was loaded is to be fenced off from wgmma; rows behind a sequence's last key are zeros.
  static constexpr bool kIsFenced = true;
  static constexpr int kRows = cfg::kKeys / (cfg::kWorkers / kLanesPerWarp); // of a block, that a warp loads
  static constexpr uint32_t kNowhere = ~0u;
  static constexpr int kSlots = kLanesPerWarp / kRows; // blocks that lanes look up
  static_assert(kSlots >= 1, "keys: a lane for each row of a warp");

  const attention_serving_one_part_params &p;
  const Layout at;
  const int warp, lane;
  // The block of keys that comes next into the lane's buffer, and where the lane's row of it is.
  int next, row, page;
  int slot_now; // of whose lanes the next block is

  KJIT_DEVICE OnePartRows(const attention_serving_one_part_params &params, Layout layout, int warp, int lane)
      : p(params), at(layout), warp(warp), lane(lane), next(0), row(0), page(0), slot_now(0) {}

  // Before a barrier of the block of threads. One warp.
  KJIT_DEVICE void begin_barriers() const {
    if (lane == 0) at.initialise();
  }

  // Look up the first pages of a part, whatever stage its first block comes into.
  KJIT_DEVICE void begin(const Part &part, int = 0) {
    next = part.from + slot();
    if constexpr (cfg::kHasRuns) next += slot() < slot_now ? kSlots - slot_now : -slot_now;
    look_up(part);
  }

  // Load all blocks of a part of which begin() has looked up the first pages, each as soon as there is room. Q that is
  // rotated lies where the last stages of V are loaded, and is read first. All warps.
  KJIT_DEVICE void load_part(const Part &part) {
    Ring<cfg::kStages> ring;
    bool waits = p.rotates;
#pragma unroll 1
    for (int block = part.from; block < part.to; block++) {
      mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      gather_keys(part, ring.slot);
      if (waits && ring.slot == cfg::kStages - cfg::kTurnedStages) {
        bar_sync(cfg::kQueryBarrier, cfg::kThreads);
        waits = false;
      }
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      gather_values(part, ring.slot);
      ring.advance();
    }
    if (waits) bar_sync(cfg::kQueryBarrier, cfg::kThreads);
  }

  // Load K of the next block into a stage. All lanes of all warps.
  KJIT_DEVICE void gather_keys(const Part &part, int stage) const {
    load<cfg::kHeadDim>(policy_of(part), p.k_rows.data, place(p.k_rows, part.head), at.keys(stage));
    cp_async_mbarrier_arrive(at.keys_full(stage));
    __syncwarp();
  }

  // Then V of the same block.
  KJIT_DEVICE void gather_values(const Part &part, int stage) {
    load<cfg::kHeadDimV>(policy_of(part), p.v_rows.data, place(p.v_rows, part.head), at.values(stage));
    cp_async_mbarrier_arrive(at.values_full(stage));
    if (slot() == slot_now) go_on(part);
    slot_now = slot_now + 1 < kSlots ? slot_now + 1 : 0;
    __syncwarp();
  }

protected:
  // Of lines of L2: as boxes have it, but without runs whole lines are read once whatever the length of a part.
  KJIT_DEVICE uint64_t policy_of(const Part &part) const {
    return cfg::kHasRuns || !parts::kHasWholeLines ? parts::policy_of(p, part) : kReadOnce;
  }

  // To the block that comes next into the lane's slot.
  KJIT_DEVICE void go_on(const Part &part) {
    next += kSlots;
    look_up(part);
  }

  KJIT_DEVICE int slot() const {
    return lane / kRows;
  }

  KJIT_DEVICE void look_up(const Part &part) {
    if (next >= part.to) return;
    const int key = next * cfg::kKeys + warp * kRows + lane % kRows, index = key >> p.page_shift;
    row = key - (index << p.page_shift);
    page = -1;
    if (key < part.keys) page = p.page_table[part.sequence * p.page_table_stride + index];
  }

  // Where the lane's row begins, in units of 16 bytes, of which a tensor has fewer than 2^32.
  KJIT_DEVICE uint32_t place(const serving_rows &rows, int head) const {
    if ((unsigned)page >= (unsigned)p.cache_rows) return kNowhere;
    return (uint32_t)page * rows.page + (uint32_t)row * rows.seq + (uint32_t)head * rows.head;
  }

  // This warp's rows of K or V, whose places the lanes of the slot hold, into a stage. A chunk of 16 bytes lies at its
  // number XOR the row's number mod 8, as TMA would write it.
  template <int kColumns>
  KJIT_DEVICE void load(uint64_t policy, const void *data, uint32_t place, uint32_t shared) const {
    constexpr int kLanes = cfg::bands(kColumns) * (cfg::kRowBytes / kChunkBytes), kAtOnce = kLanesPerWarp / kLanes;
    static_assert(kAtOnce == 2 || kAtOnce == 4, "heads of 8 to 128 columns");
    const int chunk = lane % kLanes, of_step = lane / kLanes;
    const char *const column = (const char *)data + chunk * kChunkBytes;
    const bool exists = chunk * kChunkElements < kColumns;
    const uint32_t to = shared + (chunk / 8 * cfg::kKeys + warp * kRows + of_step) * cfg::kRowBytes;
#pragma unroll
    for (int i = 0; i < kRows; i += kAtOnce) {
      const uint32_t from = __shfl_sync(0xffffffffu, place, slot_now * kRows + i + of_step);
      cp_async_16_with(policy, to + i * cfg::kRowBytes + ((chunk % 8 ^ i % 8 ^ of_step) << 4),
                       column + (uint64_t)from * kChunkBytes, exists && from != kNowhere ? kChunkBytes : 0);
    }
  }
};
