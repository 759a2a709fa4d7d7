// The workers: one warpgroup that multiplies the key blocks of the block's shares of tiles.
//
// For each share the warpgroup loads Q, then for each key block computes S = Q K^T, the online softmax of S, and
// O += P V. A tile's rows are wgmma's 64; those that do not exist are multiplied too, but warps that have none of the
// tile's rows skip the softmax. Each step waits for the one before: a multiprocessor runs several blocks of threads,
// and while one of them computes its softmax, the others use the tensor cores.
//
// What no row sees may be anything, a slot that was never written among it. Scores of such keys become -inf, whatever
// they were; rows of V are zeroed in shared memory before they are multiplied, because 0 times NaN is NaN.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/warp.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/shared.cuh"
#include "attention_serving_sm90/slice_merge.cuh"

#include "attention_serving/output.cuh"
#include "attention_serving/rotary.cuh"
#include "attention_serving/walk.cuh"

struct Worker {
  static constexpr int kDepth = ceil_div(cfg::kHeadDim, 16); // products of S, 16 columns of Q and K each
  static constexpr int kKeyTiles = cfg::kKeys / 16;          // products of O, 16 keys each
  static constexpr int kColumns8 = cfg::kKeys / 8;
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  // The maximum of a row that has seen no key: finite, so that differences are numbers.
  static constexpr float kNoKey = -1e30f;

  const attention_serving_params &p;
  const Layout at;
  const int warp, lane;
  const float scale_log2;  // of what the softmax sees
  bool is_rehearsal;       // the first pass through the code of a step (begin_rehearsal())
  int rows = 0;            // of the tile, those that exist
  Ring<cfg::kStages> ring; // the block that is being multiplied
  float s[kColumns8][4];   // scores
  uint32_t probabilities[kKeyTiles][4];
  float o[kOutput8][4];
  float maximum[2], sum[2]; // of this thread's rows warp * 16 + lane / 4 and + 8; the sums over this thread's columns
  Seen seen[2];             // by these rows

  KJIT_DEVICE Worker(const attention_serving_params &params, Layout layout, int warp, int lane)
      : p(params), at(layout), warp(warp), lane(lane), scale_log2(cfg::kSoftcap ? kLog2E : params.scale_log2) {}

  KJIT_DEVICE void run() {
    begin_rehearsal();
    for (Ring<SERVING_SM90_JOBS> jobs;;) {
      if (!is_rehearsal) mbarrier_wait_parity(at.job_full(jobs.slot), jobs.parity);
      const Job &job = is_rehearsal ? at.no_job() : at.job(jobs.slot);
      if (!is_rehearsal && job.tile.sequence >= p.batch) return;
      work_on(job.tile, job.share, job.is_last);
      if (!is_rehearsal) {
        mbarrier_arrive(at.job_empty(jobs.slot));
        jobs.advance();
      }
      is_rehearsal = false;
    }
  }

private:
  // Until the first job is known, one step runs on made-up scores, without loads and products, so that its code comes
  // into the instruction cache: the first time it comes from memory, which takes longer than what it computes.
  KJIT_DEVICE void begin_rehearsal() {
    is_rehearsal = p.batch > 0; // always, which the compiler does not know: it must not make a copy of the code
    rows = SERVING_SM90_M;
    clear_result();
    seen[0] = seen[1] = {0, 1};
  }

  KJIT_DEVICE void work_on(const PlannedTile &tile, const Share &share, bool is_last) {
    const PackedRows packed(p, tile.s, tile.head, tile.index);
    const Output output{p, packed, tile.sequence};
    const SliceMerge merge{output, share, is_last, at.work()};
    int block = 0, end = 1;
    if (!is_rehearsal) {
      rows = packed.count();
      if (share.first != share.last) merge.begin();
      start(tile, packed);
      block = share.from;
      end = share.to;
    }
#pragma unroll 1
    for (; block < end; block++)
      step(tile, tile.start + block * cfg::kKeys);
    if (is_rehearsal) return;
    if (share.first == share.last) {
      store(output);
    } else {
      const bool may_wait = merge.may_wait();
      keep(merge.own_partial());
      merge.arrive(may_wait);
    }
  }

