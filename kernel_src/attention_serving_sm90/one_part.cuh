// Calls with few tiles: each block of threads computes one part of the keys of one tile (part.cuh), with little code:
// what is not in the instruction cache comes from memory, and a call of less than 100 MB waits for that most of all.
//
// One warpgroup computes tiles of 64 rows (one_part_turns.cuh has those of 128), with Q in registers. A step for one
// block of keys exists once in the code, and masking is a branch in it. A second warpgroup loads K and V, by TMA
// (one_part_boxes.cuh) or row by row (one_part_rows.cuh), as soon as there is room, whatever the first one is at. Calls
// that append new keys or rotate Q (one_part_prepare.cuh) load boxes by the last warp of the first one. The host gives
// this kernel no call with a window to the left, chunks, sinks, softcap, left padding, ragged rows, or a cache of 8
// bits, and with 128 rows none with rotary tables. With runs a block of threads computes several parts, one after the
// other (one_part_runs.cuh, run_loads.cuh), and appends and rotates nothing.
// one_part_result.cuh stores the result, or adds up the partial results of the blocks of threads that share a tile.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/warp.cuh>

#include "attention_serving_sm90/one_part_prepare.cuh"
#include "attention_serving_sm90/one_part_result.cuh"
#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

#if KJIT_gathered
#include "attention_serving_sm90/one_part_rows.cuh"
using Loads = OnePartRows;
#else
#include "attention_serving_sm90/one_part_boxes.cuh"
using Loads = OnePartBoxes;
#endif
#if KJIT_runs
#include "attention_serving_sm90/run_loads.cuh"
#endif

struct OnePart {
  static constexpr int kDepth = ceil_div(cfg::kHeadDim, 16); // products of S, 16 columns of Q and K each
  static constexpr int kKeyTiles = cfg::kKeys / 16;          // products of O, 16 keys each
  static constexpr int kColumns8 = cfg::kKeys / 8;
  static constexpr int kOutput8 = OnePartResult::kOutput8;
  static constexpr int kLoader = cfg::kLoader;
  // Registers of a thread after setmaxnreg: two blocks of threads on a multiprocessor have 65,536.
  static constexpr int kWorkerRegisters = 200, kLoaderRegisters = 56;

  const attention_serving_one_part_params &p;
  const Layout at;
  const int thread, warp, lane;
  Loads loads;
  Part part;
  int rows; // of the tile, those that exist
  Ring<cfg::kStages> ring;
  uint32_t q[kDepth][4];
  float s[kColumns8][4];
  uint32_t probabilities[kKeyTiles][4];
  float o[kOutput8][4];
  float maximum[2], sum[2]; // of this thread's rows warp * 16 + lane / 4 and + 8; the sums over this thread's columns
  int seen[2];              // keys that these rows see
  int new_from = append::kNever; // position of the sequence's first new key

  KJIT_DEVICE OnePart(const attention_serving_one_part_params &params, Layout layout, int warp)
      : p(params), at(layout), thread((int)threadIdx.x), warp(warp), lane(thread % kLanesPerWarp),
        loads(params, layout, warp % (cfg::kWorkers / kLanesPerWarp), lane) {}

  KJIT_DEVICE void run() {
#if KJIT_runs
    run_parts();
#elif KJIT_apart
    run_apart();
#else
    run_part();
#endif
  }

private:
  KJIT_DEVICE void run_part() {
    if (warp == kLoader) loads.begin_barriers();
    parts::touch_table(p, lane);
    part = parts::find(p, lane);
    if (part.parts == 0) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
    rows = rows_of(part.row_tile);
    const OnePartResult result{p, part, rows, at.work()};
    if (thread == 0 && part.parts > 1) result.begin();
    loads.begin(part);
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
#if KJIT_gathered
    if (warp >= kLoader) {
      setmaxnreg_dec<kLoaderRegisters>();
      loads.load_part(part);
      return;
    }
    setmaxnreg_inc<kWorkerRegisters>();
#endif
    const int all_see = p.window_right >= 0 ? smallest(part.keys - p.rows_q + p.window_right + 1) : part.keys;
    if constexpr (cfg::kAppends) {
      if (p.appends) new_from = p.used_k[part.sequence];
      const bool has_new = smallest(part.to * cfg::kKeys) > new_from;
      const bool writes = has_new && warp != kLoader && append::turn(warp) < p.rows_new;
      if (writes || (p.rotates && has_rows(0))) append::prepare(p, part, at.work(), new_from, warp, lane);
    }
    start(result);
    multiply_part(all_see);
    finish(result);
  }

