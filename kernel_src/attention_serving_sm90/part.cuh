// Which part of which tile a block of threads of one_part.cuh computes. There are at most 64 sequences, each with one
// tile for each kRows rows of each key head, and no more tiles than blocks of threads.
//
// A tile's blocks of keys are divided among neighbouring blocks of threads. Where all sequences have equally many
// blocks of keys, every tile has the same number of parts; otherwise a search finds the shortest length of a part with
// which all parts fit into the grid. Every warp computes this by itself, with a lane for each sequence, or for
// each two neighbouring ones where there are more than 32, from the lengths, the config and the grid alone.
#pragma once
#include <kjit/ptx/cache_policy.cuh>
#include <kjit/ptx/global.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/one_part_params.h"

struct Part {
  int sequence, head, row_tile;
  int part, parts; // this block's, and of the tile
  int from, to;    // key blocks
  int keys;        // of the sequence
};

namespace parts {

constexpr int kLeast = ceil_div(128, cfg::kKeys); // blocks of keys of the shortest part

// Up to so many blocks of keys in a part, lines of L2 that are read once are the first to be replaced, so that what
// else L2 holds stays. On an H200 that gains 1 to 8 %; longer calls, which are of more than 270 MB there, lose 2 to 3,
// where L2 is full of lines that are to be written back, because these stay.
constexpr int kReadOnceBlocks = 32;
// Where a warpgroup of its own loads, the first blocks of a longer part or run replace such lines, and it is as if the
// others were of a short one, so that they leave page tables, Q and partial results in L2.
constexpr int kReplacingBlocks = 16;
// But a line of which a neighbouring head has the rest is read by that head's block of threads too.
constexpr int kLineBytes = 128;
constexpr bool kHasWholeLines =
    cfg::kHeadDim * cfg::kCacheBytes % kLineBytes == 0 && cfg::kHeadDimV * cfg::kCacheBytes % kLineBytes == 0;

// The policy of a part's loads: keys that one tile alone reads, in lines of their own, are read once in a call.
KJIT_DEVICE uint64_t policy_of(const attention_serving_one_part_params &p, const Part &part) {
  return kHasWholeLines && p.row_tiles == 1 && part.to - part.from <= kReadOnceBlocks ? kReadOnce : kReadOften;
}

// floor(a / b) for 0 <= a < 2^21 and b > 0. The compiler's exact division would be twenty instructions. Here the sum a
// + 0.5 keeps the quotient 0.5 / b away from a whole number, and __fdividef() is wrong by at most a / b * 2^-22.
KJIT_DEVICE int divide(int a, int b) {
  return (int)__fdividef((float)a + 0.5f, (float)b);
}

KJIT_DEVICE int divide_up(int a, int b) {
  return divide(a + b - 1, b);
}

KJIT_DEVICE int larger(int a, int b) {
  return a > b ? a : b;
}

KJIT_DEVICE int sum_of(int value) {
#pragma unroll 1
  for (int lanes = kLanesPerWarp / 2; lanes > 0; lanes /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, lanes);
  return value;
}

// Keys of a sequence; those behind the last one have the last one's.
KJIT_DEVICE int keys_of(const attention_serving_one_part_params &p, int sequence) {
  int keys = p.used_k ? p.used_k[sequence < p.batch ? sequence : p.batch - 1] : p.capacity;
  keys += p.rows_new;
  keys = keys < p.capacity ? keys : p.capacity;
  return keys > 0 ? keys : 0;
}

// The lane's neighbouring sequences, the first of which is lane * kEach.
template <int kEach> struct Own {
  int keys[kEach], blocks[kEach]; // blocks of keys
  int parts[kEach];               // of a tile; 0 where there is no sequence
};

// Make the parts with at most `most` blocks of keys. @return how many blocks of threads the lane's sequences need
template <int kEach>
KJIT_DEVICE int cut(const attention_serving_one_part_params &p, int lane, int most, Own<kEach> &own) {
  int all = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    own.parts[i] = lane * kEach + i < p.batch ? larger((own.blocks[i] + most - 1) / most, 1) : 0;
    all += own.parts[i];
  }
  return all * p.tiles;
}

// Sequences of different lengths: the shortest part, in key blocks.
template <int kEach>
KJIT_DEVICE int shortest_part(const attention_serving_one_part_params &p, int lane, Own<kEach> &own) {
  const int count = (int)gridDim.x, tiles = p.batch * p.tiles;
  int blocks = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++)
    if (lane * kEach + i < p.batch) blocks += own.blocks[i];
  const int all = sum_of(blocks) * p.tiles;
  int low = larger((all + count - 1) / count, kLeast);
  int high = larger(tiles < count ? (all + count - tiles - 1) / (count - tiles) : all, low);
