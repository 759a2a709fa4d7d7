// The clipper: one warp beside the producer that clears what lies behind a sequence's last row of Q, and behind its
// last key in V, once TMA has written it and before any consumer reads it.
//
// A probability of 0 times what a slot held that was never written may be NaN, so V's rows have to be zeros. Rows of Q
// that do not exist give results that nobody stores, but consumers look at a warp's rows together when they decide
// whether the running maximum must rise, so another sequence's numbers there would change the last bits of this one's.
//
// Every tile's Q passes through the clipper, which costs an mbarrier more a tile; of V only the block that holds the
// last key does, so that other blocks go to the consumers as in attention_sm90.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_prefill_sm90/tile.cuh"

struct Clipper {
  const RaggedLayout at;
  const int warp, lane; // the first warp clips; with wideners others wait and arrive with it
  Ring<cfg::kQueryBuffers> queries;
  int values_slot = 0;
  unsigned values_parity = 0; // bit i: the parity to wait for at values_landed(i)

  KJIT_DEVICE void run() {
    RaggedTile tile = {};
    while (wait(tile)) {
      make(tile);
      if (!cfg::kGathers && tile.is_cut(tile.blocks.end - 1)) clip_values(tile);
      values_slot = (values_slot + tile.blocks.end - tile.blocks.first) % cfg::kStages;
    }
    pass();
  }

  // Wait for the next tile's Q. @return false when there is no further tile
  KJIT_DEVICE bool wait(RaggedTile &tile) const {
    mbarrier_wait_parity(at.query_landed(queries.slot), queries.parity);
    return load_ragged_tile(at.ragged_tile(queries.slot), lane, tile);
  }

  KJIT_DEVICE void make(const RaggedTile &tile) {
    if (warp == 0) clip_query(tile);
    pass();
  }

  // Let the consumers have it.
  KJIT_DEVICE void pass() {
    pass(at.query_full(queries.slot));
    queries.advance();
  }

private:
  // Let the consumers have what was cleared.
  KJIT_DEVICE void pass(uint32_t full) const {
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(full);
  }

  KJIT_DEVICE void clip_query(const RaggedTile &tile) const {
#pragma unroll 1
    for (int c = 0; c < cfg::kConsumers; c++) {
      const int queries_left = tile.s.rows - tile.first_query(c);
      if (queries_left >= cfg::kConsumerQueries || !tile.has_rows(c)) continue;
      clear_rows<cfg::kConsumerRows, cfg::bands(cfg::kHeadDim), cfg::kBandBytes, kPatternBytes>(
          at.query(queries.slot, c), at_least_0(queries_left) * cfg::kPackGqa);
    }
  }

  KJIT_DEVICE void clip_values(const RaggedTile &tile) {
    mbarrier_wait_parity(at.values_landed(values_slot), values_parity >> values_slot & 1);
    values_parity ^= 1u << values_slot;
    clear_rows<cfg::kKeyRows, cfg::bands(cfg::kHeadDimV), cfg::ValueTile::kToNextBand, cfg::ValueTile::kToNextPattern>(
        at.values(values_slot), at_least_0(tile.s.keys - (tile.blocks.end - 1) * cfg::kKeyRows));
    pass(at.values_full(values_slot));
  }

  // Write zeros to the rows from `first` on of a tile of bands. The swizzle moves chunks inside of a row alone.
  template <int kRows, int kBands, int kToNextBand, int kToNextPattern>
  KJIT_DEVICE void clear_rows(uint32_t shared, int first) const {
    constexpr int kChunks = cfg::kRowBytes / kChunkBytes, kPatternChunks = kPatternBytes / kChunkBytes;
    for (int band = 0; band < kBands; band++)
      for (int i = first * kChunks + lane; i < kRows * kChunks; i += kLanesPerWarp)
        st_shared_16(shared + band * kToNextBand + i / kPatternChunks * kToNextPattern +
                         i % kPatternChunks * kChunkBytes,
                     {{0, 0, 0, 0}});
  }
};
