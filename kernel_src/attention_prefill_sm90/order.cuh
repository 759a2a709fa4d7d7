// The tile scheduler of ragged problems: in which order sequences are worked on, and which tile a number names.
//
// Two lists of sequences: those with few rows, which one consumer takes alone, and whose keys nobody else reads; and
// those with many. Memory limits the ones, products the others, so some blocks of threads begin with the one list, the
// others with the other, and a block of threads that is done with its list goes on with the other.
//
// Longest first: what is left when most blocks of threads have nothing more to do should be short. Sequences are sorted
// into classes of their cost, each a quarter of an octave wide, from the longest down; in a class they keep their
// order, so that all blocks of threads find the same one. Every block of threads sorts for itself, because that takes
// less time than waiting for another kernel would, and keeps the order in a part of global memory of its own.
//
// A sequence of the first list on many keys is divided into parts, of about half of what a block of threads has to do
// in all. The divided ones are those of classes above that of a part, so they are the first of their list, and a part's
// number is its place among the partial results too.
//
// Tiles have numbers: sequence after sequence in that order; in a sequence of many rows section after section, which
// are heads whose K and V fit L2 together; in a section the last queries first, which under a causal mask see the most
// keys. Blocks of threads take numbers from a counter of the list, so a number that a block takes is above those that
// it had before, and the walk along the sequences goes forward alone.
#pragma once
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_prefill_sm90/tile.cuh"

