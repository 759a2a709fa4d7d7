// The kernel of five products (pass 7): a consumer that also computes its part of dQ, which a thread of the producer
// adds to the sums in global memory (adding.cuh).
//
// A block owns 128 keys, 64 for each of two consumers, and steps over queries; dk and dv are summed in registers as
// consumer.cuh has it. dQ = dS K sums over all keys, so over blocks: each step computes the 128 keys' part. For that
// both consumers write their dS, transposed, to shared memory (a band of 64 keys each), and each multiplies its half of
// dQ: half of the rows, or half of the columns (config.cuh).
//
// Plainly both meet at a barrier between writing dS and multiplying it. There are two buffers of dS, so that one
// barrier a step is enough: who writes a buffer again has passed the barrier of the step between, which the other
// consumer passes only after its product of the step before has ended.
//
// With `staggered` a consumer multiplies dQ of the step before, for which the other one's dS is there already. So the
// two need not go in step, and consumer 1 begins later, so that one computes exponentials while the other one's
// products run. mbarriers of the two buffers keep them within a step of each other.
//
// The half goes to shared memory in the order of the accumulators, each thread its own 16 bytes at a time, and from
// there to the sums by one bulk addition, while the consumers go on. With `direct` each thread adds its registers
// itself.
//
// With `persistent` a consumer goes on to the next tile of keys when this one's dk and dv are on their way. They go
// through memory of dS and dQ, so that the producer may load the next own tiles meanwhile. With `staggered`, too, dQ of
// the last step is multiplied in the next tile's first one, so that the consumers stay half a step apart. For that the
// next keys have a buffer of their own; the values are given back with the last dP, and S of the next tile's first step
// is issued in the last one.
//
// A step, pipelined, with its S there already: dP is issued; exponentials; dV issued; dS, written; dQ issued, then dK;
// wait for dV and dQ, which is stored while dK runs, whose one operand in registers leaves shared memory time for it; S
// of the next step issued; wait for dK and S. dQ takes the place of S where it has as many registers: with registers of
// its own ptxas would run out of them (C7512). So it would with steps of 128 queries, were all of dV issued before dS
// has taken the place of dP; a quarter of it is, unless staggered consumers give the tensor cores enough to do.
#pragma once
#include <kjit/ptx/bulk_reduce.cuh>
#include <kjit/ptx/stmatrix_trans.cuh>

#include "attention_backward_sm90/consumer.cuh"
#include "attention_backward_sm90/sums.cuh"