  // The same where nothing is appended or rotated, and a warpgroup of its own loads boxes.
  KJIT_DEVICE void run_apart() {
    begin_aside();
    part = warp <= kLoader ? parts::find(p, lane) : Part{};
    if (warp == kLoader) loads.begin(part);
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    if (warp >= kLoader) {
      setmaxnreg_dec<kLoaderRegisters>();
      if (warp == kLoader) loads.load_part(part);
      return;
    }
    setmaxnreg_inc<kWorkerRegisters>();
    if (part.parts > 0) compute();
  }

  // What needs no part, by a warp that loads nothing, because the first keys wait for the one that loads.
  KJIT_DEVICE void begin_aside() const {
    if (warp < cfg::kThreads / kLanesPerWarp - 1) return;
    loads.begin_barriers();
    parts::touch_table(p, lane);
  }

  KJIT_DEVICE void compute() {
    rows = rows_of(part.row_tile);
    const OnePartResult result{p, part, rows, at.work()};
    if (thread == 0 && part.parts > 1) result.begin();
    const int all_see = p.window_right >= 0 ? smallest(part.keys - p.rows_q + p.window_right + 1) : part.keys;
    start(result);
    multiply_part(all_see);
    finish(result);
  }

#if KJIT_gathered || KJIT_apart
  KJIT_DEVICE void multiply_part(int all_see) {
    if (cfg::kAppends && p.rotates) bar_arrive(cfg::kQueryBarrier, cfg::kThreads); // Q has been read
#pragma unroll 1
    for (int block = part.from; block < part.to; block++) {
      if constexpr (cfg::kAppends)
        if ((block + 1) * cfg::kKeys > new_from) place_new_keys(block * cfg::kKeys);
      step(block, all_see);
      ring.advance();
    }
  }
#else
  KJIT_DEVICE void multiply_part(int all_see) {
    // The first pass of the loop, in front of the first block, fills all stages, so that the code that loads exists
    // once. `is_first` depends on a parameter, because the compiler would otherwise make a second copy for that pass.
    bool is_first = p.batch > 0;
#pragma unroll 1
    for (int block = part.from - 1; block < part.to; block++) {
      if (!is_first) step(block, all_see);
      if (warp == kLoader) loads.load_block(part, ring, block, is_first);
      if (!is_first) ring.advance();
      is_first = false;
      // What is seldom run lies at the end of the loop, so that the code of a step is in one piece.
      if constexpr (cfg::kAppends)
        if ((block + 2) * cfg::kKeys > new_from && block + 1 < part.to) place_new_keys((block + 1) * cfg::kKeys);
    }
  }
#endif

#if KJIT_runs
  // The parts of a run. Keys and values of the next part are on their way before this one is done.
  KJIT_DEVICE void run_parts() {
    if (warp == kLoader) loads.begin_barriers();
    parts::touch_table(p, lane);
    const Runs runs(p, lane);
    int next = runs.begin();
    RunPart now = runs.next(next);
    if (now.parts == 0) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    if (warp >= kLoader) {
      setmaxnreg_dec<kLoaderRegisters>();
      if (Loads::kAllWarps || warp == kLoader) RunLoads<Loads>(p, at, warp - kLoader, lane, runs).run();
      return;
    }
    setmaxnreg_inc<kWorkerRegisters>();
#pragma unroll 1
    while (now.parts > 0) {
      part = now;
      rows = rows_of(part.row_tile);
      const OnePartResult result{p, part, rows, at.work(), now.waiting, now.is_last};
      if (thread == 0 && part.parts > 1) result.begin();
      const int all_see = p.window_right >= 0 ? smallest(part.keys - p.rows_q + p.window_right + 1) : part.keys;
      start(result);
#pragma unroll 1
      for (int block = part.from; block < part.to; block++) {
        step(block, all_see);
        ring.advance();
      }
      finish(result);
      now = runs.next(next);
    }
  }
#endif

  KJIT_DEVICE void finish(const OnePartResult &result) const {
    if (part.parts == 1) {
      result.store(warp, o, maximum, sum);
      return;
    }
    // The answer takes as long as writing the partial result, so it is asked for before that.
    const bool may_wait = thread == 0 && result.may_wait();
    result.keep(warp, o, maximum, sum);
    result.arrive(may_wait);
  }

  KJIT_DEVICE int rows_of(int row_tile) const {
    const int left = p.rows_q * p.group - row_tile * cfg::kRows;
    return left < cfg::kRows ? left : cfg::kRows;
  }
  KJIT_DEVICE int smallest(int keys) const {
    return keys < part.keys ? keys : part.keys;
  }
  KJIT_DEVICE bool has_rows(int r) const {
    return warp * 16 + 8 * r < rows;
  }

