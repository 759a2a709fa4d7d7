// A consumer: one warpgroup of 128 threads, which works on tiles of 64 queries, one after the other, each by itself:
//   1. S = Q K^T over all keys of the head, which stay in registers;
//   2. P = exp2 of them, relative to the row's maximum, and the rows' sums: the softmax in one go;
//   3. O = P V, divided by the sums, and stored by TMA through the memory of Q.
// Nothing of one tile overlaps with the next of the same consumer. The other consumers of the block, and of the SM's
// other blocks, work meanwhile, which is what keeps the tensor cores and the memory busy.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/stmatrix.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_short_sm90/schedule.cuh"
#include "attention_short_sm90/shared.cuh"
#include "softmax/online_softmax.cuh"

struct Consumer {
  static constexpr int kDepth = (cfg::kHeadDim + 15) / 16; // wgmma products, each 16 deep, that make S
  static constexpr int kKeyTiles = cfg::kKeyRows / 16;     // wgmma products, each 16 keys deep, that make O
  static constexpr int kColumns8 = cfg::kKeyRows / 8;
  static constexpr int kScores8 = cfg::kScoreColumns / 8;
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  using Softmax = OnlineSoftmax<1, kColumns8, kOutput8, true, 0, cfg::kCausal>;

  const attention_short_sm90_params &p;
  const Layout at;
  const int consumer, thread, warp, lane;
  Ring<cfg::kStages> heads;
  Ring<cfg::kQueryBuffers> queries;
  int stored = -1; // the Q buffer through which TMA is storing O, which is not given back to the producer yet

  KJIT_DEVICE Consumer(const attention_short_sm90_params &params, Layout layout, int consumer, int thread)
      : p(params), at(layout), consumer(consumer), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp) {}

  // Every consumer waits for every key head of the run and gives it back, whether it has a tile of it or not, because
  // otherwise one that skipped a head could arrive twice where another has not arrived yet.
  KJIT_DEVICE void run() {
    int number = consumer;
#pragma unroll 1
    for (Walk walk(p); !walk.is_done(); walk.advance()) {
      const int end = walk.end();
      mbarrier_wait_parity(at.keys_full(heads.slot), heads.parity);
      if (number >= end) bar_sync(own_barrier(), kThreadsPerWarpgroup); // all threads have seen that K is there
#pragma unroll 1
      for (; number < end; number += cfg::kConsumers)
        attend(walk.tile(number)); // ends with a barrier of the warpgroup's threads
      mbarrier_arrive_if(at.head_empty(heads.slot), thread == 0);
      heads.advance();
    }
    if (thread == 0) cp_async_bulk_wait_group<0>(); // shared memory must live until TMA has read it
  }

