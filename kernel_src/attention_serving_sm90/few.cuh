// The runs of a batch of up to 1,024 sequences of one tile each, as those are that decode: made by one warp, which
// reads the lengths of 32 sequences together, a lane each.
//
// A block of threads then waits for one load from memory before it knows its work, instead of for a schedule and the
// lengths of the sequence that this names; and everything is counted in key blocks, in 32 bits, because code that is
// not in the instruction cache costs more than what it computes. A tile counts its key blocks and kOverhead for
// starting it.
//
//   1. Where tiles are few, each gets runs of its own, so that no run has a part of two tiles: all the blocks of
//      threads of a tile can then share the work of adding its parts up (slice_merge.cuh).
//   2. Otherwise all tiles follow one another on a line, sequence by sequence, head by head, which is cut into runs of
//      equal length, as in attention_serving/plan.cuh.
//
// The cuts depend on lengths, config and card alone.
#pragma once
#include <kjit/ptx/global.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"

#include "attention_serving/lengths.cuh"
#include "attention_serving/walk.cuh"

// All lanes of one warp, in all functions.
struct Few {
  static constexpr int kAtOnce = kLanesPerWarp;               // sequences: a chunk
  static constexpr int kMostSequences = kAtOnce * kAtOnce;    // a lane holds the sums of a chunk
  static constexpr int kOverhead = ceil_div(128, cfg::kKeys); // what starting a tile costs, in key blocks
  static constexpr int kLeast = ceil_div(128, cfg::kKeys);    // key blocks of the shortest run
  // By how many key blocks a run may be longer if it lies in one tile: adding up is done sooner then.
  static constexpr int kWorth = ceil_div(192, cfg::kKeys);
  // Bounds of key blocks, of one tile and of all, so that sums and products have 32 bits.
  static constexpr int kMostOfTile = 1 << 22, kMostOfAll = 1 << 30;

  const attention_serving_params &p;
  const int lane;
  const int alignment;  // keys: blocks begin at multiples of it
  bool divided = false; // tiles have runs of their own
  int length = 1;       // of a run: key blocks at most of one tile, or a distance on the line
  int of_chunk = 0;     // of the lane's chunk: the sum of its widths
  // The chunk that is held, and of the lane's sequence: what its rows see, key block 0's first key, key blocks.
  int chunk = 0;
  Sequence s = {};
  Seen keys = {}, all_see = {};
  int start = 0, blocks = 0;
  unsigned present = 0; // sequences that have a tile
  // The tile that the walk has come to.
  int sequence = 0, head = 0; // sequence: in the chunk
  int begins = 0;             // its first run, or its position on the line

  KJIT_DEVICE Few(const attention_serving_params &params, int lane, int alignment)
      : p(params), lane(lane), alignment(alignment) {}

  // Make the runs. @return false when the problem is not of this kind: the schedule of all batches is for it
  KJIT_DEVICE bool plan() {
    if (p.batch > kMostSequences) return false;
    touch_table();
    const int chunks = ceil_div(p.batch, kAtOnce);
    if (chunks > 1) touch();
    int of_all = 0, tiles = 0, tiles_of_chunk = 0;
    bool alike = true;
    int64_t bound = 0;
#pragma unroll 1
    for (int i = chunks - 1; i >= 0; i--) {
      hold(i);
      const bool fits = (int64_t)s.rows * p.group <= cfg::kRows && blocks < kMostOfTile;
      if (!__all_sync(0xffffffffu, fits)) return false;
      const int sum = sum_of(blocks), count = __popc(present);
      if (lane == i) {
        of_chunk = sum;
        tiles_of_chunk = count;
      }
      bound += sum;
      of_all += sum;
      tiles += count;
      const int of_first = __shfl_sync(0xffffffffu, blocks, 0);
      const bool is_alike = s.rows > 0 ? blocks == of_first : i * kAtOnce + lane >= p.batch;
      alike = alike && __all_sync(0xffffffffu, is_alike);
    }
    if ((bound + (int64_t)kOverhead * p.batch) * p.heads_kv > kMostOfAll) return false;
    alike = alike && of_all == p.batch * __shfl_sync(0xffffffffu, blocks, 0);
    cut(of_all * p.heads_kv, tiles * p.heads_kv, alike);
    if (!divided && p.most_splits > 0) return false;
    // With runs of their own, tiles of several chunks are alike.
    of_chunk = divided ? tiles_of_chunk * runs_of(__shfl_sync(0xffffffffu, blocks, 0), length)
                       : of_chunk + kOverhead * tiles_of_chunk;
    return true;
  }

  // Find this block's first tile. @return false when there is none
  KJIT_DEVICE bool find() {
    const int at = divided ? (int)blockIdx.x : (int)blockIdx.x * length;
    if (p.batch > kAtOnce) {
      const int found = locate(of_chunk * p.heads_kv, at);
      if (found == kAtOnce) return false;
      hold(found);
    }
    sequence = locate(width() * p.heads_kv, at);
    if (sequence == kAtOnce) return false;
    const int of_tile = of_sequence(width());
    head = (at - begins) / of_tile;
    begins += head * of_tile;
    return true;
  }

  // Go on to the next tile. @return false when it is behind the run's end
  KJIT_DEVICE bool move() {
    if (divided) return false;
    begins += of_sequence(width());
    if (begins >= run_end()) return false;
    if (++head < p.heads_kv) return true;
    head = 0;
    unsigned behind = sequence + 1 < kAtOnce ? present >> (sequence + 1) : 0;
    sequence++;
    while (!behind) {
      if ((chunk + 1) * kAtOnce >= p.batch) return false;
      hold(chunk + 1);
      behind = present;
      sequence = 0;
    }
    sequence += __popc(~behind & (behind - 1));
    return true;
  }

