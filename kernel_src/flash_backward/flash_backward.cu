// Attention backward with mma.sync, sm_80 and later: dq, dk and dv, each a sum in a fixed order, without atomics.
//
//   P = exp(scale * Q K^T - lse), delta = rowsum(dO * O) - dLSE, dS = P * (dO V^T - delta)
//   dV = P^T dO, dK = scale * dS^T Q, dQ = scale * dS K, each (batch, head) by itself
//
// Tensors   q, dq (batch, seq_q, heads_q, head_dim), k, dk (batch, seq_kv, heads_kv, head_dim), v, dv (…, head_dim_v),
//           o, dout (batch, seq_q, heads_q, head_dim_v), fp16 or bf16, any strides that are multiples of 8 elements,
//           columns contiguous; lse, dlse, delta (batch, heads_q, seq_q) fp32. Lengths from 1. Causal: row i sees keys
//           up to i + seq_kv - seq_q; gradients of what meets nothing are 0. dk and dv of a key head are the sums over
//           the query heads that share it.
// Passes    One source for several kernels, by the field `pass`: dq (which also writes delta), dk and dv, dk alone, dv
//           alone, delta alone. P and dS are computed anew in each, so a pass depends on no other but for delta.
// Grid      (ceil(own rows / tile), heads, batch): queries and heads_q for dq, keys and heads_kv for dk and dv.
// Warps     n_warps, each with its own rows of the block's tile. A step takes a tile of the other side: S = A B^T with
//           A the own rows, P and dS from it in registers, which are then the A operand of the sums.
// Shared    own tiles of head_dim and head_dim_v columns, then `stages` times a step's two tiles and, with queries as
//           the step, LSE and delta; heads in whole 16s. Gradients are stored through the memory of the own tiles.
// Registers rows of a warp * (columns of what is summed + 2 * rows of a step) / 32 for accumulators.
// Variants  With KJIT_variant the scores went through the caller's score function and mask (variant.cuh): P is made of
//           the changed score, dS is multiplied by the function's derivative, and steps that hold no seen pair are not
//           made.
// Tolerance max|dx - ref| <= 2 max|ref16 - ref| + a rounding against float64: P and dS are rounded to 16 bits once, the
//           sums once, all else is fp32.
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "flash_backward/config.cuh"
#include "flash_backward/params.h"
#include "flash_backward/products.cuh"
#include "flash_backward/row_delta.cuh"
#include "flash_backward/visible.cuh"
#include "flash_forward/tile_copy.cuh"

#if __CUDA_ARCH__ < 800
#error "flash_backward requires sm_80 or higher"
#endif

#ifdef KJIT_variant
#include "flash_backward/variant.cuh"
#include "flash_backward/variant_gradients.cuh"
using Parameters = flash_backward_variant_params;
#else
using Parameters = flash_backward_params;
#endif

namespace {

KJIT_DEVICE const char *head_start(const void *tensor, const flash_backward_strides &stride, int head) {
  return (const char *)tensor + (blockIdx.z * stride.batch + head * stride.head) * 2;
}

KJIT_DEVICE int64_t row_start(const flash_backward_row_strides &stride, int head) {
  return blockIdx.z * stride.batch + head * stride.head;
}

// The work of one block of threads: the gradients of the rows of one tile.
struct Block {
  static constexpr int kQueriesPerThread = ceil_div(cfg::kStepRows, cfg::kThreads);

  const flash_backward_params &p;
  const uint32_t shared;
  const int warp, lane;
  const int own_tile; // which tile of own rows
  const int own_head; // a query head for dq, a key head for dk and dv
  const LaneOffsets<cfg::OwnTile> own;
  const LaneOffsets<cfg::OwnValueTile> own_value;
  const LaneOffsets<cfg::StepTile> step_rows, step_columns;
  const LaneOffsets<cfg::StepValueTile> step_value_rows, step_value_columns;
  float dx[cfg::kRowTiles][cfg::kHeadDim / 8][4];  // dq or dk
  float dv[cfg::kRowTiles][cfg::kHeadDimV / 8][4]; // dv
  RowStatistics own_statistics[cfg::kRowTiles];    // with queries as own rows

#ifdef KJIT_variant
  const variant::Hooks hooks;
  const kjit_variant_tensor_argument *const gradients; // of the variant's tensors
  variant::Totals totals;
#endif

