// dk and dv by one kernel (pass 6) for both head sizes above 128, where a thread cannot hold the sums of both: the two
// consumers have the same 64 keys, and one sums dv, the other dk.
//
// The first computes S and P, the second dP and dS. P goes from the one to the other through shared memory, rounded as
// it is as an operand: each thread writes what the same thread of the other consumer reads. Neither waits for the
// other's products, so that one's exponentials run beside the other one's products.
//
// A step, with its S (dP) there already: P (dS) is computed; its sum is issued, and S (dP) of the next step behind it;
// wait for the sum, whose tile is given back; wait for the rest, because products may not be in flight across a loop's
// end (consumer.cuh).
#pragma once
#include <kjit/ptx/cvt_f32.cuh>

#include "attention_backward_sm90/consumer.cuh"

struct SplittingConsumer : Consumer {
  static constexpr int kPending = kWgmmaPartialWaits ? 1 : 0;

  // Both use the same registers, because ptxas would otherwise move them between products in flight (C7514): these for
  // what they sum, `s` for S or dP, `rounded_p` for the sum's operand; the second has P in `dp`.
  static constexpr int kMost = cfg::kHeadDim > cfg::kHeadDimV ? cfg::kHeadDim : cfg::kHeadDimV;
  float sums[kMost / 8][4];
  int parity = 0; // of P

  using Consumer::Consumer;

  KJIT_DEVICE void run() {
    mbarrier_wait_parity(at.own_full(), 0);
    const bool has_steps = work.steps.first < work.steps.end;
    if (consumer == 0) {
      clear(sums);
      if (has_steps) value_steps();
      meet(); // the other consumer's products no longer read the values, through whose memory dv is stored
      store_sum<cfg::kHeadDimV>(sum<cfg::kHeadDimV>(), 1.0f, at.own_value(0), p.out_value);
    } else {
      clear(sums);
      if (has_steps) key_steps();
      meet(); // likewise for the keys and dk
      store_sum<cfg::kHeadDim>(sum<cfg::kHeadDim>(), p.rest.scale, at.own(0), p.out);
    }
  }

private:
  template <int kColumns> using Sum = float[kColumns / 8][4];
  template <int kColumns> KJIT_DEVICE Sum<kColumns> &sum() { return *(Sum<kColumns> *)sums; }

  KJIT_DEVICE static void meet() { bar_sync(1 + cfg::kConsumers, cfg::kConsumers * kThreadsPerWarpgroup); }

  // ---- The consumer that sums dv ----

  // The last step of all has none behind it, so it stands apart; it is taken as a masked one.
  KJIT_DEVICE void value_steps() {
    const Steps &steps = work.steps;
    issue_next_scores();
    wgmma_wait_group<0>();
#pragma unroll 1
    for (int head = 0; head < work.step_heads; head++) {
      const int end = head + 1 < work.step_heads ? steps.end : steps.end - 1;
      int step = steps.first;
#pragma unroll 1
      for (; step < end && step < steps.whole_first; step++)
        value_step<true, false>(step);
#pragma unroll 1
      for (; step < end; step++)
        value_step<false, false>(step);
    }
    value_step<true, true>(steps.end - 1);
  }

  KJIT_DEVICE void issue_next_scores() {
    mbarrier_wait_parity(at.step_full(ring.slot), ring.parity);
    issue_scores<cfg::kHeadDim>(s, at.own(0), at.step(ring.slot));
  }

  template <bool kMasked, bool kLast> KJIT_DEVICE void value_step(int step) {
    const int value_slot = values.slot;
    exponentiate<kMasked>(step, ring.slot);
    release_step(ring.slot);
    ring.advance();
    round(rounded_p, s);
    pass_p_on();
    mbarrier_wait_parity(at.value_full(value_slot), values.parity);
    values.advance();
    wgmma_fence();
    issue_sum<cfg::kHeadDimV>(sum<cfg::kHeadDimV>(), rounded_p, at.step_value(value_slot));
    wgmma_commit_group();
    if constexpr (!kLast) issue_next_scores();
    wgmma_wait_group<kLast ? 0 : kPending>(); // dV
    release(at.value_empty(value_slot));
    if constexpr (!kLast) wgmma_wait_group<0>();
  }

  KJIT_DEVICE uint32_t p_of_thread(int k) const {
    return at.p() + (k * kThreadsPerWarpgroup + thread) * kChunkBytes;
  }

  KJIT_DEVICE void pass_p_on() {
    mbarrier_wait_parity(at.p_empty(), parity ^ 1);
    parity ^= 1;
#pragma unroll
    for (int k = 0; k < kStep16; k++)
      st_shared_16(p_of_thread(k), Chunk{{rounded_p[k][0], rounded_p[k][1], rounded_p[k][2], rounded_p[k][3]}});
    mbarrier_arrive(at.p_full());
  }

  // ---- The consumer that sums dk ----

  KJIT_DEVICE void key_steps() {
    const int count = work.step_heads * (work.steps.end - work.steps.first);
    issue_next_dp();
    wgmma_wait_group<0>();
#pragma unroll 1
    for (int i = 0; i < count - 1; i++)
      key_step<false>();
    key_step<true>();
  }

  KJIT_DEVICE void issue_next_dp() {
    mbarrier_wait_parity(at.value_full(values.slot), values.parity);
    issue_scores<cfg::kHeadDimV>(s, at.own_value(0), at.step_value(values.slot));
  }

  template <bool kLast> KJIT_DEVICE void key_step() {
    const int slot = ring.slot;
    release(at.value_empty(values.slot));
    values.advance();
    mbarrier_wait_parity(at.step_full(slot), ring.parity);
    ring.advance();
    take_p();
    differentiate_into_s(slot);
    round(rounded_p, s);
    wgmma_fence();
    issue_sum<cfg::kHeadDim>(sum<cfg::kHeadDim>(), rounded_p, at.step(slot));
    wgmma_commit_group();
    if constexpr (!kLast) issue_next_dp();
    wgmma_wait_group<kLast ? 0 : kPending>(); // dK
    release_step(slot);
    if constexpr (!kLast) wgmma_wait_group<0>();
  }

  KJIT_DEVICE void take_p() {
    mbarrier_wait_parity(at.p_full(), parity);
    parity ^= 1;
#pragma unroll
    for (int k = 0; k < kStep16; k++) {
      const Chunk chunk = ld_shared_16(p_of_thread(k));
#pragma unroll
      for (int i = 0; i < 4; i++)
        cvt_f32_x2(cfg::Element{}, chunk.word[i], dp[2 * k + i / 2][i % 2 * 2], dp[2 * k + i / 2][i % 2 * 2 + 1]);
    }
    mbarrier_arrive(at.p_empty());
  }

  KJIT_DEVICE void differentiate_into_s(int slot) {
#pragma unroll
    for (int n = 0; n < kStep8; n++) {
      const Chunk pair = query_pair(slot, n);
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[n][i] = dp[n][i] * (s[n][i] - __uint_as_float(pair.word[2 + i % 2]));
    }
  }

  // ---- Storing ----

  // Through the memory of own rows.
  template <int kColumns>
  KJIT_DEVICE void store_sum(const float (&sum)[kColumns / 8][4], float factor, uint32_t own,
                             const attention_backward_map &map) const {
    to_shared<kColumns>(sum, factor, own);
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread != 0) return;
    store<kColumns>(map, own);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>(); // shared memory must live until TMA has read it
  }
};
