// FlashAttention-2 forward with mma.sync, sm_80 and later.
//
//   O = softmax(scale * Q K^T) V,  lse = ln(sum(exp(scale * Q K^T))), each (batch, head) by itself
//
// Tensors   q (batch, seq_q, heads_q, head_dim), k (batch, seq_kv, heads_kv, head_dim), v (batch, seq_kv, heads_kv,
//           head_dim_v), o (batch, seq_q, heads_q, head_dim_v), fp16 or bf16, any strides that are multiples of 8
//           elements, columns contiguous; lse (batch, heads_q, seq_q) fp32, optional. Lengths from 1. Causal: row i
//           sees keys up to i + seq_kv - seq_q; a row that sees none gives 0 and -inf.
// Grid      (ceil(seq_q / B_r), heads_q, batch): one block of threads for each query tile; blocks that share K and V
//           are next to each other.
// Warps     n_warps, which all do the same: a warp owns B_r / n_warps query rows of Q, S, P and O, which it loads and
//           stores itself; it also loads its share of each K and V tile, and then uses the whole tile.
// Shared    (B_r * max(d, dv) + B_c * (d + dv)) * 2 bytes, d and dv being the head sizes in whole 16s: Q, then K, then
//           V; O is stored through Q's memory.
// Registers O B_r/n_warps * dv / 32, S B_r/n_warps * B_c / 32, Q half of O's when held; docs/performance.md has ptxas's
//           figures. Spills: see kernel_src/README.md.
// Tolerance max|O - ref| <= 2 max|ref16 - ref| against float64: P is rounded to 16 bits once, O once, all else is fp32.
//
// Key blocks are visited from last to first, so that the blocks that need a mask come first: the one that may be
// ragged, and those on the diagonal of causal attention. The others need no check.
//
// With KJIT_variant the kernel computes an attention variant, the caller's score and mask functions
// (variant_block.cuh).
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/special_registers.cuh>
#include <kjit/types.cuh>

#include "flash_forward/config.cuh"
#include "flash_forward/fragments.cuh"
#include "flash_forward/params.h"
#include "flash_forward/tile_copy.cuh"
#include "flash_forward/visible.cuh"
#include "softmax/online_softmax.cuh"

#if __CUDA_ARCH__ < 800
#error "flash_forward requires sm_80 or higher"
#endif

namespace {

using Softmax = OnlineSoftmax<cfg::kRowTiles, cfg::kKeyTiles * 2, cfg::kOutputTiles8, cfg::kOptimizedSoftmax, 8,
                              cfg::kCausal || cfg::kVariant>;

KJIT_DEVICE const char *head_start(const void *tensor, const flash_forward_strides &stride, uint32_t head) {
  return (const char *)tensor + (blockIdx.z * stride.batch + head * stride.head) * 2;
}

// The K or V of this block's (batch, head), loaded into one shared tile: B_c rows at a time, from the last to the
// first.
template <typename Tile, int kColumns> struct KeyValueSource {
  TileCursor<Tile, kColumns, cfg::kKeyRows, cfg::kThreads> cursor;
  const uint32_t tile;

  KJIT_DEVICE KeyValueSource(const void *tensor, const flash_forward_strides &stride, uint32_t head, uint32_t tile,
                             int last_block)
      : cursor(head_start(tensor, stride, head) + (int64_t)last_block * cfg::kKeyRows * stride.seq * 2, stride.seq,
               threadIdx.x),
        tile(tile) {}

  // Start loading the next block; `valid_rows` of it exist (only looked at when kGuarded).
  template <bool kGuarded> KJIT_DEVICE void load(int valid_rows) {
    const int thread = kGuarded ? read_tid_x() : threadIdx.x;
    load_tile<cfg::kAsyncCopy, kGuarded>(tile, 0, cursor, thread, valid_rows);
    if constexpr (cfg::kAsyncCopy) cp_async_commit_group();
    cursor.move(-cfg::kKeyRows);
  }
};

// Wait for this thread's copies, except for its latest `kPending` groups. Copies through registers are complete
// already.
template <int kPending> KJIT_DEVICE void wait_for_copies() {
  if constexpr (cfg::kAsyncCopy) cp_async_wait_group<kPending>();
}

#ifndef KJIT_variant
// Scores of keys from `valid_columns` on become -inf. One predicate at a time, because there are no registers for more.
KJIT_DEVICE void mask_from(fragments::Scores &s, int valid_columns) {
  const int valid = valid_columns - read_tid_x() % 4 * 2;
#pragma unroll
  for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int m = 0; m < cfg::kRowTiles; m++)
        mask_unless_less(s[m][n][i], n * 8 + i % 2, valid);
}
#endif

