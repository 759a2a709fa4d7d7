// A tile's rows as an attention variant sees them, and the walk over the key blocks that they see.
#pragma once
#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"
#include "attention_variant/walk_order.cuh"

// The bounds of a tile's rows are kept while the tile is computed, where a row has one interval; with more, registers
// would be spilled.
constexpr bool kKeepsBounds = !variant::kJudged && variant::kMasked && variant::kIntervals == 1;
// The planner evaluates them anyway, so it leaves them in shared memory, where there is room. Otherwise each consumer
// would compute its own between two tiles, when no product of it is in flight.
constexpr bool kPlannedBounds = kKeepsBounds && shared::kHasBounds;
// A block's entry in a list tells its state for each consumer's rows, by two bits, so that a consumer judges no block
// of which its own rows see all or nothing. An entry is block * kEntryStates + states.
constexpr bool kParted = variant::kListed && SM90_HAS_PARTS(cfg::kPackGqa, cfg::kConsumers, cfg::kKeyRows);
constexpr int kEntryStates = kParted ? 1 << 2 * cfg::kConsumers : 2;
constexpr int kPartialStates = 0x15 % kEntryStates; // every consumer's rows see the block in part
// Lists may have keep words, which come with K.
constexpr bool kHasKeep = kParted && shared::kHasKeep;
// Which slot of that memory a tile's bounds are in.
using BoundRing = Ring<shared::kBoundSlots>;

KJIT_DEVICE variant::Row variant_row(const attention_variant_params &v, const attention_sm90_params &p,
                                     const Tile &tile, const OutputRow &row) {
  return variant::Row(v, tile.batch, row.head, row.query, keys_seen_by(p, row.query));
}

KJIT_DEVICE int list_of(const attention_variant_params &v, const Tile &tile) {
  return tile.batch * v.lists.batch_stride + tile.head * v.lists.head_stride + tile.query_tile;
}

// Tiles are handed out from a head's last one to its first. Where the lists have an order, the tile that comes in this
// one's turn takes its place, and the walk over it begins.
KJIT_DEVICE bool begin_ordered(variant::BlockWalk &walk, const attention_variant_params &v,
                               const attention_sm90_params &p, Tile &tile) {
  if (!variant::kListed || v.lists.order == nullptr) return false;
  const int turn = p.query_tiles - 1 - tile.query_tile;
  const attention_listed_tile &listed = v.lists.order[list_of(v, tile) - tile.query_tile + turn];
  tile.query_tile = listed.query_tile;
  walk.begin_list(v, list_of(v, tile), listed.count);
  return true;
}

// The entry of the block that a walk visits in a turn.
KJIT_DEVICE int entry_in_turn(const variant::BlockWalk &walk, int turn) {
  return walk.entry(variant::kHasPeak ? variant::outwards(turn, walk.start(), walk.count) : turn);
}

// Let a walk over ranges begin where the middle row's term is largest. A split keeps its part of the plain order. All
// lanes of a warp.
KJIT_DEVICE void find_start(variant::BlockWalk &walk, const attention_variant_params &v, const attention_sm90_params &p,
                            const Tile &tile, int lane) {
  if constexpr (variant::kHasPeak && !cfg::kSplitKv) {
    if (walk.first_entry >= 0) return;
    const variant::Row middle = variant_row(v, p, tile, output_row(p, tile, 0, cfg::kQueryRows / 2));
    walk.start_at(variant::find_peak<cfg::kKeyRows>(walk, v, middle, lane));
  }
}

// Begin the walk over a tile's key blocks, and leave the bounds of its rows in slot `slot` where consumers read them.
// All lanes of a warp.
KJIT_DEVICE void begin_walk(variant::BlockWalk &walk, const attention_variant_params &v, const attention_sm90_params &p,
                            Tile &tile, int lane, const Layout &at, int slot) {
  if (begin_ordered(walk, v, p, tile)) return;
  walk.begin<cfg::kKeyRows>(
      v, list_of(v, tile), cfg::kQueryRows, lane,
      [&](int i) { return variant_row(v, p, tile, output_row(p, tile, 0, i)); },
      [&](int i) {
        const OutputRow row = output_row(p, tile, 0, i);
        return row.query < p.seq_q && row.in_gqa_group;
      },
      [&](int i, int, int low, int high) {
        if constexpr (kPlannedBounds) st_shared_8(at.bounds(slot, i), low, high);
      });
  find_start(walk, v, p, tile, lane);
}
