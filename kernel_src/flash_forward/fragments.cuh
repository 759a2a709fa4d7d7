// The two matrix products of a step, S = Q K^T and O += P V: fragments are loaded from shared memory by ldmatrix and
// multiplied by mma.sync. All lanes of a warp call these functions together; each warp multiplies its own query rows.
//
// An operand is held as pairs of fragments along the reduction axis, one mma (16 deep) each:
//   Q, P  [row tile of 16][depth][4]   the A operand of mma.m16n8k16
//   K, V  [column tile of 16][depth][4]   two B operands: columns 0-7 in [0], [1], columns 8-15 in [2], [3]
// "Depth" counts 16-wide slices of the reduction axis: head_dim for Q and K, keys for V.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/ldmatrix.cuh>
#include <kjit/ptx/mma.cuh>
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "flash_forward/config.cuh"

namespace fragments {

// How an operand is loaded: as a whole, or some slices at a time.
struct Plan {
  int width;  // slices in one load
  int loads;  // loads that cover the operand
  int stages; // register copies: 2 when the next load is issued before this one is used
};
// The plan of an operand of `depth` slices, of which the config has `load` loaded at a time; 0 means all.
__device__ constexpr Plan plan(int depth, int load) {
  const int width = load == 0 ? depth : load;
  const int loads = depth / width;
  return {width, loads, cfg::kDoubleBuffer && loads > 1 ? 2 : 1};
}
constexpr Plan kQ = plan(cfg::kQueryKeySlices, cfg::kQSliceDepth);
constexpr Plan kK = plan(cfg::kQueryKeySlices, cfg::kKSliceDepth);
constexpr Plan kV = plan(cfg::kKeyTiles, cfg::kVSliceDepth);

// Q held for the whole kernel is loaded once; otherwise every step reads it again from shared memory.
constexpr bool kQHeld = cfg::kQLoad == 0;
constexpr int kHeldSlices = kQHeld ? cfg::kQueryKeySlices : 1;

template <int kTiles, int kWidth> using Operand = uint32_t[kTiles][kWidth][4];
using Scores = float[cfg::kRowTiles][cfg::kKeyTiles * 2][4];
using Output = float[cfg::kRowTiles][cfg::kOutputTiles8][4];

// The addresses that a lane gives to ldmatrix.x4, which loads 16x16 values as four 8x8 matrices.
//   Q, V  lane l: row l % 16, columns 8 * (l / 16): matrices (rows, columns) = (0,0) (8,0) (0,8) (8,8)
//   K     lane l: row l % 8 + 8 * (l / 16), columns 8 * (l / 8 % 2): (0,0) (0,8) (8,0) (8,8), so that the two
//         registers of one mma's B operand are neighbours
struct Addresses {
  LaneOffsets<cfg::QTile> q;
  LaneOffsets<cfg::KTile> k;
  LaneOffsets<cfg::VTile> v;

