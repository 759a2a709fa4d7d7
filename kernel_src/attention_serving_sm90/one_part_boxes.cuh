// How one_part.cuh's keys and values are loaded where a box of TMA fits a page, or there are no pages. One warp issues
// the loads: each lane has one box of rows of one stage of K and V, looks up the page of that box one round ahead, and
// copies its columns of K and of V, band by band. With `grouped` one box has all bands of a head, so that a copy of
// each brings what otherwise one for each band would.
#pragma once
#include <kjit/ptx/cache_policy.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/ptx/tma_hint.cuh>
#include <kjit/ring.cuh>

#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

struct OnePartBoxes {
  static constexpr bool kAllWarps = false; // one warp calls load_block()
  // Nothing is to be fenced off from wgmma, but rows behind a sequence's last key may be anything.
  static constexpr bool kIsFenced = false;

  const attention_serving_one_part_params &p;
  const Layout at;
  const int lane;
  // The block of keys that comes next into the lane's buffer, and where the lane's box of it is.
  int next, row, outer;

  KJIT_DEVICE OnePartBoxes(const attention_serving_one_part_params &params, Layout layout, int, int lane)
      : p(params), at(layout), lane(lane), next(0), row(0), outer(0) {}

  // Before a barrier of the block of threads. One warp.
  KJIT_DEVICE void begin_barriers() const {
    if (lane == 0) {
      at.initialise();
      prefetch_tensormap((const TensorMap *)&p.k);
      prefetch_tensormap((const TensorMap *)&p.v);
    }
    __syncwarp(); // the other lanes use the mbarriers too
  }

  // Look up the first pages.
  KJIT_DEVICE void begin(const Part &part) {
    next = part.from + slot();
    look_up(part);
  }

  // The same where the part's first block comes into the stage `first`.
  KJIT_DEVICE void begin(const Part &part, int first) {
    const int distance = slot() - first;
    next = part.from + (distance < 0 ? distance + cfg::kStages : distance);
    look_up(part);
  }

  // Load into the stage of the block that was just multiplied, or into all stages when `is_first`.
  KJIT_DEVICE void load_block(const Part &part, const Ring<cfg::kStages> &ring, int block, bool is_first) {
    if (!is_first) {
      if (block + cfg::kStages >= part.to) return;
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity); // then K has been multiplied, too
    }
    fill(part, is_first ? slot() < cfg::kStages : slot() == ring.slot);
  }

  // Load the next block of a stage, in the lanes of which `is_own` says that the stage is theirs. All lanes.
  KJIT_DEVICE void fill(const Part &part, bool is_own) {
    const bool loads = next < part.to && is_own;
    if (loads && index() == 0) {
      mbarrier_arrive_expect_tx(at.keys_full(slot()), cfg::kKeyBytes);
      mbarrier_arrive_expect_tx(at.values_full(slot()), cfg::kValueBytes);
    }
    __syncwarp(); // the bytes are expected before they come
    if (loads) {
      load<cfg::kKeyBands, cfg::kKeyRowBytes>(part, p.k, at.keys(slot()));
      load<cfg::kValueBands, cfg::kValueRowBytes>(part, p.v, at.values(slot()));
      go_on(part);
    }
    __syncwarp();
  }

  // Load K of the next block of a stage by itself, in the lanes of which `is_own` says that the stage is theirs. All
  // lanes.
  KJIT_DEVICE void fill_keys(const Part &part, bool is_own) const {
    if (is_own && index() == 0) mbarrier_arrive_expect_tx(at.keys_full(slot()), cfg::kKeyBytes);
    __syncwarp(); // the bytes are expected before they come
    if (is_own) load<cfg::kKeyBands, cfg::kKeyRowBytes>(part, p.k, at.keys(slot()));
    __syncwarp();
  }

  // Then V of the same block.
  KJIT_DEVICE void fill_values(const Part &part, bool is_own) {
    if (is_own && index() == 0) mbarrier_arrive_expect_tx(at.values_full(slot()), cfg::kValueBytes);
    __syncwarp(); // the bytes are expected before they come
    if (is_own) {
      load<cfg::kValueBands, cfg::kValueRowBytes>(part, p.v, at.values(slot()));
      go_on(part);
    }
    __syncwarp();
  }

  // Load all blocks of a part of which begin() has looked up the first pages, K as soon as its stage has been
  // multiplied with Q, and V with P. All lanes of the warp.
  KJIT_DEVICE void load_part(const Part &part) {
    Ring<cfg::kStages> ring;
    Part now = part;
#pragma unroll 1
    for (int block = part.from; block < part.to; block++) {
      // parts::policy_of() is to decide as for a short part behind the first blocks; nothing else reads `from`.
      now.from = block - part.from < parts::kReplacingBlocks ? part.from : part.to;
      mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      fill_keys(now, slot() == ring.slot);
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      fill_values(now, slot() == ring.slot);
      ring.advance();
    }
  }

  // The stage of which the lane has a box.
  KJIT_DEVICE int slot() const {
    return lane >> p.box_shift;
  }

protected:
  KJIT_DEVICE int index() const {
    return lane & ((1 << p.box_shift) - 1);
  }

  // To the block that comes next into the lane's buffer.
  KJIT_DEVICE void go_on(const Part &part) {
    next += cfg::kStages;
    look_up(part);
  }

  // Where the lane's box of block `next` is. A box behind the last key is asked for in a page that does not exist, so
  // that TMA writes zeros.
  KJIT_DEVICE void look_up(const Part &part) {
    const int key = next * cfg::kKeys + index() * p.box_rows;
    row = 0;
    outer = p.cache_rows;
    if (next >= part.to || key >= part.keys) return;
    row = key;
    outer = part.sequence;
    if (!p.page_table) return;
    const int page = key >> p.page_shift;
    row = key - (page << p.page_shift);
    outer = p.page_table[part.sequence * p.page_table_stride + page];
  }

  // Load the lane's box of K or V into its stage.
  template <int kBands, int kRowBytes>
  KJIT_DEVICE void load(const Part &part, const serving_tensor_map &map, uint32_t shared) const {
    const uint64_t policy = parts::policy_of(p, part);
    if constexpr (cfg::kGrouped) {
      const unsigned units = shared < at.values(0) ? p.k_rows.head : p.v_rows.head; // of 16 bytes
      const int head_bands = (int)(units / (cfg::kRowBytes / kChunkBytes));
      tma_load_with(policy, shared + index() * p.box_rows * kBands * kRowBytes, (const TensorMap *)&map,
                    shared < at.values(0) ? at.keys_full(slot()) : at.values_full(slot()), 0, 0, part.head * head_bands,
                    row / kPatternRows, outer);
    } else {
#pragma unroll
      for (int i = 0; i < kBands; i++)
        tma_load_with(policy, shared + (i * cfg::kKeys + index() * p.box_rows) * kRowBytes, (const TensorMap *)&map,
                      shared < at.values(0) ? at.keys_full(slot()) : at.values_full(slot()), i * cfg::kCacheColumns,
                      row, part.head, outer);
    }
  }
};
