// How one_part.cuh's keys and values are loaded from pages that no box of TMA fits, such as pages of one position: row
// by row with cp.async, by all four warps of the warpgroup that multiplies, or with runs of another one, each a quarter
// of a block's rows.
//
// A lane holds the place in the page table of one row of one block of keys, looked up a round ahead, and uses it for K
// and for V. Without runs these are the blocks of all stages, with runs as many as a warp has lanes for. A row is
// copied by as many neighbouring lanes as it has pieces of 16 bytes, so that each copy takes whole lines. Nobody waits
// for copies here: every thread arrives at "full" by cp.async.mbarrier.arrive when its copies are done. Nobody here can
// fence what was written off from wgmma either, so the threads that multiply do, when they have waited. Rows behind the
// sequence's last key, and rows of a page that does not exist, are written as zeros.
#pragma once
#include <kjit/ptx/cp_async_hint.cuh>
#include <kjit/ptx/cp_async_mbarrier.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ring.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

struct OnePartRows {
  static constexpr bool kAllWarps = true; // all warps call load_block()
  // What was loaded is to be fenced off from wgmma; rows behind a sequence's last key are zeros.
  static constexpr bool kIsFenced = true;
  static constexpr int kRows = cfg::kKeys / (cfg::kWorkers / kLanesPerWarp); // of a block, that a warp loads
  static constexpr uint32_t kNowhere = ~0u;
  static constexpr int kSlots = cfg::kLoadsApart ? kLanesPerWarp / kRows : cfg::kStages; // blocks that lanes look up
  static_assert(kSlots >= 1 && kRows * kSlots <= kLanesPerWarp, "a lane for each row of a warp");

  const attention_serving_one_part_params &p;
  const Layout at;
  const int warp, lane;
  // The block of keys that comes next into the lane's buffer, and where the lane's row of it is.
  int next, row, page;
  int slot_now; // with runs: of whose lanes the next block is

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

  // Load into the stage of the block that was just multiplied, or into all stages when `is_first`.
  KJIT_DEVICE void load_block(const Part &part, const Ring<cfg::kStages> &ring, int block, bool is_first) {
    if (!is_first) {
      if (block + cfg::kStages >= part.to) return;
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity); // then K has been multiplied, too
      __syncwarp();
    }
    const uint32_t key_at = place(p.k_rows, part.head), value_at = place(p.v_rows, part.head);
    const int first = is_first ? 0 : ring.slot, count = part.to - part.from;
    const int end = !is_first ? first + 1 : count < cfg::kStages ? count : cfg::kStages;
#pragma unroll 1
    for (int stage = first; stage < end; stage++) {
      load_keys(kReadOnce, key_at, stage, stage);
      load_values(kReadOnce, value_at, stage, stage);
    }
    if (slot() >= first && slot() < end) go_on(part);
    __syncwarp();
  }

  // Load K of the next block of a run into a stage. All lanes of all warps.
  KJIT_DEVICE void gather_keys(const Part &part, int stage) const {
    load_keys(parts::policy_of(p, part), place(p.k_rows, part.head), stage, slot_now);
    __syncwarp();
  }

  // Then V of the same block.
  KJIT_DEVICE void gather_values(const Part &part, int stage) {
    load_values(parts::policy_of(p, part), place(p.v_rows, part.head), stage, slot_now);
    if (slot() == slot_now) go_on(part);
    slot_now = slot_now + 1 < kSlots ? slot_now + 1 : 0;
    __syncwarp();
  }

protected:
  // This warp's rows of K and V, whose places the lanes of a slot hold, into a stage.
  KJIT_DEVICE void load_keys(uint64_t policy, uint32_t place, int stage, int from) const {
    load<cfg::kHeadDim>(policy, p.k_rows.data, place, at.keys(stage), from);
    cp_async_mbarrier_arrive(at.keys_full(stage));
  }
  KJIT_DEVICE void load_values(uint64_t policy, uint32_t place, int stage, int from) const {
    load<cfg::kHeadDimV>(policy, p.v_rows.data, place, at.values(stage), from);
    cp_async_mbarrier_arrive(at.values_full(stage));
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

  // A chunk of 16 bytes lies at its number XOR the row's number mod 8, as TMA would write it.
  template <int kColumns>
  KJIT_DEVICE void load(uint64_t policy, const void *data, uint32_t place, uint32_t shared, int slot) const {
    constexpr int kLanes = cfg::bands(kColumns) * (cfg::kRowBytes / kChunkBytes), kAtOnce = kLanesPerWarp / kLanes;
    static_assert(kAtOnce == 2 || kAtOnce == 4, "heads of 8 to 128 columns");
    const int chunk = lane % kLanes, of_step = lane / kLanes;
    const char *const column = (const char *)data + chunk * kChunkBytes;
    const bool exists = chunk * kChunkElements < kColumns;
    const uint32_t to = shared + (chunk / 8 * cfg::kKeys + warp * kRows + of_step) * cfg::kRowBytes;
#pragma unroll
    for (int i = 0; i < kRows; i += kAtOnce) {
      const uint32_t from = __shfl_sync(0xffffffffu, place, slot * kRows + i + of_step);
      cp_async_16_with(policy, to + i * cfg::kRowBytes + ((chunk % 8 ^ i % 8 ^ of_step) << 4),
                       column + (uint64_t)from * kChunkBytes, exists && from != kNowhere ? kChunkBytes : 0);
    }
  }
};
