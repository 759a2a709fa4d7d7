// The schedule: all work as one line, cut into runs of equal length, one for each block of threads.
//
// A tile is kRows packed rows of one (sequence, key head): row r of the pack is query r / group of query head r % group
// of the group. Tiles follow one another on the line, sequence by sequence, head by head. A tile is as long as the keys
// that its rows may see, times `group` so that no fraction is left, plus kOverheadKeys for starting and ending it; sums
// over the tiles of a sequence have a closed form. Block of threads c works on what lies in
// [c * length, (c + 1) * length): whole tiles, and at most one begun by another and one ended by another, whose keys
// are divided in proportion. So the balance is as good for one long sequence as for thousands of short ones, windows
// count with what they see, and the number of partial results is bounded by the blocks of threads, whatever the
// lengths.
//
// The cuts depend on lengths, config and card alone, never on the order in which blocks run. Kernels with equal rows of a
// tile cut alike. Whoever includes this has included a config.cuh that defines the constants of namespace cfg.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"

namespace plan {

// What starting and ending a tile costs, in keys; and the shortest run, in keys of a full tile.
constexpr int kOverheadKeys = 128;
constexpr int kLeastRunKeys = 256;

// The sum over t < tiles of first + t * kRows, each cut to [0, most].
KJIT_DEVICE int64_t cut_sum(int64_t tiles, int64_t first, int64_t most) {
  int64_t none = first >= 0 ? 0 : (-first + cfg::kRows - 1) / cfg::kRows;          // tiles before: their term is 0
  int64_t full = most <= first ? 0 : (most - first + cfg::kRows - 1) / cfg::kRows; // tiles from here on: `most`
  none = none < tiles ? none : tiles;
  full = full < none ? none : full < tiles ? full : tiles;
  return (full - none) * first + cfg::kRows * (full * (full - 1) - none * (none - 1)) / 2 + (tiles - full) * most;
}

KJIT_DEVICE int tiles_of(const attention_serving_params &p, const Sequence &s) {
  return (int)(((int64_t)s.rows * p.group + cfg::kRows - 1) / cfg::kRows);
}

// Where tile `tile` of a sequence begins, counted from the sequence's first tile of the same head.
KJIT_DEVICE int64_t begin_of(const attention_serving_params &p, const Sequence &s, int tile) {
  const int64_t all = (int64_t)s.keys * p.group, off = s.keys - s.rows;
  int64_t seen = tile * all;
  if (p.window_right >= 0) seen = cut_sum(tile, (off + p.window_right + 1) * p.group + cfg::kRows - 1, all);
  if (p.window_left >= 0) seen -= cut_sum(tile, (off - p.window_left) * p.group, all);
  return seen + (int64_t)tile * kOverheadKeys * p.group;
}

// The runs: how many, and how long.
struct Runs {
  int count;
  int64_t length;
};

// The costs of the next kThreads sequences, computed by all threads together. `cost` and `keys` are shared memory.
struct Chunk {
  int64_t cost[cfg::kThreads]; // of one head of the sequence
  int keys[cfg::kThreads];
};
static_assert(sizeof(Chunk) == cfg::kPlanBytes, "a chunk has its place in shared memory");

KJIT_DEVICE int load_chunk(const attention_serving_params &p, Chunk &chunk, int first) {
  const int b = first + (int)threadIdx.x, left = p.batch - first;
  __syncthreads(); // everybody has read the chunk before
  if (b < p.batch) {
    const Sequence s = sequence_of(p, b);
    chunk.cost[threadIdx.x] = begin_of(p, s, tiles_of(p, s));
    chunk.keys[threadIdx.x] = s.rows ? s.keys : 0;
  }
  __syncthreads();
  return left < cfg::kThreads ? left : cfg::kThreads;
}

// All threads of a block together; each gets the result.
KJIT_DEVICE Runs make_runs(const attention_serving_params &p, Chunk &chunk, int count) {
  int64_t total = 0;
  int most_keys = 0;
  for (int first = 0; first < p.batch; first += cfg::kThreads) {
    const int loaded = load_chunk(p, chunk, first);
    for (int i = 0; i < loaded; i++) {
      total += chunk.cost[i] * p.heads_kv;
      most_keys = most_keys > chunk.keys[i] ? most_keys : chunk.keys[i];
    }
  }
  int64_t length = (total + count - 1) / count;
  const int64_t least = (int64_t)kLeastRunKeys * p.group;
  if (length < least) length = least;
  if (p.most_splits > 1) {
    // A tile of length w lies in at most w / length + 2 runs, one of which holds only its start.
    const int64_t longest = (int64_t)(most_keys + kOverheadKeys) * p.group;
    const int64_t needed = (longest + p.most_splits - 2) / (p.most_splits - 1);
    if (length < needed) length = needed;
  }
  return {count, length};
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

// The tile that holds position `at` of the line, after make_runs(), which has left the only chunk of a small batch. All
// threads of a block together; each gets the result.
KJIT_DEVICE attention_serving_run find_run(const attention_serving_params &p, Chunk &chunk, int64_t at) {
  attention_serving_run run = {p.batch, 0, 0, 0, 0};
  int64_t before = 0;
  for (int first = 0; first < p.batch; first += cfg::kThreads) {
    const int loaded = p.batch <= cfg::kThreads ? p.batch : load_chunk(p, chunk, first);
    for (int i = 0; i < loaded; i++) {
      const int64_t cost = chunk.cost[i], all = cost * p.heads_kv;
      if (at >= before + all) {
        before += all;
        continue;
      }
      const Sequence s = sequence_of(p, first + i);
      run.sequence = first + i;
      run.head = (int)((at - before) / cost);
      before += run.head * cost;
      run.tile = tile_at(p, s, at - before);
      run.begins = before + begin_of(p, s, run.tile);
      return run;
    }
  }
  return run;
}

// The plan pass: write the schedule. One block of threads; each takes some of the runs.
KJIT_DEVICE void write(const attention_serving_params &p, Chunk &chunk, int count) {
  const Runs runs = make_runs(p, chunk, count);
  attention_serving_run *const to = (attention_serving_run *)(p.plan + 1);
  for (int i = (int)threadIdx.x; i < count; i += cfg::kThreads)
    to[i] = {p.batch, 0, 0, 0, 0};
  int64_t before = 0;
  int next = 0; // the first run that is not found yet: the same in all threads
  for (int first = 0; first < p.batch; first += cfg::kThreads) {
    const int loaded = load_chunk(p, chunk, first);
    for (int i = 0; i < loaded; i++) {
      const int64_t cost = chunk.cost[i], all = cost * p.heads_kv, after = before + all;
      const int64_t reached = (after + runs.length - 1) / runs.length; // runs that begin before `after`
      const int end = reached < count ? (int)reached : count;
      if (next + (int)threadIdx.x < end) {
        const Sequence s = sequence_of(p, first + i);
        for (int r = next + (int)threadIdx.x; r < end; r += cfg::kThreads) {
          const int64_t at = r * runs.length - before;
          const int head = (int)(at / cost), tile = tile_at(p, s, at - head * cost);
          to[r] = {first + i, head, tile, 0, before + head * cost + begin_of(p, s, tile)};
        }
      }
      next = end;
      before = after;
    }
  }
  if (threadIdx.x == 0) {
    p.plan->tag = p.plan_tag;
    p.plan->runs = count;
    p.plan->length = runs.length;
  }
}

} // namespace plan
