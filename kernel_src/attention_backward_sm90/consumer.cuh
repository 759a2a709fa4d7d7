// A consumer: one warpgroup of 128 threads that owns 64 rows and sums their gradients.
//
// A step takes a tile of the other side: S = own * step^T and dP = own value * step value^T by wgmma, both operands in
// shared memory; P and dS in registers, rounded to 16 bits, which then are the A operands of the sums,
// dq or dk += dS * step and dv += P * step value.
//
// Without `pipelined` a step ends with its sums. With it the sums of a step are issued behind S and dP of the next one,
// and run while that one's P and dS are computed; its tiles are given back a step later. Every product is waited for
// in the straight line of code that issues it, because ptxas serialises products that are in flight across a loop's end
// or a branch (warnings C7510 to C7519); so masked steps have a loop of their own.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/stmatrix.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>

#include "attention_backward_sm90/pipeline.cuh"
#include "attention_backward_sm90/schedule.cuh"
#include "flash_backward/row_delta.cuh"

struct Consumer {
  static constexpr int kStep8 = cfg::kScoreRows / 8;
  static constexpr int kStep16 = cfg::kScoreRows / 16;
  static constexpr int kDx8 = cfg::kSumColumns / 8;
  static constexpr int kDv8 = cfg::kSumValueColumns / 8;
  using Scores = Wgmma<cfg::Element, cfg::kScoreRows>;

  const attention_backward_sm90_params &p;
  const Layout at;
  const Work &work;
  const int consumer, thread, warp, lane;
  Ring<cfg::kStages> ring; // of the next step
  Ring<cfg::kValueStages> values;
  float s[kStep8][4], dp[kStep8][4]; // S, then P; dP, then dS
  float dx[kDx8][4];                 // dq or dk
  float dv[kDv8][4];
  uint32_t rounded_p[kStep16][4], rounded_ds[kStep16][4];
  RowStatistics own; // with queries as own rows

  KJIT_DEVICE Consumer(const attention_backward_sm90_params &params, Layout layout, const Work &work, int consumer,
                       int thread)
      : p(params), at(layout), work(work), consumer(consumer), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp) {}

  KJIT_DEVICE void run() {
    if constexpr (cfg::kComputesDq)
      own = own_statistics<cfg::Element, cfg::kHeadDimV>(p.rest, work.batch, work.head, {own_row(0), own_row(1)}, lane);
    if constexpr (cfg::kNeedsDs) clear(dx);
    if constexpr (cfg::kComputesDv) clear(dv);
    mbarrier_wait_parity(at.own_full(), 0);
    const Steps &steps = work.steps;
    if (steps.first < steps.end) {
      if constexpr (cfg::kPipelined)
        pipelined_steps();
      else
        plain_steps();
    }
    store_gradients();
  }

