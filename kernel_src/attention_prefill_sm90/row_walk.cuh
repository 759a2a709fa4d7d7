// What the two warpgroups that load K and V row by row share (gatherer.cuh, widener.cuh): the tiles that the producer
// tells them of, and where a key block's rows lie.
//
// The four warps load every key block together, each its quarter of the rows, of K and of V. A lane holds the place of
// one row of its warp's, looked up before the rows are loaded, and uses it for K and for V.
//
// The producer tells of a tile by an mbarrier of its own (tile_known), before it loads Q. All lanes have read the
// tile's coordinates before the tile's last K is there, and so before its Q buffer is given back.
#pragma once
#include <kjit/ptx/mbarrier.cuh>

#include "attention_prefill_sm90/tile.cuh"

struct RowWalk {
  static constexpr int kWarpRows = cfg::kKeyRows / cfg::kGatherWarps;
  static constexpr int kLaneRows = (kWarpRows + kLanesPerWarp - 1) / kLanesPerWarp; // that a lane looks up

  const attention_prefill_params &p;
  const RaggedLayout at;
  const int warp, lane; // of the warpgroup
  Ring<cfg::kQueryBuffers> tiles;

  // Where this lane's rows of a key block lie: page, or row of the cache, and position in it.
  struct Rows {
    int page[kLaneRows], in_page[kLaneRows];
  };

protected:
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
      if (cfg::kNarrow && !v.page_table) {
        rows.page[i] = v.cu_k ? 0 : tile.s.cache_row;
        rows.in_page[i] = tile.s.first_slot + position;
        continue;
      }
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
};
