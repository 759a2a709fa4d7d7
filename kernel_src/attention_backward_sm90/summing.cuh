// The kernel of five products (pass 7): a consumer that also computes its part of dQ, and the thread that adds it to
// the sums in global memory.
//
// A block owns 128 keys, 64 for each of two consumers, and steps over queries; dk and dv are summed in registers as
// consumer.cuh has it. dQ = dS K sums over all keys, so over blocks: each step computes the 128 keys' part. For that
// both consumers write their dS, transposed, to shared memory (a band of 64 keys each), meet at a barrier, and each
// multiplies its half of dQ: half of the rows, or half of the columns (config.cuh). There are two buffers of dS, so
// that one barrier a step is enough: who writes a buffer again has passed the barrier of the step between, which
// the other consumer passes only after its product of the step before has ended.
//
// The half goes to shared memory in the order of the accumulators, each thread its own 16 bytes at a time, and from
// there to the sums by one bulk addition, while the consumers go on with the next step. With `direct` each thread adds
// its registers itself.
//
// A step, pipelined, with its S there already: dP is issued; exponentials; dV issued; dS; dK issued; barrier; dQ
// issued; wait for dV and dK; S of the next step issued; wait for dQ, which is stored; wait for S. At the barrier dV
// and dK are in flight, while dQ is stored the next S. Were S issued before dV and dK have ended, ptxas would run out
// of registers (C7512); so it would with steps of 128 queries, were dV issued before dS has taken the place of dP.
#pragma once
#include <kjit/ptx/bulk_reduce.cuh>
#include <kjit/ptx/stmatrix_trans.cuh>

#include "attention_backward_sm90/consumer.cuh"
#include "attention_backward_sm90/sums.cuh"

