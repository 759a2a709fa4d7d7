// The tile scheduler: which tiles a block of threads works on, and in which order.
//
// A tile is kQueryRows rows of one (batch, head); a row is one query of one head. With kPackGqa > 1, up to kPackGqa
// query heads that share a key head are packed into the rows of one tile, so that their K and V are read once: row r of
// a consumer's 64 belongs to query r / kPackGqa and head r % kPackGqa. With kSplitKv, a tile's key blocks are divided
// into up to p.splits splits, each of which is worked on like a tile of its own (partials.cuh).
//
// The producer takes the tile's number from the scheduler (TileScheduler) and works out its coordinates
// (tile_by_number()); the consumers read the coordinates from shared memory (store_tile(), load_tile()).
#pragma once
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_sm90/config.cuh"
#include "attention_sm90/params.h"

// The key blocks first to end - 1 of a head.
struct KeyBlocks {
  int first, end;
};

struct Tile {
  int query_tile, head, batch;

  // With kSplitKv only: the tile's number, its number of splits, which split this is, and the split's key blocks.
  int index, num_splits, split;
  KeyBlocks blocks;

  // The query of a consumer's first row.
  KJIT_DEVICE int first_query(int consumer) const {
    return query_tile * cfg::kTileQueries + consumer * cfg::kConsumerQueries;
  }
};

// The query head of a row.
struct GqaHead {
  int in_gqa_group, key_head; // its index among the query heads that share a key head; that key head
};
KJIT_DEVICE GqaHead gqa_head(const attention_sm90_params &p, const Tile &tile, int row) {
  return {tile.head % p.heads_per_kv * cfg::kPackGqa + row % cfg::kPackGqa, tile.head / p.heads_per_kv};
}

// The head and query of a row of a consumer's 64. The row exists if the query is below seq_q and `in_gqa_group` is
// true: kPackGqa may be more than the query heads that share a key head.
struct OutputRow {
  int head, query;
  bool in_gqa_group;
};
KJIT_DEVICE OutputRow output_row(const attention_sm90_params &p, const Tile &tile, int consumer, int row) {
  const int query = tile.first_query(consumer) + row / cfg::kPackGqa;
  if constexpr (cfg::kPackGqa == 1) return {tile.head, query, true};
  const GqaHead head = gqa_head(p, tile, row);
  return {head.key_head * p.group + head.in_gqa_group, query, head.in_gqa_group < p.group};
}

// Store band `band` of a consumer's 64 rows of O, which lies at `shared`, by TMA. One thread.
KJIT_DEVICE void store_band(const attention_sm90_params &p, const Tile &tile, int consumer, uint32_t shared, int band) {
  const TensorMap *map = (const TensorMap *)&p.o;
  if constexpr (cfg::kPackGqa == 1) {
    tma_store(map, shared, band * 64, tile.first_query(consumer), tile.head, tile.batch);
  } else {
    const GqaHead head = gqa_head(p, tile, 0);
    tma_store(map, shared, band * 64, head.in_gqa_group, tile.first_query(consumer), head.key_head, tile.batch);
  }
}

// How many keys a query sees: the first ones. Causal attention is aligned at the bottom right: query i sees the keys up
// to i + seq_kv - seq_q. The result may be 0 or less.
KJIT_DEVICE int keys_seen_by(const attention_sm90_params &p, int query) {
  const int last = cfg::kCausal ? query + p.seq_kv - p.seq_q + 1 : p.seq_kv;
  return last < p.seq_kv ? last : p.seq_kv;
}

// How many key blocks a tile has: at least one, because a tile that sees no key must still write zeros.
KJIT_DEVICE int key_blocks(const attention_sm90_params &p, const Tile &tile) {
  const int keys = keys_seen_by(p, (tile.query_tile + 1) * cfg::kTileQueries - 1);
  return keys <= 0 ? 1 : (keys + cfg::kKeyRows - 1) / cfg::kKeyRows;
}

// The key blocks of a tile or, with kSplitKv, of a split.
KJIT_DEVICE KeyBlocks key_blocks_of(const attention_sm90_params &p, const Tile &tile) {
  if constexpr (cfg::kSplitKv) return tile.blocks;
  return {0, key_blocks(p, tile)};
}

// Give a split its key blocks. Every split has at least one; when they cannot be divided evenly, the first splits have
// one more.
KJIT_DEVICE void set_key_blocks(const attention_sm90_params &p, Tile &tile) {
  const int blocks = key_blocks(p, tile);
  tile.num_splits = p.splits < blocks ? p.splits : blocks;
  const int least = blocks / tile.num_splits, longer = blocks % tile.num_splits;
  tile.blocks.first = tile.split * least + (tile.split < longer ? tile.split : longer);
  tile.blocks.end = tile.blocks.first + least + (tile.split < longer);
}

// Key blocks from this one on may hold keys that some row of the tile does not see.
KJIT_DEVICE int first_masked_block(const attention_sm90_params &p, const Tile &tile) {
  const int seen_by_all = keys_seen_by(p, tile.query_tile * cfg::kTileQueries);
  return seen_by_all <= 0 ? 0 : seen_by_all / cfg::kKeyRows;
}

constexpr int kNoTile = -1;

// Write a tile's coordinates for the consumers, so that these need not divide: 16 bytes at `shared`, 32 with kSplitKv.
KJIT_DEVICE void store_tile(uint32_t shared, const Tile &tile) {
  st_shared_16(shared, {{(uint32_t)tile.query_tile, (uint32_t)tile.head, (uint32_t)tile.batch, 0}});
  if constexpr (cfg::kSplitKv)
    st_shared_16(shared + 16, {{(uint32_t)tile.index, (uint32_t)(tile.num_splits << 16 | tile.split),
                                (uint32_t)tile.blocks.first, (uint32_t)tile.blocks.end}});
}

