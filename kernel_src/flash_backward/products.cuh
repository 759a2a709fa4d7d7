// The matrix products of a step, by ldmatrix and mma.sync. All lanes of a warp call these functions together; each warp
// multiplies its own rows.
//
//   scores       C  = A B^T   A: the warp's own rows, B: a step's rows; both are tiles with the reduction along columns
//   accumulate   C += A B     A: in registers, rounded from accumulators; B: a step's rows, the reduction along rows
//
// An A operand in registers is [row tile of 16][16 columns][4], as mma.m16n8k16 takes it; an accumulator is [row tile
// of 16][8 columns][4].
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/ldmatrix.cuh>
#include <kjit/ptx/mma.cuh>
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "flash_backward/config.cuh"

namespace products {

using Scores = float[cfg::kRowTiles][cfg::kStepTiles * 2][4];
using Rounded = uint32_t[cfg::kRowTiles][cfg::kStepTiles][4];

// The addresses that a lane gives to ldmatrix.x4, which loads 16x16 values as four 8x8 matrices.
//   own   lane l: row l % 16, columns 8 * (l / 16): the registers of an A operand
//   rows  lane l: row l % 8 + 8 * (l / 16), columns 8 * (l / 8 % 2): the two registers of a B operand are neighbours
//   columns  as `own`, loaded transposed: B operands whose reduction runs along the rows
template <typename Tile> KJIT_DEVICE LaneOffsets<Tile> own_addresses(uint32_t tile, int warp, int lane) {
  return {tile, warp * cfg::kRowsPerWarp + lane % 16, lane / 16};
}
template <typename Tile> KJIT_DEVICE LaneOffsets<Tile> row_addresses(uint32_t tile, int lane) {
  return {tile, lane % 8 + lane / 16 * 8, lane / 8 % 2};
}
template <typename Tile> KJIT_DEVICE LaneOffsets<Tile> column_addresses(uint32_t tile, int lane) {
  return {tile, lane % 16, lane / 16};
}

// c = A * B^T over `kSlices` slices of 16 columns. `step` is added to B's addresses: the stage that holds the tile.
template <int kSlices, typename Own, typename Step>
KJIT_DEVICE void scores(Scores &c, const LaneOffsets<Own> &a, const LaneOffsets<Step> &b, uint32_t step) {
#pragma unroll
  for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        c[m][n][i] = 0.0f;
#pragma unroll
  for (int d = 0; d < kSlices; d++) {
    uint32_t rows[cfg::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
      ldmatrix_x4(rows[m], a.at(m, d));
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles; n++) {
      uint32_t columns[4];
      ldmatrix_x4(columns, b.at(n, d) + step);
#pragma unroll
      for (int m = 0; m < cfg::kRowTiles; m++) {
        mma_m16n8k16(cfg::Element{}, c[m][2 * n], rows[m], columns[0], columns[1]);
        mma_m16n8k16(cfg::Element{}, c[m][2 * n + 1], rows[m], columns[2], columns[3]);
      }
    }
  }
}

// c += A * B for `kColumns8` tiles of 8 columns. The last 8 columns of the last slice may not exist.
template <int kColumns8, typename Step>
KJIT_DEVICE void accumulate(float (&c)[cfg::kRowTiles][kColumns8][4], const Rounded &a, const LaneOffsets<Step> &b,
                            uint32_t step) {
#pragma unroll
  for (int k = 0; k < cfg::kStepTiles; k++)
#pragma unroll
    for (int n = 0; n < (kColumns8 + 1) / 2; n++) {
      uint32_t columns[4];
      ldmatrix_x4_trans(columns, b.at(k, n) + step);
#pragma unroll
      for (int m = 0; m < cfg::kRowTiles; m++) {
        mma_m16n8k16(cfg::Element{}, c[m][2 * n], a[m][k], columns[0], columns[1]);
        if (2 * n + 1 < kColumns8)
          mma_m16n8k16(cfg::Element{}, c[m][2 * n + 1 < kColumns8 ? 2 * n + 1 : 0], a[m][k], columns[2], columns[3]);
      }
    }
}

KJIT_DEVICE void copy(Scores &to, const Scores &from) {
#pragma unroll
  for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        to[m][n][i] = from[m][n][i];
}

// The accumulators of 16 neighbouring columns lie in the threads as an A operand does, so rounding needs no exchange.
KJIT_DEVICE void round(Rounded &out, const Scores &c) {
#pragma unroll
  for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        out[m][n][i] = cvt_rn_x2(cfg::Element{}, c[m][2 * n + i / 2][i % 2 * 2], c[m][2 * n + i / 2][i % 2 * 2 + 1]);
}

} // namespace products
