// The kernel for sm_80 and later: cp.async, ldmatrix, mma.sync.
//
// Grid      one block for each tile of BM x BN of C, in the order of tiles.cuh; 1-D.
// Block     warps_m x warps_n warps, each with BM / warps_m x BN / warps_n of the tile. All of them load: tiles of A
// and
//           B come by cp.async, `stages` - 1 steps of BK ahead of the products.
// Shared    [stages] tiles of A, then [stages] of B. An operand whose elements are contiguous along K lies as
// [rows][BK],
//           another one as [BK][rows]. The 16-byte chunks of a row are permuted by XOR with bits of the row's number,
//           so that the eight rows of an ldmatrix lie in different banks.
// Registers a thread holds BM * BN / threads sums.
#pragma once
#include "epilogue.cuh"
#include "store.cuh"
#include "tiles.cuh"
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/ldmatrix.cuh>
#include <kjit/ptx/mma.cuh>

#if !defined(KJIT_warps_m) || !defined(KJIT_warps_n)
#error "KJIT_warps_m or KJIT_warps_n is not defined: warps along M and N"
#endif

namespace cfg {

constexpr int kWarpsM = KJIT_warps_m;
constexpr int kWarpsN = KJIT_warps_n;
constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kWarpM = kBM / kWarpsM; // rows and columns of a warp
constexpr int kWarpN = kBN / kWarpsN;

static_assert(kBM % (16 * kWarpsM) == 0, "BM: a multiple of 16 for each warp along M");
static_assert(kBN % (16 * kWarpsN) == 0, "BN: a multiple of 16 for each warp along N");
static_assert(kBK == 32 || kBK == 64, "BK: 32 or 64");
static_assert(kBM % 64 == 0 && kBN % 64 == 0, "BM, BN: multiples of 64");

} // namespace cfg

// A tile of `kWidth` rows of A or columns of B, BK deep, in shared memory.
template <bool kKMajor, int kWidth> struct OperandTile {
  static constexpr int kRows = kKMajor ? kWidth : cfg::kBK;
  static constexpr int kChunks = (kKMajor ? cfg::kBK : kWidth) / 8; // of a row
  static constexpr int kBytes = kWidth * cfg::kBK * 2;

  // Rows of 64 bytes take turns in pairs: two of them fill the 128 bytes of all banks.
  static KJIT_DEVICE uint32_t offset(int row, int chunk) {
    constexpr int kRowsPerLine = kChunks >= 8 ? 1 : 8 / kChunks;
    constexpr int kMask = kChunks >= 8 ? 7 : kChunks - 1;
    return (uint32_t)(row * kChunks + (chunk ^ (row / kRowsPerLine & kMask))) * kChunkBytes;
  }

  // Bring the tile at `outer` (row of A, column of B) and `depth`; what lies outside comes as zeros.
  static KJIT_DEVICE void load(uint32_t shared, const void *source, int stride, int outer, int outer_end, int depth,
                               int depth_end, int thread) {
    const int row_start = kKMajor ? outer : depth, row_end = kKMajor ? outer_end : depth_end;
    const int start = kKMajor ? depth : outer, end = kKMajor ? depth_end : outer_end;
#pragma unroll
    for (int i = thread; i < kRows * kChunks; i += cfg::kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const int left = row_start + row < row_end ? (end - start - chunk * 8) * 2 : 0; // bytes of the row from here on
      const char *from = (const char *)source + ((int64_t)(row_start + row) * stride + start + chunk * 8) * 2;
      cp_async_16_first(shared + offset(row, chunk), left > 0 ? from : source, left < 0 ? 0 : left > 16 ? 16 : left);
    }
  }

  // 16 (rows of A, columns of B) x 16 (along K) as four 8x8 matrices whose registers run along K. `kOuterFirst`: the
  // second matrix is the next 8 of the outer dimension (A), otherwise the next 8 along K (B).
  template <bool kOuterFirst>
  static KJIT_DEVICE void fragment(uint32_t (&r)[4], uint32_t shared, int outer, int k, int lane) {
    const int matrix = lane / 8, low = matrix % 2, high = matrix / 2;
    const int outer8 = kOuterFirst ? low : high, k8 = kOuterFirst ? high : low;
    if constexpr (kKMajor)
      ldmatrix_x4(r, shared + offset(outer + outer8 * 8 + lane % 8, k / 8 + k8));
    else
      ldmatrix_x4_trans(r, shared + offset(k + k8 * 8 + lane % 8, outer / 8 + outer8));
  }
};