  KJIT_DEVICE void start(const OnePartResult &result) {
#pragma unroll
    for (int n = 0; n < kOutput8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        o[n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < kDepth; d++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        q[d][i] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      maximum[r] = OnePartResult::kNoKey;
      sum[r] = 0.0f;
      seen[r] = part.keys;
      if (result.has_rows(warp, r)) load_query(result, r);
    }
  }

  KJIT_DEVICE const char *query_row(int query, int head) const {
    return (const char *)p.q + 2 * (part.sequence * p.q_stride.batch + query * p.q_stride.seq + head * p.q_stride.head);
  }

  // Registers of the A operand: row own_row(r), columns 16 * d + 2 * (lane % 4) and 8 further. A row that does not
  // exist has the values of the warp's first, because a warp rotates its own rows alone.
  KJIT_DEVICE void load_query(const OnePartResult &result, int r) {
    int query, head;
    const int own = result.own_row(r), row = own < rows ? own : warp * 16;
    result.find_row(row, query, head);
    if (p.window_right >= 0) seen[r] = smallest(query + part.keys - p.rows_q + p.window_right + 1);
    const bool is_turned = cfg::kAppends && p.rotates;
    const char *const from = (is_turned ? append::turned_row(at.work(), row) : query_row(query, head)) + 4 * (lane % 4);
#pragma unroll
    for (int d = 0; d < kDepth; d++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (16 * d + 8 * half < cfg::kHeadDim) q[d][r + 2 * half] = *(const uint32_t *)(from + 2 * (16 * d + 8 * half));
  }

  KJIT_DEVICE void step(int block, int all_see) {
    const int slot = ring.slot, parity = ring.parity;
    mbarrier_wait_parity(at.keys_full(slot), parity);
    if constexpr (Loads::kIsFenced) fence_async_proxy(); // keys
    multiply_scores(slot);
    if constexpr (cfg::kLoadsApart) mbarrier_arrive_if(at.keys_empty(slot), lane == 0);
    if (has_rows(0)) {
      if ((block + 1) * cfg::kKeys > all_see) mask(block * cfg::kKeys);
      softmax();
    } else {
      clear_probabilities();
    }
    mbarrier_wait_parity(at.values_full(slot), parity);
    if constexpr (Loads::kIsFenced)
      fence_async_proxy(); // values
    else if ((block + 1) * cfg::kKeys > part.keys)
      clear_values(slot, part.keys - block * cfg::kKeys);
    multiply_output(slot);
    mbarrier_arrive_if(at.values_empty(slot), lane == 0);
    __syncwarp();
  }

  // Of the block that is next, whose first key is `key`.
  KJIT_DEVICE void place_new_keys(int key) {
    const int slot = ring.slot;
    mbarrier_wait_parity(at.keys_full(slot), ring.parity);
    mbarrier_wait_parity(at.values_full(slot), ring.parity);
    if (warp != kLoader)
      append::new_keys(p, part, at.work(), new_from, warp, lane)
          .place(at.keys(slot), at.values(slot), key, smallest(key + cfg::kKeys));
    cfg::sync_workers(); // all have been placed
  }

  // Zero the rows of V from `from` on, because 0 times NaN is NaN.
  KJIT_DEVICE void clear_values(int slot, int from) const {
#pragma unroll 1
    for (int i = from * 8 + thread; i < cfg::kKeys * 8; i += cfg::kWorkers)
#pragma unroll
      for (int band = 0; band < cfg::kValueBands; band++)
        st_shared_16(at.values(slot) + cfg::ValueTile::chunk_at(band, i), {{0, 0, 0, 0}});
    fence_async_proxy(); // before V is multiplied
    cfg::sync_workers();
  }

  KJIT_DEVICE void multiply_scores(int slot) {
    const uint64_t k = cfg::KeyTile::keys(at.keys(slot));
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      Wgmma<cfg::Element, cfg::kKeys>::mma_async_rs(s, q[d], k + cfg::KeyTile::keys_step(d), d > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  KJIT_DEVICE void multiply_output(int slot) {
    const uint64_t v = cfg::ValueTile::values(at.values(slot));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Element, cfg::kHeadDimV>::template mma_async_rs<true>(o, probabilities[k],
                                                                       v + cfg::ValueTile::values_step(k), 1);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf, whatever they were.
  KJIT_DEVICE void mask(int key) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int valid = seen[r] - key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (n * 8 + i >= valid) s[n][2 * r + i] = __int_as_float(0xff800000);
    }
  }

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
};