template <int kColumns> struct SummingConsumer : Consumer {
  static constexpr int kDq8 = kColumns / 8;
  static constexpr bool kInPlaceOfS = kDq8 == kStep8;
  // Of a step's queries, 16 each: those of which dV is issued before dS is computed.
  static constexpr int kEarly16 = !cfg::kSumsRows ? kStep16 : cfg::kStaggered ? 0 : kStep16 / 4;
  static constexpr bool kCarries = cfg::kCarries;
  static constexpr bool kAhead = kCarries && cfg::kPipelined; // S of the next tile's first step in the last step
  using PartOfDq = Wgmma<cfg::Element, kColumns>;

  float dq_apart[kInPlaceOfS ? 1 : kDq8][4];
  Ring<cfg::kDsStages> ds, before; // the buffer of this step's dS; staggered: of the step before
  bool has_before = false;
  int head_before = 0, step_before = 0; // whose dQ is added next
  int dq_parity = 0;
  Ring<cfg::kOwnStages> keys; // the own tile
  int keys_before = 0;        // the slot of the own tile of the step before
  int own_value_parity = 0;
  bool has_scores = false; // S of the tile's first step was multiplied in the last step of the tile before
  bool begins = true;      // this consumer has not written dS of this tile

  using Consumer::Consumer;

  KJIT_DEVICE void run() {
    clear(dx);
    clear(dv);
    mbarrier_wait_parity(at.own_full(), 0);
    if (work.has_steps()) {
      summing_steps([] { return false; });
      if constexpr (cfg::kStaggered) finish_dq();
    }
    if constexpr (cfg::kDirect) __threadfence(); // this thread's additions come before the count
    meet(); // the other consumer's products no longer read this one's keys, through whose memory dk is stored
    if constexpr (cfg::kDirect) count_part(*this);
    store_gradients();
  }

  // One tile of a persistent block. look_ahead() is called once, when all of the tile's steps have begun: is there a
  // next tile, with steps?
  template <typename LookAhead> KJIT_DEVICE void run_tile(LookAhead look_ahead) {
    clear(dx);
    clear(dv);
    begins = true;
    if (work.has_steps()) {
      if (!has_scores) mbarrier_wait_parity(at.own_full(keys.slot), keys.parity);
      if constexpr (!kCarries) wait_for_stores();
      summing_steps(look_ahead);
      if constexpr (!kCarries) end_tile();
      keys.advance();
      own_value_parity ^= 1;
    } else {
      wait_for_stores();
    }
    store_apart();
    if (!kAhead || !work.has_steps()) look_ahead();
  }

  // Behind the last tile of a persistent block.
  KJIT_DEVICE void finish() {
    if (kCarries && has_before) finish_dq();
    if (thread == 0) cp_async_bulk_wait_group_read<0>(); // shared memory must live until TMA has read it
  }

private:
  // The last products of a tile of a persistent block: then both own tiles may be written over, and dS.
  KJIT_DEVICE void end_tile() {
    if constexpr (cfg::kStaggered) finish_dq();
    has_before = false;
    meet(); // both consumers' products have ended
    if (consumer == 0 && thread == 0) mbarrier_arrive(at.own_empty(keys.slot));
  }

  // dk and dv of a persistent block, whose own tiles are loaded meanwhile, go through this consumer's bands of dS, and
  // with steps of 64 queries dv through the memory of dQ. Where dQ of the last step is still to be multiplied both take
  // the band of the other buffer of dS, which the next step writes.
  static constexpr int kDkStride = cfg::kSumsRows ? cfg::kGroupBandBytes : cfg::kDsBytes;
  KJIT_DEVICE void store_apart() {
    const uint32_t dk_tile = at.ds(kCarries ? ds.slot : 0) + consumer * cfg::kStepBandBytes;
    const uint32_t dv_tile = kCarries         ? dk_tile + cfg::kGroupBytes
                             : cfg::kSumsRows ? at.ds(1) + consumer * cfg::kStepBandBytes
                                              : at.dq(consumer);
    static_assert(!cfg::kPersistent || cfg::kGroupValueBytes <= (cfg::kSumsRows ? cfg::kStepBandBytes : cfg::kDqBytes),
                  "room for dv");
    if constexpr (kCarries) mbarrier_wait_parity(at.ds_empty(ds.slot), ds.parity ^ 1);
    to_shared<cfg::kSumColumns, kDkStride>(dx, p.rest.scale, dk_tile);
    if constexpr (!cfg::kSumsRows) wait_for_dq(); // whose last part has been added
    to_shared<cfg::kSumValueColumns>(dv, 1.0f, dv_tile);
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread != 0) return;
    store<cfg::kHeadDim, kDkStride>(p.out, dk_tile);
    store<cfg::kHeadDimV>(p.out_value, dv_tile);
    cp_async_bulk_commit_group();
  }

  // Until dk and dv of the tile before have been read from shared memory.
  KJIT_DEVICE void wait_for_stores() const {
    if (thread == 0) cp_async_bulk_wait_group_read<0>();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
  }

  // Barriers of both consumers; those of Consumer::own_barrier() are 1 and 2.
  static constexpr int kMeet = 1 + cfg::kConsumers, kStart = 2 + cfg::kConsumers;
  static constexpr int kThreads = cfg::kConsumers * kThreadsPerWarpgroup;

  KJIT_DEVICE static void meet() { bar_sync(kMeet, kThreads); }

  KJIT_DEVICE auto &dq() {
    if constexpr (kInPlaceOfS)
      return s;
    else
      return dq_apart;
  }

  KJIT_DEVICE void issue_next_scores() {
    mbarrier_wait_parity(at.step_full(ring.slot), ring.parity);
    issue_scores<cfg::kHeadDim>(s, at.own(consumer, keys.slot), at.step(ring.slot));
  }

  // S of the next tile's first step, if there is one. Otherwise a product of keys with keys, which nobody reads, takes
  // its place; issue_dq_before() says why.
  KJIT_DEVICE void issue_scores_ahead(bool exists) {
    Ring<cfg::kOwnStages> next = keys;
    next.advance();
    has_scores = exists;
    if (exists) {
      mbarrier_wait_parity(at.own_full(next.slot), next.parity);
      mbarrier_wait_parity(at.step_full(ring.slot), ring.parity);
    }
    issue_scores<cfg::kHeadDim>(s, at.own(consumer, exists ? next.slot : keys.slot),
                                exists ? at.step(ring.slot) : at.own(0, keys.slot));
  }

  // The last step of all has none behind it, or that of the next tile, so it stands apart; it is taken as a masked one.
  // Keys behind the last are masked, because their probabilities may be infinite.
  template <typename LookAhead> KJIT_DEVICE void summing_steps(LookAhead look_ahead) {
    const Steps &steps = work.steps;
    const bool ragged = (work.tile + 1) * cfg::kOwnRows > p.rest.seq_kv;
    if (cfg::kStaggered && consumer == 1) bar_sync(kStart, kThreads);
    if (cfg::kPipelined && !has_scores) {
      issue_next_scores();
      wgmma_wait_group<0>();
    }
    if constexpr (kCarries) {
      wait_for_stores();
      mbarrier_wait_parity(at.own_value_full(), own_value_parity);
    }
#pragma unroll 1
    for (int head = 0; head < work.step_heads; head++) {
      const int end = head + 1 < work.step_heads ? steps.end : steps.end - 1;
      int step = steps.first;
#pragma unroll 1
      for (; step < end && (ragged || step < steps.whole_first); step++)
        summing_step<true, false>(work.first_step_head + head, step, look_ahead);
#pragma unroll 1
      for (; step < end; step++)
        summing_step<false, false>(work.first_step_head + head, step, look_ahead);
    }
    summing_step<true, true>(work.first_step_head + work.step_heads - 1, steps.end - 1, look_ahead);
  }

  template <bool kMasked, bool kLast, typename LookAhead>
  KJIT_DEVICE void summing_step(int head, int step, LookAhead look_ahead) {
    constexpr bool kNext = cfg::kPipelined && (!kLast || kAhead);
    constexpr int kPending = kWgmmaPartialWaits ? 1 : 0;
    const int slot = ring.slot, value_slot = values.slot;
    if constexpr (!cfg::kPipelined) issue_next_scores();
    mbarrier_wait_parity(at.value_full(value_slot), values.parity);
    issue_scores<cfg::kHeadDimV>(dp, at.own_value(consumer), at.step_value(value_slot));
    if constexpr (!cfg::kPipelined) wgmma_wait_group<kPending>(); // S
    exponentiate<kMasked>(step, slot);
    if constexpr (kEarly16) sum_dv<0, kEarly16>(value_slot);
    wgmma_wait_group<kEarly16 ? kPending : 0>();       // dP
    const bool reads_values = kCarries && !has_before; // issue_dq_before()
    if (kCarries && kLast && !reads_values) release(at.own_value_empty());
    if constexpr (cfg::kStaggered) mbarrier_wait_parity(at.ds_empty(ds.slot), ds.parity ^ 1);
    differentiate_and_write<0, kEarly16>(slot);
    if constexpr (kEarly16 < kStep16) {
      if constexpr (kEarly16) wgmma_wait_group<0>(); // the first part of dV
      differentiate_and_write<kEarly16, kStep16>(slot);
      fence_async_proxy();
      sum_dv<kEarly16, kStep16>(value_slot);
    } else {
      fence_async_proxy();
    }
    if constexpr (cfg::kStaggered) {
      pass_ds_on();
      issue_dq_before();
    } else {
      meet();
      issue_dq(at.ds(ds.slot), keys.slot);
      ds.advance();
    }
    wgmma_fence();
    issue_dx(slot);
    wgmma_commit_group();
    wgmma_wait_group<kPending>(); // dV and dQ
    release(at.value_empty(value_slot));
    if (kCarries && kLast && reads_values) release(at.own_value_empty());
    if constexpr (cfg::kStaggered) {
      if (has_before) give_dq_away();
      has_before = true;
      keys_before = keys.slot;
    }
    head_before = head, step_before = step;
    if constexpr (!cfg::kStaggered) add_or_store_dq();
    ring.advance();
    values.advance();
    if constexpr (kNext && kLast)
      issue_scores_ahead(look_ahead());
    else if constexpr (kNext)
      issue_next_scores();
    wgmma_wait_group<kNext ? kPending : 0>(); // dK
    release_step(slot);
    if constexpr (kNext) wgmma_wait_group<0>();
  }

  // dQ of the last step.
  KJIT_DEVICE void finish_dq() {
    mbarrier_wait_parity(at.ds_full(before.slot), before.parity);
    issue_dq(at.ds(before.slot), keys_before);
    wgmma_wait_group<0>();
    give_dq_away();
  }

  // Issue dV of some of a step's queries, 16 each, as one group.
  template <int kFrom, int kTo> KJIT_DEVICE void sum_dv(int value_slot) {
#pragma unroll
    for (int k = kFrom; k < kTo; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        rounded_p[k][i] = pair_of(s, k, i);
    wgmma_fence();
    const uint64_t b = wgmma_descriptor(at.step_value(value_slot), cfg::kStepBandBytes);
    wgmma_sum_rs<Wgmma<cfg::Element, cfg::kSumValueColumns>, kTo - kFrom, true>(
        dv, rounded_p + kFrom, b, [](int k) { return wgmma_descriptor_step((kFrom + k) * 16 * cfg::kRowBytes); }, 1);
    wgmma_commit_group();
  }

  // dS of these queries, also to shared memory, transposed: rows are queries, this consumer's band has its 64 keys,
  // with the 128-byte swizzle.
  template <int kFrom, int kTo> KJIT_DEVICE void differentiate_and_write(int slot) {
#pragma unroll
    for (int n = 2 * kFrom; n < 2 * kTo; n++) {
      const Chunk pair = query_pair(slot, n);
#pragma unroll
      for (int i = 0; i < 4; i++)
        dp[n][i] = s[n][i] * (dp[n][i] - __uint_as_float(pair.word[2 + i % 2]));
    }
    const int row = lane / 16 * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
    const uint32_t to =
        at.ds(ds.slot) + consumer * cfg::kStepBandBytes + row * cfg::kRowBytes + ((chunk ^ lane % 8) << 4);
#pragma unroll
    for (int k = kFrom; k < kTo; k++) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        rounded_ds[k][i] = pair_of(dp, k, i);
      stmatrix_trans_x4(to + k * 16 * cfg::kRowBytes, rounded_ds[k][0], rounded_ds[k][1], rounded_ds[k][2],
                        rounded_ds[k][3]);
    }
  }

  // Two accumulators, rounded: a register of operand A.
  KJIT_DEVICE static uint32_t pair_of(const float (&c)[kStep8][4], int k, int i) {
    return cvt_rn_x2(cfg::Element{}, c[2 * k + i / 2][i % 2 * 2], c[2 * k + i / 2][i % 2 * 2 + 1]);
  }

  // This consumer's dS is written. A tile's first time that lets consumer 1 begin, about half a step later than
  // consumer 0.
  KJIT_DEVICE void pass_ds_on() {
    mbarrier_arrive(at.ds_full(ds.slot));
    ds.advance();
    if (begins && consumer == 0) bar_arrive(kStart, kThreads);
    begins = false;
  }

  // Issue dQ of the step before. In the first step there is none: a product of the values and of what lies
  // behind them, the first queries, which nobody reads, takes its place, because ptxas serialises products that are in
  // flight across a branch around others.
  KJIT_DEVICE void issue_dq_before() {
    if (has_before) mbarrier_wait_parity(at.ds_full(before.slot), before.parity);
    issue_dq(has_before ? at.ds(before.slot) : at.own_value(0), kCarries ? keys_before : keys.slot);
  }

  // Issue this consumer's half of dS K as one group: the bands of dS are the keys of the first and the second consumer.
  KJIT_DEVICE void issue_dq(uint32_t ds_tile, int keys_slot) {
    const int row = cfg::kSumsRows ? consumer * cfg::kGroupRows : 0;
    const int column = cfg::kSumsRows ? 0 : consumer * cfg::kDqColumns;
    constexpr int kBand = BACKWARD_SM90_BAND_COLUMNS;
    uint64_t a = wgmma_descriptor(ds_tile + row * cfg::kRowBytes, 16);
    asm volatile("" : "+l"(a)); // as in issue_scores()
    const uint64_t b = wgmma_descriptor(
        at.own(0, keys_slot) + column / kBand * cfg::kGroupBandBytes + column % kBand * 2, cfg::kGroupBandBytes);
    wgmma_fence();
    constexpr int kOfGroup = cfg::kGroupRows / 16; // products over one consumer's keys
    wgmma_sum_ss<PartOfDq, cfg::kConsumers * kOfGroup, false, true>(
        dq(), a, [](int k) { return wgmma_descriptor_step(k / kOfGroup * cfg::kStepBandBytes + k % kOfGroup * 32); }, b,
        [](int k) {
          return wgmma_descriptor_step(k / kOfGroup * cfg::kGroupBytes + k % kOfGroup * 16 * cfg::kRowBytes);
        },
        0);
    wgmma_commit_group();
  }

  // The products of dQ of the step before have ended: its dS may be written over, so may its keys if they are those of
  // the tile before, and it is added to the sums.
  KJIT_DEVICE void give_dq_away() {
    if (kCarries && keys_before != keys.slot) release(at.own_empty(keys_before));
    release(at.ds_empty(before.slot));
    before.advance();
    add_or_store_dq();
  }

  KJIT_DEVICE void add_or_store_dq() {
    if constexpr (cfg::kDirect)
      add_dq<kDq8>(*this, dq(), head_before, step_before);
    else
      store_dq();
  }

  // Until the thread that adds this consumer's halves has read the one before.
  KJIT_DEVICE void wait_for_dq() const {
    mbarrier_wait_parity(at.dq_empty(consumer), dq_parity ^ 1);
  }

  // Hand this consumer's half over to the thread that adds it.
  KJIT_DEVICE void store_dq() {
    wait_for_dq();
    dq_parity ^= 1;
    const uint32_t to = at.dq(consumer) + thread * kChunkBytes;
#pragma unroll
    for (int n = 0; n < kDq8; n++)
      st_shared_f32_x4(to + n * kThreadsPerWarpgroup * kChunkBytes, dq()[n][0], dq()[n][1], dq()[n][2], dq()[n][3]);
    fence_async_proxy();
    mbarrier_arrive(at.dq_full(consumer));
  }
};
