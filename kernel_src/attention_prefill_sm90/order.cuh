// The tile scheduler of ragged problems: in which order sequences are worked on, and which tile a number names.
//
// Longest first: what is left when most blocks of threads have nothing more to do should be short. Sequences are sorted
// into classes of their cost, each a quarter of an octave wide, from the longest down; in a class they keep their
// order, so that all blocks of threads find the same one. Every block of threads sorts for itself, because that takes
// less time than waiting for another kernel would, and keeps the order in a part of global memory of its own.
//
// Tiles have numbers: sequence after sequence in that order; in a sequence section after section, which are heads whose
// K and V fit L2 together; in a section the last queries first, which under a causal mask see the most keys. Blocks of
// threads take numbers from a counter, so a number that a block takes is above those that it had before, and the walk
// along the sequences goes forward alone.
#pragma once
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_prefill_sm90/tile.cuh"

namespace order {

constexpr int kClasses = 128;

// How many sequences of each class every warp has; then where in the order its next one goes.
struct Places {
  int of[cfg::kWarps][kClasses];
  int listed; // sequences that have rows
};
static_assert(sizeof(Places) + kClasses * sizeof(int) <= shared::kEntriesAt, "the places lie where the tiles will");

KJIT_DEVICE int tiles_of_head(const Sequence &s) {
  return (s.rows + cfg::kTileQueries - 1) / cfg::kTileQueries;
}

// The class of a sequence, 0 being the longest; -1 for one without rows. Its cost is that of its longest tile, plus a
// block for starting it.
KJIT_DEVICE int class_of(const attention_serving_params &p, int b) {
  if (b >= p.batch) return -1;
  RaggedTile tile;
  tile.s = sequence_of(p, b);
  if (tile.s.rows == 0) return -1;
  tile.query_tile = tiles_of_head(tile.s) - 1;
  const KeyBlocks blocks = key_blocks_of_rows(p, tile);
  // Of a float's bits the exponent and the two below them are four classes an octave, from 1.0 on.
  const int quarters = (int)(__float_as_uint((float)(blocks.end - blocks.first + 1)) >> 21) - (127 << 2);
  return kClasses - 1 - smaller(quarters, kClasses - 1);
}

// The lanes whose class is this lane's.
KJIT_DEVICE unsigned lanes_alike(int of_lane) {
  unsigned alike = 0xffffffffu;
#pragma unroll
  for (int bit = 0; bit < 8; bit++) {
    const unsigned set = __ballot_sync(0xffffffffu, of_lane >> bit & 1);
    alike &= of_lane >> bit & 1 ? set : ~set;
  }
  return alike;
}

// Go through the sequences of this warp, a contiguous part of all, 32 at a time. Among those of one class the first
// lane advances the class's place by their number; visit(b, at) receives a lane's sequence, if it has rows, and its
// place.
template <typename Visit>
KJIT_DEVICE void advance_places(const attention_serving_params &p, int (&places)[kClasses], int warp, Visit visit) {
  const int groups = (p.batch + kLanesPerWarp - 1) / kLanesPerWarp, lane = (int)threadIdx.x % kLanesPerWarp;
  const int each = (groups + cfg::kWarps - 1) / cfg::kWarps;
  const int end = smaller((warp + 1) * each, groups);
  for (int group = warp * each; group < end; group++) {
    const int b = group * kLanesPerWarp + lane, of_lane = class_of(p, b);
    const unsigned alike = lanes_alike(of_lane), before = alike & ((1u << lane) - 1);
    int at = 0;
    if (of_lane >= 0) at = places[of_lane];
    __syncwarp(); // every lane has its class's place
    if (of_lane >= 0 && before == 0) places[of_lane] = at + __popc(alike);
    if (of_lane >= 0) visit(b, at + __popc(before));
    __syncwarp(); // the next sequences find the new places
  }
}

// Turn counts into places: class after class, and in a class warp after warp. The first kClasses threads.
KJIT_DEVICE void place_classes(Places &places, const int (&totals)[kClasses]) {
  const int own = (int)threadIdx.x;
  int at = 0;
  for (int i = 0; i < own; i++)
    at += totals[i];
  for (int w = 0; w < cfg::kWarps; w++) {
    const int count = places.of[w][own];
    places.of[w][own] = at;
    at += count;
  }
  if (own == kClasses - 1) places.listed = at;
}

// Write the order of the sequences that have rows to `order`. All threads of the block; `memory` is shared memory that
// TMA will write afterwards. @return how many sequences there are
KJIT_DEVICE int write(const attention_serving_params &p, char *memory, int *order) {
  Places &places = *(Places *)memory;
  int(&totals)[kClasses] = *(int(*)[kClasses])(memory + sizeof(Places));
  const int thread = (int)threadIdx.x, warp = thread / kLanesPerWarp;
  for (int i = thread; i < cfg::kWarps * kClasses; i += cfg::kThreads)
    (&places.of[0][0])[i] = 0;
  __syncthreads(); // the counts are zero
  advance_places(p, places.of[warp], warp, [](int, int) {});
  __syncthreads(); // all sequences are counted
  if (thread < kClasses) {
    int total = 0;
    for (int w = 0; w < cfg::kWarps; w++)
      total += places.of[w][thread];
    totals[thread] = total;
  }
  __syncthreads(); // the totals are known
  if (thread < kClasses) place_classes(places, totals);
  __syncthreads(); // the places are known
  advance_places(p, places.of[warp], warp, [&](int b, int at) { order[at] = b; });
  const int listed = places.listed;
  fence_async_proxy();
  __syncthreads(); // the order is written, and nobody needs this memory any more
  return listed;
}

// The walk along the order. All lanes of one warp; each holds a sequence.
struct Walk {
  const attention_prefill_params &p;
  const int *order;
  const int listed, lane;
  int next = 0;           // place in the order of the next sequences to hold
  int sequence = 0;       // of this lane
  Sequence s = {};        // of this lane
  int begin = 0, end = 0; // numbers of its tiles
  int group_end = 0;      // number behind those of all lanes

