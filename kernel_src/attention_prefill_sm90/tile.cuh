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
#include "attention_serving/descale.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"

// Tile::batch is the number of the sequence. Tile::head counts packs of kPackGqa query heads. Tile::blocks are the key
// blocks that some row sees, or the first one for rows that see no key, because zeros must be stored for them too.
//
// The keys of a tile whose rows fit one consumer may be divided into parts, each of which is worked on like a tile of
// its own; the last part to be done adds them up (consumer.cuh).
struct RaggedTile : Tile {
  Sequence s;
  bool streams; // no other tile reads these keys

  // Two words for what is needed at a tile's end alone, because consumers keep two tiles in registers: the number of
  // the sequence and the query head of the first row; and, of a tile whose keys are divided, how many parts there are,
  // which of them this is, and the place among p.slots where the first one lies.
  uint32_t owner, split;
  static constexpr uint32_t kWhole = 0; // a tile whose keys are not divided
  Descales descales;                    // with K and V of 8 bits
  bool has_factors;                     // with kConverts: some row of Q was multiplied by a number

  KJIT_DEVICE int sequence() const { return (int)(owner & 0xffff); }
  KJIT_DEVICE int query_head() const { return (int)(owner >> 16); }
  KJIT_DEVICE int parts() const { return (int)(split >> 24); }
  KJIT_DEVICE int part() const { return (int)(split >> 18 & 63); }
  KJIT_DEVICE int slot() const { return (int)(split & 0x3ffff); }
  KJIT_DEVICE void set_owner(int head) { owner = (uint32_t)batch | (uint32_t)head << 16; }
  KJIT_DEVICE void divide(int of_parts, int which, int first_slot) {
    split = (uint32_t)of_parts << 24 | (uint32_t)which << 18 | (uint32_t)first_slot;
  }

  // The tile's last query that exists.
  KJIT_DEVICE int last_query() const { return smaller((query_tile + 1) * cfg::kTileQueries, s.rows) - 1; }
  // Does a consumer work on the tile? With lists of few rows those that have rows that exist, otherwise all.
  KJIT_DEVICE bool has_rows(int consumer) const { return !cfg::kFew || first_query(consumer) < s.rows; }
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
//   values_landed  one for each V buffer: a key block of V that has rows behind the sequence's last key; of e4m3 every
//                  one, because it has to be widened (widener.cuh)
//   keys_landed    with e4m3, one for each K buffer: a key block of K
//   tile_known     where a warpgroup loads K and V row by row (gatherer.cuh), one for each Q buffer: the tile's
//   coordinates
struct RaggedLayout : Layout {
  static constexpr int kTilesAt = shared::kEntriesAt;
  static constexpr int kBarriersAt = kTilesAt + PREFILL_TILE_BYTES * cfg::kQueryBuffers;
  static constexpr int kBarriers = cfg::kQueryBuffers * (cfg::kGathers ? 2 : 1) + cfg::kStages * (cfg::kNarrow ? 2 : 1);
  static constexpr int kFactorsAt = (kBarriersAt + SM90_BARRIER_BYTES * kBarriers + 15) / 16 * 16;
  static constexpr int kEnd = cfg::kConverts ? kFactorsAt + cfg::kFactorBytes * cfg::kQueryBuffers
                                             : kBarriersAt + SM90_BARRIER_BYTES * kBarriers;
  static_assert(kTilesAt % 16 == 0, "coordinates are written 16 bytes at a time");
  static_assert(kEnd + SM90_ALIGNMENT - 1 == KJIT_launch_bytes, "launch_bytes: what the host asks for is what is used");

  KJIT_DEVICE uint32_t ragged_tile(int slot) const { return base + kTilesAt + PREFILL_TILE_BYTES * slot; }
  KJIT_DEVICE uint32_t query_landed(int slot) const { return base + kBarriersAt + SM90_BARRIER_BYTES * slot; }
  KJIT_DEVICE uint32_t values_landed(int slot) const { return query_landed(cfg::kQueryBuffers + slot); }
  // With kConverts: a word of each converter, and behind them what each row of Q was divided by.
  KJIT_DEVICE uint32_t flags(int slot) const { return base + kFactorsAt + cfg::kFactorBytes * slot; }
  KJIT_DEVICE uint32_t factors(int slot) const { return flags(slot) + PREFILL_FLAG_BYTES; }
  KJIT_DEVICE uint32_t keys_landed(int slot) const { return values_landed(cfg::kStages + slot); }
  KJIT_DEVICE uint32_t tile_known(int slot) const { return keys_landed((cfg::kNarrow ? cfg::kStages : 0) + slot); }

