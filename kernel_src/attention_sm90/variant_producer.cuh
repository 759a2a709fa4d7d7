// The producer of an attention variant: all lanes of one warp find out which key blocks a tile visits; lane 0 issues
// the TMA loads, in the order of the dense producer, which this one is derived from.
//
// With each K buffer the producer leaves an entry for the consumers: the key block's number, whether all rows of the
// tile see all of its keys, and whether it is the tile's last block. The consumers read it before their first product
// with that buffer.
#pragma once
#include "attention_sm90/producer.cuh"
#include "attention_sm90/variant_tile.cuh"

struct VariantProducer : Producer {
  const attention_variant_params &v;
  const int lane;
  int pending = variant::kNoBlock; // the key block of `pending_tile` whose V is still to be loaded
  Tile pending_tile = {};

  KJIT_DEVICE VariantProducer(const attention_sm90_variant_params &params, Layout layout, int lane)
      : Producer{params.base, layout}, v(params.variant), lane(lane) {}

  KJIT_DEVICE void run() {
    TileScheduler queue{p};
    int number = broadcast_from_lane_0(lane == 0 ? queue.next() : 0);
    while (number != kNoTile) {
      Tile tile = tile_by_number(p, number);
      variant::BlockWalk walk;
      begin_walk(walk, v, p, tile, lane);
      if (cfg::kSplitKv && !take_split(tile, walk)) {
        number = broadcast_from_lane_0(lane == 0 ? queue.next() : 0);
        continue;
      }
      int following = kNoTile;
      if (lane == 0) following = load_tile_blocks(queue, tile, walk);
      __syncwarp();
      number = broadcast_from_lane_0(following);
    }
    if (lane != 0) return;
    announce_end();
    if (pending >= 0) load_values(pending_tile, pending);
    queue.finish();
  }

private:
  // Give a split its part of the tile's walk; the first splits have one block more where they cannot be equal.
  // @return false for a split that does not exist, because the tile has fewer blocks than there are splits
  KJIT_DEVICE bool take_split(Tile &tile, variant::BlockWalk &walk) const {
    tile.blocks = {0, 0}; // the consumers go by the entries
    tile.num_splits = variant::smaller(p.splits, walk.count);
    if (tile.split >= tile.num_splits) return false;
    const int least = walk.count / tile.num_splits, longer = walk.count % tile.num_splits;
    walk.position = tile.split * least + variant::smaller(tile.split, longer);
    walk.count = walk.position + least + (tile.split < longer);
    return true;
  }

  // Load a tile. @return the number of the next one, taken one key block before the last as the dense producer does
  KJIT_DEVICE int load_tile_blocks(TileScheduler &queue, const Tile &tile, variant::BlockWalk &walk) {
    load_query(tile);
    const int ask_at = walk.count - walk.position > 1 ? walk.count - 2 : walk.position;
    int following = kNoTile;
    int entry = walk.next();
    while (entry >= 0) {
      if (walk.position - 1 == ask_at) following = queue.next();
      const int after = walk.next();
      mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);
      st_shared_4(at.entry(keys.slot), 2 * entry + (after < 0)); // ordered by the arrival
      load_keys(tile, entry / 2);
      if (pending >= 0) load_values(pending_tile, pending);
      pending = entry / 2;
      pending_tile = tile;
      entry = after;
    }
    if (cfg::kQueryBuffers == 1) {
      load_values(pending_tile, pending);
      pending = variant::kNoBlock;
    }
    return following;
  }
};