#pragma unroll 1
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sum_of(cut(p, lane, middle, own)) <= count)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// A member of a lane's sequence `index`.
template <int kEach> KJIT_DEVICE int of_lane(const int (&own)[kEach], int lane, int index) {
  int value = __shfl_sync(0xffffffffu, own[0], lane);
#pragma unroll
  for (int i = 1; i < kEach; i++) {
    const int other = __shfl_sync(0xffffffffu, own[i], lane);
    if (index == i) value = other;
  }
  return value;
}

// The same for parts of different numbers: which tile has this block.
template <int kEach>
KJIT_DEVICE Part find_ragged(const attention_serving_one_part_params &p, int lane, Own<kEach> &own) {
  const int most = shortest_part(p, lane, own), width = cut(p, lane, most, own);
  int end = width;
#pragma unroll
  for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
    const int before = __shfl_sync(0xffffffffu, end, lane - distance);
    if (lane >= distance) end += before;
  }
  const int at = (int)blockIdx.x;
  const unsigned behind = __ballot_sync(0xffffffffu, at < end);
  if (!behind) return {};
  Part out;
  const int found = kLanesPerWarp - __popc(behind); // ends rise from lane to lane
  int within = at - __shfl_sync(0xffffffffu, end - width, found), index = 0;
#pragma unroll
  for (int i = 0; i + 1 < kEach; i++) {
    const int of_one = __shfl_sync(0xffffffffu, own.parts[i], found) * p.tiles;
    if (index == i && within >= of_one) {
      within -= of_one;
      index++;
    }
  }
  out.sequence = found * kEach + index;
  out.parts = of_lane(own.parts, found, index);
  out.keys = of_lane(own.keys, found, index);
  const int of_tile = of_lane(own.blocks, found, index);
  const int tile = within / out.parts;
  out.head = tile / p.row_tiles;
  out.row_tile = tile - out.head * p.row_tiles;
  out.part = within - tile * out.parts;
  out.from = out.part * most;
  out.to = out.part + 1 == out.parts ? of_tile : out.from + most;
  return out;
}

template <int kEach> KJIT_DEVICE Part find_among(const attention_serving_one_part_params &p, int lane) {
  Own<kEach> own;
  bool is_alike = true;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    own.keys[i] = keys_of(p, lane * kEach + i);
    own.blocks[i] = ceil_div(own.keys[i], cfg::kKeys);
  }
  const int blocks = __shfl_sync(0xffffffffu, own.blocks[0], 0);
#pragma unroll
  for (int i = 0; i < kEach; i++)
    is_alike = is_alike && own.blocks[i] == blocks;
  if (!__all_sync(0xffffffffu, is_alike)) return find_ragged(p, lane, own);
  const int length = larger(divide_up(blocks, p.runs_of_tile), kLeast), wanted = larger(divide_up(blocks, length), 1);
  Part out;
  out.parts = wanted < p.runs_of_tile ? wanted : p.runs_of_tile;
  const int tile = divide((int)blockIdx.x, out.parts);
  out.part = (int)blockIdx.x - tile * out.parts;
  out.sequence = divide(tile, p.tiles);
  const int of_sequence = tile - out.sequence * p.tiles;
  out.head = divide(of_sequence, p.row_tiles);
  out.row_tile = of_sequence - out.head * p.row_tiles;
  if (out.sequence >= p.batch) return {};
  out.keys = of_lane(own.keys, out.sequence / kEach, out.sequence % kEach);
  out.from = out.part * length;
  out.to = out.part + 1 == out.parts ? blocks : out.from + length;
  return out;
}

// All lanes of a warp. `parts` is 0 where the block of threads has nothing to do.
KJIT_DEVICE Part find(const attention_serving_one_part_params &p, int lane) {
  return __builtin_expect(p.batch > kLanesPerWarp, 0) ? find_among<2>(p, lane) : find_among<1>(p, lane);
}

// Have L2 fetch a small page table, all blocks of threads together, while the lengths are on their way.
KJIT_DEVICE void touch_table(const attention_serving_one_part_params &p, int lane) {
  constexpr int kLine = 32; // entries
  if (!p.page_table) return;
  const int at = (lane * (int)gridDim.x + (int)blockIdx.x) * kLine;
  if (at < (p.batch - 1) * p.page_table_stride + p.max_pages) prefetch_l2(p.page_table + at);
}

} // namespace parts
