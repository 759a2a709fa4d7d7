// How one_part.cuh's keys and values are loaded from pages that no box of TMA fits, such as pages of one position: row
// by row with cp.async, by all four warps, each a quarter of a block's rows.
//
// A lane holds the place in the page table of one row of one stage, looked up a round ahead, and uses it for K and for
// V. A row is copied by as many neighbouring lanes as it has pieces of 16 bytes, so that each copy takes whole lines.
// Nobody waits for copies here: every thread arrives at "full" by cp.async.mbarrier.arrive when its copies are done.
// Nobody here can fence what was written off from wgmma either, so the threads that multiply do, when they have waited.
// Rows behind the sequence's last key, and rows of a page that does not exist, are written as zeros.
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
  static_assert(kRows * cfg::kStages <= kLanesPerWarp, "a lane for each row of a warp in all stages");

  const attention_serving_one_part_params &p;
  const Layout at;
  const int warp, lane;
  // The block of keys that comes next into the lane's buffer, and where the lane's row of it is.
  int next, row, page;

  KJIT_DEVICE OnePartRows(const attention_serving_one_part_params &params, Layout layout, int warp, int lane)
      : p(params), at(layout), warp(warp), lane(lane), next(0), row(0), page(0) {}

  // Before a barrier of the block of threads. One warp.
  KJIT_DEVICE void begin_barriers() const {
    if (lane == 0) at.initialise();
  }

  // Look up the first pages.
  KJIT_DEVICE void begin(const Part &part) {
    next = part.from + slot();
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
      load<cfg::kHeadDim>(p.k_rows.data, key_at, at.keys(stage), stage);
      cp_async_mbarrier_arrive(at.keys_full(stage));
      load<cfg::kHeadDimV>(p.v_rows.data, value_at, at.values(stage), stage);
      cp_async_mbarrier_arrive(at.values_full(stage));
    }
    if (slot() >= first && slot() < end) {
      next += cfg::kStages;
      look_up(part);
    }
    __syncwarp();
  }

private:
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

  // Load this warp's rows of a stage, whose places the stage's lanes hold. A chunk of 16 bytes lies at its number XOR
  // the row's number mod 8, as TMA would write it.
  template <int kColumns> KJIT_DEVICE void load(const void *data, uint32_t place, uint32_t shared, int stage) const {
    constexpr int kLanes = cfg::bands(kColumns) * (cfg::kRowBytes / kChunkBytes), kAtOnce = kLanesPerWarp / kLanes;
    static_assert(kAtOnce == 2 || kAtOnce == 4, "heads of 8 to 128 columns");
    const int chunk = lane % kLanes, of_step = lane / kLanes;
    const char *const column = (const char *)data + chunk * kChunkBytes;
    const bool exists = chunk * kChunkElements < kColumns;
    const uint32_t to = shared + (chunk / 8 * cfg::kKeys + warp * kRows + of_step) * cfg::kRowBytes;
#pragma unroll
    for (int i = 0; i < kRows; i += kAtOnce) {
      const uint32_t from = __shfl_sync(0xffffffffu, place, stage * kRows + i + of_step);
      cp_async_16_with(kReadOnce, to + i * cfg::kRowBytes + ((chunk % 8 ^ i % 8 ^ of_step) << 4),
                       column + (uint64_t)from * kChunkBytes, exists && from != kNowhere ? kChunkBytes : 0);
    }
  }
};
