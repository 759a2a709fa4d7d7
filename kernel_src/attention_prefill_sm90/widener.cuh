// The wideners: a warpgroup that loads K and V of e4m3, of a cache with or without pages, and writes them to shared
// memory in fp16, which holds each of their values, as TMA would have done with a cache of 16 bits.
//
// wgmma takes 8-bit operands only where both are, and V with its keys contiguous. So the elements are widened in
// registers, between global and shared memory, through which they pass once.
//
// The warps load every key block together (row_walk.cuh). A step is 8 rows of 64 columns, which are the pattern of the
// swizzle: four lanes load the 64 bytes of a row, 16 each, and write 32, so that lanes that write together meet each
// bank once. kDepth steps are on their way in registers: what a step held is written, and the step that is as far
// behind it is asked for, be it of the same K, of the V that follows, or of the next block's K. The order is K and V of
// a tile's blocks from the last to the first; so the consumers have what they wait for, which is K of a block and V of
// the one before it, and a tile ends with its own V before the next one is waited for, except that loads of its K are
// on their way.
//
// Whoever has written a block fences it off from wgmma and arrives at "full", one lane for each warp. Rows behind the
// sequence's last key are written as zeros, so the clipper has nothing to do with V.
#pragma once
#include <kjit/ptx/e4m3.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_prefill_sm90/row_walk.cuh"

// The most of up to 8 steps that divide those of K and of V, so that each has a place of its own in registers.
__device__ constexpr int steps_ahead(int of_keys, int of_values) {
  int depth = 8;
  while (of_keys % depth || of_values % depth)
    depth--;
  return depth;
}

struct Widener : RowWalk {
  static constexpr int kStepRows = PREFILL_PATTERN_ROWS, kRowLanes = kLanesPerWarp / kStepRows;
  static constexpr int kGroups = kWarpRows / kStepRows;
  template <bool kIsKeys> static constexpr int kColumns = kIsKeys ? cfg::kHeadDim : cfg::kHeadDimV;
  template <bool kIsKeys> static constexpr int kBands = cfg::bands(kColumns<kIsKeys>);
  template <bool kIsKeys> static constexpr int kSteps = kGroups *kBands<kIsKeys>;

  static constexpr int kDepth = steps_ahead(kSteps<true>, kSteps<false>); // steps on their way

  Ring<cfg::kStages> keys, values;
  Chunk raw[kDepth];

  // K or V of a key block, of which each lane knows some rows.
  struct Source {
    const char *rows[kLaneRows];
    int count; // of the warp's rows those in front of the sequence's end; 0 or less: there are none
  };

  KJIT_DEVICE void run() {
    RaggedTile tile = {};
    bool exists = next_tile(tile);
    int block = tile.blocks.end - 1;
    Source k = {};
    Rows rows = {};
    if (exists) rows = look_up(tile, block);
    if (exists) k = begin(tile, block, rows);
    while (exists) {
      const bool is_last = block == tile.blocks.first;
      Rows ahead = {};
      if (!is_last) ahead = look_up(tile, block - 1);
      const Source v = source<false>(tile, block, rows);
      widen<true>(k, v);
      if (is_last && !cfg::kOverlapsTiles) { // the next tile is known when this one's last V has been multiplied
        widen<false>(v, Source{});
        exists = next_tile(tile);
        if (exists) rows = look_up(tile, block = tile.blocks.end - 1);
        if (exists) k = begin(tile, block, rows);
        continue;
      }
      if (is_last) exists = next_tile(tile);
      block = is_last ? tile.blocks.end - 1 : block - 1;
      if (is_last && exists) ahead = look_up(tile, block);
      rows = ahead;
      k = exists ? source<true>(tile, block, rows) : Source{};
      widen<false>(v, k);
    }
  }

private:
  template <bool kIsKeys> KJIT_DEVICE Source source(const RaggedTile &tile, int block, const Rows &rows) const {
    const attention_serving_params &v = p.serving;
    const attention_serving_strides &stride = kIsKeys ? v.k_stride : v.v_stride;
    const int64_t head = tile.query_head() / v.group * (int64_t)stride.head;
    Source source;
    source.count = tile.s.keys - block * cfg::kKeyRows - warp * kWarpRows;
#pragma unroll
    for (int i = 0; i < kLaneRows; i++)
      source.rows[i] = (const char *)(kIsKeys ? v.k : v.v) + head + rows.page[i] * (int64_t)stride.batch +
                       rows.in_page[i] * (int64_t)stride.seq;
    return source;
  }