  KJIT_DEVICE Block(const Parameters &params, uint32_t shared)
      :
#ifdef KJIT_variant
        p(params.base),
#else
        p(params),
#endif
        shared(shared), warp(threadIdx.x / kLanesPerWarp), lane(threadIdx.x % kLanesPerWarp),
        own_tile(cfg::kCausal && !cfg::kOwnsKeys ? gridDim.x - 1 - blockIdx.x : blockIdx.x), own_head(blockIdx.y),
        own(products::own_addresses<cfg::OwnTile>(shared, warp, lane)),
        own_value(products::own_addresses<cfg::OwnValueTile>(shared + cfg::OwnTile::kBytes, warp, lane)),
        step_rows(products::row_addresses<cfg::StepTile>(stage_address(0), lane)),
        step_columns(products::column_addresses<cfg::StepTile>(stage_address(0), lane)),
        step_value_rows(products::row_addresses<cfg::StepValueTile>(stage_address(0) + cfg::StepTile::kBytes, lane)),
        step_value_columns(
            products::column_addresses<cfg::StepValueTile>(stage_address(0) + cfg::StepTile::kBytes, lane))
#ifdef KJIT_variant
        ,
        hooks(params.variant, blockIdx.z), gradients(params.gradients)
#endif
  {
  }

  // A stage is a tile of head_dim columns, one of head_dim_v columns, and the statistics.
  KJIT_DEVICE uint32_t stage_address(int stage) const {
    return shared + cfg::kOwnBytes + stage * cfg::kStageBytes;
  }
  KJIT_DEVICE uint32_t statistics_address(int stage) const {
    return stage_address(stage) + cfg::StepTile::kBytes + cfg::StepValueTile::kBytes;
  }

  // This thread's r-th row (0 or 1) of the warp's row tile m, in the sequence.
  KJIT_DEVICE int own_row(int m, int r) const {
    return own_tile * cfg::kOwnRows + warp * cfg::kRowsPerWarp + m * 16 + r * 8 + lane / 4;
  }

  // ---- Loading ----

  // Start copying `kRows` rows from `first` on of a head into a shared tile; rows from `length` on become zeros.
  template <typename Tile, int kColumns>
  KJIT_DEVICE void load(uint32_t tile, const void *tensor, const flash_backward_strides &stride, int head, int first,
                        int length) const {
    const TileCursor<Tile, kColumns, Tile::kRows, cfg::kThreads> cursor(
        head_start(tensor, stride, head) + (int64_t)first * stride.seq * 2, stride.seq, threadIdx.x);
    load_tile<true, true>(tile, 0, cursor, threadIdx.x, length - first);
  }

  KJIT_DEVICE void load_own() const {
    const int first = own_tile * cfg::kOwnRows;
    const uint32_t value = shared + cfg::OwnTile::kBytes;
    if constexpr (cfg::kOwnsKeys) {
      load<cfg::OwnTile, cfg::kHeadDim>(shared, p.k, p.k_stride, own_head, first, p.seq_kv);
      if constexpr (cfg::kNeedsDs)
        load<cfg::OwnValueTile, cfg::kHeadDimV>(value, p.v, p.v_stride, own_head, first, p.seq_kv);
    } else {
      load<cfg::OwnTile, cfg::kHeadDim>(shared, p.q, p.q_stride, own_head, first, p.seq_q);
      load<cfg::OwnValueTile, cfg::kHeadDimV>(value, p.dout, p.dout_stride, own_head, first, p.seq_q);
    }
  }

