// The gatherers: a warpgroup that loads K and V of pages that no box of TMA fits, such as pages of one position.
//
// Its four warps load every key block together (row_walk.cuh): row by row with cp.async, 16 bytes a lane, eight lanes
// for the 128 bytes that a row has in a band, so that each copy takes whole lines. Nobody waits for copies here: every
// lane arrives at "full" by cp.async.mbarrier.arrive when its copies are done, so that as many blocks are on their way
// as there are buffers. Nobody here can fence what was written off from wgmma either, so the consumers do, when they
// have waited. Rows behind the sequence's last key are written as zeros, so the clipper has nothing to do with V.
//
// The order of the loads is the producer's (producer.cuh): of each key block K, then V of the block before it. Places
// are looked up a key block ahead.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/cp_async_mbarrier.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>

#include "attention_prefill_sm90/row_walk.cuh"

struct Gatherer : RowWalk {
  static constexpr int kRowLanes = cfg::kRowBytes / kChunkBytes, kTogether = kLanesPerWarp / kRowLanes;
  Ring<cfg::kStages> keys, values;

  // A key block to load, of K at once and of V later.
  struct Block {
    int head;  // -1: there is none
    int count; // keys of the sequence from the block's first on
    Rows rows;
  };

  KJIT_DEVICE void run() {
    RaggedTile tile = {};
    Block pending = {-1, 0, {}};
    while (next_tile(tile)) {
      const int head = tile.query_head() / p.serving.group;
      Rows ahead = look_up(tile, tile.blocks.end - 1);
      for (int block = tile.blocks.end - 1; block >= tile.blocks.first; block--) {
        const Block now = {head, tile.s.keys - block * cfg::kKeyRows, ahead};
        if (block > tile.blocks.first) ahead = look_up(tile, block - 1);
        load<true>(now);
        if (pending.head >= 0) load<false>(pending);
        pending = now;
      }
      // A tile's only Q buffer is given back when its last V has been multiplied.
      if (cfg::kQueryBuffers > 1) continue;
      load<false>(pending);
      pending.head = -1;
    }
    if (pending.head >= 0) load<false>(pending);
  }

private:
  // Load this warp's rows of a key block, once the block's buffer is empty.
  template <bool kIsKeys> KJIT_DEVICE void load(const Block &block) {
    const attention_serving_params &v = p.serving;
    const attention_serving_strides &stride = kIsKeys ? v.k_stride : v.v_stride;
    Ring<cfg::kStages> &ring = kIsKeys ? keys : values;
    const char *const head = (const char *)(kIsKeys ? v.k : v.v) + 2 * (block.head * (int64_t)stride.head);
    const uint32_t shared = (kIsKeys ? at.keys(ring.slot) : at.values(ring.slot)) + warp * kWarpRows * cfg::kRowBytes;
    mbarrier_wait_parity(kIsKeys ? at.keys_empty(ring.slot) : at.values_empty(ring.slot), ring.parity ^ 1);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLaneRows; i++) {
      const char *const own =
          head + 2 * (block.rows.page[i] * (int64_t)stride.batch + block.rows.in_page[i] * (int64_t)stride.seq);
      load_rows<kIsKeys ? cfg::kHeadDim : cfg::kHeadDimV>(own, i * kLanesPerWarp, block.count - warp * kWarpRows,
                                                          shared);
    }
    cp_async_mbarrier_arrive(kIsKeys ? at.keys_full(ring.slot) : at.values_full(ring.slot));
    ring.advance();
  }

  // Load the rows from `first` on that lanes hold the addresses of, four at a time; of all this warp's rows `count` are
  // of keys. Two steps of four are a pattern of the swizzle.
  template <int kColumns> KJIT_DEVICE void load_rows(const char *own, int first, int count, uint32_t shared) const {
    constexpr int kSteps = (kWarpRows < kLanesPerWarp ? kWarpRows : kLanesPerWarp) / kTogether;
    const int chunk = lane % kRowLanes, of_step = lane / kRowLanes;
#pragma unroll 4
    for (int step = 0; step < kSteps; step++) {
      const int row = first + step * kTogether + of_step, in_pattern = step % 2 * kTogether + of_step;
      const char *const from = shuffle(own, step * kTogether + of_step) + chunk * kChunkBytes;
      const uint32_t to = shared + row * cfg::kRowBytes + ((chunk ^ in_pattern) << 4);
#pragma unroll
      for (int band = 0; band < cfg::bands(kColumns); band++)
        cp_async_16_zfill(to + band * cfg::kKeyRows * cfg::kRowBytes, from + band * cfg::kRowBytes,
                          row < count && band * SM90_CHUNK_COLUMNS + chunk * kChunkElements < kColumns);
    }
  }
};