// The work of one block of threads: B_r query rows of one (batch, head).
struct Block {
  const flash_forward_params &p;
  const uint32_t q_tile;
  KeyValueSource<cfg::KTile, cfg::kHeadDim> k;
  KeyValueSource<cfg::VTile, cfg::kHeadDimV> v;
  const fragments::Addresses at;
  uint32_t held_q[cfg::kRowTiles][fragments::kHeldSlices][4];
  fragments::Output o;
  Softmax softmax;

  KJIT_DEVICE Block(const flash_forward_params &params, uint32_t q_tile)
      : p(params), q_tile(q_tile),
        k(params.k, params.k_stride, key_head(params), q_tile + cfg::kQueryBytes, key_blocks(params) - 1),
        v(params.v, params.v_stride, key_head(params), q_tile + cfg::kQueryBytes + cfg::KTile::kBytes,
          key_blocks(params) - 1),
        at(q_tile, q_tile + cfg::kQueryBytes, q_tile + cfg::kQueryBytes + cfg::KTile::kBytes,
           threadIdx.x / kLanesPerWarp, threadIdx.x % kLanesPerWarp) {}

  // A warp's rows of Q and O. Each warp moves its own rows, so that only the warp itself has to wait for them.
  struct WarpRows {
    int lane;
    int first_in_tile;
    int first; // in the sequence

    KJIT_DEVICE explicit WarpRows(int thread)
        : lane(thread % kLanesPerWarp), first_in_tile(thread / kLanesPerWarp * cfg::kRowsPerWarp),
          first(query_tile() * cfg::kQueryRows + first_in_tile) {}

    template <typename Tile, int kColumns>
    KJIT_DEVICE TileCursor<Tile, kColumns, cfg::kRowsPerWarp, kLanesPerWarp>
    cursor(const void *tensor, const flash_forward_strides &stride) const {
      return {head_start(tensor, stride, blockIdx.y) + first * stride.seq * 2, stride.seq, lane};
    }
  };

  KJIT_DEVICE void load_query() const {
    const WarpRows rows(threadIdx.x);
    load_tile<cfg::kAsyncCopy, true>(q_tile, rows.first_in_tile,
                                     rows.cursor<cfg::QTile, cfg::kHeadDim>(p.q, p.q_stride), rows.lane,
                                     p.seq_q - rows.first);
    if constexpr (cfg::kAsyncCopy) cp_async_commit_group();
  }

  KJIT_DEVICE void hold_query() {
    if constexpr (fragments::kQHeld) {
      __syncwarp(); // the warp's other lanes have loaded the rest of its rows
      fragments::load_q<fragments::kHeldSlices>(held_q, at, 0);
    }
  }

  template <bool kMayBeLast, typename Source> KJIT_DEVICE void load_ragged(Source &source, int j) const {
    const bool is_last = kMayBeLast && j == key_blocks(p) - 1;
    if constexpr (cfg::kShortCode)
      source.template load<true>(is_last ? last_block_rows(p) : cfg::kKeyRows);
    else if (is_last)
      source.template load<true>(last_block_rows(p));
    else
      source.template load<false>(cfg::kKeyRows);
  }

#ifndef KJIT_variant
  // Scores that do not count become -inf: of keys that do not exist, and of those that a row does not see.
  KJIT_DEVICE void mask(fragments::Scores &s, int j) const {
    if constexpr (cfg::kCausal)
      mask_unseen(s, j);
    else if (j == key_blocks(p) - 1 && last_block_rows(p) < cfg::kKeyRows)
      mask_from(s, last_block_rows(p));
  }

  KJIT_DEVICE void mask_unseen(fragments::Scores &s, int j) const {
    const WarpRows rows(read_tid_x());
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int row = rows.first + m * 16 + r * 8 + rows.lane / 4;
        const int valid = keys_seen(p, row) - j * cfg::kKeyRows - rows.lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
          for (int i = 0; i < 2; i++)
            mask_unless_less(s[m][n][2 * r + i], n * 8 + i, valid);
      }
  }

  // One block of keys. kFirst: nothing has been accumulated yet. kMasked: it may be the last one visited, or hold keys
  // that some row does not see.
  template <bool kFirst, bool kMasked> KJIT_DEVICE void step(int j) {
    if constexpr (!cfg::kEagerLoads) load_ragged<kMasked>(k, j);
    wait_for_copies<0>();
    __syncthreads(); // K of block j is visible to all; everybody has finished with V of block j + 1
    if constexpr (cfg::kEagerLoads) load_ragged<kMasked>(v, j);

    float s[cfg::kRowTiles][cfg::kKeyTiles * 2][4] = {};
    fragments::scores(s, held_q, at, j);

    if constexpr (cfg::kEagerLoads) {
      wait_for_copies<0>();
      __syncthreads(); // V of block j is visible to all; everybody has finished with K of block j
      if (j > 0) k.template load<false>(cfg::kKeyRows);
    } else {
      load_ragged<kMasked>(v, j);
    }
    if constexpr (kMasked) mask(s, j);
    Softmax::Rows now, factors;
    if (softmax.find_maximum<kFirst>(s, now, p.scale, p.scale_log2)) {
      softmax.set_max<kFirst>(now, factors, p.scale_log2);
      if constexpr (!kFirst) softmax.rescale(o, factors);
    }
    softmax.exponentiate<kFirst>(s, p.scale_log2);
    uint32_t probabilities[cfg::kRowTiles][cfg::kKeyTiles][4];
    fragments::round_scores(probabilities, s);
    if constexpr (!cfg::kEagerLoads) {
      wait_for_copies<0>();
      __syncthreads(); // V of block j is visible to all; everybody has finished with K of block j
    }
    fragments::accumulate(o, probabilities, at, j);
  }