  KJIT_DEVICE void load_step(int head, int tile, int stage) const {
    const int first = tile * cfg::kStepRows;
    const uint32_t at = stage_address(stage), value = at + cfg::StepTile::kBytes;
    if constexpr (cfg::kOwnsKeys) {
      load<cfg::StepTile, cfg::kHeadDim>(at, p.q, p.q_stride, head, first, p.seq_q);
      load<cfg::StepValueTile, cfg::kHeadDimV>(value, p.dout, p.dout_stride, head, first, p.seq_q);
    } else {
      load<cfg::StepTile, cfg::kHeadDim>(at, p.k, p.k_stride, head, first, p.seq_kv);
      load<cfg::StepValueTile, cfg::kHeadDimV>(value, p.v, p.v_stride, head, first, p.seq_kv);
    }
    cp_async_commit_group();
  }

  // ---- Statistics ----

  // With queries as the step: a stage's queries, some to each thread. They are read into registers before a step and
  // written to shared memory after it, so that no thread waits for them.
  struct Statistics {
    float lse[kQueriesPerThread], delta[kQueriesPerThread];
  };

  KJIT_DEVICE void read_statistics(Statistics &s, int head, int tile) const {
#pragma unroll
    for (int i = 0; i < kQueriesPerThread; i++) {
      const int row = threadIdx.x + i * cfg::kThreads, query = tile * cfg::kStepRows + row;
      const bool exists = row < cfg::kStepRows && query < p.seq_q;
      s.lse[i] = exists ? lse_log2(p.lse[row_start(p.lse_stride, head) + query]) : infinity();
      s.delta[i] = cfg::kNeedsDs && exists ? p.delta[row_start(p.delta_stride, head) + query] : 0.0f;
    }
  }

  // Two neighbouring queries are 16 bytes: their two LSE, then their two delta.
  KJIT_DEVICE void write_statistics(const Statistics &s, int stage) const {
#pragma unroll
    for (int i = 0; i < kQueriesPerThread; i++) {
      const int row = threadIdx.x + i * cfg::kThreads;
      if (row >= cfg::kStepRows) break;
      const uint32_t at = statistics_address(stage) + row / 2 * 16 + row % 2 * 4;
      st_shared_4(at, __float_as_uint(s.lse[i]));
      st_shared_4(at + 8, __float_as_uint(s.delta[i]));
    }
  }

  // With queries as own rows: LSE and delta of this thread's rows.
  KJIT_DEVICE void find_own_statistics() {
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
      own_statistics[m] =
          ::own_statistics<cfg::Element, cfg::kHeadDimV>(p, blockIdx.z, own_head, {own_row(m, 0), own_row(m, 1)}, lane);
  }

  // ---- Steps ----

