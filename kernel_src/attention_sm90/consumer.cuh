// A consumer: one warpgroup of 128 threads that owns 64 query rows of every tile that its block works on.
//
// For each tile the consumer goes through the tile's key blocks from the last to the first. A step of the inner loop
//   1. issues S = Q K^T of this key block and O += P V of the block before it, so that the tensor cores have both;
//   2. waits for S, gives the K buffer back to the producer, and masks S where the block may need it;
//   3. waits for O, and gives the V buffer back;
//   4. computes P of this block from S, and rescales O if the running maximum has to rise.
// The last product O += P V of a tile is issued together with the first S of the next tile (switch_tile()) where shared
// memory has room for that: with two Q buffers, or with memory of O's own. Otherwise a tile ends (last_block()) before
// the next one begins (first_block()).
// With both (kStoresLate) a Q buffer is given back with its tile's last scores, a step earlier than when O is stored
// through it, so that Q is there in time where tiles have few key blocks; and O is handed over to TMA only when the
// next products are issued, because the tensor cores then work meanwhile.
//
// Steps after a tile's first take P relative to the running maximum that there is, and look for a new one only when a
// row's sum exceeds 2^rescale_slack: then O is scaled down to it and P computed again from S, still in its registers.
// Every product is waited for in the straight line of code that issues it, because ptxas serialises products that are
// in flight across a loop's end or a branch (warnings C7510 to C7519).
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/stmatrix.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_sm90/partials.cuh"

struct Consumer {
  static constexpr int kDepth = (cfg::kHeadDim + 15) / 16; // wgmma products, each 16 deep, that make S
  static constexpr int kKeyTiles = cfg::kKeyRows / 16;     // wgmma products, each 16 keys deep, that add to O
  static constexpr int kColumns8 = cfg::kKeyRows / 8;
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  static constexpr int kNone = -1;
  using Softmax = OnlineSoftmax<1, kColumns8, kOutput8, true, cfg::kRescaleThreshold, cfg::kCausal || cfg::kVariant>;

  const attention_sm90_params &p;
  const Layout at;
  const int consumer, thread, warp, lane;
  Ring<cfg::kQueryBuffers> queries;
  Ring<cfg::kStages> keys, values;
  float s[1][kColumns8][4];
  float o[1][kOutput8][4];
  uint32_t probabilities[kKeyTiles][4];
  Softmax softmax;
  int storing = kNone;       // the Q buffer through which TMA is storing O, which is not given back to the producer yet
  Tile finished;             // with kStoresLate, the last tile whose O was written to shared memory,
  bool has_finished = false; // and whether that O is still to be handed over to TMA

  KJIT_DEVICE Consumer(const attention_sm90_params &params, Layout layout, int consumer, int thread)
      : p(params), at(layout), consumer(consumer), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp) {}

  KJIT_DEVICE void run() {
    wgmma_define_accumulators(o[0]); // a tile's first O = P V decides by `accumulate` whether it reads O
    if (cfg::kPingPong && consumer == cfg::kConsumers - 1) bar_arrive(turn_barrier(0), kTurnThreads);
    Tile tile;
    if (!next_tile(tile)) return;
    first_block(tile);
    while (true) {
      const int buffer = queries.slot;
      const int first_product = inner_blocks(tile, buffer);
      queries.advance();
      Tile next;
      if constexpr (cfg::kOverlapsTiles) {
        release_stored(); // the next tile's Q may wait for this buffer
        if (!next_tile(next)) {
          last_block(tile, buffer, first_product);
          break;
        }
        switch_tile(tile, next, buffer, first_product);
      } else {
        last_block(tile, buffer, first_product);
        release_stored();
        if (!next_tile(next)) break;
        first_block(next);
      }
      tile = next;
    }
    store_finished();
    if (thread == 0) cp_async_bulk_wait_group<0>(); // shared memory must live until TMA has read it
  }

