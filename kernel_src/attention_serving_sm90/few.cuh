// The runs of a small batch: up to 32 sequences, of one tile each, whose lengths one warp reads together, a lane each.
//
// A block of threads then waits for one load from memory before it knows its work, instead of for a schedule and the
// lengths of the sequence that this names; and everything is counted in key blocks, in 32 bits. A tile counts its key
// blocks and kOverhead for starting it.
//
//   1. Where tiles are few, each gets runs of its own, so that no run has a part of two tiles: all the blocks of threads
//      of a tile can then share the work of adding its parts up (meeting.cuh).
//   2. Otherwise all tiles follow one another on a line, sequence by sequence, head by head, which is cut into runs of
//      equal length, as in attention_serving/plan.cuh.
//
// The cuts depend on lengths, config and card alone.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"

#include "attention_serving/lengths.cuh"
#include "attention_serving/walk.cuh"

// All lanes of one warp, in all functions.
struct Few {
  static constexpr int kMostSequences = kLanesPerWarp;
  static constexpr int kOverhead = ceil_div(128, cfg::kKeys); // what starting a tile costs, in key blocks
  static constexpr int kLeast = ceil_div(128, cfg::kKeys);    // key blocks of the shortest run
  // By how many key blocks a run may be longer if it lies in one tile: it is done sooner with adding up.
  static constexpr int kWorth = ceil_div(192, cfg::kKeys);
  // Bounds of key blocks, of one tile and of all, so that sums and products have 32 bits.
  static constexpr int kMostOfTile = 1 << 22, kMostOfAll = 1 << 30;

  const attention_serving_params &p;
  const int lane;
  const int alignment; // keys: blocks begin at multiples of it
  // Of the lane's sequence: what its rows see, the first key of key block 0, and key blocks.
  Sequence s = {};
  Seen keys = {}, all_see = {};
  int start = 0, blocks = 0;
  int width = 0;         // runs of its tile, or the length of the tile on the line; 0: there is no tile
  bool divided = false;  // true: tiles have runs of their own
  int length = 1;        // of a run on the line
  unsigned present = 0;  // sequences that have a tile
  // The tile that the walk has come to.
  int sequence = 0, head = 0;
  int begins = 0; // its first run, or its position on the line

  KJIT_DEVICE Few(const attention_serving_params &params, int lane, int alignment)
      : p(params), lane(lane), alignment(alignment) {}

  // Make the runs. @return false when the problem is not of this kind: the schedule of all batches is for it
  KJIT_DEVICE bool plan() {
    if (p.batch > kMostSequences) return false;
    if (lane < p.batch) describe_sequence();
    const int64_t rows = (int64_t)s.rows * p.group;
    const bool fits = rows <= cfg::kRows && blocks < kMostOfTile;
    if (!__all_sync(0xffffffffu, fits)) return false;
    present = __ballot_sync(0xffffffffu, s.rows > 0);
    const int of_head = sum_of(blocks), tiles = __popc(present) * p.heads_kv;
    if ((int64_t)(of_head + kOverhead * kMostSequences) * p.heads_kv > kMostOfAll) return false;
    return cut(of_head * p.heads_kv, tiles);
  }

  // Find this block's first tile. @return false when there is none
  KJIT_DEVICE bool find() {
    const int at = divided ? (int)blockIdx.x : (int)blockIdx.x * length, all = width * p.heads_kv;
    int end = all;
#pragma unroll
    for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
      const int before = __shfl_sync(0xffffffffu, end, lane - distance);
      if (lane >= distance) end += before;
    }
    const unsigned behind = __ballot_sync(0xffffffffu, at < end);
    if (!behind) return false;
    sequence = kLanesPerWarp - __popc(behind); // ends rise from lane to lane
    const int first = __shfl_sync(0xffffffffu, end - all, sequence), of_tile = __shfl_sync(0xffffffffu, width, sequence);
    head = (at - first) / of_tile;
    begins = first + head * of_tile;
    return true;
  }

  // Go on to the next tile. @return false when it is behind the run's end
  KJIT_DEVICE bool move() {
    if (divided) return false;
    begins += of_sequence(width);
    if (++head == p.heads_kv) {
      head = 0;
      const unsigned behind = sequence + 1 < kLanesPerWarp ? present >> (sequence + 1) : 0;
      if (!behind) return false;
      sequence += 1 + __popc(~behind & (behind - 1));
    }
    return begins < run_end();
  }

  // Describe the tile and the block's share of it. @return false when it has none
  KJIT_DEVICE bool describe(PlannedTile &tile, Share &share) const {
    tile.sequence = sequence;
    tile.head = head;
    tile.index = 0;
    tile.s = {of_sequence(s.rows), of_sequence(s.keys), of_sequence(s.first_row), of_sequence(s.cache_row),
              of_sequence(s.first_slot)};
    tile.keys = {of_sequence(keys.low), of_sequence(keys.high)};
    tile.all_see = {of_sequence(all_see.low), of_sequence(all_see.high)};
    tile.start = of_sequence(start);
    tile.blocks = of_sequence(blocks);
    share = divided ? share_of_runs(tile.blocks) : share_of_line(tile.blocks);
    return (int)blockIdx.x >= share.first && (int)blockIdx.x <= share.last;
  }

  // Does the run end in this tile?
  KJIT_DEVICE bool ends() const { return divided || begins + of_sequence(width) >= run_end(); }

