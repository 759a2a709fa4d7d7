// Calls with few tiles: each block of threads computes one part of the keys of one tile (part.cuh), with as little code
// as possible. Code that is not in the instruction cache comes from memory, a line of 128 bytes at a time, and with
// less than about 100 MB of keys and values a call waits longer for its code than for anything else.
//
// One warpgroup computes. Its last warp also issues the TMA loads: each lane has one box of rows of one stage of K and
// V, looks up the page of that box one round ahead, and copies its columns of K and of V. Q is held in registers. A
// step for one block of keys exists once in the code, and masking is a branch in it. The host gives this kernel no call
// with a window to the left, chunks, sinks, softcap, left padding, ragged rows, or a cache of 8 bits.
//
// one_part_result.cuh stores the result, or adds up the partial results of the blocks of threads that share a tile.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/ptx/tma_hint.cuh>
#include <kjit/warp.cuh>

#include "attention_serving_sm90/new_keys.cuh"
#include "attention_serving_sm90/one_part_result.cuh"
#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

#include "attention_serving/rotary.cuh"

struct OnePart {
  static constexpr int kDepth = ceil_div(cfg::kHeadDim, 16); // products of S, 16 columns of Q and K each
  static constexpr int kKeyTiles = cfg::kKeys / 16;          // products of O, 16 keys each
  static constexpr int kColumns8 = cfg::kKeys / 8;
  static constexpr int kOutput8 = OnePartResult::kOutput8;
  static constexpr int kLoader = cfg::kWorkers / kLanesPerWarp - 1; // the warp that loads

  const attention_serving_one_part_params &p;
  const Layout at;
  const int thread, warp, lane;
  Part part;
  const int rows; // of a tile, those that exist
  Ring<cfg::kStages> ring;
  uint32_t q[kDepth][4];
  float s[kColumns8][4];
  uint32_t probabilities[kKeyTiles][4];
  float o[kOutput8][4];
  float maximum[2], sum[2]; // of this thread's rows warp * 16 + lane / 4 and + 8; the sums over this thread's columns
  int seen[2];              // keys that these rows see
  int new_from = append::kNever; // position of the sequence's first new key
  // Of the loader's lanes: the block of keys that comes next into the lane's buffer, and where the lane's box of it is.
  int next = 0, row = 0, outer = 0;

  KJIT_DEVICE OnePart(const attention_serving_one_part_params &params, Layout layout, int warp)
      : p(params), at(layout), thread((int)threadIdx.x), warp(warp), lane(thread % kLanesPerWarp),
        rows(params.rows_q * params.group) {}

  KJIT_DEVICE void run() {
    if (warp == kLoader) begin_barriers();
    parts::touch_table(p, lane);
    part = parts::find(p, lane);
    if (part.parts == 0) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
    const OnePartResult result{p, part, rows, at.work()};
    if (thread == 0 && part.parts > 1) result.begin();
    next = part.from + slot();
    look_up();
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    const int all_see = p.window_right >= 0 ? smallest(part.keys - p.rows_q + p.window_right + 1) : part.keys;
    if (p.appends) new_from = p.used_k[part.sequence];
    const bool writes = smallest(part.to * cfg::kKeys) > new_from && warp != kLoader && turn(warp) < p.rows_new;
    if (writes || (p.rotates && has_rows(0))) prepare(p, part, at.work(), new_from, warp, lane);
    start(result);
    // The first pass of the loop, in front of the first block, fills all stages, so that the code that loads exists
    // once. `is_first` depends on a parameter, because the compiler would otherwise make a second copy for that pass.
    bool is_first = p.batch > 0;
#pragma unroll 1
    for (int block = part.from - 1; block < part.to; block++) {
      if (!is_first) step(block, all_see);
      if (warp == kLoader) load_block(block, is_first);
      if (!is_first) ring.advance();
      is_first = false;
      // What is seldom run lies at the end of the loop, so that the code of a step is in one piece.
      if ((block + 2) * cfg::kKeys > new_from && block + 1 < part.to) place_new_keys((block + 1) * cfg::kKeys);
    }
    if (part.parts == 1) {
      result.store(warp, o, maximum, sum);
      return;
    }
    // The answer takes as long as writing the partial result, so it is asked for before that.
    const bool may_wait = thread == 0 && result.may_wait();
    result.keep(warp, o, maximum, sum);
    result.arrive(may_wait);
  }

private:
  KJIT_DEVICE int smallest(int keys) const {
    return keys < part.keys ? keys : part.keys;
  }
  // True when some of the warp's r-th rows exist: the same for all its lanes.
  KJIT_DEVICE bool has_rows(int r) const {
    return warp * 16 + 8 * r < rows;
  }

