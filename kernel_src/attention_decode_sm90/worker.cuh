// A block of threads: one warpgroup that loads and multiplies the key blocks of its run.
//
// For each segment of the run the warpgroup loads Q, then for each key block computes S = Q K^T, the online softmax of
// S, and O += P V. The tile's rows are wgmma's 64; those that do not exist are multiplied too, but warps that have none
// of the tile's rows skip the softmax. Each step waits for the one before: an SM runs several blocks of threads, and
// while one of them computes its softmax, the others use the tensor cores.
//
// Thread 0 issues the loads, by TMA, as many key blocks ahead as there are stages: a slot is filled again when every
// warp has arrived at its "empty" mbarrier. At the end of a segment the result is stored, or left for merging
// (merge.cuh).
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/warp.cuh>

#include "attention_decode_sm90/merge.cuh"
#include "attention_decode_sm90/schedule.cuh"
#include "attention_decode_sm90/shared.cuh"

struct Worker {
  static constexpr int kDepth = ceil_div(cfg::kHeadDim, 16); // products of S, 16 columns of Q and K each
  static constexpr int kKeyTiles = cfg::kKeyRows / 16;       // products of O, 16 keys each
  static constexpr int kColumns8 = cfg::kKeyRows / 8;
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  static constexpr int kQueryDepth = cfg::kQueryInRegisters ? kDepth : 1;

  const attention_decode_sm90_params &p;
  const Layout at;
  const int thread, warp, lane;
  int rows = 0;               // of the tile, those that exist
  int unloaded = 0;           // thread 0: blocks of the run whose loads are not issued
  Cursor ahead;               // thread 0: the next of them
  Ring<cfg::kStages> ring;    // the block that is being multiplied
  uint32_t q[kQueryDepth][4]; // Q as the A operand
  float s[kColumns8][4];      // scores
  uint32_t probabilities[kKeyTiles][4];
  float o[kOutput8][4];
  float maximum[2], sum[2]; // of this thread's rows warp * 16 + lane / 4 and + 8; the sums over this thread's columns

  KJIT_DEVICE Worker(const attention_decode_sm90_params &params, Layout layout)
      : p(params), at(layout), thread(threadIdx.x), warp(thread / kLanesPerWarp), lane(thread % kLanesPerWarp) {}

  KJIT_DEVICE void run() {
    const Schedule schedule(p);
    const int first = schedule.start_of(schedule.run), end = schedule.start_of(schedule.run + 1);
    Segment segment;
    segment.at = schedule.seek(first);
    if (thread == 0) begin_loads(schedule, segment.at, end - first);
    bar_sync(Merge::kBarrier, cfg::kThreads); // the mbarriers are initialised
    segment.index = 0;
    for (int done = first; done < end; segment.index++) {
      segment.tile = done / schedule.blocks;
      segment.first = segment.at.block;
      segment.count = schedule.blocks - segment.first < end - done ? schedule.blocks - segment.first : end - done;
      segment.whole = segment.count == schedule.blocks;
      segment.is_last = done + segment.count == end;
      work_on(schedule, segment);
      done += segment.count;
      segment.at.next_tile(p);
    }
  }

private:
  KJIT_DEVICE void work_on(const Schedule &schedule, const Segment &segment) {
    const int left = p.seq_q * p.group - segment.at.row_tile * cfg::kRows;
    rows = left < cfg::kRows ? left : cfg::kRows;
    const Merge merge{p, schedule, at, segment, thread, rows};
    if (!segment.whole && thread == 0) merge.begin();
    start(segment.at);
#pragma unroll 1
    for (int i = 0; i < segment.count; i++)
      step(schedule, segment.at, segment.first + i);
    if (segment.whole) {
      store(segment.at);
    } else {
      keep(merge.own_partial());
      merge.arrive();
    }
  }

  KJIT_DEVICE int own_row(int r) const {
    return warp * 16 + lane / 4 + 8 * r;
  }
  // True when some of the warp's r-th rows exist: the same for all its lanes.
  KJIT_DEVICE bool has_rows(int r) const {
    return warp * 16 + 8 * r < rows;
  }

  // ---- Loads: thread 0 ----

  KJIT_DEVICE static const TensorMap *map(const decode_tensor_map &m) {
    return (const TensorMap *)&m;
  }

  template <int kBands>
  KJIT_DEVICE void load(const decode_tensor_map &m, uint32_t shared, uint32_t full, const Cursor &block) const {
    mbarrier_arrive_expect_tx(full, kBands * cfg::kKeyRows * cfg::kRowBytes);
#pragma unroll
    for (int i = 0; i < kBands; i++)
      tma_load(shared + i * cfg::kKeyRows * cfg::kRowBytes, map(m), full, i * DECODE_BAND_COLUMNS,
               block.block * cfg::kKeyRows, block.head, block.batch);
  }
  KJIT_DEVICE void load_keys(int slot, const Cursor &block) const {
    load<cfg::bands(cfg::kHeadDim)>(p.k, at.keys(slot), at.keys_full(slot), block);
  }
  KJIT_DEVICE void load_values(int slot, const Cursor &block) const {
    load<cfg::bands(cfg::kHeadDimV)>(p.v, at.values(slot), at.values_full(slot), block);
  }

