// The wideners: three warps beside the producer that make fp16 of what comes of a cache of e4m3, in the buffer that it
// comes to; fp16 holds each of e4m3's values.
//
// wgmma takes 8-bit operands only where both are, and V with its keys contiguous. So K and V are widened in shared
// memory. The producer loads them as it does a cache of 16 bits, two blocks ahead, but to an mbarrier of the wideners'
// ("landed", tile.cuh): half as many bytes, which lie at a buffer's end (cfg::Narrow); and so do the gatherers. The
// wideners follow in the order of the loads: a tile's Q, then of each key block K, and V of the block before it.
//
//   1. Q is converted, or clipped, as without wideners (converter.cuh, clipper.cuh).
//   2. A warp takes every third group of eight rows. It reads as many as it has registers for, then writes these. A
//      row's bytes lie where the same row's elements will, so that nobody else writes what a warp still has to read.
//   3. It fences what it wrote off from wgmma, and from TMA, which writes to the buffer next; one lane arrives at
//      "full", or each where gatherers write to the buffer next.
//
// Rows behind the sequence's last key become zeros in V: a probability of 0 times what a slot holds that was never
// written may be NaN. Scores of such keys are masked, so K may be anything.
#pragma once
#include <kjit/ptx/e4m3.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_prefill_sm90/clipper.cuh"
#include "attention_prefill_sm90/converter.cuh"
#include "attention_prefill_sm90/tile.cuh"

// Who makes Q ready.
template <bool kConverts> struct QueryHelper { using type = Clipper; };
template <> struct QueryHelper<true> { using type = Converter; };

// The groups of eight rows of a key block that each of the wideners has.
struct WidenerGroups {
  static constexpr int kAll = cfg::kKeyRows / PREFILL_PATTERN_ROWS;
  static constexpr int kOfWarp = (kAll + cfg::kHelpers - 1) / cfg::kHelpers;

  static KJIT_DEVICE int group(int warp, int i) { return i * cfg::kHelpers + warp; }

  // Does a warp have an i-th group? The first ones every warp has.
  static KJIT_DEVICE bool has(int warp, int i) {
    return (i + 1) * cfg::kHelpers <= kAll || (i < kOfWarp && group(warp, i) < kAll);
  }
};

// How a warp's part of a block is divided: a step is eight rows of 64 columns, 16 bytes a lane, and a warp has the
// steps of so many groups of eight rows in registers at once.
template <int kColumns> struct WidenerSteps {
  static constexpr int kBands = cfg::bands(kColumns);
  static constexpr int kMost = cfg::kGathers ? 4 : 8; // for which there are registers
  static constexpr int kRounds = (WidenerGroups::kOfWarp * kBands + kMost - 1) / kMost;
  static constexpr int kGroups = (WidenerGroups::kOfWarp + kRounds - 1) / kRounds;
};

struct Widener {
  using Query = typename QueryHelper<cfg::kConverts>::type;

  const RaggedLayout at;
  const int warp, lane; // of the wideners
  Ring<cfg::kStages> keys, values;

  KJIT_DEVICE void run() {
    Query query{at, warp, lane};
    RaggedTile tile = {};
    int pending = 0; // keys of the sequence from the first one of the block on whose V is still to be widened
    bool is_pending = false;
    while (query.wait(tile)) {
      query.make(tile);
      for (int block = tile.blocks.end - 1; block >= tile.blocks.first; block--) {
        widen_keys();
        if (is_pending) widen_values(pending);
        pending = tile.s.keys - block * cfg::kKeyRows;
        is_pending = true;
      }
      if (cfg::kQueryBuffers > 1) continue;
      widen_values(pending); // as the producer loads it
      is_pending = false;
    }
    query.pass(); // the consumers see that there is no further tile
    if (is_pending) widen_values(pending);
  }

private:
  KJIT_DEVICE void widen_keys() {
    mbarrier_wait_parity(at.keys_landed(keys.slot), keys.parity);
    widen<cfg::kHeadDim>(at.keys(keys.slot), cfg::kKeyRows);
    pass(at.keys_full(keys.slot));
    keys.advance();
  }

