// The kernel of five products (pass 7) for heads of more than 192 columns: both consumers share 64 keys, because a
// thread cannot hold dk and dv of its own. Each computes the scores of half of a step's queries, and then sums half of
// the columns of dk, of dv and of dq over all of them.
//
// So P and dS go through shared memory: rows are keys, columns the 64 queries of the step. As A of dV and dK a tile is
// read by rows, as A of dQ by columns. There are two buffers, so that one barrier a step is enough (summing.cuh says
// why). dQ is added to its sums from registers.
//
// A step, pipelined, with its S there already: dP is issued; exponentials; dS; barrier; dQ, dV and dK issued; wait for
// dQ, which is added; S of the next step issued; wait for all.
#pragma once
#include <kjit/ptx/stmatrix.cuh>

#include "attention_backward_sm90/consumer.cuh"
#include "attention_backward_sm90/sums.cuh"

template <int kColumns> struct SharingConsumer : Consumer {
  using Half = Wgmma<cfg::Element, kColumns>;
  static constexpr int kBandsOfHalf = cfg::bands(kColumns);
  static constexpr int kTileBytes = cfg::kStepBandBytes; // P, or dS, of 64 keys

  float dq[kColumns / 8][4];
  int buffer = 0;

  using Consumer::Consumer;

  KJIT_DEVICE void run() {
    clear(dx);
    clear(dv);
    mbarrier_wait_parity(at.own_full(), 0);
    if (work.steps.first < work.steps.end) sharing_steps();
    __threadfence(); // this thread's additions come before the count
    meet();          // the other consumer's products no longer read the keys, through whose memory dk is stored
    count_part(*this);
    store_halves();
  }

private:
  KJIT_DEVICE static void meet() { bar_sync(1 + cfg::kConsumers, cfg::kConsumers * kThreadsPerWarpgroup); }

  // As SummingConsumer has it: the last step of all stands apart, keys behind the last are masked.
  KJIT_DEVICE void sharing_steps() {
    const Steps &steps = work.steps;
    const bool ragged = (work.tile + 1) * cfg::kOwnRows > p.rest.seq_kv;
    if constexpr (cfg::kPipelined) {
      issue_next_scores();
      wgmma_wait_group<0>();
    }
#pragma unroll 1
    for (int i = 0; i < work.step_heads; i++) {
      const int end = i + 1 < work.step_heads ? steps.end : steps.end - 1, head = work.first_step_head + i;
      int step = steps.first;
#pragma unroll 1
      for (; step < end && (ragged || step < steps.whole_first); step++)
        sharing_step<true, false>(head, step);
#pragma unroll 1
      for (; step < end; step++)
        sharing_step<false, false>(head, step);
    }
    sharing_step<true, true>(work.first_step_head + work.step_heads - 1, steps.end - 1);
  }

  KJIT_DEVICE void issue_next_scores() {
    mbarrier_wait_parity(at.step_full(ring.slot), ring.parity);
    issue_scores<cfg::kHeadDim>(s, at.own(0), at.step(ring.slot) + first_score() * cfg::kRowBytes);
  }

  template <bool kMasked, bool kLast> KJIT_DEVICE void sharing_step(int head, int step) {
    constexpr bool kNext = cfg::kPipelined && !kLast;
    const int slot = ring.slot, value_slot = values.slot;
    if constexpr (!cfg::kPipelined) issue_next_scores();
    mbarrier_wait_parity(at.value_full(value_slot), values.parity);
    issue_scores<cfg::kHeadDimV>(dp, at.own_value(0), at.step_value(value_slot) + first_score() * cfg::kRowBytes);
    if constexpr (!cfg::kPipelined) wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>(); // S
    exponentiate<kMasked>(step, slot);
    round(rounded_p, s);
    write(rounded_p, at.ds(buffer));
    wgmma_wait_group<0>(); // dP
    differentiate(slot);
    round(rounded_ds, dp);
    write(rounded_ds, at.ds(buffer) + kTileBytes);
    fence_async_proxy();
    meet();
    issue_sums(slot, value_slot);
    wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>(); // dQ
    add_dq<kColumns / 8>(*this, dq, head, step);
    ring.advance();
    values.advance();
    if constexpr (kNext) issue_next_scores();
    wgmma_wait_group<kNext && kWgmmaPartialWaits ? 1 : 0>(); // dV and dK
    release(at.value_empty(value_slot));
    release_step(slot);
    if constexpr (kNext) wgmma_wait_group<0>();
    buffer ^= 1;
  }

  // This consumer's columns of P or dS to shared memory, with the 128-byte swizzle.
  KJIT_DEVICE void write(const uint32_t (&x)[kStep16][4], uint32_t tile) const {
    const int row = warp * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < kStep16; k++) {
      const int chunk = first_score() / 8 + 2 * k + lane / 16;
      stmatrix_x4(tile + row * cfg::kRowBytes + ((chunk ^ row % 8) << 4), x[k][0], x[k][1], x[k][2], x[k][3]);
    }
  }

  // Issue dQ as one group, dV and dK as another.
  KJIT_DEVICE void issue_sums(int slot, int value_slot) {
    const uint32_t p_tile = at.ds(buffer), ds_tile = p_tile + kTileBytes;
    const int band = consumer * kBandsOfHalf;
    wgmma_fence();
    issue_half<true>(dq, ds_tile, at.own(0) + band * cfg::kGroupBandBytes, cfg::kGroupBandBytes, 0);
    wgmma_commit_group();
    issue_half<false>(dv, p_tile, at.step_value(value_slot) + band * cfg::kStepBandBytes, cfg::kStepBandBytes, 1);
    issue_half<false>(dx, ds_tile, at.step(slot) + band * cfg::kStepBandBytes, cfg::kStepBandBytes, 1);
    wgmma_commit_group();
  }

  // Issue c (+)= a * b over 64 keys or queries; with kTransA a is read by columns.
  template <bool kTransA>
  KJIT_DEVICE static void issue_half(float (&c)[kColumns / 8][4], uint32_t a_tile, uint32_t b_tile, int band_bytes,
                                     int accumulate) {
    uint64_t a = wgmma_descriptor(a_tile, kTileBytes);
    asm volatile("" : "+l"(a)); // as in issue_scores()
    const uint64_t b = wgmma_descriptor(b_tile, band_bytes);
    wgmma_sum_ss<Half, cfg::kStepRows / 16, kTransA, true>(
        c, a, [](int k) { return wgmma_descriptor_step(k * (kTransA ? 16 * cfg::kRowBytes : 32)); }, b,
        [](int k) { return wgmma_descriptor_step(k * 16 * cfg::kRowBytes); }, accumulate);
  }

  // This consumer's columns of dk and dv, through the memory of the keys and values, of which it writes its own bands.
  KJIT_DEVICE void store_halves() const {
    const int band = consumer * kBandsOfHalf;
    const uint32_t dk_tile = at.own(0) + band * cfg::kGroupBandBytes;
    const uint32_t dv_tile = at.own_value(0) + band * cfg::kGroupBandBytes;
    to_shared<kColumns>(dx, p.rest.scale, dk_tile);
    to_shared<kColumns>(dv, 1.0f, dv_tile);
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread != 0) return;
    for (int i = 0; i < kBandsOfHalf; i++) {
      const int column = (band + i) * BACKWARD_SM90_BAND_COLUMNS, row = work.tile * cfg::kOwnRows;
      tma_store((const TensorMap *)&p.out, dk_tile + i * cfg::kGroupBandBytes, column, row, work.head, work.batch);
      tma_store((const TensorMap *)&p.out_value, dv_tile + i * cfg::kGroupBandBytes, column, row, work.head,
                work.batch);
    }
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>(); // shared memory must live until TMA has read it
  }
};