  // Initialise the mbarriers and fill the ring.
  KJIT_DEVICE void begin_loads(const Schedule &schedule, const Cursor &first, int blocks) {
    at.initialise();
    ahead = first;
    unloaded = blocks;
    for (int slot = 0; slot < cfg::kStages && unloaded > 0; slot++) {
      load_keys(slot, ahead);
      load_values(slot, ahead);
      pass_load(schedule);
    }
  }
  KJIT_DEVICE void pass_load(const Schedule &schedule) {
    ahead.next_block(p, schedule.blocks);
    unloaded--;
  }

  // ---- Q ----

  // The address of a row of Q.
  KJIT_DEVICE const char *query_row(const Cursor &tile, int row) const {
    const int number = tile.row_tile * cfg::kRows + row;
    const int64_t offset = tile.batch * p.q_batch_stride + number / p.group * p.q_seq_stride +
                           (tile.head * p.group + number % p.group) * p.q_head_stride;
    return (const char *)p.q + 2 * offset;
  }

  KJIT_DEVICE void start(const Cursor &tile) {
    if constexpr (cfg::kQueryInRegisters)
      load_query_registers(tile);
    else
      load_query_shared(tile);
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
  KJIT_DEVICE void load_query_registers(const Cursor &tile) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const bool exists = own_row(r) < rows;
      const char *const row = query_row(tile, exists ? own_row(r) : 0);
#pragma unroll
      for (int d = 0; d < kQueryDepth; d++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int column = 16 * d + 8 * half + 2 * (lane % 4);
          q[d][r + 2 * half] = exists && column < cfg::kHeadDim ? *(const uint32_t *)(row + 2 * column) : 0u;
        }
    }
  }

  // Write Q to shared memory with the 128-byte swizzle: 16-byte chunk index XOR row % 8. Rows that do not exist keep
  // what was there, because rows of S do not mix.
  KJIT_DEVICE void load_query_shared(const Cursor &tile) {
    constexpr int kChunks = cfg::bands(cfg::kHeadDim) * DECODE_ROW_BYTES / kChunkBytes; // of a row
    bar_sync(Merge::kBarrier, cfg::kThreads);                                           // Q is multiplied no more
    for (int i = thread; i < rows * kChunks; i += cfg::kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      Chunk value = {};
      if (chunk * kChunkElements < cfg::kHeadDim) value = ld_global_nc_16(query_row(tile, row) + chunk * kChunkBytes);
      st_shared_16(at.query() + chunk / 8 * DECODE_M * DECODE_ROW_BYTES + row * DECODE_ROW_BYTES +
                       ((chunk % 8 ^ row % 8) << 4),
                   value);
    }
    fence_async_proxy();
    bar_sync(Merge::kBarrier, cfg::kThreads);
  }

  // ---- One key block ----

  KJIT_DEVICE void step(const Schedule &schedule, const Cursor &tile, int block) {
    const int slot = ring.slot, parity = ring.parity;
    mbarrier_wait_parity(at.keys_full(slot), parity);
    multiply_scores(slot);
    mbarrier_arrive_if(at.keys_empty(slot), lane == 0);
    if (has_rows(0)) {
      if ((block + 1) * cfg::kKeyRows > seen_by_all()) mask(tile, block);
      softmax();
    } else {
      clear_probabilities();
    }
    // The other warps have long computed their scores, so that this does not wait.
    if (thread == 0 && unloaded > 0) {
      mbarrier_wait_parity(at.keys_empty(slot), parity);
      load_keys(slot, ahead);
    }
    mbarrier_wait_parity(at.values_full(slot), parity);
    multiply_output(slot);
    mbarrier_arrive_if(at.values_empty(slot), lane == 0);
    if (thread == 0 && unloaded > 0) {
      mbarrier_wait_parity(at.values_empty(slot), parity);
      load_values(slot, ahead);
      pass_load(schedule);
    }
    __syncwarp();
    ring.advance();
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
  KJIT_DEVICE void mask(const Cursor &tile, int block) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int query = (tile.row_tile * cfg::kRows + own_row(r)) / p.group;
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

  // Store the result of a whole tile.
  KJIT_DEVICE void store(const Cursor &tile) const {
    const Output output{p, tile};
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (!has_rows(r)) continue;
      const float total = quad_sum(sum[r]), inverse = total == 0.0f ? 0.0f : 1.0f / total;
      if (own_row(r) >= rows) continue;
      const int number = tile.row_tile * cfg::kRows + own_row(r);
      char *const row = output.row(number) + 4 * (lane % 4);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        *(uint32_t *)(row + 16 * n) = cvt_rn_x2(cfg::Element{}, o[n][2 * r] * inverse, o[n][2 * r + 1] * inverse);
      if (lane % 4 == 0) output.store_lse(number, maximum[r], total);
    }
  }

  // Write this thread's accumulators to a partial result.
  KJIT_DEVICE void keep(float *partial) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (!has_rows(r)) continue;
      const float total = quad_sum(sum[r]);
      if (own_row(r) >= rows) continue;
      float *const row = partial + own_row(r) * cfg::kHeadDimV + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        *(Floats2 *)(row + 8 * n) = {{o[n][2 * r], o[n][2 * r + 1]}};
      if (lane % 4 == 0) *(Floats2 *)Merge::statistics(partial, own_row(r)) = {{maximum[r], total}};
    }
  }
};