  // S becomes P. Pairs that do not meet get 0.
  template <bool kMasked> KJIT_DEVICE void exponentiate(products::Scores &s, int tile, int stage) const {
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles * 2; n++) {
      Chunk pair = {};
      if constexpr (cfg::kOwnsKeys) pair = ld_shared_16(statistics_address(stage) + (n * 4 + lane % 4) * 16);
#pragma unroll
      for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float lse = cfg::kOwnsKeys ? __uint_as_float(pair.word[i % 2]) : own_statistics[m].lse[i / 2];
          s[m][n][i] = ex2_approx(s[m][n][i] * p.scale_log2 - lse);
          if constexpr (kMasked) {
            const int column = tile * cfg::kStepRows + n * 8 + lane % 4 * 2 + i % 2, row = own_row(m, i / 2);
            const bool meet = cfg::kOwnsKeys ? column >= first_query(p, row) : column < keys_seen(p, row);
            if (!meet) s[m][n][i] = 0.0f;
          }
        }
    }
  }

  // dP becomes dS = P * (dP - delta).
  KJIT_DEVICE void differentiate(products::Scores &dp, const products::Scores &probabilities, int stage) const {
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles * 2; n++) {
      Chunk pair = {};
      if constexpr (cfg::kOwnsKeys) pair = ld_shared_16(statistics_address(stage) + (n * 4 + lane % 4) * 16);
#pragma unroll
      for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float delta = cfg::kOwnsKeys ? __uint_as_float(pair.word[2 + i % 2]) : own_statistics[m].delta[i / 2];
          dp[m][n][i] = probabilities[m][n][i] * (dp[m][n][i] - delta);
        }
    }
  }

  template <bool kMasked> KJIT_DEVICE void step(int tile, int stage, [[maybe_unused]] int query_head = 0) {
    const uint32_t at = stage * cfg::kStageBytes;
    products::Scores s;
    products::Rounded rounded;
#ifdef KJIT_variant
    products::Scores slopes;
    variant::PairBits seen;
    if constexpr (kMasked) variant::judge(*this, seen, query_head, tile);
    products::scores<cfg::kSlices>(s, own, step_rows, at);
    if constexpr (cfg::kComputesRead) products::copy(slopes, s); // the products, which P takes the place of
    variant::transform<kMasked>(*this, s, slopes, seen, query_head, tile, stage);
#else
    products::scores<cfg::kSlices>(s, own, step_rows, at);
    exponentiate<kMasked>(s, tile, stage);
#endif
    if constexpr (cfg::kComputesDv) {
      products::round(rounded, s);
      products::accumulate<cfg::kHeadDimV / 8>(dv, rounded, step_value_columns, at);
    }
#ifdef KJIT_variant
    if constexpr (cfg::kComputesRead) {
      products::Scores dp;
      products::scores<cfg::kValueSlices>(dp, own_value, step_value_rows, at);
      differentiate(dp, s, stage);
      variant::add_step(*this, slopes, dp, query_head, tile);
    }
#endif
    if constexpr (cfg::kNeedsDs) {
      products::Scores dp;
      products::scores<cfg::kValueSlices>(dp, own_value, step_value_rows, at);
#ifdef KJIT_variant
      if constexpr (variant::kScored) variant::apply_slopes(s, slopes);
#endif
      differentiate(dp, s, stage);
      products::round(rounded, dp);
      products::accumulate<cfg::kHeadDim / 8>(dx, rounded, step_columns, at);
    }
  }

  // All steps: over the tiles of keys for dq; over the query heads of the group, and for each over the tiles of
  // queries, for dk and dv. While a step computes, the tiles of the next one are on their way into the other stage.
  KJIT_DEVICE void run_steps() {
    const Steps steps = cfg::kOwnsKeys ? query_steps(p, own_tile) : key_steps(p, own_tile);
    const int heads = cfg::kOwnsKeys ? p.heads_per_kv : 1;
    const int first_head = cfg::kOwnsKeys ? own_head * p.heads_per_kv : own_head / p.heads_per_kv;
    if (steps.first >= steps.end) {
      cp_async_commit_group();
      cp_async_wait_group<0>();
      __syncthreads(); // the own tiles have arrived, so that gradients can take their place
      return;
    }
    int head = first_head, tile = steps.first, stage = 0;
    Statistics statistics;
    if constexpr (cfg::kOwnsKeys) read_statistics(statistics, head, tile);
    load_step(head, tile, 0);
    if constexpr (cfg::kOwnsKeys) write_statistics(statistics, 0);
#pragma unroll 1
    while (true) {
      cp_async_wait_group<0>();
      __syncthreads(); // this step's tiles are visible to all; everybody has finished with those of the step before
      const int next_tile = tile + 1 < steps.end ? tile + 1 : steps.first;
      const int next_head = tile + 1 < steps.end ? head : head + 1;
      const bool more = next_head < first_head + heads;
      const int next_stage = cfg::kStages == 2 ? stage ^ 1 : 0;
      if (more && cfg::kOwnsKeys) read_statistics(statistics, next_head, next_tile);
      if (more && cfg::kStages == 2) load_step(next_head, next_tile, next_stage);
#ifdef KJIT_variant
      const int query_head = cfg::kOwnsKeys ? head : own_head; // `head` is that of the step's rows
      const int state = variant::state_of(*this, query_head, tile);
      if (state != VARIANT_EMPTY) {
        if (state == VARIANT_PARTIAL || steps.is_masked(tile))
          step<true>(tile, stage, query_head);
        else
          step<false>(tile, stage, query_head);
      }
#else
      if (steps.is_masked(tile))
        step<true>(tile, stage);
      else
        step<false>(tile, stage);
#endif
      if (!more) break;
      if constexpr (cfg::kStages == 1) {
        __syncthreads(); // everybody has finished with this step's tiles
        load_step(next_head, next_tile, 0);
      }
      if constexpr (cfg::kOwnsKeys) write_statistics(statistics, next_stage);
      tile = next_tile;
      head = next_head;
      stage = next_stage;
    }
  }

  // ---- Storing ----

  // Round a gradient, times `factor`, and store it through the warp's own rows of a shared tile, which only this warp
  // has read.
  template <typename Tile, int kColumns>
  KJIT_DEVICE void store(const float (&x)[cfg::kRowTiles][kColumns / 8][4], float factor, uint32_t tile, void *tensor,
                         const flash_backward_strides &stride, int length) const {
    const int first_in_tile = warp * cfg::kRowsPerWarp, first = own_tile * cfg::kOwnRows + first_in_tile;
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < kColumns / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int band = Tile::slice_band(n / 2);
          const int chunk = n - Tile::band_column(band) / kChunkElements;
          const int row = first_in_tile + m * 16 + r * 8 + lane / 4;
          const uint32_t offset = Tile::offset_in_band(Tile::band_width(band), row, chunk);
          st_shared_4(tile + Tile::band_offset(band) + offset + lane % 4 * 4,
                      cvt_rn_x2(cfg::Element{}, x[m][n][2 * r] * factor, x[m][n][2 * r + 1] * factor));
        }
    __syncwarp(); // the rows below were written by other lanes
    const TileCursor<Tile, kColumns, cfg::kRowsPerWarp, kLanesPerWarp> cursor(
        head_start(tensor, stride, own_head) + (int64_t)first * stride.seq * 2, stride.seq, lane);
    store_tile(cursor, tile, first_in_tile, lane, length - first);
  }

  KJIT_DEVICE void store_gradients() const {
    __syncwarp(); // the warp's last reads of its own rows are over: gradients take their place
    const uint32_t value = shared + cfg::OwnTile::kBytes;
    if constexpr (cfg::kComputesDq) store<cfg::OwnTile, cfg::kHeadDim>(dx, p.scale, shared, p.dq, p.dq_stride, p.seq_q);
    if constexpr (cfg::kComputesDk)
      store<cfg::OwnTile, cfg::kHeadDim>(dx, p.scale, shared, p.dk, p.dk_stride, p.seq_kv);
    if constexpr (cfg::kComputesDv)
      store<cfg::OwnValueTile, cfg::kHeadDimV>(dv, 1.0f, value, p.dv, p.dv_stride, p.seq_kv);
  }

  template <int kColumns8> KJIT_DEVICE static void clear(float (&x)[cfg::kRowTiles][kColumns8][4]) {
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          x[m][n][i] = 0.0f;
  }

  KJIT_DEVICE void run() {
    if constexpr (cfg::kPass == FLASH_BACKWARD_DELTA) {
      find_own_statistics();
      return;
    }
    load_own();
    if constexpr (cfg::kComputesDelta) find_own_statistics();
    if constexpr (cfg::kNeedsDs) clear(dx);
    if constexpr (cfg::kComputesDv) clear(dv);
    run_steps();
#ifdef KJIT_variant
    if constexpr (cfg::kComputesRead) variant::add_totals(*this);
#endif
    store_gradients();
  }
};

} // namespace

extern "C" __global__ __launch_bounds__(cfg::kThreads) void flash_backward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) char shared[];
  Block block(p, cvta_to_shared(shared));
  block.run();
}
