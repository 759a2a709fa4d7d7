// Which parts of which tiles a block of threads of one_part.cuh or one_part_turns.cuh with runs, or of
// one_part_e4m3.cuh, computes, one after the other.
//
// All tiles lie on a line, sequence by sequence, each as long as it has blocks of keys, with a stretch in front for
// what it takes to begin a tile. A block of threads has a run of that line, as long as those of all others: it may end
// a tile that another one has begun, have whole tiles, and begin one that others end. So multiprocessors have equally
// much to do whatever the lengths. Where that makes runs hardly longer, tiles are made as long as whole runs instead,
// so that each block of threads has a single part, without a further tile to begin: for few tiles, and for tiles that
// are all alike.
//
// Key heads abreast have a line each, and neighbouring blocks of threads the same run of their lines. So the keys of a
// position, which lie side by side in memory, are read at the same time.
//
// Every warp finds its parts by itself, with K and V of 8 bits the one that loads alone, with neighbouring sequences
// for each lane, from the lengths, the config and the grid alone.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/one_part_params.h"
#include "attention_serving_sm90/part.cuh"

// A part of a run.
struct RunPart : Part {
  int waiting;  // of the tile's parts, those whose blocks of threads have no further part, or 1
  bool is_last; // of the run
};

struct Runs {
  static constexpr int kEach = cfg::kTakesTurns ? 2 : cfg::kNarrow ? 4 : 8; // neighbouring sequences of a lane
  // Blocks of keys that could be multiplied while a further part is begun and merged.
  static constexpr int kTurnover = cfg::kTakesTurns ? 8 : 6;
  // The same while a tile is begun: the stretch in front of it. With tiles of fewer rows it loses 1 to 3 %.
  static constexpr int kFront = cfg::kTakesTurns ? 2 : 0;
  // What the tiles of a sequence take on the line is kept where it is needed soon: computing it again costs 1 to 3 us.
  // Where rows are loaded, which takes registers, keeping it would be 600 bytes of spills.
  static constexpr bool kKeepsCosts = !cfg::kGathered && !cfg::kTakesTurns;

  const attention_serving_one_part_params &p;
  const int lane;
  int keys[kEach];                   // of a sequence
  int cost[kKeepsCosts ? kEach : 1]; // of each of its tiles on the line
  int end;                           // on the block's line, of the lane's sequences
  int length;                        // of a run
  bool has_whole_runs;               // tiles are as long as whole runs

  KJIT_DEVICE Runs(const attention_serving_one_part_params &params, int lane) : p(params), lane(lane) {
    bool is_alike = true;
#pragma unroll
    for (int i = 0; i < kEach; i++)
      keys[i] = parts::keys_of(p, lane * kEach + i);
    const int blocks = __shfl_sync(0xffffffffu, blocks_of(keys[0]), 0);
#pragma unroll
    for (int i = 0; i < kEach; i++)
      is_alike = is_alike && blocks_of(keys[i]) == blocks;
    has_whole_runs = __all_sync(0xffffffffu, is_alike) ? cut_alike(blocks) : cut();
    int width = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int of_tile = cost_of(keys[i]);
      if constexpr (kKeepsCosts) cost[i] = of_tile;
      if (has(i)) width += of_tile * tiles();
    }
    end = width;
#pragma unroll
    for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
      const int before = __shfl_sync(0xffffffffu, end, lane - distance);
      if (lane >= distance) end += before;
    }
  }

  // Where the block's run begins.
  KJIT_DEVICE int begin() const {
    return run() * length;
  }

  // The part at `at`, which goes on to the next one; its `parts` is 0 when there is none. All lanes of a warp.
  KJIT_DEVICE RunPart next(int &at) const {
    const int stop = begin() + length;
    const unsigned behind = __ballot_sync(0xffffffffu, at < end);
    if (at + front() >= stop || !behind) return {};
    const int found = kLanesPerWarp - __popc(behind); // ends rise from lane to lane
    int index = 0, begins = found > 0 ? __shfl_sync(0xffffffffu, end, found - 1) : 0;
    RunPart out;
    if constexpr (!kKeepsCosts) out.keys = __shfl_sync(0xffffffffu, keys[0], found);
#pragma unroll
    for (int i = 0; i + 1 < kEach; i++) {
      int of_one, of_next = 0;
      if constexpr (kKeepsCosts) {
        of_one = __shfl_sync(0xffffffffu, cost[i], found) * tiles();
      } else {
        of_one = cost_of(out.keys) * tiles();
        of_next = __shfl_sync(0xffffffffu, keys[i + 1], found);
      }
      if (index == i && at - begins >= of_one) {
        begins += of_one;
        if constexpr (!kKeepsCosts) out.keys = of_next;
        index++;
      }
    }
    out.sequence = found * kEach + index;
    if constexpr (kKeepsCosts) out.keys = parts::of_lane(keys, found, index);
    const int of_tile = kKeepsCosts ? parts::of_lane(cost, found, index) : cost_of(out.keys);
    const int blocks = blocks_of(out.keys);
    const int tile = quotient(at - begins, of_tile);
    begins += tile * of_tile + front();
    const int heads = parts::divide(tile, p.row_tiles);
    out.head = (heads << p.abreast_log2) + ((int)blockIdx.x & ((1 << p.abreast_log2) - 1));
    out.row_tile = tile - heads * p.row_tiles;
    const int first = quotient(begins, length), last = quotient(begins + blocks - 1, length);
    out.part = run() - first;
    out.parts = last - first + 1;
    out.from = kFront > 0 ? parts::larger(at - begins, 0) : at - begins;
    const int to = stop - begins, all = ceil_div(out.keys, cfg::kKeys);
    out.to = to < all ? to : all;
    at = begins + of_tile - front();
    const int all_end = __shfl_sync(0xffffffffu, end, kLanesPerWarp - 1);
    const bool goes_on = at < all_end && at + front() < (last + 1) * length; // the run in which the tile ends
    out.waiting = goes_on && out.parts > 1 ? out.parts - 1 : out.parts;
    out.is_last = at + front() >= stop || at >= all_end;
    return out;
  }