  KJIT_DEVICE Walk(const attention_prefill_params &params, const int *order, int listed, int lane)
      : p(params), order(order), listed(listed), lane(lane) {}

  // The tile of a number, which is above all before it. @return false when there is none
  KJIT_DEVICE bool find(int number, RaggedTile &tile) {
    while (number >= group_end) {
      if (next >= listed) return false;
      hold_next();
    }
    // Ends rise from lane to lane, so the lanes whose tiles come before this one are the first ones.
    const int from = __popc(__ballot_sync(0xffffffffu, end <= number));
    tile.batch = __shfl_sync(0xffffffffu, sequence, from);
    tile.s.rows = __shfl_sync(0xffffffffu, s.rows, from);
    tile.s.keys = __shfl_sync(0xffffffffu, s.keys, from);
    tile.s.first_row = __shfl_sync(0xffffffffu, s.first_row, from);
    tile.s.cache_row = __shfl_sync(0xffffffffu, s.cache_row, from);
    tile.s.first_slot = __shfl_sync(0xffffffffu, s.first_slot, from);
    place(number - __shfl_sync(0xffffffffu, begin, from), tile);
    tile.blocks = key_blocks_of_rows(p.serving, tile);
    return true;
  }

private:
  // Hold the next 32 sequences of the order.
  KJIT_DEVICE void hold_next() {
    const bool exists = next + lane < listed;
    int tiles = 0;
    if (exists) {
      sequence = order[next + lane];
      s = sequence_of(p.serving, sequence);
      tiles = tiles_of_head(s) * p.base.heads;
    }
    int sum = tiles;
#pragma unroll
    for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
      const int before = __shfl_sync(0xffffffffu, sum, lane - distance);
      if (lane >= distance) sum += before;
    }
    end = group_end + sum;
    begin = end - tiles;
    group_end = __shfl_sync(0xffffffffu, end, kLanesPerWarp - 1);
    next += kLanesPerWarp;
  }

  // Query tile and heads of a sequence's `index`-th tile.
  KJIT_DEVICE void place(int index, RaggedTile &tile) const {
    const int tiles = tiles_of_head(tile.s), heads = p.base.heads;
    const int key_heads = p.l2_keys / (tile.s.keys > 0 ? tile.s.keys : 1);
    const int wanted = key_heads < heads ? key_heads * p.base.heads_per_kv : heads;
    const int section = wanted < p.base.heads_per_kv ? p.base.heads_per_kv : smaller(wanted, heads);
    const int first = index / (section * tiles) * section, in_section = index % (section * tiles);
    const int width = smaller(heads - first, section);
    tile.query_tile = tiles - 1 - in_section / width;
    tile.head = first + in_section % width;
    const GqaHead head = gqa_head(p.base, tile, 0);
    tile.query_head = head.key_head * p.base.group + head.in_gqa_group;
  }
};

} // namespace order
