// The gatherers: two warps that load K and V of pages that no box of TMA fits, such as pages of one position.
//
// Warp 2 of the producer's warpgroup loads K, warp 3 loads V, each by itself and as far ahead as there are buffers: row
// by row with cp.async, 16 bytes a lane. A lane looks up the pages of its rows of a key block while the block before it
// is on its way. Rows behind the sequence's last key are written as zeros, and nothing is looked up for them, so the
// clipper has nothing to do with V.
//
// The producer tells the gatherers of a tile by an mbarrier of its own (tile_known), before it loads Q; the gatherer of
// V tells that it has read the tile's coordinates (tile_read), because a tile's Q buffer may be given back before the
// tile's last V is loaded. K is always loaded by then.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_prefill_sm90/tile.cuh"

template <bool kIsKeys> struct Gatherer {
  static constexpr int kColumns = kIsKeys ? cfg::kHeadDim : cfg::kHeadDimV;
  static constexpr int kBands = cfg::bands(kColumns);
  static constexpr int kRowChunks = kBands * cfg::kRowBytes / kChunkBytes; // of 16 bytes, those of no column among them
  static constexpr int kRowLanes = 4, kPatternRows = kLanesPerWarp / kRowLanes;
  static constexpr int kLaneRows = (cfg::kKeyRows + kLanesPerWarp - 1) / kLanesPerWarp; // that a lane looks up

  const attention_prefill_params &p;
  const RaggedLayout at;
  const int lane;
  Ring<cfg::kQueryBuffers> tiles;
  Ring<cfg::kStages> ring;

  // Pages of this lane's rows of a key block.
  struct Pages {
    int of[kLaneRows];
  };

  KJIT_DEVICE void run() {
    const attention_serving_params &v = p.serving;
    const attention_serving_strides &stride = kIsKeys ? v.k_stride : v.v_stride;
    RaggedTile tile = {};
    while (true) {
      mbarrier_wait_parity(at.tile_known(tiles.slot), tiles.parity);
      const bool exists = load_ragged_tile(at.ragged_tile(tiles.slot), lane, tile);
      tile.s.cache_row = load_cache_row(at.ragged_tile(tiles.slot), lane);
      __syncwarp();
      if (!kIsKeys && lane == 0) mbarrier_arrive(at.tile_read(tiles.slot));
      if (!exists) return;
      tiles.advance();
      const char *const head = (const char *)(kIsKeys ? v.k : v.v) + 2 * (tile.query_head() / v.group) * stride.head;
      Pages ahead = look_up(tile, tile.blocks.end - 1);
      for (int block = tile.blocks.end - 1; block >= tile.blocks.first; block--) {
        const Pages pages = ahead;
        if (block > tile.blocks.first) ahead = look_up(tile, block - 1);
        load_block(head, stride, pages, block * cfg::kKeyRows, tile.s.keys);
      }
    }
  }

private:
  KJIT_DEVICE int index_of(int position) const {
    return p.serving.page_shift >= 0 ? position >> p.serving.page_shift : position / p.serving.page_size;
  }

  KJIT_DEVICE Pages look_up(const RaggedTile &tile, int block) const {
    const int *const table = p.serving.page_table + tile.s.cache_row * p.serving.page_table_stride;
    Pages pages;
#pragma unroll
    for (int i = 0; i < kLaneRows; i++) {
      const int position = block * cfg::kKeyRows + i * kLanesPerWarp + lane;
      pages.of[i] = position < tile.s.keys ? table[index_of(position)] : 0;
    }
    return pages;
  }

  // Load a key block, whose first key is `first`, once its buffer is empty. Four lanes take 64 bytes of a row at a
  // time, eight rows together, so that a lane's place in the swizzle's pattern of eight rows is always the same.
  KJIT_DEVICE void load_block(const char *head, const attention_serving_strides &stride, const Pages &pages, int first,
                              int keys) {
    const uint32_t shared = kIsKeys ? at.keys(ring.slot) : at.values(ring.slot);
    const int in_pattern = lane / kRowLanes;
    mbarrier_wait_parity(kIsKeys ? at.keys_empty(ring.slot) : at.values_empty(ring.slot), ring.parity ^ 1);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLaneRows; i++) {
      const int64_t own = own_row(stride, pages.of[i], first + i * kLanesPerWarp + lane);
#pragma unroll 1
      for (int of_lanes = 0; of_lanes < kLanesPerWarp; of_lanes += kPatternRows) {
        const int row = i * kLanesPerWarp + of_lanes + in_pattern;
        const int64_t begin = shuffle(own, of_lanes + in_pattern);
        if (i * kLanesPerWarp + of_lanes < cfg::kKeyRows) load_row(head, begin, row, first, keys, shared);
      }
    }
    cp_async_commit_group();
    cp_async_wait_group<0>();
    fence_async_proxy(); // wgmma reads what was written
    __syncwarp();
    if (lane == 0) mbarrier_arrive(kIsKeys ? at.keys_full(ring.slot) : at.values_full(ring.slot));
    ring.advance();
  }

  // This lane's quarter of a row's 64 bytes, for all of them. `begin`: where the row begins, in elements.
  KJIT_DEVICE void load_row(const char *head, int64_t begin, int row, int first, int keys, uint32_t shared) const {
    const int quarter = lane % kRowLanes, in_pattern = lane / kRowLanes;
    const bool exists = first + row < keys;
    const char *const from = head + (exists ? 2 * begin : 0) + quarter * kChunkBytes;
#pragma unroll
    for (int j = 0; j < kRowChunks / kRowLanes; j++) {
      const int chunk = j * kRowLanes + quarter; // whose band is j / 2
      const uint32_t to = shared + j / 2 * cfg::kKeyRows * cfg::kRowBytes + row * cfg::kRowBytes;
      cp_async_16_zfill(to + ((chunk % 8 ^ in_pattern) << 4), from + j * kRowLanes * kChunkBytes,
                        exists && chunk * kChunkElements < kColumns);
    }
  }

  // Where the row of a position begins, in elements.
  KJIT_DEVICE int64_t own_row(const attention_serving_strides &stride, int page, int position) const {
    const int in_page = position - index_of(position) * p.serving.page_size;
    return page * (int64_t)stride.batch + in_page * (int64_t)stride.seq;
  }

  static KJIT_DEVICE int64_t shuffle(int64_t value, int from) {
    const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)value, from);
    const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(value >> 32), from);
    return (int64_t)((uint64_t)high << 32 | low);
  }
};