protected:
  KJIT_DEVICE int own_barrier() const { return 1 + consumer; }

  // The r-th (0 or 1) of this thread's two rows, in the sequence.
  KJIT_DEVICE int own_row(int r) const {
    return work.tile * cfg::kOwnRows + own_group() * cfg::kGroupRows + warp * 16 + lane / 4 + 8 * r;
  }
  KJIT_DEVICE int own_group() const { return cfg::kShares || cfg::kSplits ? 0 : consumer; }

  // The first row of a step that this consumer computes scores of.
  KJIT_DEVICE int first_score() const { return cfg::kShares ? consumer * cfg::kScoreRows : 0; }

  template <int kTiles8> KJIT_DEVICE static void clear(float (&x)[kTiles8][4]) {
#pragma unroll
    for (int n = 0; n < kTiles8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        x[n][i] = 0.0f;
  }

  // ---- Products ----

  // What to add to a descriptor for the product `depth`, 16 columns each: 32 bytes within a band of 64 columns; the
  // next band lies behind all rows of this one.
  KJIT_DEVICE static uint64_t band_step(int rows, int depth) {
    return wgmma_descriptor_step(depth / 4 * rows * cfg::kRowBytes + depth % 4 * 32);
  }

  // Issue c = own * step^T over kColumns columns, as one group.
  template <int kColumns>
  KJIT_DEVICE static void issue_scores(float (&c)[kStep8][4], uint32_t own_rows, uint32_t step) {
    uint64_t a = wgmma_descriptor(own_rows, 16);
    // Without this the descriptors of all steps would be computed once, kept in registers, and spilled.
    asm volatile("" : "+l"(a));
    const uint64_t b = wgmma_descriptor(step, 16);
    wgmma_fence();
    wgmma_sum_ss<Scores, (kColumns + 15) / 16>(
        c, a, [](int d) { return band_step(cfg::kGroupRows, d); }, b,
        [](int d) { return band_step(cfg::kStepRows, d); }, 0);
    wgmma_commit_group();
  }

  // Issue c += a * step, without closing the group.
  template <int kColumns>
  KJIT_DEVICE static void issue_sum(float (&c)[kColumns / 8][4], const uint32_t (&a)[kStep16][4], uint32_t step) {
    const uint64_t b = wgmma_descriptor(step, cfg::kStepBandBytes);
    wgmma_sum_rs<Wgmma<cfg::Element, kColumns>, kStep16, true>(
        c, a, b, [](int k) { return wgmma_descriptor_step(k * 16 * cfg::kRowBytes); }, 1);
  }

  KJIT_DEVICE void issue_dv(int slot) {
    if constexpr (cfg::kComputesDv) issue_sum<cfg::kSumValueColumns>(dv, rounded_p, at.step_value(slot));
  }
  KJIT_DEVICE void issue_dx(int slot) {
    if constexpr (cfg::kNeedsDs) issue_sum<cfg::kSumColumns>(dx, rounded_ds, at.step(slot));
  }

  // One lane arrives for its warp. This suits what only products have read; for what a lane has read or written itself
  // it arrives by itself.
  KJIT_DEVICE void release(uint32_t barrier) const {
    if (lane == 0) mbarrier_arrive(barrier);
  }
  // Give a tile of head_dim columns back, with the statistics beside it, which every lane has read.
  KJIT_DEVICE void release_step(int slot) const {
    if constexpr (cfg::kOwnsKeys)
      mbarrier_arrive(at.step_empty(slot));
    else
      release(at.step_empty(slot));
  }

  // ---- P and dS ----

  // Two neighbouring queries of the step: their LSE in words 0 and 1, their delta in words 2 and 3.
  KJIT_DEVICE Chunk query_pair(int slot, int n) const {
    return ld_shared_16(at.statistics(slot) + (first_score() / 2 + n * 4 + lane % 4) * 16);
  }

  // S becomes P. Pairs that do not meet get 0.
  template <bool kMasked> KJIT_DEVICE void exponentiate(int step, int slot) {
    const float scale = p.rest.scale_log2;
    int limit[2] = {0, 0}; // own row r meets columns below, or for keys from here on
    if constexpr (kMasked) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        limit[r] = (cfg::kOwnsKeys ? first_query(p.rest, own_row(r)) : keys_seen(p.rest, own_row(r))) -
                   step * cfg::kStepRows - first_score() - lane % 4 * 2;
        if (cfg::kSumsDq && own_row(r) >= p.rest.seq_kv) limit[r] = cfg::kStepRows; // dq sums over keys: none of these
      }
    }
