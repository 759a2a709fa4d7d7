// The products of a warp on 16-bit K and V in swizzled shared memory: by ldmatrix and mma.sync.
//
// Whoever includes this has included a config.cuh that defines the constants of namespace cfg and the tiles.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/ldmatrix.cuh>
#include <kjit/ptx/mma.cuh>
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

using Scores = float[1][cfg::kKeyTiles * 2][4];

struct WideProducts {
  const LaneOffsets<cfg::QTile> q;
  const LaneOffsets<cfg::KTile> k; // of stage 0
  const LaneOffsets<cfg::VTile> v;

  // `keys`, `values`: the first tiles of K and V. Q lies in front of K.
  KJIT_DEVICE WideProducts(uint32_t keys, uint32_t values, int warp, int lane)
      : q(keys - cfg::QTile::kBytes, warp % cfg::kRowWarps * 16 + lane % 16, lane / 16),
        k(keys, first_key(warp) + lane % 8 + lane / 16 * 8, lane / 8 % 2),
        v(values, first_key(warp) + lane % 16, lane / 16) {}

  // The key, counted from the warp's first, of column 2 * (lane % 4) + i of an accumulator's columns 8n to 8n + 7.
  static KJIT_DEVICE int key_of(int n, int i, int lane) { return n * 8 + lane % 4 * 2 + i; }

  // Two neighbouring columns of O of row r * 8 + lane / 4: which they are, the lane's part and the accumulator's, and
  // in 16 bits their chunk and byte; their values. n is below cfg::kOutputTiles8.
  static KJIT_DEVICE int lane_column(int lane) { return lane % 4 * 2; }
  static KJIT_DEVICE int tile_column(int n) { return n * 8; }
  static KJIT_DEVICE int chunk_of(int n, int lane) { return n; }
  static KJIT_DEVICE int byte_of(int n, int lane) { return lane % 4 * 4; }
  static KJIT_DEVICE float low_of(const float (&o)[cfg::kOutputTiles8][4], int n, int r) { return o[n][2 * r]; }
  static KJIT_DEVICE float high_of(const float (&o)[cfg::kOutputTiles8][4], int n, int r) { return o[n][2 * r + 1]; }

  // Q stays in shared memory.
  template <typename Load> KJIT_DEVICE void take_query(int lane, Load load) const {}

  // S += Q K^T. `stage`: how far the tile is behind the first.
  KJIT_DEVICE void multiply_keys(Scores &s, uint32_t stage) const {
#pragma unroll
    for (int d = 0; d < cfg::kQueryKeySlices; d++) {
      uint32_t a[4];
      ldmatrix_x4(a, q.at(0, d));
#pragma unroll
      for (int n = 0; n < cfg::kKeyTiles; n++) {
        uint32_t b[4];
        ldmatrix_x4(b, stage + k.at(n, d));
        mma_m16n8k16(cfg::Element{}, s[0][2 * n], a, b[0], b[1]);
        mma_m16n8k16(cfg::Element{}, s[0][2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // O += P V, P being the scores' probabilities rounded to 16 bits: two neighbouring tiles of them are one A operand.
  KJIT_DEVICE void multiply_values(float (&o)[1][cfg::kOutputTiles8][4], const Scores &s, uint32_t stage) const {
#pragma unroll
    for (int t = 0; t < cfg::kKeyTiles; t++) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = cvt_rn_x2(cfg::Element{}, s[0][2 * t + i / 2][i % 2 * 2], s[0][2 * t + i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int n = 0; n < cfg::kValueSlices; n++) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, stage + v.at(t, n));
        mma_m16n8k16(cfg::Element{}, o[0][2 * n], a, b[0], b[1]);
        if (2 * n + 1 < cfg::kOutputTiles8) mma_m16n8k16(cfg::Element{}, o[0][2 * n + 1], a, b[2], b[3]);
      }
    }
  }

private:
  static KJIT_DEVICE int first_key(int warp) {
    return warp / cfg::kRowWarps * cfg::kWarpKeys;
  }
};
