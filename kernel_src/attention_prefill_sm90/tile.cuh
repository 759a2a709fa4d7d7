// A tile of a ragged problem, and the shared memory that this kernel has beside attention_sm90's.
//
// A tile is kQueryRows packed rows of one sequence: row r of a consumer's 64 is query r / kPackGqa of the consumer's
// queries, and query head r % kPackGqa of those that share a key head. kPackGqa divides their number. Keys are counted
// from the sequence's first key; key block j is the keys from j * kKeyRows on.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_prefill_sm90/config.cuh"
#include "attention_prefill_sm90/params.h"
#include "attention_serving/lengths.cuh"
#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"

// Tile::batch is the number of the sequence. Tile::head counts packs of kPackGqa query heads. Tile::blocks are the key
// blocks that some row sees, or the first one for rows that see no key, because zeros must be stored for them too.
struct RaggedTile : Tile {
  Sequence s;
  int query_head; // that of the first row

  // The tile's last query that exists.
  KJIT_DEVICE int last_query() const { return smaller((query_tile + 1) * cfg::kTileQueries, s.rows) - 1; }
  KJIT_DEVICE bool is_cut(int block) const { return (block + 1) * cfg::kKeyRows > s.keys; }
};

// The key blocks of a tile whose place and sequence are known.
KJIT_DEVICE KeyBlocks key_blocks_of_rows(const attention_serving_params &p, const RaggedTile &tile) {
  const int low = seen_by(p, tile.s, tile.query_tile * cfg::kTileQueries).low;
  const int high = seen_by(p, tile.s, tile.last_query()).high;
  if (high <= low) return {0, 1};
  return {low / cfg::kKeyRows, (high + cfg::kKeyRows - 1) / cfg::kKeyRows};
}

// Behind what attention_sm90 has in shared memory without a variant: tiles' coordinates for each Q buffer, then
// mbarriers. Data that TMA has written "lands" at these mbarriers first where rows of it have to be cleared; who clears
// them (clipper.cuh) then arrives at the buffer's "full" mbarrier.
//
//   query_landed   one for each Q buffer: all of a tile's Q, and the tile's coordinates
//   values_landed  one for each V buffer: a key block of V that has rows behind the sequence's last key
struct RaggedLayout : Layout {
  static constexpr int kTilesAt = shared::kEntriesAt;
  static constexpr int kBarriersAt = kTilesAt + PREFILL_TILE_BYTES * cfg::kQueryBuffers;
  static constexpr int kEnd = kBarriersAt + SM90_BARRIER_BYTES * (cfg::kQueryBuffers + cfg::kStages);
  static_assert(kTilesAt % 16 == 0, "coordinates are written 16 bytes at a time");
  static_assert(kEnd + SM90_ALIGNMENT - 1 == KJIT_launch_bytes, "launch_bytes: what the host asks for is what is used");

  KJIT_DEVICE uint32_t ragged_tile(int slot) const { return base + kTilesAt + PREFILL_TILE_BYTES * slot; }
  KJIT_DEVICE uint32_t query_landed(int slot) const { return base + kBarriersAt + SM90_BARRIER_BYTES * slot; }
  KJIT_DEVICE uint32_t values_landed(int slot) const { return query_landed(cfg::kQueryBuffers + slot); }

  // One thread, before a barrier of the block.
  KJIT_DEVICE void initialise() const {
    Layout::initialise();
    for (int i = 0; i < cfg::kQueryBuffers + cfg::kStages; i++)
      mbarrier_init(query_landed(i), 1);
    fence_mbarrier_init();
  }
};

// Write a tile's coordinates for the other warps, so that these need not divide.
KJIT_DEVICE void store_ragged_tile(uint32_t shared, const RaggedTile &tile) {
  st_shared_16(shared, {{(uint32_t)tile.query_tile, (uint32_t)tile.query_head, (uint32_t)tile.batch,
                         (uint32_t)tile.s.first_row}});
  st_shared_16(shared + 16, {{(uint32_t)tile.s.rows, (uint32_t)tile.s.keys, (uint32_t)tile.blocks.first,
                              (uint32_t)tile.blocks.end}});
}

// Read a tile's coordinates. All lanes of a warp, of which lane 0 reads: its later arrival at the "empty" mbarrier then
// tells the producer that the warp has read them. Where the keys lie is the producer's matter and is not among them.
// @return false when there are no more tiles
KJIT_DEVICE bool load_ragged_tile(uint32_t shared, int lane, RaggedTile &tile) {
  Chunk where = {}, what = {};
  if (lane == 0) where = ld_shared_16(shared);
  tile.query_tile = broadcast_from_lane_0(where.word[0]);
  if (tile.query_tile == kNoTile) return false;
  if (lane == 0) what = ld_shared_16(shared + 16);
  tile.query_head = broadcast_from_lane_0(where.word[1]);
  tile.batch = broadcast_from_lane_0(where.word[2]);
  tile.s.first_row = broadcast_from_lane_0(where.word[3]);
  tile.s.rows = broadcast_from_lane_0(what.word[0]);
  tile.s.keys = broadcast_from_lane_0(what.word[1]);
  tile.blocks = {broadcast_from_lane_0(what.word[2]), broadcast_from_lane_0(what.word[3])};
  return true;
}