  // One thread, before a barrier of the block.
  KJIT_DEVICE void initialise() const {
    if constexpr (cfg::kGathers || cfg::kNarrow)
      initialise_for_loaders();
    else
      Layout::initialise();
    for (int i = 0; i < kBarriers; i++)
      mbarrier_init(query_landed(i), is_gathered(i) ? kGatherers : 1);
    fence_mbarrier_init();
  }

private:
  static constexpr int kGatherers = cfg::kGatherWarps * kLanesPerWarp;

  // Is the i-th of this kernel's own mbarriers one at which every thread arrives that gathers e4m3?
  static KJIT_DEVICE bool is_gathered(int i) {
    return cfg::kNarrow && cfg::kGathers && i >= cfg::kQueryBuffers && i < cfg::kQueryBuffers + 2 * cfg::kStages;
  }

  // Who is waited for by whom arrives lane by lane where lanes write to shared memory what others read or write, other
  // than by TMA and wgmma: converters at "full" of Q, consumers that read factors at "empty" of Q, and wideners at
  // "full" of K and V where gatherers write there next. racecheck follows no order through one lane of a warp that
  // arrives for the others.
  static constexpr int kConverterArrivals = cfg::kConverts ? kLanesPerWarp : 1;
  static constexpr int kWidenerArrivals = cfg::kGathers ? kLanesPerWarp : 1;

  // As Layout's, but every thread that gathers arrives at "full" of K and V, or each warp that widens, which arrives at
  // "full" of Q too.
  KJIT_DEVICE void initialise_for_loaders() const {
    for (int i = 0; i < cfg::kQueryBuffers; i++) {
      mbarrier_init(query_full(i), cfg::kNarrow ? cfg::kHelpers * kConverterArrivals : 1);
      mbarrier_init(query_empty(i), cfg::kConsumers * kWarpsPerWarpgroup * kConverterArrivals);
    }
    constexpr int kArrivals = cfg::kNarrow ? cfg::kHelpers * kWidenerArrivals : kGatherers;
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(keys_full(i), kArrivals);
      mbarrier_init(keys_empty(i), cfg::kConsumers * kKeyReleases);
      mbarrier_init(values_full(i), kArrivals);
      mbarrier_init(values_empty(i), cfg::kConsumers);
    }
  }
};

// Write a tile's coordinates for the other warps, so that these need not divide.
KJIT_DEVICE void store_ragged_tile(uint32_t shared, const RaggedTile &tile) {
  st_shared_16(shared, {{(uint32_t)tile.query_tile, tile.owner, tile.split, (uint32_t)tile.s.first_row}});
  st_shared_16(shared + 16, {{(uint32_t)tile.s.rows, (uint32_t)tile.s.keys, (uint32_t)tile.blocks.first,
                              (uint32_t)tile.blocks.end}});
  if constexpr (cfg::kNarrow)
    st_shared_16(shared + 32,
                 {{(uint32_t)tile.s.cache_row, 0, __float_as_uint(tile.descales.k), __float_as_uint(tile.descales.v)}});
  else if constexpr (cfg::kGathers)
    st_shared_16(shared + 32, {{(uint32_t)tile.s.cache_row, 0, 0, 0}});
}

// Read a tile's coordinates. All lanes of a warp, of which lane 0 reads: its later arrival at the "empty" mbarrier then
// tells the producer that the warp has read them.
// @return false when there are no more tiles
KJIT_DEVICE bool load_ragged_tile(uint32_t shared, int lane, RaggedTile &tile) {
  Chunk where = {}, what = {};
  if (lane == 0) where = ld_shared_16(shared);
  tile.query_tile = broadcast_from_lane_0(where.word[0]);
  if (tile.query_tile == kNoTile) return false;
  if (lane == 0) what = ld_shared_16(shared + 16);
  tile.owner = (uint32_t)broadcast_from_lane_0(where.word[1]);
  tile.split = (uint32_t)broadcast_from_lane_0(where.word[2]);
  tile.s.first_row = broadcast_from_lane_0(where.word[3]);
  tile.s.rows = broadcast_from_lane_0(what.word[0]);
  tile.s.keys = broadcast_from_lane_0(what.word[1]);
  tile.blocks = {broadcast_from_lane_0(what.word[2]), broadcast_from_lane_0(what.word[3])};
  if constexpr (cfg::kNarrow) {
    Chunk more = {};
    if (lane == 0) more = ld_shared_16(shared + 32);
    tile.s.cache_row = broadcast_from_lane_0(more.word[0]);
    tile.descales = {__uint_as_float(broadcast_from_lane_0(more.word[2])),
                     __uint_as_float(broadcast_from_lane_0(more.word[3]))};
  }
  return true;
}

// Where the keys of a tile's sequence lie, which those who load rows alone need.
KJIT_DEVICE void load_cache_row(uint32_t shared, int lane, Sequence &s) {
  Chunk more = {};
  if (lane == 0) more = ld_shared_16(shared + 32);
  s.cache_row = broadcast_from_lane_0(more.word[0]);
}