  // V of a block of which `count` keys are of the sequence.
  KJIT_DEVICE void widen_values(int count) {
    mbarrier_wait_parity(at.values_landed(values.slot), values.parity);
    widen<cfg::kHeadDimV>(at.values(values.slot), count);
    pass(at.values_full(values.slot));
    values.advance();
  }

  KJIT_DEVICE void pass(uint32_t full) const {
    fence_async_proxy();
    if constexpr (!cfg::kGathers) __syncwarp();
    mbarrier_arrive_if(full, cfg::kGathers || lane == 0);
  }

  // The row of a group of eight that a lane reads and writes, a quarter of 64 columns at a time. Eight lanes that do it
  // together have two rows, one of them odd and one even, one of them below 4 and one not. So they meet each bank once,
  // in what they read and in what they write.
  KJIT_DEVICE int own_row() const { return lane / 8 ^ (lane / 4 % 2 * 5); }

  // Widen this warp's rows of a block. Rows from `count` on become zeros.
  template <int kColumns> KJIT_DEVICE void widen(uint32_t shared, int count) const {
    constexpr int kAtOnce = WidenerSteps<kColumns>::kGroups;
    const uint32_t own = shared + warp * kPatternBytes + own_row() * cfg::kRowBytes;
    const uint32_t from = own + cfg::Narrow<kColumns>::kAt + ((lane % 4 ^ own_row()) << 4);
    const uint32_t to = own + ((lane % 4 * 2 ^ own_row()) << 4);
#pragma unroll
    for (int first = 0; first < WidenerGroups::kOfWarp; first += kAtOnce) {
      Chunk raw[kAtOnce][cfg::bands(kColumns)];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++)
        if (WidenerGroups::has(warp, first + i)) read_group(from, first + i, raw[i]);
      if (count < cfg::kKeyRows) clear(first, count, raw);
      __syncwarp(); // a row's other lanes have read what this one writes over
#pragma unroll
      for (int i = 0; i < kAtOnce; i++)
        if (WidenerGroups::has(warp, first + i)) write_group(to, first + i, raw[i]);
    }
  }

  static constexpr int kToNextGroup = cfg::kHelpers * kPatternBytes; // of a warp
  static constexpr int kToNextBand = cfg::kKeyRows * cfg::kRowBytes;

  // A band of 64 columns is half of a row of 128 bytes. The second half lies where the address has another bit.
  template <int kBands> static KJIT_DEVICE void read_group(uint32_t from, int i, Chunk (&raw)[kBands]) {
#pragma unroll
    for (int band = 0; band < kBands; band++)
      raw[band] = ld_shared_16((from ^ band % 2 * (cfg::kRowBytes / 2)) + i * kToNextGroup + band / 2 * kToNextBand);
  }

  template <int kBands> static KJIT_DEVICE void write_group(uint32_t to, int i, const Chunk (&raw)[kBands]) {
#pragma unroll
    for (int band = 0; band < kBands; band++)
      write(to, i * kToNextGroup + band * kToNextBand, raw[band]);
  }

  template <int kAtOnce, int kBands> KJIT_DEVICE void clear(int first, int count, Chunk (&raw)[kAtOnce][kBands]) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (WidenerGroups::group(warp, first + i) * PREFILL_PATTERN_ROWS + own_row() >= count) {
#pragma unroll
        for (int band = 0; band < kBands; band++)
          raw[i][band] = Chunk{};
      }
  }

  // Write 16 elements as two chunks, the second of which has another place in the swizzle's pattern.
  static KJIT_DEVICE void write(uint32_t to, int offset, const Chunk &narrow) {
    Chunk wide[2];
#pragma unroll
    for (int w = 0; w < 4; w++) {
      uint32_t low, high;
      widen_e4m3(narrow.word[w], low, high);
      wide[w / 2].word[w % 2 * 2] = low;
      wide[w / 2].word[w % 2 * 2 + 1] = high;
    }
    st_shared_16(to + offset, wide[0]);
    st_shared_16((to ^ kChunkBytes) + offset, wide[1]);
  }
};