protected:
  static constexpr int kTurnThreads = 2 * kThreadsPerWarpgroup;

  // Named barriers: 1 to kConsumers for the turns, then one for the threads of each consumer; then those of the other
  // pair.
  KJIT_DEVICE static int first_barrier() { return 1 + pair_of_thread() * 2 * cfg::kConsumers; }
  KJIT_DEVICE static int turn_barrier(int consumer) { return first_barrier() + consumer; }
  KJIT_DEVICE int own_barrier() const { return first_barrier() + cfg::kConsumers + consumer; }

  // Ping-pong: consumers take turns in issuing products, so that the tensor cores work for one while another computes
  // its softmax.
  KJIT_DEVICE void wait_for_turn() const {
    if constexpr (cfg::kPingPong) bar_sync(turn_barrier(consumer), kTurnThreads);
  }
  KJIT_DEVICE void pass_turn() const {
    if constexpr (cfg::kPingPong) bar_arrive(turn_barrier((consumer + 1) % cfg::kConsumers), kTurnThreads);
  }

  // Wait for the next tile and its Q. @return false when there is no further tile
  KJIT_DEVICE bool next_tile(Tile &tile) const {
    mbarrier_wait_parity(at.query_full(queries.slot), queries.parity);
    return load_tile(at.tile(queries.slot), lane, tile);
  }

  KJIT_DEVICE void release(uint32_t barrier) const {
    mbarrier_arrive_if(barrier, thread == 0); // one arrival for the warpgroup: 128 are measurably slower
  }
  KJIT_DEVICE void release_query(int buffer) const {
    if (lane == 0) mbarrier_arrive(at.query_empty(buffer));
  }
  // Give the Q buffer that TMA stores O from back, once TMA has read it; called where the consumer waits anyway.
  KJIT_DEVICE void release_stored() {
    if constexpr (cfg::kOutputBands > 0) return;
    cp_async_bulk_wait_group_read<0>(); // the next Q may overwrite it
    if (storing != kNone) release_query(storing);
    storing = kNone;
  }
  // S has been computed: give the K buffer back, and with the tile's last S the Q buffer too, unless O will be stored
  // through it.
  KJIT_DEVICE void release_scores(const Tile &tile, int block, int buffer) {
    release(at.keys_empty(keys.slot));
    keys.advance();
    if (cfg::kOutputBands > 0 && block == key_blocks_of(p, tile).first) release_query(buffer);
  }
  KJIT_DEVICE void release_values() {
    release(at.values_empty(values.slot));
    values.advance();
  }

  // Issue S = Q K^T, without waiting for it.
  KJIT_DEVICE void issue_scores(int buffer) {
    uint64_t q = wgmma_descriptor(at.query(buffer, consumer), 16);
    // Without this the descriptors of all steps would be computed once, kept in registers, and spilled.
    asm volatile("" : "+l"(q));
    const uint64_t k = wgmma_descriptor(at.keys(keys.slot), 16);
    wgmma_fence();
    wgmma_sum_ss<Wgmma<cfg::Element, cfg::kKeyRows>, kDepth>(
        s[0], q, [](int d) { return bands::step(cfg::kConsumerRows, d); }, k,
        [](int d) { return bands::step(cfg::kKeyRows, d); }, 0);
    wgmma_commit_group();
  }

  // Issue O (+)= P V, without waiting for it. accumulate: 0 for a tile's first product.
  KJIT_DEVICE void issue_output(int accumulate) {
    const uint64_t v = wgmma_descriptor(at.values(values.slot), cfg::kKeyRows * cfg::kRowBytes);
    wgmma_fence();
    wgmma_sum_rs<Wgmma<cfg::Element, cfg::kHeadDimV>, kKeyTiles, true>(
        o[0], probabilities, v, [](int k) { return wgmma_descriptor_step(k * 16 * cfg::kRowBytes); }, accumulate);
    wgmma_commit_group();
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf.
  KJIT_DEVICE void mask(const Tile &tile, int block) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int query = tile.first_query(consumer) + own_row(r) / cfg::kPackGqa;
      const int valid = keys_seen_by(p, query) - block * cfg::kKeyRows - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (n * 8 + i >= valid) s[0][n][2 * r + i] = masked_score();
    }
  }

  // Wait for S when O += P V was issued after it. O stays in flight, if the compiler knows how to let it.
  KJIT_DEVICE void wait_for_scores() const {
    wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>();
  }

  // Round the probabilities in S to 16 bits, in the layout of the product's A operand.
  KJIT_DEVICE void round_scores() {
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float(&pair)[4] = s[0][2 * k + i / 2];
        probabilities[k][i] = cvt_rn_x2(cfg::Element{}, pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
  }

  // A tile's first key block, when no product of the tile before it is left to overlap with.
  KJIT_DEVICE void first_block(const Tile &tile) {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    wait_for_turn();
    issue_scores(queries.slot);
    pass_turn();
    wgmma_wait_group<0>();
    release_scores(tile, key_blocks_of(p, tile).end - 1, queries.slot);
    first_softmax(softmax, tile);
    round_scores();
  }

  KJIT_DEVICE void first_softmax(Softmax &state, const Tile &tile) {
    const int block = key_blocks_of(p, tile).end - 1;
    if (cfg::kCausal || (block + 1) * cfg::kKeyRows > p.seq_kv) mask(tile, block);
    typename Softmax::Rows now, factors;
    state.template find_maximum<true>(s, now, p.scale, p.scale_log2);
    state.template set_max<true>(now, factors, p.scale_log2);
    state.template exponentiate<true>(s, p.scale_log2);
  }

  // The steps between a tile's first scores and its last product with V. Blocks that need a mask come first.
  // @return 0 when O holds nothing yet, else 1: what the last product's `accumulate` has to be
  KJIT_DEVICE int inner_blocks(const Tile &tile, int buffer) {
    const int first = cfg::kSplitKv ? key_blocks_of(p, tile).first : 0;
    int block = key_blocks_of(p, tile).end - 2;
    int accumulate = 0;
    if constexpr (cfg::kCausal) {
      const int masked = first_masked_block(p, tile);
#pragma unroll 1
      for (; block >= first && block >= masked; block--) {
        step<true>(tile, buffer, block, accumulate);
        accumulate = 1;
      }
    }
#pragma unroll 1
    for (; block >= first; block--) {
      step<false>(tile, buffer, block, accumulate);
      accumulate = 1;
    }
    return accumulate;
  }

  // One step: the scores of `block` together with the product O += P V of the block before it.
  template <bool kMasked> KJIT_DEVICE void step(const Tile &tile, int buffer, int block, int accumulate) {
    issue_both(buffer, accumulate);
    wait_for_scores();
    release_scores(tile, block, buffer);
    if constexpr (kMasked) mask(tile, block);
    wgmma_wait_group<0>();
    release_values();
    next_softmax<kMasked>();
  }

  // Compute P from S, when no product is in flight that reads the P before it or writes O. The second try, after the
  // maximum was raised, is rare. In masked steps, which are few, and with split-KV, which is bound by memory, it is a
  // real loop, for less code; elsewhere it is unrolled, which takes the second try out of the main path.
  template <bool kMasked> KJIT_DEVICE void next_softmax() {
    typename Softmax::Rows added;
#pragma unroll kMasked || cfg::kSplitKv ? 1 : 2
    for (int tries = 0; tries < 2; tries++) {
      if (tries > 0 || cfg::kRescaleThreshold == 0) softmax.raise_max(s, o, p.scale_log2);
      exponentiate_scores(added);
      if (cfg::kRescaleThreshold == 0 || !Softmax::exceeds_threshold(added)) break;
    }
    softmax.add(added);
  }

  // Compute P and round it. The accumulators of 16 columns of S lie in the threads as the A operand of the product with
  // V does, so P needs no exchange among threads.
  KJIT_DEVICE void exponentiate_scores(typename Softmax::Rows &added) {
    softmax.exponentiate_scores(s, added, p.scale_log2, [&](int, int n, int r, float p0, float p1) {
      probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
    });
  }

  KJIT_DEVICE void issue_both(int buffer, int accumulate) {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    wait_for_turn();
    issue_scores(buffer);
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    issue_output(accumulate);
    pass_turn();
    store_finished();
    release_stored();
  }

  // The last product O += P V of `tile` together with the first scores of `next`.
  KJIT_DEVICE void switch_tile(const Tile &tile, const Tile &next, int buffer, int accumulate) {
    issue_both(queries.slot, accumulate);
    claim_output();
    wait_for_scores();
    release_scores(next, key_blocks_of(p, next).end - 1, queries.slot);
    Softmax following;
    first_softmax(following, next);
    wgmma_wait_group<0>();
    release_values();
    store(tile, buffer);
    softmax = following;
    round_scores();
  }

  // The last product O += P V of a tile, when nothing of the next tile overlaps with it.
  KJIT_DEVICE void last_block(const Tile &tile, int buffer, int accumulate) {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    wait_for_turn();
    issue_output(accumulate);
    pass_turn();
    claim_output();
    wgmma_wait_group<0>();
    release_values();
    store(tile, buffer);
  }

  // Store a tile's O, or a split's partial result. Without shared memory of its own, O is stored through this
  // consumer's rows of the Q buffer, which no product reads any more.
  KJIT_DEVICE void store(const Tile &tile, int buffer) {
    if constexpr (cfg::kSplitKv) {
      if (tile.num_splits > 1) {
        store_partial(tile, buffer);
        return;
      }
    }
    normalise(tile);
    if constexpr (cfg::kStoresLate) {
      output_to_shared(at.output(consumer), 0, cfg::kOutputBands);
      finished = tile;
      has_finished = true;
    } else if constexpr (cfg::kOutputBands > 0) {
#pragma unroll
      for (int band = 0; band < cfg::bands(cfg::kHeadDimV); band += cfg::kOutputBands)
        store_bands(tile, band);
    } else {
      const uint32_t out = at.query(buffer, consumer);
      output_to_shared(out, 0, cfg::bands(cfg::kHeadDimV));
      store_output(tile, out, 0, cfg::bands(cfg::kHeadDimV));
      storing = buffer;
    }
  }

  // With kStoresLate: hand O of the tile before over to TMA, if that is still to be done.
  KJIT_DEVICE void store_finished() {
    if (!cfg::kStoresLate || !has_finished) return;
    store_output(finished, at.output(consumer), 0, cfg::kOutputBands);
    has_finished = false;
  }
  // With kStoresLate: wait until TMA has read O of the tile before, because this tile's will go over it.
  KJIT_DEVICE void claim_output() {
    if constexpr (!cfg::kStoresLate) return;
    store_finished();
    wait_for_output_memory();
  }
  // Wait until TMA has read what is in O's own memory, so that all threads of this consumer may overwrite it.
  KJIT_DEVICE void wait_for_output_memory() const {
    if (thread == 0) cp_async_bulk_wait_group_read<0>();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
  }

  // Store as many bands of O as its own memory holds, when TMA has read those that were there before.
  KJIT_DEVICE void store_bands(const Tile &tile, int first) {
    constexpr int kAll = cfg::bands(cfg::kHeadDimV);
    const int end = first + cfg::kOutputBands < kAll ? first + cfg::kOutputBands : kAll;
    wait_for_output_memory();
    output_to_shared(at.output(consumer), first, end);
    store_output(tile, at.output(consumer), first, end);
  }

  KJIT_DEVICE void normalise(const Tile &tile) {
    softmax.finish(o, p.scale, [&](int, int r, float log_sum_exp) {
      const OutputRow row = output_row(p, tile, consumer, own_row(r));
      if (p.lse != nullptr && lane % 4 == 0 && row.query < p.seq_q && row.in_gqa_group)
        p.lse[tile.batch * p.lse_batch_stride + row.head * p.lse_head_stride + row.query] = log_sum_exp;
    });
  }

  // Leave this split's partial result; the last split of the tile to arrive stores the merged result (partials.cuh).
  KJIT_DEVICE void store_partial(const Tile &tile, int buffer) {
    Partials partials(p, tile, consumer, thread);
    float sums[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
      sums[r] = quad_sum(softmax.sum[0][r]);
    partials.keep(o[0], softmax.max[0], sums);
    const uint32_t out = at.query(buffer, consumer);
    if (partials.arrive(own_barrier(), at.word(consumer), out)) {
      store_output(tile, out, 0, cfg::bands(cfg::kHeadDimV));
      storing = buffer;
    } else {
      release_query(buffer);
    }
  }

  // Store bands first to end - 1 of O by TMA, when all of their 64 rows are in shared memory at `out`.
  KJIT_DEVICE void store_output(const Tile &tile, uint32_t out, int first, int end) {
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread != 0) return;
    for (int i = first; i < end; i++)
      store_band(p, tile, consumer, out + (i - first) * cfg::kBandBytes, i);
    cp_async_bulk_commit_group();
  }

  // The r-th (0 or 1) of this thread's two rows, among the consumer's 64.
  KJIT_DEVICE int own_row(int r) const {
    return warp * 16 + lane / 4 + 8 * r;
  }

  // Write bands first to end - 1 of O to shared memory.
  KJIT_DEVICE void output_to_shared(uint32_t out, int first, int end) const {
    bands::store<cfg::Element>(out, o[0], cfg::kConsumerRows, warp * 16 + lane % 16, lane / 16, first, end);
  }
};