template <int kColumns> struct SummingConsumer : Consumer {
  static constexpr int kDq8 = kColumns / 8;
  static constexpr bool kEarlyDv = !cfg::kSumsRows;
  using PartOfDq = Wgmma<cfg::Element, kColumns>;

  float dq[kDq8][4];
  int ds_slot = 0;
  int dq_parity = 0;

  using Consumer::Consumer;

  KJIT_DEVICE void run() {
    clear(dx);
    clear(dv);
    mbarrier_wait_parity(at.own_full(), 0);
    if (work.steps.first < work.steps.end) summing_steps();
    meet(); // the other consumer's products no longer read this one's keys, through whose memory dk is stored
    store_gradients();
  }

private:
  // The barrier of both consumers; those of Consumer::own_barrier() are 1 and 2.
  KJIT_DEVICE static void meet() { bar_sync(1 + cfg::kConsumers, cfg::kConsumers * kThreadsPerWarpgroup); }

  KJIT_DEVICE void issue_next_scores() {
    mbarrier_wait_parity(at.step_full(ring.slot), ring.parity);
    issue_scores<cfg::kHeadDim>(s, at.own(consumer), at.step(ring.slot));
  }

  // The last step of all has none behind it, so it stands apart; it is taken as a masked one. Keys behind the last are
  // masked, because their probabilities may be infinite.
  KJIT_DEVICE void summing_steps() {
    const Steps &steps = work.steps;
    const bool ragged = (work.tile + 1) * cfg::kOwnRows > p.rest.seq_kv;
    if constexpr (cfg::kPipelined) {
      issue_next_scores();
      wgmma_wait_group<0>();
    }
#pragma unroll 1
    for (int head = 0; head < work.step_heads; head++) {
      const int end = head + 1 < work.step_heads ? steps.end : steps.end - 1;
      int step = steps.first;
#pragma unroll 1
      for (; step < end && (ragged || step < steps.whole_first); step++)
        summing_step<true, false>(work.first_step_head + head, step);
#pragma unroll 1
      for (; step < end; step++)
        summing_step<false, false>(work.first_step_head + head, step);
    }
    summing_step<true, true>(work.first_step_head + work.step_heads - 1, steps.end - 1);
  }

  template <bool kMasked, bool kLast> KJIT_DEVICE void summing_step(int head, int step) {
    constexpr bool kNext = cfg::kPipelined && !kLast;
    const int slot = ring.slot, value_slot = values.slot;
    if constexpr (!cfg::kPipelined) issue_next_scores();
    mbarrier_wait_parity(at.value_full(value_slot), values.parity);
    issue_scores<cfg::kHeadDimV>(dp, at.own_value(consumer), at.step_value(value_slot));
    if constexpr (!cfg::kPipelined) wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>(); // S
    exponentiate<kMasked>(step, slot);
    if constexpr (kEarlyDv) sum_dv(value_slot);
    wgmma_wait_group<kEarlyDv && kWgmmaPartialWaits ? 1 : 0>(); // dP
    differentiate(slot);
    round(rounded_ds, dp);
    write_ds();
    if constexpr (!kEarlyDv) sum_dv(value_slot);
    wgmma_fence();
    issue_dx(slot);
    wgmma_commit_group();
    meet();
    issue_dq();
    wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>(); // dV and dK
    release(at.value_empty(value_slot));
    release_step(slot);
    ring.advance();
    values.advance();
    if constexpr (kNext) issue_next_scores();
    wgmma_wait_group<kNext && kWgmmaPartialWaits ? 1 : 0>(); // dQ
    if constexpr (cfg::kDirect)
      add_dq<kDq8>(*this, dq, head, step);
    else
      store_dq();
    if constexpr (kNext) wgmma_wait_group<0>();
    ds_slot ^= 1;
  }

  KJIT_DEVICE void sum_dv(int value_slot) {
    round(rounded_p, s);
    wgmma_fence();
    issue_dv(value_slot);
    wgmma_commit_group();
  }

  // dS to shared memory, transposed: rows are queries, this consumer's band has its 64 keys, with the 128-byte swizzle.
  KJIT_DEVICE void write_ds() const {
    const int row = lane / 16 * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
    const uint32_t to =
        at.ds(ds_slot) + consumer * cfg::kStepBandBytes + row * cfg::kRowBytes + ((chunk ^ lane % 8) << 4);
#pragma unroll
    for (int k = 0; k < kStep16; k++)
      stmatrix_trans_x4(to + k * 16 * cfg::kRowBytes, rounded_ds[k][0], rounded_ds[k][1], rounded_ds[k][2],
                        rounded_ds[k][3]);
    fence_async_proxy();
  }

  // Issue this consumer's half of dS K as one group: the bands of dS are the keys of the first and the second consumer.
  KJIT_DEVICE void issue_dq() {
    const int row = cfg::kSumsRows ? consumer * cfg::kGroupRows : 0;
    const int column = cfg::kSumsRows ? 0 : consumer * cfg::kDqColumns;
    constexpr int kBand = BACKWARD_SM90_BAND_COLUMNS;
    uint64_t a = wgmma_descriptor(at.ds(ds_slot) + row * cfg::kRowBytes, 16);
    asm volatile("" : "+l"(a)); // as in issue_scores()
    const uint64_t b =
        wgmma_descriptor(at.own(0) + column / kBand * cfg::kGroupBandBytes + column % kBand * 2, cfg::kGroupBandBytes);
    wgmma_fence();
#pragma unroll
    for (int keys = 0; keys < cfg::kConsumers; keys++)
#pragma unroll
      for (int k = 0; k < cfg::kGroupRows / 16; k++)
        PartOfDq::template mma_async_ss<false, true>(
            dq, a + wgmma_descriptor_step(keys * cfg::kStepBandBytes + k * 32),
            b + wgmma_descriptor_step(keys * cfg::kGroupBytes + k * 16 * cfg::kRowBytes), keys + k > 0);
    wgmma_commit_group();
  }

  // Hand this consumer's half over to the thread that adds it.
  KJIT_DEVICE void store_dq() {
    mbarrier_wait_parity(at.dq_empty(consumer), dq_parity ^ 1);
    dq_parity ^= 1;
    const uint32_t to = at.dq(consumer) + thread * kChunkBytes;
#pragma unroll
    for (int n = 0; n < kDq8; n++) {
      Chunk chunk;
#pragma unroll
      for (int i = 0; i < 4; i++)
        chunk.word[i] = __float_as_uint(dq[n][i]);
      st_shared_16(to + n * kThreadsPerWarpgroup * kChunkBytes, chunk);
    }
    fence_async_proxy();
    __syncwarp(); // the lanes' writes are behind their fences before one lane says so
    release(at.dq_full(consumer));
  }
};

// Adds one consumer's halves to the sums. One thread of the producer.
struct Adder {
  const attention_backward_sm90_params &p;
  const Layout at;
  const Work &work;
  const int consumer;

  KJIT_DEVICE void run() const {
    int parity = 0;
    work.for_each_step([&](int head, int step) {
      const Sums sums(p, work.batch, head);
      int *const turn = p.turns ? sums.turn(step, consumer) : nullptr;
      mbarrier_wait_parity(at.dq_full(consumer), parity);
      parity ^= 1;
      if (turn) wait_for_turn(p, work, turn, step);
      if (turn) fence_async_proxy_all();
      bulk_reduce_add_f32(part_of(sums, step, consumer), at.dq(consumer), cfg::kDqBytes);
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
      mbarrier_arrive(at.dq_empty(consumer));
      if (turn) pass_on(turn);
    });
    cp_async_bulk_wait_group<0>();
  }

private:
  KJIT_DEVICE static void pass_on(int *turn) {
    cp_async_bulk_wait_group<0>();
    fence_async_proxy_all();
    red_release_add(turn, 1);
  }
};