#pragma unroll
    for (int n = 0; n < kStep8; n++) {
      Chunk pair = {};
      if constexpr (cfg::kOwnsKeys) pair = query_pair(slot, n);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float lse = cfg::kOwnsKeys ? __uint_as_float(pair.word[i % 2]) : own.lse[i / 2];
        s[n][i] = ex2_approx(s[n][i] * scale - lse);
        if constexpr (kMasked) {
          const int column = n * 8 + i % 2;
          const bool meet = cfg::kOwnsKeys ? column >= limit[i / 2] : column < limit[i / 2];
          if (!meet) s[n][i] = 0.0f;
        }
      }
    }
  }

  // dP becomes dS = P * (dP - delta).
  KJIT_DEVICE void differentiate(int slot) {
#pragma unroll
    for (int n = 0; n < kStep8; n++) {
      Chunk pair = {};
      if constexpr (cfg::kOwnsKeys) pair = query_pair(slot, n);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float delta = cfg::kOwnsKeys ? __uint_as_float(pair.word[2 + i % 2]) : own.delta[i / 2];
        dp[n][i] = s[n][i] * (dp[n][i] - delta);
      }
    }
  }

  // The accumulators of 16 columns lie in the threads as the A operand of a product does: rounding needs no exchange.
  KJIT_DEVICE static void round(uint32_t (&out)[kStep16][4], const float (&c)[kStep8][4]) {
#pragma unroll
    for (int k = 0; k < kStep16; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        out[k][i] = cvt_rn_x2(cfg::Element{}, c[2 * k + i / 2][i % 2 * 2], c[2 * k + i / 2][i % 2 * 2 + 1]);
  }

  // ---- Steps ----

  // Call masked(step) and whole(step) for the steps of one head from `first` on: those on the diagonal come first with
  // keys as own rows, last with queries.
  template <typename Masked, typename Whole>
  KJIT_DEVICE void for_each_step(int first, Masked masked, Whole whole) const {
    const Steps &steps = work.steps;
    int step = first;
    if constexpr (cfg::kOwnsKeys && cfg::kCausal) {
#pragma unroll 1
      for (; step < steps.end && step < steps.whole_first; step++)
        masked(step);
    }
    const int end = cfg::kOwnsKeys || steps.whole_end > steps.end ? steps.end : steps.whole_end;
#pragma unroll 1
    for (; step < end; step++)
      whole(step);
    if constexpr (!cfg::kOwnsKeys) {
#pragma unroll 1
      for (; step < steps.end; step++)
        masked(step);
    }
  }

  KJIT_DEVICE void issue_both_scores() {
    mbarrier_wait_parity(at.step_full(ring.slot), ring.parity);
    issue_scores<cfg::kHeadDim>(s, at.own(consumer), at.step(ring.slot));
    mbarrier_wait_parity(at.value_full(values.slot), values.parity);
    if constexpr (cfg::kNeedsDs) issue_scores<cfg::kHeadDimV>(dp, at.own_value(consumer), at.step_value(values.slot));
  }

  KJIT_DEVICE void plain_steps() {
#pragma unroll 1
    for (int head = 0; head < work.step_heads; head++)
      for_each_step(
          work.steps.first, [&](int step) { plain_step<true>(step); }, [&](int step) { plain_step<false>(step); });
  }

  template <bool kMasked> KJIT_DEVICE void plain_step(int step) {
    issue_both_scores();
    wgmma_wait_group<cfg::kNeedsDs && kWgmmaPartialWaits ? 1 : 0>();
    exponentiate<kMasked>(step, ring.slot);
    if constexpr (cfg::kComputesDv) {
      round(rounded_p, s);
      wgmma_fence();
      issue_dv(values.slot);
      wgmma_commit_group();
    }
    if constexpr (cfg::kNeedsDs) {
      wgmma_wait_group<cfg::kComputesDv && kWgmmaPartialWaits ? 1 : 0>(); // dP; dv may be in flight
      differentiate(ring.slot);
      round(rounded_ds, dp);
      wgmma_fence();
      issue_dx(ring.slot);
      wgmma_commit_group();
    }
    wgmma_wait_group<0>();
    release_step(ring.slot);
    release(at.value_empty(values.slot));
    ring.advance();
    values.advance();
  }

  // The first step of all has no sums before it, so it stands apart; it is taken as a masked one.
  KJIT_DEVICE void pipelined_steps() {
    int first = work.steps.first, slot = ring.slot, value_slot = values.slot;
    issue_both_scores();
    wgmma_wait_group<0>();
    compute<true>(first);
    first++;
#pragma unroll 1
    for (int head = 0; head < work.step_heads; head++) {
      for_each_step(
          first, [&](int step) { pipelined_step<true>(step, slot, value_slot); },
          [&](int step) { pipelined_step<false>(step, slot, value_slot); });
      first = work.steps.first;
    }
    wgmma_fence();
    issue_dv(value_slot);
    issue_dx(slot);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  // P and dS of the step whose S and dP are there. The tile of head_dim_v columns is given back, unless dv needs it.
  template <bool kMasked> KJIT_DEVICE void compute(int step) {
    exponentiate<kMasked>(step, ring.slot);
    if constexpr (cfg::kNeedsDs) differentiate(ring.slot);
    finish_compute();
  }

  KJIT_DEVICE void finish_compute() {
    if constexpr (!cfg::kComputesDv) release(at.value_empty(values.slot));
    if constexpr (cfg::kComputesDv) round(rounded_p, s);
    if constexpr (cfg::kNeedsDs) round(rounded_ds, dp);
    ring.advance();
    values.advance();
  }

  // slot, value_slot: the tiles of the step before, whose sums are still to be issued.
  template <bool kMasked> KJIT_DEVICE void pipelined_step(int step, int &slot, int &value_slot) {
    issue_both_scores();
    wgmma_fence();
    issue_dv(value_slot);
    issue_dx(slot);
    wgmma_commit_group();
    wgmma_wait_group<!kWgmmaPartialWaits ? 0 : cfg::kNeedsDs ? 2 : 1>(); // S
    exponentiate<kMasked>(step, ring.slot);
    if constexpr (cfg::kNeedsDs) {
      wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>(); // dP
      differentiate(ring.slot);
    }
    wgmma_wait_group<0>();
    release_step(slot);
    if constexpr (cfg::kComputesDv) release(at.value_empty(value_slot));
    slot = ring.slot;
    value_slot = values.slot;
    finish_compute();
  }

  // ---- Storing ----

  KJIT_DEVICE void store_gradients() {
    if constexpr (cfg::kNeedsDs) to_shared<cfg::kSumColumns>(dx, p.rest.scale, at.own(consumer));
    if constexpr (cfg::kComputesDv) to_shared<cfg::kSumValueColumns>(dv, 1.0f, at.own_value(consumer));
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread != 0) return;
    if constexpr (cfg::kNeedsDs) store<cfg::kHeadDim>(p.out, at.own(consumer));
    if constexpr (cfg::kComputesDv) store<cfg::kHeadDimV>(p.out_value, at.own_value(consumer));
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>(); // shared memory must live until TMA has read it
  }

  template <int kColumns, int kStride = cfg::kGroupBandBytes>
  KJIT_DEVICE void store(const attention_backward_map &map, uint32_t shared) const {
    const int row = work.tile * cfg::kOwnRows + own_group() * cfg::kGroupRows;
    for (int i = 0; i < cfg::bands(kColumns); i++)
      tma_store((const TensorMap *)&map, shared + i * kStride, i * 64, row, work.head, work.batch);
  }

  // Write a gradient, times `factor`, to shared memory, 16 columns at a time, with the 128-byte swizzle that TMA
  // expects: 16-byte chunk index XOR row % 8. No product reads these rows any more.
  template <int kColumns, int kStride = cfg::kGroupBandBytes>
  KJIT_DEVICE void to_shared(const float (&x)[kColumns / 8][4], float factor, uint32_t out) const {
    const int row = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll
    for (int d = 0; d < (kColumns / 8 + 1) / 2; d++) {
      const uint32_t row_at = out + d / 4 * kStride + row * cfg::kRowBytes;
      const uint32_t address = row_at + (((d % 4 * 2 + half) ^ (row % 8)) << 4);
      const uint32_t r0 = pack(x[2 * d], 0, factor), r1 = pack(x[2 * d], 2, factor);
      constexpr int kTiles8 = kColumns / 8;
      const int next = 2 * d + 1 < kTiles8 ? 2 * d + 1 : 0;
      if (2 * d + 1 < kTiles8)
        stmatrix_x4(address, r0, r1, pack(x[next], 0, factor), pack(x[next], 2, factor));
      else
        stmatrix_x2(address, r0, r1);
    }
  }
  KJIT_DEVICE static uint32_t pack(const float (&c)[4], int i, float factor) {
    return cvt_rn_x2(cfg::Element{}, c[i] * factor, c[i + 1] * factor);
  }
};
