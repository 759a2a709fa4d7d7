// The schedule: all work as one line, cut into runs of equal length, one for each block of threads.
//
// A tile is rows_of_tile() packed rows of one (sequence, key head): row r of the pack is query r / group of query head
// r % group of the group. Tiles follow one another on the line, sequence by sequence, head by head. A tile is as long
// as the keys that its rows may see, times `group` so that no fraction is left, plus kOverheadKeys for starting and
// ending it; sums over the tiles of a sequence have a closed form. Block of threads c works on what lies from
// c * length up to (c + 1) * length: whole tiles, and at most one begun by another and one ended by another, whose keys
// are divided in proportion. So the balance is as good for one long sequence as for thousands of short ones, windows
// count with what they see, and the number of partial results is bounded by the blocks of threads, whatever the
// lengths.
//
// The cuts depend on lengths, config and card alone, never on the order in which blocks run. Kernels with equal rows of
// a tile cut alike. Whoever includes this has included a config.cuh that defines the constants of namespace cfg.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"

namespace plan {

// What starting and ending a tile costs, in keys; and the shortest run, in keys of a full tile.
constexpr int kOverheadKeys = 128;
constexpr int kLeastRunKeys = 256;

// Packed rows of a tile: a constant of a kernel that computes tiles; an argument of the plan pass, so that one kernel
// makes the schedules of all of them.
KJIT_DEVICE int rows_of_tile(const attention_serving_params &p) {
  return cfg::kAnyRows ? 1 << p.tile_shift : cfg::kRows;
}

// Tiles that hold so many packed rows, none or more.
KJIT_DEVICE int64_t tiles_for(const attention_serving_params &p, int64_t rows) {
  const int64_t most = rows + rows_of_tile(p) - 1;
  return cfg::kAnyRows ? most >> p.tile_shift : most / cfg::kRows;
}

// The sum over t < tiles of first + t * rows_of_tile(p), each cut to [0, most].
KJIT_DEVICE int64_t cut_sum(const attention_serving_params &p, int64_t tiles, int64_t first, int64_t most) {
  if (tiles == 1) return first < 0 ? 0 : first < most ? first : most; // as in decoding
  int64_t none = first >= 0 ? 0 : tiles_for(p, -first);               // tiles before: their term is 0
  int64_t full = most <= first ? 0 : tiles_for(p, most - first);      // tiles from here on: `most`
  none = none < tiles ? none : tiles;
  full = full < none ? none : full < tiles ? full : tiles;
  const int64_t sum = rows_of_tile(p) * (full * (full - 1) - none * (none - 1)) / 2;
  return (full - none) * first + sum + (tiles - full) * most;
}

KJIT_DEVICE int tiles_of(const attention_serving_params &p, const Sequence &s) {
  return (int)tiles_for(p, (int64_t)s.rows * p.group);
}

// Where tile `tile` of a sequence begins, counted from the sequence's first tile of the same head.
KJIT_DEVICE int64_t begin_of(const attention_serving_params &p, const Sequence &s, int tile) {
  const int64_t all = (int64_t)s.keys * p.group, off = s.keys - s.rows;
  int64_t seen = tile * all;
  if (p.window_right >= 0) seen = cut_sum(p, tile, (off + p.window_right + 1) * p.group + rows_of_tile(p) - 1, all);
  if (p.window_left >= 0) seen -= cut_sum(p, tile, (off - p.window_left) * p.group, all);
  return seen + (int64_t)tile * kOverheadKeys * p.group;
}

// The runs: how many, and how long.
struct Runs {
  int count;
  int parts; // above 0: all tiles are alike, and run r is part r % parts of tile r / parts; 0: runs lie on the line
  int64_t length;
};

// The costs of the next kThreads sequences, computed by all threads together. `cost` and `keys` are shared memory.
struct Chunk {
  int64_t cost[cfg::kThreads]; // of one head of the sequence
  int keys[cfg::kThreads];     // negative: the sequence has other than one tile
};
static_assert(sizeof(Chunk) == cfg::kPlanBytes, "a chunk has its place in shared memory");

KJIT_DEVICE int load_chunk(const attention_serving_params &p, Chunk &chunk, int first) {
  const int b = first + (int)threadIdx.x, left = p.batch - first;
  __syncthreads(); // everybody has read the chunk before
  if (b < p.batch) {
    const Sequence s = sequence_of(p, b);
    const int tiles = tiles_of(p, s);
    chunk.cost[threadIdx.x] = begin_of(p, s, tiles);
    chunk.keys[threadIdx.x] = tiles == 1 ? s.keys : tiles ? -1 - s.keys : -1;
  }
  __syncthreads();
  return left < cfg::kThreads ? left : cfg::kThreads;
}

// What the runs follow from: the sum of all costs, the most keys of a sequence, and the least and largest cost.
struct Totals {
  int64_t cost = 0, least = 0x7fffffffffffffff, most = 0;
  int keys = 0;
  int single = 1; // every sequence has one tile