  // ---- Loads: the loader's warp ----

  KJIT_DEVICE void begin_barriers() const {
    if (lane == 0) {
      at.initialise();
      prefetch_tensormap((const TensorMap *)&p.k);
      prefetch_tensormap((const TensorMap *)&p.v);
    }
    __syncwarp(); // the other lanes use the mbarriers too
  }

  KJIT_DEVICE int slot() const {
    return lane >> p.box_shift;
  }
  KJIT_DEVICE int index() const {
    return lane & ((1 << p.box_shift) - 1);
  }

  // Where the lane's box of block `next` is. A box behind the last key is asked for in a page that does not exist, so
  // that TMA writes zeros.
  KJIT_DEVICE void look_up() {
    const int key = next * cfg::kKeys + index() * p.box_rows;
    row = 0;
    outer = p.cache_rows;
    if (next >= part.to || key >= part.keys) return;
    row = key;
    outer = part.sequence;
    if (!p.page_table) return;
    const int page = key >> p.page_shift;
    row = key - (page << p.page_shift);
    outer = p.page_table[part.sequence * p.page_table_stride + page];
  }

  // A key is read once in a call, so its line of L2 is the first to be replaced, and what else L2 holds stays.
  template <int kBands> KJIT_DEVICE void load(const serving_tensor_map &map, uint32_t shared) const {
#pragma unroll
    for (int i = 0; i < kBands; i++)
      tma_load_with(kEvictFirst, shared + (i * cfg::kKeys + index() * p.box_rows) * cfg::kRowBytes,
                    (const TensorMap *)&map, shared < at.values(0) ? at.keys_full(slot()) : at.values_full(slot()),
                    i * cfg::kCacheColumns, row, part.head, outer);
  }