  KJIT_DEVICE int own_row(int r) const {
    return warp * 16 + lane / 4 + 8 * r;
  }
  // True when some of the warp's r-th rows exist: the same for all its lanes.
  KJIT_DEVICE bool has_rows(int r) const {
    return warp * 16 + 8 * r < rows;
  }

  // ---- Q ----

  KJIT_DEVICE const char *query_row(const PlannedTile &tile, const PackedRows &packed, int row) const {
    int query, head;
    packed.find(row, query, head);
    return (const char *)p.q + 2 * (tile.sequence * p.q_stride.batch + (tile.s.first_row + query) * p.q_stride.seq +
                                    head * p.q_stride.head);
  }

  KJIT_DEVICE Chunk query_chunk(const PlannedTile &tile, const PackedRows &packed, int row, int chunk) const {
    const char *const from = query_row(tile, packed, row);
    if (p.cos) return rotary::turned(p, from, chunk, rotary::position_of(p, tile.sequence, packed.query(row)));
    return ld_global_nc_16(from + chunk * kChunkBytes);
  }

  KJIT_DEVICE void start(const PlannedTile &tile, const PackedRows &packed) {
    load_query(tile, packed);
    clear_result();
#pragma unroll
    for (int r = 0; r < 2; r++)
      seen[r] = seen_by(p, tile.s, packed.query(own_row(r)));
  }

  KJIT_DEVICE void clear_scores() {
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[n][i] = 0.0f;
  }

  KJIT_DEVICE void clear_result() {
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

  // Write Q to shared memory with the 128-byte swizzle: 16-byte chunk index XOR row % 8. A band has kRows rows, where
  // the product reads 64: what lies behind counts as rows that do not exist, and rows of S do not mix.
  KJIT_DEVICE void load_query(const PlannedTile &tile, const PackedRows &packed) {
    constexpr int kChunks = cfg::bands(cfg::kHeadDim) * cfg::kRowBytes / kChunkBytes; // of a row
    cfg::sync_workers(); // Q is multiplied no more, and what was merged in its place is done with
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < rows * kChunks; i += cfg::kWorkers) {
      const int row = i / kChunks, chunk = i % kChunks;
      Chunk value = {};
      if (chunk * kChunkElements < cfg::kHeadDim) value = query_chunk(tile, packed, row, chunk);
      st_shared_16(at.query() + chunk / 8 * cfg::kRows * cfg::kRowBytes + row * cfg::kRowBytes +
                       ((chunk % 8 ^ row % 8) << 4),
                   value);
    }
    fence_async_proxy(); // before Q is multiplied
    cfg::sync_workers();
  }

  // ---- One key block, whose first key is `key` ----

  KJIT_DEVICE void step(const PlannedTile &tile, int key) {
    const int slot = ring.slot, parity = ring.parity;
    if (!is_rehearsal) {
      mbarrier_wait_parity(at.keys_full(slot), parity);
      multiply_scores(slot);
      mbarrier_arrive_if(at.keys_empty(slot), lane == 0);
    } else {
      clear_scores();
    }
    if (has_rows(0)) {
      if constexpr (cfg::kSoftcap) cap();
      if (is_rehearsal || key < tile.all_see.low || key + cfg::kKeys > tile.all_see.high) mask(key);
      softmax();
    } else {
      clear_probabilities();
    }
    if (is_rehearsal) return;
    mbarrier_wait_parity(at.values_full(slot), parity);
    if (key < tile.keys.low || key + cfg::kKeys > tile.keys.high)
      clear_values(slot, tile.keys.low - key, tile.keys.high - key);
    multiply_output(slot);
    mbarrier_arrive_if(at.values_empty(slot), lane == 0);
    __syncwarp();
    ring.advance();
  }

  // Zero the rows of V in front of `from` and from `to` on.
  KJIT_DEVICE void clear_values(int slot, int from, int to) const {
    constexpr int kChunks = cfg::kRowBytes / kChunkBytes, kInBand = cfg::kKeys * kChunks;
    for (int i = (int)threadIdx.x; i < cfg::bands(cfg::kHeadDimV) * kInBand; i += cfg::kWorkers) {
      const int row = i % kInBand / kChunks;
      if (row < from || row >= to) st_shared_16(at.values(slot) + i * kChunkBytes, {{0, 0, 0, 0}});
    }
    fence_async_proxy(); // before V is multiplied
    cfg::sync_workers();
  }