#endif

  KJIT_DEVICE void clear_output() {
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < cfg::kOutputTiles8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          o[m][n][i] = 0.0f;
  }

#ifndef KJIT_variant
  KJIT_DEVICE void run() {
    load_query();
    if constexpr (cfg::kEagerLoads) {
      load_ragged<true>(k, key_blocks(p) - 1);
      wait_for_copies<1>(); // Q is there, K on its way
    } else {
      wait_for_copies<0>();
    }
    hold_query();
    clear_output();
    int j = key_blocks(p) - 1;
    if constexpr (!cfg::kOptimizedSoftmax) {
      softmax.start();
#pragma unroll 1
      for (; j >= 0; j--)
        step<false, true>(j);
    } else if constexpr (cfg::kCausal) {
      softmax.start();
      const int masked = first_masked_block(p);
#pragma unroll 1
      for (; j >= masked; j--)
        step<false, true>(j);
#pragma unroll 1
      for (; j >= 0; j--)
        step<false, false>(j);
    } else {
      step<true, true>(j--);
#pragma unroll 1
      for (; j >= 0; j--)
        step<false, false>(j);
    }
  }
#endif

  KJIT_DEVICE void finish() {
    const WarpRows rows(read_tid_x());
    softmax.finish(o, p.scale, [&](int m, int r, float log_sum_exp) {
      const int query = rows.first + m * 16 + r * 8 + rows.lane / 4;
      if (p.lse != nullptr && rows.lane % 4 == 0 && query < p.seq_q)
        p.lse[blockIdx.z * p.lse_batch_stride + blockIdx.y * p.lse_head_stride + query] = log_sum_exp;
    });
    if constexpr (cfg::kShortCode)
      output_to_global(rows);
    else
      output_by_shared(rows);
  }

  KJIT_DEVICE void output_by_shared(const WarpRows &rows) const {
    if constexpr (cfg::QTile::kColumns == cfg::OTile::kColumns)
      __syncwarp(); // the warp's last read of its Q rows is over: O takes their place
    else
      __syncthreads(); // every warp's last read of Q is over: with another row length O's rows overlap other warps' Q
    output_to_shared(rows);
    __syncwarp(); // the rows below were written by other lanes
    store_tile(rows.cursor<cfg::OTile, cfg::kHeadDimV>(p.o, p.o_stride), q_tile, rows.first_in_tile, rows.lane,
               p.seq_q - rows.first);
  }

  // Store O straight from the registers, 4 bytes a thread at a time: two stores for each sector of global memory, but
  // much less code than the way through shared memory.
  KJIT_DEVICE void output_to_global(const WarpRows &rows) const {
    char *const head = (char *)head_start(p.o, p.o_stride, blockIdx.y) + rows.lane % 4 * 4;
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int query = rows.first + m * 16 + r * 8 + rows.lane / 4;
        char *const row = head + query * p.o_stride.seq * 2;
        if (query >= p.seq_q) continue;
#pragma unroll
        for (int n = 0; n < cfg::kOutputTiles8; n++)
          *(uint32_t *)(row + n * 16) = cvt_rn_x2(cfg::Element{}, o[m][n][2 * r], o[m][n][2 * r + 1]);
      }
  }

  KJIT_DEVICE void output_to_shared(const WarpRows &rows) const {
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < cfg::kOutputTiles8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int band = cfg::OTile::slice_band(n / 2);
          const int chunk = n - cfg::OTile::band_column(band) / kChunkElements;
          const int row = rows.first_in_tile + m * 16 + r * 8 + rows.lane / 4;
          const uint32_t offset = cfg::OTile::offset_in_band(cfg::OTile::band_width(band), row, chunk);
          st_shared_4(q_tile + cfg::OTile::band_offset(band) + offset + rows.lane % 4 * 4,
                      cvt_rn_x2(cfg::Element{}, o[m][n][2 * r], o[m][n][2 * r + 1]));
        }
  }
};

} // namespace

#ifdef KJIT_variant
#include "flash_forward/variant_block.cuh"
#else
using Parameters = flash_forward_params;
using KernelBlock = Block;
#endif

extern "C" __global__ __launch_bounds__(cfg::kThreads) void flash_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) char shared[];
  KernelBlock block(p, cvta_to_shared(shared));
  block.run();
  block.finish();
}