private:
  KJIT_DEVICE int of_sequence(int value) const { return __shfl_sync(0xffffffffu, value, sequence); }
  KJIT_DEVICE int run_end() const { return ((int)blockIdx.x + 1) * length; }

  KJIT_DEVICE static int sum_of(int value) {
#pragma unroll
    for (int lanes = kLanesPerWarp / 2; lanes > 0; lanes /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
  }

  KJIT_DEVICE void describe_sequence() {
    s = sequence_of(p, lane);
    if (s.rows == 0) return;
    // What a row sees begins and ends no earlier than what the row before it sees.
    const Seen first = seen_by(p, s, 0), last = seen_by(p, s, s.rows - 1);
    keys = {first.low, last.high};
    all_see = {last.low, first.high};
    start = keys.low & -alignment;
    if (keys.high > keys.low) blocks = ceil_div(keys.high - start, cfg::kKeys);
  }

  // Runs that tiles take if each is of at most `most` key blocks.
  KJIT_DEVICE int runs_of(int most) const {
    const int runs = blocks > most ? (blocks - 1) / most + 1 : 1;
    if (s.rows == 0) return 0;
    return p.most_splits > 0 ? smaller(runs, p.most_splits) : runs;
  }

  // Choose between the two ways.
  KJIT_DEVICE bool cut(int all, int tiles) {
    const int count = (int)gridDim.x;
    length = (all + tiles * kOverhead + count - 1) / count;
    if (length < kLeast) length = kLeast;
    if (tiles <= count) {
      // The fewest key blocks a run with which the tiles need no more runs than there are.
      int low = (all + count - 1) / count, high = tiles < count ? (all + count - tiles - 1) / (count - tiles) : all;
      if (low < kLeast) low = kLeast;
      if (p.most_splits == 0 && high > length + kWorth + 1) high = length + kWorth + 1; // more is not wanted
      while (low < high) {
        const int middle = low + (high - low) / 2;
        if (sum_of(runs_of(middle)) * p.heads_kv <= count)
          high = middle;
        else
          low = middle + 1;
      }
      divided = p.most_splits > 0 || low <= length + kWorth;
      width = runs_of(low);
    }
    if (divided) return true;
    width = s.rows > 0 ? blocks + kOverhead : 0;
    return p.most_splits == 0;
  }

  KJIT_DEVICE Share share_of_runs(int tile_blocks) const {
    const int count = of_sequence(width), part = (int)blockIdx.x - begins;
    return {begins, begins + count - 1, (int)((unsigned)tile_blocks * (unsigned)part / (unsigned)count),
            (int)((unsigned)tile_blocks * (unsigned)(part + 1) / (unsigned)count)};
  }

  // The blocks of threads that have a key block of the tile have a share in it; of a tile without keys, the one where
  // it begins.
  KJIT_DEVICE Share share_of_line(int tile_blocks) const {
    if (tile_blocks == 0) return {begins / length, begins / length, 0, 0};
    const int first_block = begins + kOverhead, from = (int)blockIdx.x * length - first_block, to = from + length;
    return {first_block / length, (first_block + tile_blocks - 1) / length, at_least_0(from), smaller(to, tile_blocks)};
  }
};
