// A consumer: one warpgroup that multiplies every kGroups-th key block of its block of threads.
//
// For each segment of the schedule the warpgroup loads Q, then for each of its key blocks computes S = Q K^T, the
// online softmax of S, and O += P V. The tile's rows are wgmma's 64; those that do not exist are multiplied too, but
// warps that have none of the tile's rows skip the softmax. All three steps wait for each other: while one warpgroup
// computes its softmax the others use the tensor cores, and all of them together are faster than memory.
//
// At the end of a segment every warpgroup of the cluster has its own O, maxima and sums. They are exchanged through
// shared memory; each block of threads adds up an equal share of the elements and stores it (result.cuh).
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cluster.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/warp.cuh>

#include "attention_decode_sm90/result.cuh"
#include "attention_decode_sm90/schedule.cuh"
#include "attention_decode_sm90/shared.cuh"

struct Consumer {
  static constexpr int kDepth = ceil_div(cfg::kHeadDim, 16); // products of S, 16 columns of Q and K each
  static constexpr int kKeyTiles = cfg::kKeyRows / 16;       // products of O, 16 keys each
  static constexpr int kColumns8 = cfg::kKeyRows / 8;
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  static constexpr int kQueryDepth = cfg::kQueryInRegisters ? kDepth : 1;

  const attention_decode_sm90_params &p;
  const Layout at;
  const int group, thread, warp, lane; // the warpgroup; the rest within it
  int rows = 0;                        // of the tile, those that exist
  int exchanges = 0;                   // segments that were exchanged
  uint32_t q[kQueryDepth][4];          // Q as the A operand
  float s[kColumns8][4];               // scores
  uint32_t probabilities[kKeyTiles][4];
  float o[kOutput8][4];
  float maximum[2], sum[2]; // of this thread's rows warp * 16 + lane / 4 and + 8; the sums over this thread's columns

  KJIT_DEVICE Consumer(const attention_decode_sm90_params &params, Layout layout, int group, int thread)
      : p(params), at(layout), group(group), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp) {}

  KJIT_DEVICE void run() {
    Schedule schedule(p);
    Segment segment;
    int number = 0; // of the segment's first key block among those of this block of threads
    while (schedule.next(segment)) {
      const Share share(p, segment, schedule.rank);
      rows = share.rows;
      start(segment);
      for (int i = (group + cfg::kGroups - number % cfg::kGroups) % cfg::kGroups; i < segment.count; i += cfg::kGroups)
        step(segment, number + i, segment.first + i);
      number += segment.count;
      exchange(schedule, segment, share);
    }
    // The other blocks of the cluster may still read this block's shared memory.
    if (cfg::kCluster > 1 && exchanges > 0) wait(at.exchange_read(), (exchanges - 1) & 1);
  }

private:
  KJIT_DEVICE int own_row(int r) const { return warp * 16 + lane / 4 + 8 * r; }
  // True when some of the warp's r-th rows exist: the same for all its lanes.
  KJIT_DEVICE bool has_rows(int r) const { return warp * 16 + 8 * r < rows; }

  // ---- Q ----

  // The address of a row of Q.
  KJIT_DEVICE const char *query_row(const Segment &segment, int row) const {
    const int number = segment.row_tile * cfg::kRows + row;
    const int64_t offset = segment.batch * p.q_batch_stride + number / p.group * p.q_seq_stride +
                           (segment.head * p.group + number % p.group) * p.q_head_stride;
    return (const char *)p.q + 2 * offset;
  }

  KJIT_DEVICE void start(const Segment &segment) {
    if constexpr (cfg::kQueryInRegisters)
      load_query_registers(segment);
    else
      load_query_shared(segment);
#pragma unroll
    for (int n = 0; n < kOutput8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        o[n][i] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      maximum[r] = kNoKey;
      sum[r] = 0.0f;
    }
  }

  // Registers of the A operand: rows own_row(0) and own_row(1), columns 16 * d + 2 * (lane % 4) and 8 further.
  KJIT_DEVICE void load_query_registers(const Segment &segment) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const bool exists = own_row(r) < rows;
      const char *const row = query_row(segment, exists ? own_row(r) : 0);
