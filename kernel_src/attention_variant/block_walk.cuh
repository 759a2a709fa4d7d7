// Which key blocks a tile visits: from row intervals (tile_ranges(), evaluated by the lanes of a warp) where the mask
// is an OR of intervals, else from lists that block_list.cu made. Without memory for lists these are all blocks that
// exist for the tile's last row, which sees the most keys where no mask is asked.
#pragma once
#include "attention_variant/hooks.cuh"

namespace variant {

// Key blocks first to end - 1, of which full_first to full_end - 1 are seen as a whole by all rows.
struct BlockRange {
  int first, end, full_first, full_end;
};

// The smallest value of a warp's lanes, in every lane.
KJIT_DEVICE int warp_min(int x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    x = smaller(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}

// The blocks of `key_rows` keys that a tile's rows see, one range for each interval. All lanes of a warp.
//   row_of(i)  the i-th of `rows` rows; exists(i) whether it does; keep(i, which, low, high) gets its bounds
template <int key_rows, typename RowOf, typename Exists, typename Keep>
KJIT_DEVICE void tile_ranges(BlockRange (&ranges)[kIntervals], const attention_variant_params &v, int rows, int lane,
                             RowOf row_of, Exists exists, Keep keep) {
  int lowest[kIntervals], highest[kIntervals], full_low[kIntervals], full_high[kIntervals];
#pragma unroll
  for (int which = 0; which < kIntervals; which++) {
    lowest[which] = full_high[which] = kManyKeys;
    highest[which] = full_low[which] = 0;
  }
#pragma unroll 2 // so that the loads of two rows are waited for together
  for (int i = lane; i < rows; i += kLanesPerWarp) {
    if (!exists(i)) {
#pragma unroll
      for (int which = 0; which < kIntervals; which++)
        keep(i, which, 0, 0);
      continue;
    }
    const Row row = row_of(i);
#pragma unroll
    for (int which = 0; which < kIntervals; which++) {
      int low, high;
      interval(v, row, which, low, high);
      keep(i, which, low, high);
      if (low < high) {
        lowest[which] = smaller(lowest[which], low);
        highest[which] = larger(highest[which], high);
      }
      full_low[which] = larger(full_low[which], low);
      full_high[which] = smaller(full_high[which], high);
    }
  }
#pragma unroll
  for (int which = 0; which < kIntervals; which++) {
    const int low = warp_min(lowest[which]), high = -warp_min(-highest[which]);
    const int full = -warp_min(-full_low[which]), full_end = warp_min(full_high[which]);
    BlockRange &range = ranges[which];
    range.first = low < high ? low / key_rows : 0;
    range.end = low < high ? (high + key_rows - 1) / key_rows : 0;
    range.full_first = (int)(((uint32_t)full + key_rows - 1) / key_rows);
    range.full_end = full_end < 0 ? 0 : full_end / key_rows;
  }
}

// Sort ranges by their ends, the largest first, and cut off what an earlier one covers, so that no block is in two.
KJIT_DEVICE void separate(BlockRange (&ranges)[kIntervals]) {
#pragma unroll
  for (int round = 0; round + 1 < kIntervals; round++)
#pragma unroll
    for (int i = 0; i + 1 < kIntervals; i++)
      if (ranges[i].end < ranges[i + 1].end) {
        const BlockRange later = ranges[i];
        ranges[i] = ranges[i + 1];
        ranges[i + 1] = later;
      }
#pragma unroll
  for (int i = 1; i < kIntervals; i++) {
    int floor = ranges[0].end > ranges[0].first ? ranges[0].first : kManyKeys;
#pragma unroll
    for (int j = 1; j < i; j++)
      if (ranges[j].end > ranges[j].first) floor = smaller(floor, ranges[j].first);
    ranges[i].end = smaller(ranges[i].end, floor);
  }
}

constexpr int kNoBlock = -1;

// The position that a walk visits first: 0, unless the score function's term has a peak (walk_order.cuh).
template <bool kHasPeak> struct WalkStart {
  KJIT_DEVICE void start_at(int) {}
  KJIT_DEVICE int start() const { return 0; }
};
template <> struct WalkStart<true> {
  int first_position = 0;

  KJIT_DEVICE void start_at(int position) { first_position = position; }
  KJIT_DEVICE int start() const { return first_position; }
};

// The key blocks of a tile, by their positions from the last to the first. An entry is as those of
// attention_block_lists are. There is always at least one, so that a tile that sees no key still writes zeros.
struct BlockWalk : WalkStart<kHasPeak> {
  BlockRange ranges[kIntervals];
  int first_entry = kNoBlock;   // of the tile's list; kNoBlock: its blocks are the ranges
  const int *entries = nullptr; // of all lists
  int count;                    // of entries
  int position;                 // of the next entry

  // Begin a tile. All lanes of a warp; `list` is the tile's list where there are any.
  template <int key_rows, typename RowOf, typename Exists>
  KJIT_DEVICE void begin(const attention_variant_params &v, int list, int rows, int lane, RowOf row_of, Exists exists) {
    begin<key_rows>(v, list, rows, lane, row_of, exists, [](int, int, int, int) {});
  }
  template <int key_rows, typename RowOf, typename Exists, typename Keep>
  KJIT_DEVICE void begin(const attention_variant_params &v, int list, int rows, int lane, RowOf row_of, Exists exists,
                         Keep keep) {
    position = 0;
    entries = v.lists.entries;
    first_entry = kNoBlock;
    if (kListed && v.lists.counts != nullptr) {
      begin_list(v, list, v.lists.counts[list]);
      return;
    }
    if constexpr (kJudged)
      ranges[0] = {0, (larger(row_of(rows - 1).limit, 0) + key_rows - 1) / key_rows, 0, 0};
    else
      tile_ranges<key_rows>(ranges, v, rows, lane, row_of, exists, keep);
    separate(ranges);
    count = 0;
#pragma unroll
    for (int i = 0; i < kIntervals; i++)
      count += larger(ranges[i].end - ranges[i].first, 0);
    if (count > 0) return;
    count = 1;
    ranges[0] = {0, 1, 0, 0};
  }

  // Begin a tile whose list has so many entries.
  KJIT_DEVICE void begin_list(const attention_variant_params &v, int list, int entries_of_list) {
    position = 0;
    entries = v.lists.entries;
    first_entry = list * v.lists.capacity;
    count = entries_of_list;
  }

  // The entry of a position below `count`.
  KJIT_DEVICE int entry(int at) const {
    if (kListed && first_entry >= 0) return entries[first_entry + at];
    int block = 0;
    bool found = false;
#pragma unroll
    for (int i = 0; i < kIntervals; i++) {
      const int length = larger(ranges[i].end - ranges[i].first, 0);
      if (!found && at < length) {
        block = ranges[i].end - 1 - at;
        found = true;
      }
      at -= length;
    }
    bool full = false;
#pragma unroll
    for (int i = 0; i < kIntervals; i++)
      full |= block >= ranges[i].full_first && block < ranges[i].full_end;
    return 2 * block + full;
  }

  // The next entry, or kNoBlock.
  KJIT_DEVICE int next() {
    return position < count ? entry(position++) : kNoBlock;
  }
};

} // namespace variant
