// Which tiles a block works on, in which order. A tile is kQueryRows rows of one (batch, head).
//
// A row is a position of the query sequence. Packed, up to kPacked query heads that share a key head make one head of a
// tile, so that their K and V are read once: row r of a consumer's 64 is position r / kPacked, head r % kPacked. Split,
// a tile's key blocks are shared out in parts, which are worked on like tiles of their own (partials.cuh).
#pragma once
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_sm90/config.cuh"
#include "attention_sm90/params.h"

// Key blocks from `first` up to `end`.
struct KeyBlocks {
  int first, end;
};

struct Tile {
  int query_tile, head, batch;

  // kSplit alone: the tile's number, in how many parts it is worked on, which this is, and its key blocks.
  int index, parts, part;
  KeyBlocks blocks;

  // First position of a consumer's rows.
  KJIT_DEVICE int first_position(int consumer) const {
    return query_tile * cfg::kTilePositions + consumer * cfg::kGroupPositions;
  }
};

// A row's query head.
struct PackedHead {
  int in_group, key_head; // among the query heads that share a key head; which that is
};
KJIT_DEVICE PackedHead packed_head(const attention_sm90_params &p, const Tile &tile, int row) {
  return {tile.head % p.heads_per_kv * cfg::kPacked + row % cfg::kPacked, tile.head / p.heads_per_kv};
}

// Where a row of a consumer's 64 belongs. It exists if its position is below seq_q and its head is one of the group.
struct OutputRow {
  int head, position;
  bool in_group;
};
KJIT_DEVICE OutputRow output_row(const attention_sm90_params &p, const Tile &tile, int consumer, int row) {
  const int position = tile.first_position(consumer) + row / cfg::kPacked;
  if constexpr (cfg::kPacked == 1) return {tile.head, position, true};
  const PackedHead head = packed_head(p, tile, row);
  return {head.key_head * p.group + head.in_group, position, head.in_group < p.group};
}

// Causal attention is aligned at the bottom right: position i sees keys up to i + seq_kv - seq_q.
KJIT_DEVICE int keys_seen_by(const attention_sm90_params &p, int position) {
  const int last = cfg::kCausal ? position + p.seq_kv - p.seq_q + 1 : p.seq_kv;
  return last < p.seq_kv ? last : p.seq_kv;
}

// Key blocks of a tile: at least one, as a tile without keys must still write zeros.
KJIT_DEVICE int key_blocks(const attention_sm90_params &p, const Tile &tile) {
  const int keys = keys_seen_by(p, (tile.query_tile + 1) * cfg::kTilePositions - 1);
  return keys <= 0 ? 1 : (keys + cfg::kKeyRows - 1) / cfg::kKeyRows;
}

// Those of a tile, or of a part of it.
KJIT_DEVICE KeyBlocks own_key_blocks(const attention_sm90_params &p, const Tile &tile) {
  if constexpr (cfg::kSplit) return tile.blocks;
  return {0, key_blocks(p, tile)};
}

// Share out a tile's key blocks: no part is without any, and the first ones have one more if they do not come out even.
KJIT_DEVICE void share_out(const attention_sm90_params &p, Tile &tile) {
  const int blocks = key_blocks(p, tile);
  tile.parts = p.splits < blocks ? p.splits : blocks;
  const int least = blocks / tile.parts, longer = blocks % tile.parts;
  tile.blocks.first = tile.part * least + (tile.part < longer ? tile.part : longer);
  tile.blocks.end = tile.blocks.first + least + (tile.part < longer);
}

// Key blocks from this one on may hold keys that some row of the tile does not see.
KJIT_DEVICE int first_masked_block(const attention_sm90_params &p, const Tile &tile) {
  const int seen_by_all = keys_seen_by(p, tile.query_tile * cfg::kTilePositions);
  return seen_by_all <= 0 ? 0 : seen_by_all / cfg::kKeyRows;
}

constexpr int kNoTile = -1;

// A tile as the producer hands it to the consumers, who need not divide for it: at `shared`, 16 bytes, 32 if split.
KJIT_DEVICE void store_tile(uint32_t shared, const Tile &tile) {
  st_shared_16(shared, {{(uint32_t)tile.query_tile, (uint32_t)tile.head, (uint32_t)tile.batch, 0}});
  if constexpr (cfg::kSplit)
    st_shared_16(shared + 16, {{(uint32_t)tile.index, (uint32_t)(tile.parts << 16 | tile.part),
                                (uint32_t)tile.blocks.first, (uint32_t)tile.blocks.end}});
}