#pragma unroll
      for (int d = 0; d < kQueryDepth; d++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int column = 16 * d + 8 * half + 2 * (lane % 4);
          q[d][r + 2 * half] = exists && column < cfg::kHeadDim ? *(const uint32_t *)(row + 2 * column) : 0u;
        }
    }
  }

  // All warpgroups together write Q to shared memory with the 128-byte swizzle: 16-byte chunk index XOR row % 8. Rows
  // that do not exist keep what was there, because rows of S do not mix.
  KJIT_DEVICE void load_query_shared(const Segment &segment) {
    constexpr int kChunks = cfg::bands(cfg::kHeadDim) * DECODE_ROW_BYTES / kChunkBytes; // of a row
    bar_sync(Result::kConsumerBarrier, cfg::kConsumerThreads); // the last segment's products are done
    for (int i = group * kThreadsPerWarpgroup + thread; i < rows * kChunks; i += cfg::kConsumerThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      Chunk value = {};
      if (chunk * kChunkElements < cfg::kHeadDim)
        value = ld_global_nc_16(query_row(segment, row) + chunk * kChunkBytes);
      st_shared_16(at.query() + chunk / 8 * DECODE_M * DECODE_ROW_BYTES + row * DECODE_ROW_BYTES +
                       ((chunk % 8 ^ row % 8) << 4),
                   value);
    }
    fence_async_proxy();
    bar_sync(Result::kConsumerBarrier, cfg::kConsumerThreads);
  }

  // ---- One key block ----

  KJIT_DEVICE void step(const Segment &segment, int number, int block) {
    const int slot = slot_of(number), parity = parity_of(number);
    mbarrier_wait_parity(at.keys_full(slot), parity);
    multiply_scores(slot);
    mbarrier_arrive_if(at.keys_empty(slot), thread == 0);
    if (has_rows(0)) {
      if ((block + 1) * cfg::kKeyRows > seen_by_all()) mask(segment, block);
      softmax();
    } else {
      clear_probabilities();
    }
    mbarrier_wait_parity(at.values_full(slot), parity);
    multiply_output(slot);
    mbarrier_arrive_if(at.values_empty(slot), thread == 0);
  }

  // What to add to a descriptor for the product `depth`, 16 columns each: 32 bytes within a band of 64 columns; the
  // next band lies behind all rows of this one.
  KJIT_DEVICE static uint64_t band_step(int band_rows, int depth) {
    return wgmma_descriptor_step(depth / 4 * band_rows * cfg::kRowBytes + depth % 4 * 32);
  }

  KJIT_DEVICE void multiply_scores(int slot) {
    const uint64_t k = wgmma_descriptor(at.keys(slot), 16);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++) {
      if constexpr (cfg::kQueryInRegisters)
        Wgmma<cfg::Element, cfg::kKeyRows>::mma_async_rs(s, q[d % kQueryDepth], k + band_step(cfg::kKeyRows, d), d > 0);
      else
        Wgmma<cfg::Element, cfg::kKeyRows>::mma_async_ss(s, wgmma_descriptor(at.query(), 16) + band_step(DECODE_M, d),
                                                         k + band_step(cfg::kKeyRows, d), d > 0);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  KJIT_DEVICE void multiply_output(int slot) {
    const uint64_t v = wgmma_descriptor(at.values(slot), cfg::kKeyRows * cfg::kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Element, cfg::kHeadDimV>::template mma_async_rs<true>(
          o, probabilities[k], v + wgmma_descriptor_step(k * 16 * cfg::kRowBytes), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  // ---- Softmax ----

  // Keys that every row sees.
  KJIT_DEVICE int seen_by_all() const {
    return cfg::kCausal ? p.seq_kv - p.seq_q + 1 : p.seq_kv;
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf.
  KJIT_DEVICE void mask(const Segment &segment, int block) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int query = (segment.row_tile * cfg::kRows + own_row(r)) / p.group;
      int seen = cfg::kCausal ? query + p.seq_kv - p.seq_q + 1 : p.seq_kv;
      if (seen > p.seq_kv) seen = p.seq_kv;
      const int valid = seen - block * cfg::kKeyRows - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (n * 8 + i >= valid) s[n][2 * r + i] = __int_as_float(0xff800000);
    }
  }

  // P = exp2(S - maximum), rounded to 16 bits in the layout of the A operand of the product with V; O and the sums are
  // scaled down where the maximum rises.
  KJIT_DEVICE void softmax() {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (r == 1 && !has_rows(1)) {
#pragma unroll
        for (int n = 0; n < kColumns8; n++)
          probabilities[n / 2][n % 2 * 2 + 1] = 0;
        continue;
      }
      float now = maximum[r];
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
        now = fmaxf(now, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
      now = quad_max(now);
      if (__any_sync(0xffffffffu, now > maximum[r])) raise(r, now);
      const float offset = maximum[r] * p.scale_log2;
      float even = 0.0f, odd = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumns8; n++) {
        const float p0 = ex2_approx(s[n][2 * r] * p.scale_log2 - offset);
        const float p1 = ex2_approx(s[n][2 * r + 1] * p.scale_log2 - offset);
        even += p0;
        odd += p1;
        probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
      }
      sum[r] += even + odd;
    }
  }

  KJIT_DEVICE void raise(int r, float now) {
    const float factor = ex2_approx((maximum[r] - now) * p.scale_log2);
    maximum[r] = now;
    sum[r] *= factor;
#pragma unroll
    for (int n = 0; n < kOutput8; n++) {
      o[n][2 * r] *= factor;
      o[n][2 * r + 1] *= factor;
    }
  }

  KJIT_DEVICE void clear_probabilities() {
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        probabilities[k][i] = 0;
  }

  // ---- The end of a segment ----

  // Wait for a phase of an mbarrier that all warpgroups of the cluster arrive at.
  KJIT_DEVICE static void wait(uint32_t barrier, int parity) {
    if constexpr (cfg::kCluster > 1)
      mbarrier_wait_parity_cluster(barrier, parity);
    else
      mbarrier_wait_parity(barrier, parity);
  }

  // Arrive at an mbarrier of every block of the cluster, once for this warpgroup, when all its threads are here.
  KJIT_DEVICE void arrive_everywhere(uint32_t barrier) const {
    bar_sync(2 + group, kThreadsPerWarpgroup);
    if constexpr (cfg::kCluster > 1) {
      if (thread < cfg::kCluster) mbarrier_arrive_cluster(mapa(barrier, thread));
    } else {
      mbarrier_arrive_if(barrier, thread == 0);
    }
  }

  KJIT_DEVICE void exchange(const Schedule &schedule, const Segment &segment, const Share &share) {
    if (exchanges > 0) wait(at.exchange_read(), (exchanges - 1) & 1);
    write_exchange();
    arrive_everywhere(at.exchange_written());
    wait(at.exchange_written(), exchanges & 1);
    const int number = group * kThreadsPerWarpgroup + thread;
    const Result result{p, schedule, at, segment, share, number};
    for (int quad = share.first + number; quad < share.end; quad += cfg::kConsumerThreads) {
      const Piece piece = read_exchange(quad);
      if (segment.whole)
        result.store(quad, piece);
      else
        result.keep(quad, piece);
    }
    arrive_everywhere(at.exchange_read());
    exchanges++;
    if (!segment.whole) result.arrive();
  }

  KJIT_DEVICE void write_exchange() const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = own_row(r);
      const float total = quad_sum(sum[r]);
      if (row >= cfg::kRows) continue;
      const uint32_t to = at.exchange_row(group, row) + 8 * (lane % 4);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        st_shared_f32_x2(to + 32 * n, o[n][2 * r], o[n][2 * r + 1]);
      if (lane % 4 == 0) {
        st_shared_4(at.exchange_maximum(group, row), __float_as_uint(maximum[r]));
        st_shared_4(at.exchange_sum(group, row), __float_as_uint(total));
      }
    }
  }

  // Add up four columns of a row over all warpgroups of the cluster, in the order of their ranks.
  KJIT_DEVICE Piece read_exchange(int quad) const {
    const int row = quad / Share::kQuads, column = quad % Share::kQuads * 4;
    Piece sum = empty_piece();
#pragma unroll
    for (int c = 0; c < cfg::kCluster; c++)
#pragma unroll
      for (int g = 0; g < cfg::kGroups; g++)
        sum.add(read_piece(g, row, column, c), p.scale_log2);
    return sum;
  }

  KJIT_DEVICE Piece read_piece(int from, int row, int column, int rank) const {
    Piece piece;
    const uint32_t x = at.exchange_row(from, row) + 4 * column;
    if constexpr (cfg::kCluster > 1) {
      ld_cluster_f32_x4(piece.x, mapa(x, rank));
      piece.maximum = ld_cluster_f32(mapa(at.exchange_maximum(from, row), rank));
      piece.sum = ld_cluster_f32(mapa(at.exchange_sum(from, row), rank));
    } else {
      const Chunk value = ld_shared_16(x);
#pragma unroll
      for (int i = 0; i < 4; i++)
        piece.x[i] = __uint_as_float(value.word[i]);
      piece.maximum = __uint_as_float(ld_shared_4(at.exchange_maximum(from, row)));
      piece.sum = __uint_as_float(ld_shared_4(at.exchange_sum(from, row)));
    }
    return piece;
  }
};