  // Load into the stage of the block that was just multiplied, or into all stages when `is_first`.
  KJIT_DEVICE void load_block(int block, bool is_first) {
    if (!is_first) {
      if (block + cfg::kStages >= part.to) return;
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity); // then K has been multiplied, too
    }
    const bool loads = next < part.to && (is_first ? slot() < cfg::kStages : slot() == ring.slot);
    if (loads && index() == 0) {
      mbarrier_arrive_expect_tx(at.keys_full(slot()), cfg::kKeyBytes);
      mbarrier_arrive_expect_tx(at.values_full(slot()), cfg::kValueBytes);
    }
    __syncwarp(); // the bytes are expected before they come
    if (loads) {
      load<cfg::kKeyBands>(p.k, at.keys(slot()));
      load<cfg::kValueBands>(p.v, at.values(slot()));
      next += cfg::kStages;
      look_up();
    }
    __syncwarp();
  }

  // ---- Q ----

  // A warp without rows loads nothing, so that the warp that loads keys begins at once when a tile has up to 48 rows.
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

  // What moves the new keys of a tile: the warps but the loader's, the first of which has other work, and so comes
  // last.
  static KJIT_DEVICE append::NewKeys new_keys(const attention_serving_one_part_params &p, const Part &part, char *work,
                                              int first, int warp, int lane) {
    return {p.all, (Chunk *)(work + cfg::kKeptAt), part.sequence, part.head, first, turn(warp), kLoader, lane};
  }
  static KJIT_DEVICE int turn(int warp) {
    return kLoader - 1 - warp;
  }

  KJIT_DEVICE const char *query_row(int query, int head) const {
    return (const char *)p.q + 2 * (part.sequence * p.q_stride.batch + query * p.q_stride.seq + head * p.q_stride.head);
  }
  static KJIT_DEVICE char *turned_row(char *work, int row) {
    return work + cfg::kTurnedAt + row * cfg::kTurnedRowBytes;
  }

  // What calls with new keys do first: rotate the warp's rows of Q, on their way to shared memory, and write the new
  // keys to the cache. It is no part of the kernel's own code, which lies in one piece for calls without new keys; and
  // nothing of the accumulators lives yet.
  static __device__ __noinline__ void prepare(const attention_serving_one_part_params &p, Part part, char *work,
                                              int first, int warp, int lane) {
    const int rows = p.rows_q * p.group, left = rows - warp * 16;
    const int items = rotary::items(p.all, cfg::kHeadDim);
    if (p.rotates) {
#pragma unroll 1
      for (int i = lane; i < (left < 16 ? left : 16) * items; i += kLanesPerWarp) {
        const int row = warp * 16 + i / items, query = row / p.group, head = part.head * p.group + row % p.group;
        Chunk *const to = (Chunk *)turned_row(work, row);
        const int64_t from = part.sequence * p.q_stride.batch + query * p.q_stride.seq + head * p.q_stride.head;
        rotary::turn_item(p.all, (const Chunk *)((const char *)p.q + 2 * from), i % items,
                          rotary::position_of(p.all, part.sequence, query),
                          [&](int index, const Chunk &chunk) { to[index] = chunk; });
      }
      __syncwarp(); // other lanes read what a lane has written
    }
    const int end = smaller(part.to * cfg::kKeys, part.keys);
    if (end > first && warp != kLoader) new_keys(p, part, work, first, warp, lane).write(part.from * cfg::kKeys, end);
  }

  // Registers of the A operand: row own_row(r), columns 16 * d + 2 * (lane % 4) and 8 further. A row that does not
  // exist has the values of one that does: the warp's first, because a warp rotates its own rows alone.
  KJIT_DEVICE void load_query(const OnePartResult &result, int r) {
    int query, head;
    const int own = result.own_row(r), row = own < rows ? own : warp * 16;
    result.find_row(row, query, head);
    if (p.window_right >= 0) seen[r] = smallest(query + part.keys - p.rows_q + p.window_right + 1);
    const char *const from = (p.rotates ? turned_row(at.work(), row) : query_row(query, head)) + 4 * (lane % 4);
#pragma unroll
    for (int d = 0; d < kDepth; d++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (16 * d + 8 * half < cfg::kHeadDim) q[d][r + 2 * half] = *(const uint32_t *)(from + 2 * (16 * d + 8 * half));
  }

  // ---- One key block ----

  KJIT_DEVICE void step(int block, int all_see) {
    const int slot = ring.slot, parity = ring.parity;
    mbarrier_wait_parity(at.keys_full(slot), parity);
    multiply_scores(slot);
    if (has_rows(0)) {
      if ((block + 1) * cfg::kKeys > all_see) mask(block * cfg::kKeys);
      softmax();
    } else {
      clear_probabilities();
    }
    mbarrier_wait_parity(at.values_full(slot), parity);
    if ((block + 1) * cfg::kKeys > part.keys) clear_values(slot, part.keys - block * cfg::kKeys);
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
      new_keys(p, part, at.work(), new_from, warp, lane)
          .place(at.keys(slot), at.values(slot), key, smallest(key + cfg::kKeys));
    __syncthreads(); // all have been placed
  }

  // Zero the rows of V from `from` on, because 0 times NaN is NaN.
  KJIT_DEVICE void clear_values(int slot, int from) const {
#pragma unroll 1
    for (int i = from * 8 + thread; i < cfg::kKeys * 8; i += cfg::kWorkers)
#pragma unroll
      for (int band = 0; band < cfg::kValueBands; band++)
        st_shared_16(at.values(slot) + band * cfg::kKeys * cfg::kRowBytes + i * kChunkBytes, {{0, 0, 0, 0}});
    fence_async_proxy(); // before V is multiplied
    __syncthreads();
  }

  KJIT_DEVICE static uint64_t band_step(int band_rows, int depth) {
    return wgmma_descriptor_step(depth / 4 * band_rows * cfg::kRowBytes + depth % 4 * 32);
  }

  KJIT_DEVICE void multiply_scores(int slot) {
    const uint64_t k = wgmma_descriptor(at.keys(slot), 16);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      Wgmma<cfg::Element, cfg::kKeys>::mma_async_rs(s, q[d], k + band_step(cfg::kKeys, d), d > 0);
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
