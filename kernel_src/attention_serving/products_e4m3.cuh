// The products of a warp on K and V of one byte an element, e4m3, by mma.sync on fp16, into which e4m3 is widened in
// registers. What is widened is never stored again, so that a byte of the cache passes through shared memory once.
//
// Orders that do not matter to a sum are chosen so that few instructions load:
//   - columns of Q and K, 64 at a time: lane l holds the columns 16 * (l % 4) to + 15, 16 bytes of a row of K, and word
//     w of them is its part of product w of the four;
//   - keys, 8 at a time: key_row() puts neighbours in different halves of the banks;
//   - columns of O and V: ldmatrix gives pairs of bytes, of two neighbouring columns, whose even columns are one
//     product and whose odd columns the next: lane l has the columns 16 n + 4 * (l % 4) to + 3 of accumulators 2 n and
//     2 n + 1.
// K and V lie in shared memory as byte_tile.cuh has it.
//
// Q in bf16 is converted to fp16. A row whose largest element is beyond what leaves its elements exact is multiplied by
// a power of two first, and the row's scores by its inverse.
//
// Whoever includes this has included a config.cuh that defines the constants of namespace cfg.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/e4m3.cuh>
#include <kjit/ptx/ldmatrix.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/mma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_serving/byte_tile.cuh"
#include "attention_serving/element.cuh"
#include "attention_serving/fp16_row.cuh"

using Scores = float[1][cfg::kKeyTiles * 2][4];

struct NarrowProducts {
  using KTile = cfg::KTile;
  using VTile = cfg::VTile;
  static constexpr int kSegments = ceil_div(cfg::kHeadDim, 64);
  static constexpr int kValueChunks = cfg::kHeadDimV / kChunkBytes;
  static constexpr int kOperandBytes = kLanesPerWarp * kChunkBytes; // of an A operand in shared memory
  static constexpr int kQueryBytes = kSegments * 4 * kOperandBytes; // of those of 16 rows

  const uint32_t k, v;         // the lane's address in the first tiles
  uint32_t q[kSegments][4][4]; // A operands, 64 columns each; with kQueryShared while Q is taken alone
  uint32_t query;              // with kQueryShared: where the lane's A operands lie; set by the caller
  float factors[2];            // of the scores of the thread's rows
  bool has_factors;            // other than 1, in some row of the warp

  // `keys`, `values`: the first tiles of K and V, at multiples of 128.
  KJIT_DEVICE NarrowProducts(uint32_t keys, uint32_t values, int warp, int lane)
      : k(keys + KTile::offset(first_key(warp) + key_row(lane / 4), lane % 4)),
        v(values + VTile::offset(first_key(warp) + lane / 8 % 2 * 8 + key_row(lane % 8), lane / 16)) {}

  static KJIT_DEVICE int key_of(int n, int i, int lane) { return n * 8 + key_row(lane % 4 * 2 + i); }

  // As WideProducts has them (products.cuh).
  static KJIT_DEVICE int lane_column(int lane) { return lane % 4 * 4; }
  static KJIT_DEVICE int tile_column(int n) { return n / 2 * 16 + n % 2 * 2; }
  static KJIT_DEVICE int chunk_of(int n, int lane) { return n / 2 * 2 + lane % 4 / 2; }
  static KJIT_DEVICE int byte_of(int n, int lane) { return lane % 2 * 8 + n % 2 * 4; }
  static KJIT_DEVICE float low_of(const float (&o)[cfg::kOutputTiles8][4], int n, int r) {
    return o[n / 2 * 2][2 * r + n % 2];
  }
  static KJIT_DEVICE float high_of(const float (&o)[cfg::kOutputTiles8][4], int n, int r) {
    return o[n / 2 * 2 + 1][2 * r + n % 2];
  }

  // Take the warp's 16 rows of Q. load(row, chunk) is a chunk of row `row` of them, zeros where there is none. Whole
  // warps.
  template <typename Load> KJIT_DEVICE void take_query(int lane, Load load) {
    has_factors = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
      for (int s = 0; s < kSegments; s++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const Chunk chunk = load(r * 8 + lane / 4, s * 8 + lane % 4 * 2 + half);
#pragma unroll
          for (int i = 0; i < 4; i++)
            q[s][half * 2 + i / 2][i % 2 * 2 + r] = chunk.word[i];
        }
      }
      factors[r] = 1.0f;
      convert(cfg::Element{}, r);
    }
    has_factors = __any_sync(0xffffffffu, factors[0] != 1.0f || factors[1] != 1.0f);
  }

  // With kQueryShared: leave the A operands of 16 rows in shared memory, for all warps that multiply these rows.
  KJIT_DEVICE void share_query() const {
#pragma unroll
    for (int s = 0; s < kSegments; s++)
#pragma unroll
      for (int w = 0; w < 4; w++)
        st_shared_16(query + (s * 4 + w) * kOperandBytes, {{q[s][w][0], q[s][w][1], q[s][w][2], q[s][w][3]}});
  }

  // S += Q K^T. `stage`: how far the tile is behind the first.
  KJIT_DEVICE void multiply_keys(Scores &s, uint32_t stage) const {
    if constexpr (cfg::kQueryShared)
      multiply_keys_by_shared(s, stage);
    else
      multiply_keys_by_own(s, stage);
    if (!has_factors) return;
#pragma unroll
    for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[0][n][i] *= factors[i / 2];
  }

  // O += P V, P being the scores' probabilities rounded to fp16. @return some bits of a register of each of the last
  // loads of V, behind which the others have come, for mbarrier_arrive_when_read().
  KJIT_DEVICE uint32_t multiply_values(float (&o)[1][cfg::kOutputTiles8][4], const Scores &s, uint32_t stage) const {
    uint32_t read = 0;
#pragma unroll
    for (int t = 0; t < cfg::kKeyTiles; t++) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = cvt_rn_x2(Fp16{}, s[0][2 * t + i / 2][i % 2 * 2], s[0][2 * t + i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int c = 0; c < kValueChunks; c += 2) {
        const uint32_t from = stage + c / 8 * VTile::kBandBytes + (v ^ (uint32_t)(c % 8 * kChunkBytes));
        uint32_t pairs[4]; // of two keys and two columns each: chunk c of 8 keys and the next 8, then chunk c + 1
        ldmatrix_x4_trans(pairs, from + t * 16 * VTile::kBandColumns);
        if (t + 1 == cfg::kKeyTiles) read |= pairs[0];
        multiply_chunk(o, a, c, pairs[0], pairs[1]);
        if (c + 1 < kValueChunks) multiply_chunk(o, a, c + 1, pairs[2], pairs[3]);
      }
    }
    return read;
  }