namespace order {

enum { kMany, kFew, kLists };

constexpr int kListClasses = 64;
constexpr int kClasses = kLists * kListClasses;
constexpr int kLeastPart = 4;  // key blocks: less is not worth a partial result
constexpr int kMostParts = 64; // that one warp adds up, and that RaggedTile::part() can tell
constexpr int kManyWeight = 2; // what a key block costs with many rows, where it costs 1 with few

// How many sequences of each class every warp has; then where in the order its next one goes.
struct Places {
  int of[cfg::kWarps][kClasses];
  float cost[cfg::kWarps][kLists]; // key blocks of all tiles
  int many, listed;                // sequences that have many rows; all that have rows
};
static_assert(sizeof(Places) + kClasses * sizeof(int) <= shared::kEntriesAt, "the places lie where the tiles will");

KJIT_DEVICE int tiles_of_head(const Sequence &s) {
  return (s.rows + cfg::kTileQueries - 1) / cfg::kTileQueries;
}

// Do all rows that share a key head lie in one consumer's tile? With kFew a tile has all query heads of a key head.
KJIT_DEVICE bool has_few_rows(const Sequence &s) {
  return cfg::kFew && s.rows <= cfg::kConsumerQueries;
}

// The class of so many key blocks, the higher the more, plus a block for starting a tile. Of a float's bits the
// exponent and the two below them are four classes an octave, from 1.0 on.
KJIT_DEVICE int quarters_of(int blocks) {
  const int quarters = (int)(__float_as_uint((float)(blocks + 1)) >> 21) - (127 << 2);
  return smaller(quarters, kListClasses - 1);
}

KJIT_DEVICE int count_blocks(const attention_serving_params &p, RaggedTile &tile, int query_tile) {
  tile.query_tile = query_tile;
  const KeyBlocks blocks = key_blocks_of_rows(p, tile);
  return blocks.end - blocks.first;
}

// The class of a sequence, 0 being the one with the longest tiles of all with many rows; -1 without rows. What its
// tiles cost is added to its list's cost: as if tiles grew evenly from the first to the last.
KJIT_DEVICE int class_of(const attention_prefill_params &p, int b, float (&cost)[kLists]) {
  if (b >= p.serving.batch) return -1;
  RaggedTile tile;
  tile.s = sequence_of(p.serving, b);
  if (tile.s.rows == 0) return -1;
  const int tiles = tiles_of_head(tile.s), list = has_few_rows(tile.s) ? kFew : kMany;
  const int last = count_blocks(p.serving, tile, tiles - 1);
  if (!cfg::kFew) return kListClasses - 1 - quarters_of(last);
  const int first = count_blocks(p.serving, tile, 0);
  const float added = 0.5f * (float)(first + last) * (float)tiles * (float)p.base.heads;
  cost[kFew] += list == kFew ? added : 0.0f;
  cost[kMany] += list == kFew ? 0.0f : added;
  return list * kListClasses + kListClasses - 1 - quarters_of(last);
}

// The sum over the warp's lanes, in all lanes.
KJIT_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int distance = kLanesPerWarp / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
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
KJIT_DEVICE void advance_places(const attention_prefill_params &p, int (&places)[kClasses], int warp,
                                float (&cost)[kLists], Visit visit) {
  const int groups = (p.serving.batch + kLanesPerWarp - 1) / kLanesPerWarp, lane = (int)threadIdx.x % kLanesPerWarp;
  const int each = (groups + cfg::kWarps - 1) / cfg::kWarps;
  const int end = smaller((warp + 1) * each, groups);
  for (int group = warp * each; group < end; group++) {
    const int b = group * kLanesPerWarp + lane, of_lane = class_of(p, b, cost);
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
  if (own == kListClasses - 1) places.many = at;
  if (own == kClasses - 1) places.listed = at;
}

// What all warps of a block know of the work, and all blocks alike.
struct Lists {
  int many, listed;  // places of the order: many rows below `many`, few from there on
  int part;          // key blocks of a part; 0: no tile is divided
  int few_beginners; // blocks of threads that begin with few rows: the first ones
};

// All tiles of few rows together, without the key blocks that are added by rounding, have fewer parts than there are
// slots: a part is at least the cost of the list by two parts for each block of threads, and a tile has at most half a
// part more than it has whole ones.
KJIT_DEVICE Lists lists_of(const attention_prefill_params &p, const Places &places) {
  if (!cfg::kFew) return {places.listed, places.listed, 0, 0};
  float many = 0.0f, few = 0.0f;
  for (int w = 0; w < cfg::kWarps; w++) {
    many += places.cost[w][kMany];
    few += places.cost[w][kFew];
  }
  const int blocks = (int)gridDim.x;
  const float all = few + kManyWeight * many;
  const int part = (int)(all / (float)(2 * blocks)) + 1;
  Lists lists = {places.many, places.listed, p.serving.most_splits == 1 ? 0 : part < kLeastPart ? kLeastPart : part, 0};
  if (places.many == places.listed) return lists;
  // Half of the card reads memory as fast as all of it.
  const int wanted = (int)((float)blocks * few / all) + 1, most = places.many == 0 ? blocks : blocks / 2;
  lists.few_beginners = smaller(wanted, most);
  return lists;
}

// Write the order of the sequences that have rows to `order`. All threads of the block; `memory` is shared memory that
// TMA will write afterwards.
KJIT_DEVICE Lists write(const attention_prefill_params &p, char *memory, int *order) {
  Places &places = *(Places *)memory;
  int(&totals)[kClasses] = *(int(*)[kClasses])(memory + sizeof(Places));
  const int thread = (int)threadIdx.x, warp = thread / kLanesPerWarp;
  for (int i = thread; i < cfg::kWarps * kClasses; i += cfg::kLaunchThreads)
    (&places.of[0][0])[i] = 0;
  __syncthreads(); // the counts are zero
  float cost[kLists] = {0.0f, 0.0f};
  advance_places(p, places.of[warp], warp, cost, [](int, int) {});
#pragma unroll
  for (int list = 0; list < (cfg::kFew ? kLists : 0); list++) {
    const float sum = warp_sum(cost[list]);
    if (thread % kLanesPerWarp == 0) places.cost[warp][list] = sum;
  }
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
  advance_places(p, places.of[warp], warp, cost, [&](int b, int at) { order[at] = b; });
  const Lists lists = lists_of(p, places);
  fence_async_proxy();
  __syncthreads(); // the order is written, and nobody needs this memory any more
  return lists;
}

// The walk along a list. All lanes of one warp; each holds a sequence.
struct Walk {
  const attention_prefill_params &p;
  const int *order;
  const Lists lists;
  const int lane;
  int list;               // the list that is walked along
  int next;               // place in the order of the next sequences to hold
  int sequence = 0;       // of this lane
  Sequence s = {};        // of this lane
  int parts = 1;          // of each of its tiles
  int begin = 0, end = 0; // numbers of its tiles
  int group_end = 0;      // number behind those of all lanes

  KJIT_DEVICE Walk(const attention_prefill_params &params, const int *order, Lists lists, int lane)
      : p(params), order(order), lists(lists), lane(lane) {
    begin_with(cfg::kFew && (int)blockIdx.x < lists.few_beginners ? kFew : kMany);
  }

  KJIT_DEVICE void begin_with(int which) {
    list = which;
    next = which == kFew ? lists.many : 0;
    group_end = 0;
  }

  // The first numbers of a list are those of the blocks of threads that begin with it; the counter's come behind.
  KJIT_DEVICE int own_number() const { return (int)blockIdx.x - (list == kFew ? 0 : lists.few_beginners); }
  KJIT_DEVICE int number_of(int counted) const {
    return counted + (list == kFew ? lists.few_beginners : (int)gridDim.x - lists.few_beginners);
  }

  // The tile of a number, which is above all before it. @return false when the list has none
  KJIT_DEVICE bool find(int number, RaggedTile &tile) {
    const int list_end = list == kFew ? lists.listed : lists.many;
    while (number >= group_end) {
      if (next >= list_end) return false;
      hold_next(list_end);
    }
    // Ends rise from lane to lane, so the lanes whose tiles come before this one are the first ones.
    const int from = __popc(__ballot_sync(0xffffffffu, end <= number));
    tile.batch = __shfl_sync(0xffffffffu, sequence, from);
    tile.s.rows = __shfl_sync(0xffffffffu, s.rows, from);
    tile.s.keys = __shfl_sync(0xffffffffu, s.keys, from);
    tile.s.first_row = __shfl_sync(0xffffffffu, s.first_row, from);
    tile.s.cache_row = __shfl_sync(0xffffffffu, s.cache_row, from);
    tile.s.first_slot = __shfl_sync(0xffffffffu, s.first_slot, from);
    const int begins = __shfl_sync(0xffffffffu, begin, from);
    tile.split = RaggedTile::kWhole;
    tile.streams = list == kFew;
    if (list == kFew) {
      place_part(number, begins, __shfl_sync(0xffffffffu, parts, from), tile);
    } else {
      place(number - begins, tile);
      tile.blocks = key_blocks_of_rows(p.serving, tile);
    }
    return true;
  }

private:
  // How many parts a tile of few rows has.
  KJIT_DEVICE int parts_of(const Sequence &of) const {
    RaggedTile tile;
    tile.s = of;
    const int blocks = count_blocks(p.serving, tile, 0);
    if (lists.part == 0 || quarters_of(blocks) <= quarters_of(lists.part)) return 1;
    const int wanted = smaller((blocks + lists.part / 2) / lists.part, kMostParts);
    return p.serving.most_splits > 0 ? smaller(wanted, p.serving.most_splits) : wanted;
  }

  // Hold the next 32 sequences of the list.
  KJIT_DEVICE void hold_next(int list_end) {
    const bool exists = next + lane < list_end;
    int tiles = 0;
    if (exists) {
      sequence = order[next + lane];
      s = sequence_of(p.serving, sequence);
      parts = list == kFew ? parts_of(s) : 1;
      tiles = (list == kFew ? parts : tiles_of_head(s)) * p.base.heads;
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

  // Head, part and key blocks of a tile of few rows, whose sequence's numbers begin at `begins`.
  KJIT_DEVICE void place_part(int number, int begins, int of_parts, RaggedTile &tile) const {
    tile.query_tile = 0;
    tile.head = (number - begins) / of_parts;
    tile.set_owner(tile.head * cfg::kPackGqa);
    const int part = number - begins - tile.head * of_parts;
    if (of_parts > 1) tile.divide(of_parts, part, number - part);
    const KeyBlocks all = key_blocks_of_rows(p.serving, tile);
    const int64_t count = all.end - all.first;
    tile.blocks = {all.first + (int)(count * part / of_parts), all.first + (int)(count * (part + 1) / of_parts)};
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
    tile.set_owner(head.key_head * p.base.group + head.in_gqa_group);
  }
};

} // namespace order