// That there are no more.
KJIT_DEVICE void store_no_tile(uint32_t shared) {
  st_shared_16(shared, {{(uint32_t)kNoTile, 0, 0, 0}});
}

// False: there are no more. All lanes of a warp, of which the first reads, so that its arrival says when that is over.
KJIT_DEVICE bool load_tile(uint32_t shared, int lane, Tile &tile) {
  Chunk where = {}, part = {};
  if (lane == 0) where = ld_shared_16(shared);
  if (cfg::kSplit && lane == 0) part = ld_shared_16(shared + 16);
  tile.query_tile = broadcast_from_lane_0(where.word[0]);
  if (tile.query_tile == kNoTile) return false;
  tile.head = broadcast_from_lane_0(where.word[1]);
  tile.batch = broadcast_from_lane_0(where.word[2]);
  if constexpr (cfg::kSplit) {
    const int parts = broadcast_from_lane_0(part.word[1]);
    tile.index = broadcast_from_lane_0(part.word[0]);
    tile.parts = parts >> 16;
    tile.part = parts & 0xffff;
    tile.blocks = {broadcast_from_lane_0(part.word[2]), broadcast_from_lane_0(part.word[3])};
  }
  return true;
}

// Tiles, and parts of tiles, are counted alike: neighbouring numbers are the parts of a tile.
KJIT_DEVICE int tile_count(const attention_sm90_params &p) {
  return p.query_tiles * p.heads * p.batch * (cfg::kSplit ? p.splits : 1);
}

// Tiles by number. Full attention: the query tiles of a head one after the other, so that neighbours share K and V.
// Causal: longest first within a section of heads, so that what is left at the end is short; sections one after the
// other, so that the K and V of what is under way fit L2.
KJIT_DEVICE Tile tile_by_number(const attention_sm90_params &p, int number) {
  Tile tile;
  if constexpr (cfg::kSplit) {
    tile.part = number % p.splits;
    tile.index = number /= p.splits;
  }
  int pair; // (batch, head)
  if constexpr (cfg::kCausal) {
    const int pairs = p.heads * p.batch;
    const int first = number / (p.section * p.query_tiles) * p.section;
    const int in_section = number % (p.section * p.query_tiles);
    const int width = pairs - first < p.section ? pairs - first : p.section;
    tile.query_tile = p.query_tiles - 1 - in_section / width;
    pair = first + in_section % width;
  } else {
    tile.query_tile = number % p.query_tiles;
    pair = number / p.query_tiles;
  }
  tile.head = pair % p.heads;
  tile.batch = pair / p.heads;
  if constexpr (cfg::kSplit) share_out(p, tile);
  return tile;
}

// The producer's source of tiles.
struct TileQueue {
  const attention_sm90_params &p;
  int round = 0;

  // Number of the next tile of this block, or kNoTile.
  KJIT_DEVICE int next() {
    int number;
    do
      number = take();
    while (cfg::kSplit && cfg::kCausal && number < tile_count(p) && is_without_blocks(number));
    return number < tile_count(p) ? number : kNoTile;
  }

  // The last block to finish leaves both tickets at zero for the next launch.
  KJIT_DEVICE void finish() const {
    if (p.tickets == nullptr) return;
    __threadfence();
    if (atomicAdd(p.tickets + 1, 1) == gridDim.x - 1) {
      p.tickets[0] = 0;
      p.tickets[1] = 0;
    }
  }

private:
  // By ticket: whoever is free takes the next. Otherwise dealt out, forth and back, so that the sums of falling lengths
  // come out alike.
  KJIT_DEVICE int take() {
    int number;
    if (p.tickets != nullptr) {
      number = atomicAdd(p.tickets, 1);
    } else {
      const bool back = cfg::kCausal && round % 2;
      number = round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
      round++;
    }
    return number;
  }

  // A tile with fewer key blocks than the longest may have fewer parts.
  KJIT_DEVICE bool is_without_blocks(int number) const {
    const Tile tile = tile_by_number(p, number);
    return tile.part >= tile.parts;
  }
};