// Write that there are no more tiles.
KJIT_DEVICE void store_end_of_tiles(uint32_t shared) {
  st_shared_16(shared, {{(uint32_t)kNoTile, 0, 0, 0}});
}

// Read a tile's coordinates. All lanes of a warp, of which lane 0 reads: its later arrival at the "empty" mbarrier then
// tells the producer that the warp has read them. @return false when there are no more tiles
KJIT_DEVICE bool load_tile(uint32_t shared, int lane, Tile &tile) {
  Chunk where = {}, split = {};
  if (lane == 0) where = ld_shared_16(shared);
  if (cfg::kSplitKv && lane == 0) split = ld_shared_16(shared + 16);
  tile.query_tile = broadcast_from_lane_0(where.word[0]);
  if (tile.query_tile == kNoTile) return false;
  tile.head = broadcast_from_lane_0(where.word[1]);
  tile.batch = broadcast_from_lane_0(where.word[2]);
  if constexpr (cfg::kSplitKv) {
    const int num_splits = broadcast_from_lane_0(split.word[1]);
    tile.index = broadcast_from_lane_0(split.word[0]);
    tile.num_splits = num_splits >> 16;
    tile.split = num_splits & 0xffff;
    tile.blocks = {broadcast_from_lane_0(split.word[2]), broadcast_from_lane_0(split.word[3])};
  }
  return true;
}

// How many numbers there are: of tiles or, with kSplitKv, of splits. Neighbouring numbers are splits of one tile.
KJIT_DEVICE int tile_count(const attention_sm90_params &p) {
  return p.query_tiles * p.heads * p.batch * (cfg::kSplitKv ? p.splits : 1);
}

// The tile of a number. Full attention: the query tiles of a head one after the other, so that blocks that run at the
// same time share K and V in L2. Causal attention: longest tiles first (LPT), so that what is left at the end is short;
// but only within an L2 section, p.section heads whose K and V fit L2 together, and section after section. Tiles whose
// key blocks come from lists: likewise; `ahead` of each head's tiles, which are much longer than the others, come ahead
// of all sections, since those of the last section would come late.
KJIT_DEVICE Tile tile_by_number(const attention_sm90_params &p, int number, int ahead = 0) {
  Tile tile;
  if constexpr (cfg::kSplitKv) {
    tile.split = number % p.splits;
    tile.index = number /= p.splits;
  }
  int pair; // (batch, head)
  if constexpr (cfg::kCausal || cfg::kVariant) {
    const int pairs = p.heads * p.batch;
    const bool is_ahead = cfg::kListed && number < ahead * pairs;
    if (!is_ahead) number -= ahead * pairs;
    const int section = is_ahead ? pairs : p.section, turns = is_ahead ? ahead : p.query_tiles - ahead;
    const int first = number / (section * turns) * section;
    const int in_section = number % (section * turns);
    const int width = pairs - first < section ? pairs - first : section;
    tile.query_tile = p.query_tiles - 1 - (is_ahead ? 0 : ahead) - in_section / width;
    pair = first + in_section % width;
  } else {
    tile.query_tile = number % p.query_tiles;
    pair = number / p.query_tiles;
  }
  tile.head = pair % p.heads;
  tile.batch = pair / p.heads;
  if constexpr (cfg::kSplitKv && !cfg::kVariant) set_key_blocks(p, tile);
  return tile;
}

// The tile scheduler of one block of threads or, where it has two pairs of consumers, of one of them. Called by the
// producer thread alone.
struct TileScheduler {
  const attention_sm90_params &p;
  int round = 0;

  // The number of the next tile, or kNoTile.
  KJIT_DEVICE int next() {
    int number;
    do
      number = take_number();
    while (cfg::kSplitKv && cfg::kCausal && !cfg::kVariant && number < tile_count(p) && has_no_blocks(number));
    return number < tile_count(p) ? number : kNoTile;
  }

  // The last scheduler of the grid to finish sets both scheduler counters, p.tickets[0] and [1], to zero for the next
  // launch.
  KJIT_DEVICE void finish() const {
    if (p.tickets == nullptr) return;
    __threadfence();
    if (atomicAdd(p.tickets + 1, 1) == schedulers() - 1) {
      p.tickets[0] = 0;
      p.tickets[1] = 0;
    }
  }

private:
  // All that there are, and this one's number: the first pairs of all blocks come first, so that few tiles lie on as
  // many multiprocessors as they can.
  KJIT_DEVICE uint32_t schedulers() const { return gridDim.x * cfg::kPairs; }
  KJIT_DEVICE uint32_t own_number() const { return blockIdx.x + gridDim.x * pair_of_thread(); }

  // With scheduler counters, a block that is free takes the next number from p.tickets[0]. Without them the numbers are
  // dealt out beforehand: to the blocks in rising order in one round and, for causal tiles, in falling order in the
  // next, so that every block gets long and short tiles.
  KJIT_DEVICE int take_number() {
    int number;
    if (p.tickets != nullptr) {
      number = atomicAdd(p.tickets, 1);
    } else {
      const bool back = cfg::kCausal && round % 2;
      number = round * schedulers() + (back ? schedulers() - 1 - own_number() : own_number());
      round++;
    }
    return number;
  }

  // True for a number whose split does not exist, because its causal tile has fewer key blocks than p.splits.
  KJIT_DEVICE bool has_no_blocks(int number) const {
    const Tile tile = tile_by_number(p, number);
    return tile.split >= tile.num_splits;
  }
};