using TileA = OperandTile<cfg::kAKMajor, cfg::kBM>;
using TileB = OperandTile<cfg::kBKMajor, cfg::kBN>;

class Block {
public:
  KJIT_DEVICE Block(const gemm_params &p, uint32_t base)
      : p(p), base(base), thread((int)threadIdx.x), lane(thread % 32),
        warp_row(thread / 32 / cfg::kWarpsN * cfg::kWarpM), warp_column(thread / 32 % cfg::kWarpsN * cfg::kWarpN) {
    const TileGrid grid = {ceil_div(p.m, cfg::kBM), ceil_div(p.n, cfg::kBN)};
    grid.find((int)blockIdx.x, row, column);
    row *= cfg::kBM;
    column *= cfg::kBN;
  }

  KJIT_DEVICE void run() {
    const int steps = ceil_div(p.k, cfg::kBK);
#pragma unroll
    for (int step = 0; step < cfg::kStages - 1; step++)
      load(step, step);
    for (int step = 0, slot = 0; step < steps; step++) {
      cp_async_wait_group<cfg::kStages - 2>();
      __syncthreads(); // this step's tiles are there, and nobody reads those that the next load replaces
      load(step + cfg::kStages - 1, slot == 0 ? cfg::kStages - 1 : slot - 1);
      multiply(slot);
      slot = slot + 1 == cfg::kStages ? 0 : slot + 1;
    }
    store();
  }

private:
  static constexpr int kTilesM = cfg::kWarpM / 16, kTilesN = cfg::kWarpN / 8;

  const gemm_params &p;
  const uint32_t base;
  const int thread, lane, warp_row, warp_column;
  int row, column; // of C, the tile's first
  float sums[kTilesM][kTilesN][4] = {};

  KJIT_DEVICE uint32_t a(int slot) const {
    return base + slot * TileA::kBytes;
  }
  KJIT_DEVICE uint32_t b(int slot) const {
    return base + cfg::kStages * TileA::kBytes + slot * TileB::kBytes;
  }

  // Always a group of copies, so that the waits count alike; empty beyond the end of K.
  KJIT_DEVICE void load(int step, int slot) const {
    const int depth = step * cfg::kBK;
    if (depth < p.k) {
      TileA::load(a(slot), p.a, p.lda, row, p.m, depth, p.k, thread);
      TileB::load(b(slot), p.b, p.ldb, column, p.n, depth, p.k, thread);
    }
    cp_async_commit_group();
  }

  KJIT_DEVICE void multiply(int slot) {
#pragma unroll
    for (int k = 0; k < cfg::kBK; k += 16) {
      uint32_t left[kTilesM][4], right[kTilesN / 2][4];
#pragma unroll
      for (int i = 0; i < kTilesM; i++)
        TileA::template fragment<true>(left[i], a(slot), warp_row + i * 16, k, lane);
#pragma unroll
      for (int j = 0; j < kTilesN / 2; j++)
        TileB::template fragment<false>(right[j], b(slot), warp_column + j * 16, k, lane);
#pragma unroll
      for (int i = 0; i < kTilesM; i++)
#pragma unroll
        for (int j = 0; j < kTilesN; j++)
          mma_m16n8k16(cfg::Element{}, sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
  }

  KJIT_DEVICE void store() const {
#pragma unroll
    for (int j = 0; j < kTilesN; j++) {
      const int at = column + warp_column + j * 8 + lane % 4 * 2;
      Pair bias = {0, 0};
      if constexpr (cfg::kHasBias) bias = to_floats(load_pair(p.bias, at, p.n));
#pragma unroll
      for (int i = 0; i < kTilesM; i++)
#pragma unroll
        for (int r = 0; r < 2; r++)
          store_two(sums[i][j][2 * r], sums[i][j][2 * r + 1], bias, row + warp_row + i * 16 + lane / 4 + 8 * r, at);
    }
  }

  KJIT_DEVICE void store_two(float low, float high, Pair bias, int to_row, int to_column) const {
    Pair add = {0, 0};
    if (cfg::kHasResidual && to_row < p.m)
      add = to_floats(load_pair((const char *)p.residual + (int64_t)to_row * p.ldr * 2, to_column, p.n));
    const uint32_t word =
        cvt_rn_x2(cfg::Element{}, finish(low, p.alpha, bias.low, add.low), finish(high, p.alpha, bias.high, add.high));
    store_pair(p, word, to_row, to_column);
  }
};

KJIT_DEVICE void run_block(const gemm_params &p, char *shared) {
  Block(p, cvta_to_shared(shared)).run();
}