private:
  // Of a line: its runs, the one of this block of threads, and the tiles of a sequence.
  KJIT_DEVICE int count() const {
    return (int)gridDim.x >> p.abreast_log2;
  }
  KJIT_DEVICE int run() const {
    return (int)blockIdx.x >> p.abreast_log2;
  }
  KJIT_DEVICE int tiles() const {
    return p.tiles >> p.abreast_log2;
  }

  KJIT_DEVICE bool has(int i) const {
    return lane * kEach + i < p.batch;
  }

  // Blocks of keys of a tile; one of a tile without keys, whose result is written all the same.
  static KJIT_DEVICE int larger_than_none(int blocks) {
    return parts::larger(blocks, 1);
  }
  static KJIT_DEVICE int blocks_of(int keys) {
    return larger_than_none(ceil_div(keys, cfg::kKeys));
  }

  // floor(a / b) for 0 <= a < 2^30 and b > 0, where it is less than 2^19.
  static KJIT_DEVICE int quotient(int a, int b) {
    const int near = (int)__fdividef((float)a, (float)b), left = a - near * b;
    return left < 0 ? near - 1 : left >= b ? near + 1 : near;
  }
  static KJIT_DEVICE int quotient_up(int a, int b) {
    return quotient(a + b - 1, b);
  }

  // How many whole runs hold a tile.
  KJIT_DEVICE int runs_of(int keys) const {
    return quotient_up(blocks_of(keys), length);
  }

  // In front of each tile.
  KJIT_DEVICE int front() const {
    return has_whole_runs ? 0 : kFront;
  }

  // Of a tile on the line.
  KJIT_DEVICE int cost_of(int keys) const {
    return has_whole_runs ? runs_of(keys) * length : blocks_of(keys) + kFront;
  }

  // The run's length, where every tile has so many blocks of keys. @return whether tiles are to be as long as whole
  // runs
  KJIT_DEVICE bool cut_alike(int blocks) {
    const int of_tile = blocks + kFront;
    const int shortest = parts::larger(quotient_up(p.batch * tiles() * of_tile, count()), parts::kLeast + kFront);
    const bool is_many = p.runs_of_tile == 0; // tiles, of which a run has several
    const int whole = is_many ? quotient_up(p.batch * tiles(), count()) * of_tile
                              : parts::larger(quotient_up(blocks, p.runs_of_tile), parts::kLeast);
    const bool is_whole = whole <= shortest + kTurnover - (is_many ? 0 : kFront);
    length = is_whole ? whole : shortest;
    return is_whole && !is_many;
  }

  // The same where tiles differ.
  KJIT_DEVICE bool cut() {
    int all = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (has(i)) all += blocks_of(keys[i]) + kFront;
    const int shortest = parts::larger(quotient_up(parts::sum_of(all) * tiles(), count()), parts::kLeast + kFront);
#pragma unroll 1
    for (length = shortest - kFront; p.batch * tiles() <= count() && length <= shortest - kFront + kTurnover;
         length++) {
      int runs = 0;
#pragma unroll
      for (int i = 0; i < kEach; i++)
        if (has(i)) runs += runs_of(keys[i]);
      if (parts::sum_of(runs) * tiles() <= count()) return true;
    }
    length = shortest;
    return false;
  }
};
