// How wideners (widener.cuh) make fp16 of a tile's Q in bf16, in its place, once TMA has written it and before any
// consumer reads it. They stand where the clipper does otherwise (clipper.cuh), so they also clear the rows behind a
// sequence's last.
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

#include "attention_prefill_sm90/tile.cuh"
#include "attention_serving/element.cuh"
#include "attention_serving/fp16_row.cuh"

struct Converter {
  static constexpr int kRowLanes = cfg::kRowBytes / kChunkBytes, kTogether = kLanesPerWarp / kRowLanes;
  static constexpr int kBands = cfg::bands(cfg::kHeadDim);
  static constexpr int kToNext = cfg::kHelpers * kTogether; // from a warp's rows to its next ones
  // Rows that a lane has at once, for which there are registers.
  static constexpr int kAtOnce = cfg::kGathers ? 1 : kBands == 1 ? 4 : kBands == 2 ? 3 : 1;

  const RaggedLayout at;
  const int warp, lane; // of the wideners
  Ring<cfg::kQueryBuffers> queries;

  // Wait for the next tile's Q. @return false when there is no further tile
  KJIT_DEVICE bool wait(RaggedTile &tile) const {
    mbarrier_wait_parity(at.query_landed(queries.slot), queries.parity);
    return load_ragged_tile(at.ragged_tile(queries.slot), lane, tile);
  }

  KJIT_DEVICE void make(const RaggedTile &tile) {
    convert(tile);
    pass();
  }

  // Let the consumers have it: each lane arrives for what it has written. Nobody multiplies Q before K is there too,
  // and whoever passes K to the consumers fences what it wrote before off from wgmma.
  KJIT_DEVICE void pass() {
    mbarrier_arrive(at.query_full(queries.slot));
    queries.advance();
  }

private:
  // Several rows at once, so that the shuffles of one are hidden by the others.
  KJIT_DEVICE void convert(const RaggedTile &tile) const {
    bool has_factors = false;
#pragma unroll 1
    for (int first = warp * kTogether; first < cfg::kQueryRows; first += kAtOnce * kToNext) {
      Chunk q[kAtOnce][kBands];
      RowScale scales[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++)
        read_row(tile, first + i * kToNext + lane / kRowLanes, q[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; i++)
        scales[i] = fp16_row_scale(row_largest(q[i]));
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        write_row(first + i * kToNext + lane / kRowLanes, q[i], scales[i]);
        has_factors |= scales[i].inverse != 1.0f;
      }
    }
    const bool any = __any_sync(0xffffffffu, has_factors);
    if (lane == 0) st_shared_4(at.flags(queries.slot) + warp * 4, any);
  }

  KJIT_DEVICE uint32_t own_chunks(int row) const {
    return at.query(queries.slot, row / cfg::kConsumerRows) + row % cfg::kConsumerRows * cfg::kRowBytes +
           lane % kRowLanes * kChunkBytes;
  }

  // This lane's part of a row; zeros for a row that does not exist.
  KJIT_DEVICE void read_row(const RaggedTile &tile, int row, Chunk (&q)[kBands]) const {
    const int query = tile.first_query(row / cfg::kConsumerRows) + row % cfg::kConsumerRows / cfg::kPackGqa;
    const bool exists = row < cfg::kQueryRows && query < tile.s.rows;
#pragma unroll
    for (int band = 0; band < kBands; band++)
      q[band] = exists ? ld_shared_16(own_chunks(row) + band * cfg::kBandBytes) : Chunk{};
  }

  KJIT_DEVICE void write_row(int row, const Chunk (&q)[kBands], const RowScale &scale) const {
    if (row >= cfg::kQueryRows) return;
#pragma unroll
    for (int band = 0; band < kBands; band++)
      st_shared_16(own_chunks(row) + band * cfg::kBandBytes, converted(q[band], scale.multiplier));
    if (lane % kRowLanes == 0) st_shared_4(at.factors(queries.slot) + row * 4, __float_as_uint(scale.inverse));
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
