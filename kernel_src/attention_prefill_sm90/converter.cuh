// The converters: three warps beside the producer that make fp16 of a tile's Q in bf16, in its place, once TMA has
// written it and before any consumer reads it. They stand where the clipper does otherwise (clipper.cuh), so they also
// clear the rows behind a sequence's last.
//
// A row whose largest magnitude is from 2^-6 to below 2^15 keeps all elements that count exactly. Another one is
// multiplied by a power of two; the inverse is left beside Q for the consumers, who multiply the row's scores by it,
// and a word tells them that there is such a row.
//
// Eight lanes have a row, so that a warp has four at a time; each band's 128 bytes of a row are 16 a lane, wherever the
// swizzle has put them.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_prefill_sm90/tile.cuh"
#include "attention_serving/element.cuh"
#include "attention_serving/fp16_row.cuh"

struct Converter {
  static constexpr int kRowLanes = cfg::kRowBytes / kChunkBytes, kTogether = kLanesPerWarp / kRowLanes;
  static constexpr int kBands = cfg::bands(cfg::kHeadDim);

  const RaggedLayout at;
  const int warp, lane; // of the converters
  Ring<cfg::kQueryBuffers> queries;

  KJIT_DEVICE void run() {
    RaggedTile tile = {};
    bool exists = true;
    while (exists) {
      mbarrier_wait_parity(at.query_landed(queries.slot), queries.parity);
      exists = load_ragged_tile(at.ragged_tile(queries.slot), lane, tile);
      if (exists) convert(tile);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(at.query_full(queries.slot));
      queries.advance();
    }
  }

private:
  KJIT_DEVICE void convert(const RaggedTile &tile) const {
    bool has_factors = false;
#pragma unroll 1
    for (int first = warp * kTogether; first < cfg::kQueryRows; first += cfg::kConverters * kTogether) {
      const int row = first + lane / kRowLanes, consumer = row / cfg::kConsumerRows, own = row % cfg::kConsumerRows;
      const bool exists = tile.first_query(consumer) + own / cfg::kPackGqa < tile.s.rows;
      const uint32_t chunks = at.query(queries.slot, consumer) + own * cfg::kRowBytes + lane % kRowLanes * kChunkBytes;
      Chunk q[kBands];
#pragma unroll
      for (int band = 0; band < kBands; band++)
        q[band] = exists ? ld_shared_16(chunks + band * cfg::kBandBytes) : Chunk{};
      const RowScale scale = fp16_row_scale(row_largest(q));
#pragma unroll
      for (int band = 0; band < kBands; band++)
        st_shared_16(chunks + band * cfg::kBandBytes, converted(q[band], scale.multiplier));
      if (lane % kRowLanes == 0) st_shared_4(at.factors(queries.slot) + row * 4, __float_as_uint(scale.inverse));
      has_factors |= scale.inverse != 1.0f;
    }
    const bool any = __any_sync(0xffffffffu, has_factors);
    if (lane == 0) st_shared_4(at.flags(queries.slot) + warp * 4, any);
  }

  // The largest magnitude of a row that eight lanes have.
  static KJIT_DEVICE float row_largest(const Chunk (&q)[kBands]) {
    uint32_t most = 0;
#pragma unroll
    for (int band = 0; band < kBands; band++)
#pragma unroll
      for (int w = 0; w < 4; w++)
        most = fp16_row_larger(most, q[band].word[w]);
    float largest = __uint_as_float(most << 16);
#pragma unroll
    for (int step = 1; step < kRowLanes; step *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    return largest;
  }

  static KJIT_DEVICE Chunk converted(const Chunk &q, float multiplier) {
    Chunk to;
#pragma unroll
    for (int w = 0; w < 4; w++) {
      float low, high;
      element_pair<Bf16>(q.word[w], low, high);
      to.word[w] = cvt_rn_x2(Fp16{}, low * multiplier, high * multiplier);
    }
    return to;
  }
};