  // Describe the tile and the block's share of it. @return false when it has none
  KJIT_DEVICE bool describe(PlannedTile &tile, Share &share) const {
    tile.sequence = chunk * kAtOnce + sequence;
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
  KJIT_DEVICE bool ends() const {
    return divided || begins + of_sequence(width()) >= run_end();
  }

private:
  KJIT_DEVICE int of_sequence(int value) const {
    return __shfl_sync(0xffffffffu, value, sequence);
  }
  KJIT_DEVICE int run_end() const {
    return ((int)blockIdx.x + 1) * length;
  }

  KJIT_DEVICE static int sum_of(int value) {
#pragma unroll
    for (int lanes = kLanesPerWarp / 2; lanes > 0; lanes /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
  }

  // Have L2 fetch a small page table, all blocks of threads together, while the lengths are on their way: a block's
  // first pages are then looked up in L2.
  KJIT_DEVICE void touch_table() const {
    constexpr int kLine = 32; // entries
    if (!p.page_table || p.cache_index) return;
    const int64_t at = (int64_t)(lane * (int)gridDim.x + (int)blockIdx.x) * kLine;
    if (at < (p.batch - 1) * p.page_table_stride + p.max_pages) prefetch_l2(p.page_table + at);
  }

  // Ask for the lengths of all chunks at once: the lane for its chunk's.
  KJIT_DEVICE void touch() const {
    if (lane * kAtOnce >= p.batch) return;
    const int *const of_sequences[] = {p.used_k, p.used_q, p.cu_q, p.cu_k, p.cu_new, p.cache_index};
#pragma unroll
    for (int i = 0; i < 6; i++)
      if (of_sequences[i]) (void)*(const volatile int *)(of_sequences[i] + lane * kAtOnce);
  }

  // Hold a chunk: describe the lane's sequence.
  KJIT_DEVICE void hold(int number) {
    const int b = number * kAtOnce + lane;
    chunk = number;
    s = {};
    keys = all_see = {};
    start = blocks = 0;
    if (is_usual(p)) {
      if (b < p.batch) s = usual_sequence(p, b);
    } else if (b < p.batch) {
      s = sequence_of(p, b);
    }
    if (s.rows > 0) {
      // What a row sees begins and ends no earlier than what the row before it sees.
      const Seen first = seen_by(p, s, 0), last = seen_by(p, s, s.rows - 1);
      keys = {first.low, last.high};
      all_see = {last.low, first.high};
      start = keys.low & -alignment;
      if (keys.high > keys.low) blocks = ceil_div(keys.high - start, cfg::kKeys);
    }
    present = __ballot_sync(0xffffffffu, s.rows > 0);
  }

  // Runs of a tile of so many key blocks, each of at most `most`.
  KJIT_DEVICE int runs_of(int of_tile, int most) const {
    const int runs = of_tile > most ? (of_tile - 1) / most + 1 : 1;
    return p.most_splits > 0 ? smaller(runs, p.most_splits) : runs;
  }

  // Runs of the tile of the lane's sequence, or the length of the tile on the line; 0 when there is no tile.
  KJIT_DEVICE int width() const {
    if (s.rows == 0) return 0;
    return divided ? runs_of(blocks, length) : blocks + kOverhead;
  }

  // Choose between the two ways.
  KJIT_DEVICE void cut(int all, int tiles, bool alike) {
    const int count = (int)gridDim.x;
    length = (all + tiles * kOverhead + count - 1) / count;
    if (length < kLeast) length = kLeast;
    if (tiles > count || tiles == 0 || (p.batch > kAtOnce && !alike)) return;
    int low;
    if (alike) {
      const int runs = count / tiles, of_tile = __shfl_sync(0xffffffffu, blocks, 0);
      low = (of_tile + runs - 1) / runs;
      if (low < kLeast) low = kLeast;
    } else {
      low = least_most(all, tiles);
    }
    divided = p.most_splits > 0 || low <= length + kWorth;
    if (divided) length = low;
  }

  // The fewest key blocks a run with which the tiles need no more runs than there are; or more than are wanted.
  KJIT_DEVICE int least_most(int all, int tiles) const {
    const int count = (int)gridDim.x;
    int low = (all + count - 1) / count, high = tiles < count ? (all + count - tiles - 1) / (count - tiles) : all;
    if (low < kLeast) low = kLeast;
    if (p.most_splits == 0 && high > length + kWorth + 1) high = length + kWorth + 1;
#pragma unroll 1
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (sum_of(s.rows > 0 ? runs_of(blocks, middle) : 0) * p.heads_kv <= count)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  // The lane whose part of a line holds `at`, and where the part begins; all lanes together when the line ends before.
  KJIT_DEVICE int locate(int part, int at) {
    int end = part + begins;
#pragma unroll
    for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
      const int before = __shfl_sync(0xffffffffu, end, lane - distance) - begins;
      if (lane >= distance) end += before;
    }
    const unsigned behind = __ballot_sync(0xffffffffu, at < end);
    if (!behind) return kAtOnce;
    const int found = kLanesPerWarp - __popc(behind); // ends rise from lane to lane
    begins = __shfl_sync(0xffffffffu, end - part, found);
    return found;
  }

  KJIT_DEVICE Share share_of_runs(int tile_blocks) const {
    const int count = of_sequence(width()), part = (int)blockIdx.x - begins;
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