  // Ask for the first steps of a tile's first K, when nothing else is on its way.
  KJIT_DEVICE Source begin(const RaggedTile &tile, int block, const Rows &rows) {
    const Source k = source<true>(tile, block, rows);
#pragma unroll
    for (int step = 0; step < kDepth; step++)
      raw[step] = read<true>(k, step);
    return k;
  }

  // The lane's 16 bytes of a step; zeros where there is no key or no column.
  template <bool kIsKeys> KJIT_DEVICE Chunk read(const Source &from, int step) const {
    const int group = step / kBands<kIsKeys>, row = group * kStepRows + lane / kRowLanes;
    const int column = step % kBands<kIsKeys> * SM90_CHUNK_COLUMNS + lane % kRowLanes * kChunkBytes;
    const char *const to_row = shuffle(from.rows[group * kStepRows / kLanesPerWarp], row % kLanesPerWarp);
    if (row >= from.count || column >= kColumns<kIsKeys>) return Chunk{};
    return ld_global_nc_16(to_row + column);
  }

  // Write this warp's rows of a key block, once the block's buffer is empty, and ask for as many steps of what follows:
  // of V behind K, of K behind V.
  template <bool kIsKeys> KJIT_DEVICE void widen(const Source &own, const Source &next) {
    Ring<cfg::kStages> &ring = kIsKeys ? keys : values;
    const int row = warp * kWarpRows + lane / kRowLanes, chunk = lane % kRowLanes * 2 ^ lane / kRowLanes;
    const uint32_t to = (kIsKeys ? at.keys(ring.slot) : at.values(ring.slot)) + row * cfg::kRowBytes + (chunk << 4);
    const uint32_t empty = kIsKeys ? at.keys_empty(ring.slot) : at.values_empty(ring.slot);
    mbarrier_wait_parity(empty, ring.parity ^ 1);
    __syncwarp();
#pragma unroll
    for (int step = 0; step < kSteps<kIsKeys>; step++) {
      const int group = step / kBands<kIsKeys>, band = step % kBands<kIsKeys>, ahead = step + kDepth;
      write(to + band * cfg::kKeyRows * cfg::kRowBytes + group * cfg::kPatternBytes, raw[step % kDepth]);
      raw[step % kDepth] =
          ahead < kSteps<kIsKeys> ? read<kIsKeys>(own, ahead) : read<!kIsKeys>(next, ahead - kSteps<kIsKeys>);
      // A wait that is over: without it ptxas asks for nothing before most of the block is written.
      if (step == kSteps<kIsKeys> / 2 - 1) mbarrier_wait_parity(empty, ring.parity ^ 1);
    }
    fence_async_proxy();
    __syncwarp();
    mbarrier_arrive_if(kIsKeys ? at.keys_full(ring.slot) : at.values_full(ring.slot), lane == 0);
    ring.advance();
  }

  // Write 16 elements as two chunks. The other chunk of a pair has another place in the swizzle's pattern.
  static KJIT_DEVICE void write(uint32_t shared, const Chunk &narrow) {
    Chunk wide[2];
#pragma unroll
    for (int w = 0; w < 4; w++) {
      uint32_t low, high;
      widen_e4m3(narrow.word[w], low, high);
      wide[w / 2].word[w % 2 * 2] = low;
      wide[w / 2].word[w % 2 * 2 + 1] = high;
    }
    st_shared_16(shared, wide[0]);
    st_shared_16(shared ^ kChunkBytes, wide[1]);
  }
};