private:
  KJIT_DEVICE void multiply_keys_by_own(Scores &s, uint32_t stage) const {
#pragma unroll
    for (int d = 0; d < kSegments; d++) {
      const uint32_t from = stage + d / 2 * KTile::kBandBytes + (k ^ (uint32_t)(d % 2 * 64));
#pragma unroll
      for (int n = 0; n < cfg::kKeyTiles * 2; n++) {
        const Chunk keys = ld_shared_16(from + n * 8 * KTile::kBandColumns);
#pragma unroll
        for (int w = 0; w < 4; w++) {
          uint32_t b0, b1;
          widen_e4m3(keys.word[w], b0, b1);
          mma_m16n8k16(Fp16{}, s[0][n], q[d][w], b0, b1);
        }
      }
    }
  }

  // The same with A operands from shared memory, each loaded once for all keys.
  KJIT_DEVICE void multiply_keys_by_shared(Scores &s, uint32_t stage) const {
#pragma unroll
    for (int d = 0; d < kSegments; d++) {
      const uint32_t from = stage + d / 2 * KTile::kBandBytes + (k ^ (uint32_t)(d % 2 * 64));
      Chunk keys[cfg::kKeyTiles * 2];
#pragma unroll
      for (int n = 0; n < cfg::kKeyTiles * 2; n++)
        keys[n] = ld_shared_16(from + n * 8 * KTile::kBandColumns);
#pragma unroll
      for (int w = 0; w < 4; w++) {
        const Chunk a = ld_shared_16(query + (d * 4 + w) * kOperandBytes);
#pragma unroll
        for (int n = 0; n < cfg::kKeyTiles * 2; n++) {
          uint32_t b0, b1;
          widen_e4m3(keys[n].word[w], b0, b1);
          mma_m16n8k16(Fp16{}, s[0][n], a.word, b0, b1);
        }
      }
    }
  }

  static KJIT_DEVICE int first_key(int warp) {
    return warp / cfg::kRowWarps * cfg::kWarpKeys;
  }

  // The row in memory of the `n`th of 8 keys. The 16 bytes of 4 lanes each lie in both halves of the banks: neighbours
  // are 4 rows apart, or side by side where two rows share 128 bytes.
  static KJIT_DEVICE int key_row(int n) {
    return KTile::kRowsOfLine == 1 ? n % 2 * 4 + n / 2 : n;
  }

  static KJIT_DEVICE void multiply_chunk(float (&o)[1][cfg::kOutputTiles8][4], const uint32_t (&a)[4], int c,
                                         uint32_t first, uint32_t second) {
    uint32_t even[2], odd[2];
    widen_e4m3(__byte_perm(first, 0, 0x3120), even[0], odd[0]);
    widen_e4m3(__byte_perm(second, 0, 0x3120), even[1], odd[1]);
    mma_m16n8k16(Fp16{}, o[0][2 * c], a, even[0], even[1]);
    mma_m16n8k16(Fp16{}, o[0][2 * c + 1], a, odd[0], odd[1]);
  }

  KJIT_DEVICE void convert(Fp16, int r) const {}

  // bf16 to fp16, as fp16_row.cuh has it.
  KJIT_DEVICE void convert(Bf16, int r) {
    uint32_t most = 0;
#pragma unroll
    for (int s = 0; s < kSegments; s++)
#pragma unroll
      for (int w = 0; w < 4; w++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          most = fp16_row_larger(most, q[s][w][2 * i + r]);
    const RowScale scale = fp16_row_scale(quad_max(__uint_as_float(most << 16)));
    factors[r] = scale.inverse;
#pragma unroll
    for (int s = 0; s < kSegments; s++)
#pragma unroll
      for (int w = 0; w < 4; w++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float low, high;
          element_pair<Bf16>(q[s][w][2 * i + r], low, high);
          q[s][w][2 * i + r] = cvt_rn_x2(Fp16{}, low * scale.multiplier, high * scale.multiplier);
        }
  }
};