  // What to add to a descriptor for the product `depth`, 16 columns each: 32 bytes within a band of 64 columns; the
  // next band lies behind all rows of this one.
  KJIT_DEVICE static uint64_t band_step(int band_rows, int depth) {
    return wgmma_descriptor_step(depth / 4 * band_rows * cfg::kRowBytes + depth % 4 * 32);
  }

  KJIT_DEVICE void multiply_scores(int slot) {
    const uint64_t q = wgmma_descriptor(at.query(), 16), k = wgmma_descriptor(at.keys(slot), 16);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      Wgmma<cfg::Element, cfg::kKeys>::mma_async_ss(s, q + band_step(cfg::kRows, d), k + band_step(cfg::kKeys, d),
                                                    d > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  KJIT_DEVICE void multiply_output(int slot) {
    const uint64_t v = wgmma_descriptor(at.values(slot), cfg::kKeys * cfg::kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Element, cfg::kHeadDimV>::template mma_async_rs<true>(
          o, probabilities[k], v + wgmma_descriptor_step(k * 16 * cfg::kRowBytes), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  // ---- Softmax ----

  // Scores become cap * tanh(scale * score / cap), by tanh x = 1 - 2 / (exp(2 x) + 1), which is exact enough at both
  // ends.
  KJIT_DEVICE void cap() {
    const float inner = 2.0f * p.scale_log2 / p.softcap;
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[n][i] = p.softcap * (1.0f - 2.0f * rcp_approx(ex2_approx(s[n][i] * inner) + 1.0f));
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf.
  KJIT_DEVICE void mask(int key) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const unsigned count = (unsigned)at_least_0(seen[r].high - seen[r].low);
      const int first = key + lane % 4 * 2 - seen[r].low;
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if ((unsigned)(first + n * 8 + i) >= count) s[n][2 * r + i] = masked_score();
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
      const float offset = maximum[r] * scale_log2;
      float even = 0.0f, odd = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumns8; n++) {
        const float p0 = ex2_approx(s[n][2 * r] * scale_log2 - offset);
        const float p1 = ex2_approx(s[n][2 * r + 1] * scale_log2 - offset);
        even += p0;
        odd += p1;
        probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
      }
      sum[r] += even + odd;
    }
  }

  KJIT_DEVICE void raise(int r, float now) {
    const float factor = ex2_approx((maximum[r] - now) * scale_log2);
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

  // ---- The end of a share ----

  KJIT_DEVICE Output::Statistics statistics_of(int r) const {
    const float total = quad_sum(sum[r]);
    return {total == 0.0f ? masked_score() : maximum[r] * scale_log2, total};
  }

  // Store the result of a tile that this block of threads has alone.
  KJIT_DEVICE void store(const Output &output) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (!has_rows(r)) continue;
      Output::Statistics all = statistics_of(r);
      int query, head;
      if (!output.rows.find(own_row(r), query, head)) continue;
      float factor;
      all = output.with_sink(all, head, factor);
      const float inverse = all.sum == 0.0f ? 0.0f : factor / all.sum;
      char *const row = (char *)p.o + 2 * output.output_at(query, head) + 4 * (lane % 4);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        *(uint32_t *)(row + 16 * n) = cvt_rn_x2(cfg::Element{}, o[n][2 * r] * inverse, o[n][2 * r + 1] * inverse);
      if (lane % 4 == 0) output.write_log_sum_exp(query, head, all);
    }
  }

  struct alignas(8) Pair {
    float x[2];
  };

  // Write this thread's accumulators to a partial result.
  KJIT_DEVICE void keep(float *partial) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (!has_rows(r)) continue;
      const Output::Statistics all = statistics_of(r);
      if (own_row(r) >= rows) continue;
      float *const row = partial + own_row(r) * cfg::kHeadDimV + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        *(Pair *)(row + 8 * n) = {{o[n][2 * r], o[n][2 * r + 1]}};
      if (lane % 4 == 0) Output::statistics_of(partial)[own_row(r)] = all;
    }
  }
};