  KJIT_DEVICE Addresses(uint32_t q_tile, uint32_t k_tile, uint32_t v_tile, int warp, int lane)
      : q(q_tile, warp * cfg::kRowsPerWarp + lane % 16, lane / 16), k(k_tile, lane % 8 + lane / 16 * 8, lane / 8 % 2),
        v(v_tile, lane % 16, lane / 16) {}
};

template <int kWidth>
KJIT_DEVICE void load_q(Operand<cfg::kRowTiles, kWidth> &q, const Addresses &at, int first_slice) {
#pragma unroll
  for (int d = 0; d < kWidth; d++)
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
      ldmatrix_x4(q[m][d], at.q.at(m, first_slice + d));
}

template <int kWidth>
KJIT_DEVICE void load_k(Operand<cfg::kKeyTiles, kWidth> &k, const Addresses &at, int first_slice) {
#pragma unroll
  for (int d = 0; d < kWidth; d++)
#pragma unroll
    for (int n = 0; n < cfg::kKeyTiles; n++)
      ldmatrix_x4(k[n][d], at.k.at(n, first_slice + d));
}

template <int kWidth>
KJIT_DEVICE void load_v(Operand<cfg::kValueSlices, kWidth> &v, const Addresses &at, int first_key_tile) {
#pragma unroll
  for (int d = 0; d < kWidth; d++)
#pragma unroll
    for (int n = 0; n < cfg::kValueSlices; n++)
      ldmatrix_x4_trans(v[n][d], at.v.at(first_key_tile + d, n));
}

// c += A * B for one column tile of 8 and one slice. The row tiles are visited backwards on every other column tile, so
// that two neighbouring mma use the same A registers, which are then still in the operand cache.
template <int kColumns8, int kAWidth>
KJIT_DEVICE void multiply_column(float (&c)[cfg::kRowTiles][kColumns8][4], int n,
                                 const Operand<cfg::kRowTiles, kAWidth> &a, int slice, const uint32_t (&b)[4]) {
#pragma unroll
  for (int i = 0; i < cfg::kRowTiles; i++) {
    const int m = n % 2 ? cfg::kRowTiles - 1 - i : i;
    mma_m16n8k16(cfg::Element{}, c[m][n], a[m][slice], b[n % 2 * 2], b[n % 2 * 2 + 1]);
  }
}

// c += A * B, slice after slice, for an operand that is loaded in slices. The last 8 columns of the last tile may not
// exist.
template <int kColumnTiles, int kColumns8, int kWidth, int kAWidth>
KJIT_DEVICE void multiply_slices(float (&c)[cfg::kRowTiles][kColumns8][4], const Operand<cfg::kRowTiles, kAWidth> &a,
                                 int a_slice, const Operand<kColumnTiles, kWidth> &b) {
#pragma unroll
  for (int d = 0; d < kWidth; d++)
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
      multiply_column(c, n, a, a_slice + d, b[n / 2][d]);
}

// c += A * B, column tile after column tile, each over the whole depth, for an operand that was loaded as a whole.
template <int kColumnTiles, int kColumns8, int kWidth, int kAWidth>
KJIT_DEVICE void multiply_columns(float (&c)[cfg::kRowTiles][kColumns8][4], const Operand<cfg::kRowTiles, kAWidth> &a,
                                  const Operand<kColumnTiles, kWidth> &b) {
#pragma unroll
  for (int t = 0; t < kColumnTiles; t++)
#pragma unroll
    for (int d = 0; d < kWidth; d++)
#pragma unroll
      for (int n = 2 * t; n < 2 * t + 2 && n < kColumns8; n++)
        multiply_column(c, n, a, d, b[t][d]);
}

// A branch that is never taken, because no block of keys has the number -2. ptxas does not move loads over a branch.
// Without it ptxas loads ahead as far as registers allow, and a slice loaded in its turn, a slice loaded ahead and an
// operand loaded whole would become the same code. Of several equal tests in a row ptxas keeps the first, which fixes
// whether the second slice's loads come before or after the first slice's product.
KJIT_DEVICE void keep_order(int key_block) {
  asm volatile("{ .reg .pred never; setp.eq.s32 never, %0, -2; @never trap; }" ::"r"(key_block) : "memory");
}

// The loop that both products share: load(slice, stage) and product(slice, stage) for each slice. With two stages a
// slice is loaded ahead of the product before it, otherwise after it. An operand that is loaded as a whole has one
// slice, whose loads and products the compiler orders.
template <const Plan &kPlan, typename Load, typename Product>
KJIT_DEVICE void stream(int key_block, Load load, Product product) {
  load(0, 0);
#pragma unroll
  for (int i = 0; i < kPlan.loads; i++) {
    const bool more = i + 1 < kPlan.loads;
    if (kPlan.stages == 2 && more) load(i + 1, (i + 1) % 2);
    product(i, i % kPlan.stages);
    if (more) keep_order(key_block);
    if (kPlan.stages == 1 && more) load(i + 1, 0);
  }
}

// S = Q * K^T. `held_q` is Q when it is kept in registers, else unused.
KJIT_DEVICE void scores(Scores &s, const Operand<cfg::kRowTiles, kHeldSlices> &held_q, const Addresses &at,
                        int key_block) {
  Operand<cfg::kRowTiles, kK.width> q[kK.stages];
  Operand<cfg::kKeyTiles, kK.width> k[kK.stages];
  stream<kK>(
      key_block,
      [&](int i, int stage) {
        if constexpr (!kQHeld) load_q<kK.width>(q[stage], at, i * kK.width);
        load_k<kK.width>(k[stage], at, i * kK.width);
      },
      [&](int i, int stage) {
        if constexpr (kQHeld && kK.loads == 1)
          multiply_columns<cfg::kKeyTiles>(s, held_q, k[stage]);
        else if constexpr (kQHeld)
          multiply_slices<cfg::kKeyTiles>(s, held_q, i * kK.width, k[stage]);
        else
          multiply_slices<cfg::kKeyTiles>(s, q[stage], 0, k[stage]);
      });
}

// O += P * V.
KJIT_DEVICE void accumulate(Output &o, const Operand<cfg::kRowTiles, cfg::kKeyTiles> &probabilities,
                            const Addresses &at, int key_block) {
  Operand<cfg::kValueSlices, kV.width> v[kV.stages];
  stream<kV>(
      key_block, [&](int i, int stage) { load_v<kV.width>(v[stage], at, i * kV.width); },
      [&](int i, int stage) {
        if constexpr (kV.loads == 1)
          multiply_columns<cfg::kValueSlices>(o, probabilities, v[stage]);
        else
          multiply_slices<cfg::kValueSlices>(o, probabilities, i * kV.width, v[stage]);
      });
}

// The accumulator layout of two neighbouring 8-column tiles is one A operand: P = S rounded needs no shuffle.
KJIT_DEVICE void round_scores(Operand<cfg::kRowTiles, cfg::kKeyTiles> &p, const Scores &s) {
#pragma unroll
  for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
    for (int n = 0; n < cfg::kKeyTiles; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        p[m][n][i] = cvt_rn_x2(cfg::Element{}, s[m][2 * n + i / 2][i % 2 * 2], s[m][2 * n + i / 2][i % 2 * 2 + 1]);
}

} // namespace fragments
