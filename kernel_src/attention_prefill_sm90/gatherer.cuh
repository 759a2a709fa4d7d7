// The gatherers: a warpgroup that loads K and V of pages that no box of TMA fits, such as pages of one position; of
// e4m3 for the wideners (widener.cuh), as it is and to where a box would have brought it (cfg::Narrow).
//
// Its four warps load every key block together, each its quarter of the rows: row by row with cp.async, 16 bytes a
// lane, eight lanes for the 128 bytes that a row has in a band, so that each copy takes whole lines. A lane holds the
// places of some of its warp's rows, and uses them for K and for V. Nobody waits for copies here: every lane arrives at
// "full" by cp.async.mbarrier.arrive when its copies are done, so that as many blocks are on their way as there are
// buffers. Nobody here can fence what was written off from wgmma either, so the consumers do, when they have waited.
// Rows behind the sequence's last key are written as zeros, so the clipper has nothing to do with V.
//
// The order of the loads is the producer's (producer.cuh): of each key block K, then V of the block before it. Places
// are looked up a key block ahead. The producer tells of a tile by an mbarrier of its own (tile_known), before it loads
// Q. All lanes have read the tile's coordinates before the tile's last K is there, and so before its Q buffer is given
// back.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/cp_async_mbarrier.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>

#include "attention_prefill_sm90/tile.cuh"

struct Gatherer {
  static constexpr int kWarpRows = cfg::kKeyRows / cfg::kGatherWarps;
  static constexpr int kLaneRows = (kWarpRows + kLanesPerWarp - 1) / kLanesPerWarp; // that a lane looks up
  static constexpr int kRowLanes = cfg::kRowBytes / kChunkBytes, kTogether = kLanesPerWarp / kRowLanes;

  const attention_prefill_params &p;
  const RaggedLayout at;
  const int warp, lane; // of the warpgroup
  Ring<cfg::kQueryBuffers> tiles;
  Ring<cfg::kStages> keys, values;

  // Where this lane's rows of a key block lie: page and position in it.
  struct Rows {
    int page[kLaneRows], in_page[kLaneRows];
  };

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
  KJIT_DEVICE bool next_tile(RaggedTile &tile) {
    mbarrier_wait_parity(at.tile_known(tiles.slot), tiles.parity);
    const bool exists = load_ragged_tile(at.ragged_tile(tiles.slot), lane, tile);
    load_cache_row(at.ragged_tile(tiles.slot), lane, tile.s);
    tiles.advance();
    return exists;
  }

  KJIT_DEVICE Rows look_up(const RaggedTile &tile, int block) const {
    const attention_serving_params &v = p.serving;
    const int *const table = v.page_table + tile.s.cache_row * v.page_table_stride;
    Rows rows;
#pragma unroll
    for (int i = 0; i < kLaneRows; i++) {
      const int in_block = i * kLanesPerWarp + lane, position = block * cfg::kKeyRows + warp * kWarpRows + in_block;
      const bool exists = position < tile.s.keys && in_block < kWarpRows;
      const int index = v.page_shift >= 0 ? position >> v.page_shift : position / v.page_size;
      rows.page[i] = exists ? table[index] : 0;
      rows.in_page[i] = exists ? position - index * v.page_size : 0;
    }
    return rows;
  }

  // The pointer that lane `from` holds.
  static KJIT_DEVICE const char *shuffle(const char *pointer, int from) {
    const uint64_t value = (uint64_t)pointer;
    const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)value, from);
    const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(value >> 32), from);
    return (const char *)((uint64_t)high << 32 | low);
  }

  // Who multiplies waits for what was loaded, or who widens it.
  KJIT_DEVICE uint32_t landed_keys(int slot) const {
    return cfg::kNarrow ? at.keys_landed(slot) : at.keys_full(slot);
  }
  KJIT_DEVICE uint32_t landed_values(int slot) const {
    return cfg::kNarrow ? at.values_landed(slot) : at.values_full(slot);
  }

  // Load this warp's rows of a key block, once the block's buffer is empty.
  template <bool kIsKeys> KJIT_DEVICE void load(const Block &block) {
    const attention_serving_params &v = p.serving;
    const attention_serving_strides &stride = kIsKeys ? v.k_stride : v.v_stride;
    Ring<cfg::kStages> &ring = kIsKeys ? keys : values;
    constexpr int kColumns = kIsKeys ? cfg::kHeadDim : cfg::kHeadDimV;
    constexpr int kAt = cfg::kNarrow ? cfg::Narrow<kColumns>::kAt : 0;
    const char *const head =
        (const char *)(kIsKeys ? v.k : v.v) + cfg::kCacheBytes * (block.head * (int64_t)stride.head);
    const uint32_t buffer = (kIsKeys ? at.keys(ring.slot) : at.values(ring.slot)) + kAt;
    const uint32_t shared = buffer + warp * kWarpRows * cfg::kRowBytes;
    mbarrier_wait_parity(kIsKeys ? at.keys_empty(ring.slot) : at.values_empty(ring.slot), ring.parity ^ 1);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLaneRows; i++) {
      const char *const own = head + cfg::kCacheBytes * (block.rows.page[i] * (int64_t)stride.batch +
                                                         block.rows.in_page[i] * (int64_t)stride.seq);
      load_rows<kColumns>(own, i * kLanesPerWarp, block.count - warp * kWarpRows, shared);
    }
    cp_async_mbarrier_arrive(kIsKeys ? landed_keys(ring.slot) : landed_values(ring.slot));
    ring.advance();
  }

  // Load the rows from `first` on that lanes hold the addresses of, four at a time; of all this warp's rows `count` are
  // of keys. Two steps of four are a pattern of the swizzle.
  template <int kColumns> KJIT_DEVICE void load_rows(const char *own, int first, int count, uint32_t shared) const {
    constexpr int kBands = cfg::kNarrow ? cfg::Narrow<kColumns>::kBands : cfg::bands(kColumns);
    constexpr int kSteps = (kWarpRows < kLanesPerWarp ? kWarpRows : kLanesPerWarp) / kTogether;
    const int chunk = lane % kRowLanes, of_step = lane / kRowLanes;
#pragma unroll 4
    for (int step = 0; step < kSteps; step++) {
      const int row = first + step * kTogether + of_step, in_pattern = step % 2 * kTogether + of_step;
      const char *const from = shuffle(own, step * kTogether + of_step) + chunk * kChunkBytes;
      const uint32_t to = shared + row * cfg::kRowBytes + ((chunk ^ in_pattern) << 4);
#pragma unroll
      for (int band = 0; band < kBands; band++)
        cp_async_16_zfill(to + band * cfg::kKeyRows * cfg::kRowBytes, from + band * cfg::kRowBytes,
                          row < count && band * cfg::kRowBytes + chunk * kChunkBytes < kColumns * cfg::kCacheBytes);
    }
  }
};