  KJIT_DEVICE void add(const Totals &other) {
    cost += other.cost;
    least = other.least < least ? other.least : least;
    most = other.most > most ? other.most : most;
    keys = other.keys > keys ? other.keys : keys;
    single &= other.single;
  }
};

// A lane's value, for all lanes of a warp together.
KJIT_DEVICE int64_t value_of_lane(int64_t value, int lane) {
  const unsigned low = __shfl_sync(0xffffffffu, (unsigned)value, lane);
  const unsigned high = __shfl_sync(0xffffffffu, (unsigned)((uint64_t)value >> 32), lane);
  return (int64_t)((uint64_t)high << 32 | low);
}

// The lanes' totals together, for all of them.
KJIT_DEVICE Totals totals_of_warp(Totals totals) {
  const int lane = (int)threadIdx.x % kLanesPerWarp;
#pragma unroll
  for (int lanes = kLanesPerWarp / 2; lanes > 0; lanes /= 2) {
    Totals other;
    other.cost = value_of_lane(totals.cost, lane ^ lanes);
    other.least = value_of_lane(totals.least, lane ^ lanes);
    other.most = value_of_lane(totals.most, lane ^ lanes);
    other.keys = __shfl_xor_sync(0xffffffffu, totals.keys, lanes);
    other.single = __shfl_xor_sync(0xffffffffu, totals.single, lanes);
    totals.add(other);
  }
  return totals;
}

// The totals of a chunk. Every warp by itself, whose lanes take turns.
KJIT_DEVICE Totals totals_of(const Chunk &chunk, int loaded) {
  const int lane = (int)threadIdx.x % kLanesPerWarp;
  Totals totals;
  for (int i = lane; i < loaded; i += kLanesPerWarp) {
    const int keys = chunk.keys[i];
    Totals one;
    one.cost = one.least = one.most = chunk.cost[i];
    one.keys = keys < 0 ? -1 - keys : keys;
    one.single = keys >= 0;
    totals.add(one);
  }
  return totals_of_warp(totals);
}

// Tiles that are alike are cut into equal parts, so that no run lies in two of them, where this leaves at most a
// sixteenth of the runs without work, or where the parts could not be shorter. 0: they are not.
KJIT_DEVICE int parts_of(const attention_serving_params &p, const Totals &totals, int count) {
  const int64_t tiles = (int64_t)p.batch * p.heads_kv;
  if (!totals.single || totals.least != totals.most || tiles > count) return 0;
  int parts = count / (int)tiles;
  bool is_enough = parts * tiles * 16 >= (int64_t)count * 15;
  const int64_t shortest = (totals.most / p.group + kLeastRunKeys - 1) / kLeastRunKeys;
  if (parts >= shortest) {
    parts = shortest > 0 ? (int)shortest : 1;
    is_enough = true;
  }
  if (p.most_splits && parts >= p.most_splits) {
    parts = p.most_splits;
    is_enough = true;
  }
  return is_enough ? parts : 0;
}

KJIT_DEVICE Runs runs_of(const attention_serving_params &p, const Totals &totals, int count) {
  int64_t length = (totals.cost * p.heads_kv + count - 1) / count;
  const int64_t least = (int64_t)kLeastRunKeys * p.group;
  if (length < least) length = least;
  if (p.most_splits > 1) {
    // A tile of length w lies in at most w / length + 2 runs, one of which holds only its start.
    const int64_t longest = (int64_t)(totals.keys + kOverheadKeys) * p.group;
    const int64_t needed = (longest + p.most_splits - 2) / (p.most_splits - 1);
    if (length < needed) length = needed;
  }
  return {count, parts_of(p, totals, count), length};
}

// All threads of a block together; each gets the result.
KJIT_DEVICE Runs make_runs(const attention_serving_params &p, Chunk &chunk, int count) {
  Totals totals;
  for (int first = 0; first < p.batch; first += cfg::kThreads)
    totals.add(totals_of(chunk, load_chunk(p, chunk, first)));
  return runs_of(p, totals, count);
}

// The last tile of a sequence that does not begin behind `at`.
KJIT_DEVICE int tile_at(const attention_serving_params &p, const Sequence &s, int64_t at) {
  int low = 0, high = tiles_of(p, s) - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (begin_of(p, s, middle) <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// The first tile of run `number`, where tiles are alike.
KJIT_DEVICE attention_serving_run run_of_part(const attention_serving_params &p, const Runs &runs, int number) {
  const int tile = number / runs.parts;
  if (tile >= p.batch * p.heads_kv) return {p.batch, 0, 0, 0, 0};
  return {tile / p.heads_kv, tile % p.heads_kv, 0, 0, 0};
}

// The sequence of a chunk that holds position `at` of the line, which the chunk holds; `before` goes on from the
// chunk's begin to the sequence's. Every warp by itself, whose lanes look at 32 sequences together.
KJIT_DEVICE int sequence_at(const attention_serving_params &p, const Chunk &chunk, int loaded, int64_t at,
                            int64_t &before) {
  const int lane = (int)threadIdx.x % kLanesPerWarp;
  for (int first = 0;; first += kLanesPerWarp) {
    const int64_t cost = first + lane < loaded ? chunk.cost[first + lane] * p.heads_kv : 0;
    int64_t end = before + cost;
#pragma unroll
    for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
      const int64_t sum = value_of_lane(end, lane - distance) - before;
      if (lane >= distance) end += sum;
    }
    const unsigned behind = __ballot_sync(0xffffffffu, at < end);
    if (behind) {
      const int found = kLanesPerWarp - __popc(behind); // ends rise from lane to lane
      before = value_of_lane(end - cost, found);
      return first + found;
    }
    before = value_of_lane(end, kLanesPerWarp - 1);
  }
}

// The tile that holds position `at` of the line, after make_runs(), which has left the only chunk of a small batch. All
// threads of a block together; each gets the result.
KJIT_DEVICE attention_serving_run find_run(const attention_serving_params &p, Chunk &chunk, int64_t at) {
  int64_t before = 0;
  for (int first = 0; first < p.batch; first += cfg::kThreads) {
    const int loaded = p.batch <= cfg::kThreads ? p.batch : load_chunk(p, chunk, first);
    const int64_t all = totals_of(chunk, loaded).cost * p.heads_kv;
    if (at >= before + all) {
      before += all;
      continue;
    }
    const int i = sequence_at(p, chunk, loaded, at, before);
    const Sequence s = sequence_of(p, first + i);
    attention_serving_run run = {first + i, (int)((at - before) / chunk.cost[i]), 0, 0, 0};
    before += run.head * chunk.cost[i];
    run.tile = tile_at(p, s, at - before);
    run.begins = before + begin_of(p, s, run.tile);
    return run;
  }
  return {p.batch, 0, 0, 0, 0};
}

} // namespace plan