private:
  KJIT_DEVICE void attend(const Tile &tile) {
    Softmax softmax;
    float o[1][kOutput8][4];
    uint32_t probabilities[kKeyTiles][4];
    compute_probabilities(tile, softmax, probabilities);
    mbarrier_wait_parity(at.values_full(heads.slot), heads.parity);
    multiply_values(probabilities, o[0]);
    normalise(tile, softmax, o);
    store(tile, o[0]);
    queries.advance();
  }

  KJIT_DEVICE void compute_probabilities(const Tile &tile, Softmax &softmax, uint32_t (&probabilities)[kKeyTiles][4]) {
    float s[1][kColumns8][4];
    if constexpr (cfg::kQueryBuffers == 1) release_stored(); // the Q that is waited for comes into the same buffer
    mbarrier_wait_parity(at.query_full(consumer, queries.slot), queries.parity);
    issue_scores(s[0]);
    if constexpr (cfg::kQueryBuffers > 1) release_stored(); // TMA had the time of a product to read it
    wgmma_wait_group<0>();
    mask(tile, s[0]);
    typename Softmax::Rows now, factors;
    softmax.template find_maximum<true>(s, now, p.scale, p.scale_log2);
    softmax.template set_max<true>(now, factors, p.scale_log2);
    softmax.exponentiate_scores(s, softmax.sum, p.scale_log2, [&](int, int n, int r, float p0, float p1) {
      probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
    });
  }

  // Issue S = Q K^T, without waiting for it.
  KJIT_DEVICE void issue_scores(float (&s)[kColumns8][4]) const {
    const uint64_t q = wgmma_descriptor(at.query(consumer, queries.slot), 16);
    const uint64_t k = wgmma_descriptor(at.keys(heads.slot), 16);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < cfg::kKeyRows / cfg::kScoreColumns; part++) {
      auto &scores = *(float(*)[kScores8][4]) & s[part * kScores8];
      const uint64_t k_part = k + wgmma_descriptor_step(part * cfg::kScoreColumns * cfg::kRowBytes);
#pragma unroll
      for (int d = 0; d < kDepth; d++)
        Wgmma<cfg::Element, cfg::kScoreColumns>::mma_async_ss(scores, q + bands::step(cfg::kRows, d),
                                                              k_part + bands::step(cfg::kKeyRows, d), d > 0);
    }
    wgmma_commit_group();
  }

  // O = P V.
  KJIT_DEVICE void multiply_values(const uint32_t (&probabilities)[kKeyTiles][4], float (&o)[kOutput8][4]) const {
    const uint64_t v = wgmma_descriptor(at.values(heads.slot), cfg::kKeyRows * cfg::kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Element, cfg::kHeadDimV>::mma_async_rs<true>(
          o, probabilities[k], v + wgmma_descriptor_step(k * 16 * cfg::kRowBytes), k > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  // Give the Q buffer that TMA stores O from back, once TMA has read it.
  KJIT_DEVICE void release_stored() {
    if (thread == 0) {
      cp_async_bulk_wait_group_read<0>();
      if (stored >= 0) mbarrier_arrive(at.query_empty(consumer, stored));
    }
    stored = -1;
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf. Eight columns that all rows of the warp
  // see are left alone.
  KJIT_DEVICE void mask(const Tile &tile, float (&s)[kColumns8][4]) const {
    const int seen_by_all = keys_seen_by(p, tile.query + warp * 16);
    if (seen_by_all >= cfg::kKeyRows) return;
    const int column = lane % 4 * 2;
    const int valid[2] = {keys_seen_by(p, tile.query + own_row(0)), keys_seen_by(p, tile.query + own_row(1))};
#pragma unroll
    for (int n = 0; n < kColumns8; n++) {
      if (n * 8 + 8 <= seen_by_all) continue;
#pragma unroll
      for (int i = 0; i < 4; i++)
        mask_unless_less(s[n][i], column + n * 8 + i % 2, valid[i / 2]);
    }
  }

  // The named barrier of this consumer's threads.
  KJIT_DEVICE int own_barrier() const {
    return 1 + consumer;
  }

  // The r-th (0 or 1) of this thread's two rows, among the tile's 64.
  KJIT_DEVICE int own_row(int r) const {
    return warp * 16 + lane / 4 + 8 * r;
  }

  KJIT_DEVICE void normalise(const Tile &tile, Softmax &softmax, float (&o)[1][kOutput8][4]) const {
    softmax.finish(o, p.scale, [&](int, int r, float log_sum_exp) {
      const int query = tile.query + own_row(r);
      if (p.lse != nullptr && lane % 4 == 0 && query < p.seq_q)
        p.lse[tile.batch * p.lse_batch_stride + tile.head * p.lse_head_stride + query] = log_sum_exp;
    });
  }

  // Store O through this tile's Q, which no product reads any more: every warp writes the rows that its own product
  // read.
  KJIT_DEVICE void store(const Tile &tile, const float (&o)[kOutput8][4]) {
    const uint32_t out = at.query(consumer, queries.slot);
    bands::store<cfg::Element>(out, o, cfg::kRows, warp * 16 + lane % 16, lane / 16, 0, cfg::bands(cfg::kHeadDimV));
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread == 0) {
      for (int i = 0; i < cfg::bands(cfg::kHeadDimV); i++)
        tma_store((const TensorMap *)&p.o, out + i * cfg::kBandBytes, i * SHORT_BAND_COLUMNS, tile.query, tile.head,
                  tile.batch);
      cp_async_bulk_commit_group();
    }
    stored = queries.slot;
  }
};
