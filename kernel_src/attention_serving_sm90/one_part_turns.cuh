// one_part.cuh for tiles of more than 64 rows, whose products take longer than the loads: the rows of two warpgroups,
// which take turns at the tensor cores, so that these work for one while the other computes its softmax. A warp of a
// third warpgroup loads K and V (one_part_boxes.cuh).
//
//   Q   is copied to shared memory by the warps that multiply, 16 rows each.
//   A step of a warpgroup: it masks S of a block of keys where a row may not see all keys, and computes P. In its turn
//   it issues S = Q K^T of the next block and O += P V of this one, passes the turn on, and waits for both. P is
//   relative to the running maximum that there is; a new one is looked for when a sum exceeds 2^15
//   (softmax/online_softmax.cuh). The softmax exists once in the code; the first S and the last O += P V stand in front
//   of the loop and behind it.
//
// With runs a block of threads does so for several parts, one after the other (one_part_runs.cuh, run_loads.cuh).
//
// one_part_result.cuh stores the result or adds up partial results, in the memory of Q.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/warp.cuh>

#include "attention_serving_sm90/one_part_boxes.cuh"
#include "attention_serving_sm90/one_part_result.cuh"
#include "attention_serving_sm90/one_part_runs.cuh"
#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/run_loads.cuh"
#include "attention_serving_sm90/shared.cuh"
#include "softmax/online_softmax.cuh"

// A row of the tile that does not exist is treated as the last one that does.
KJIT_DEVICE int existing_row(const OnePartResult &result, int row) {
  return row < result.rows ? row : result.rows - 1;
}

// The 16 rows of Q of a warp that multiplies, on their way to shared memory. They are asked for before K and V: behind
// these, which are hundreds of KB for each multiprocessor, they would arrive last.
struct QueryRows {
  static constexpr int kChunks = 2 * ceil_div(cfg::kHeadDim, 16); // of a row, those that are multiplied
  static constexpr int kSteps = 16 * kChunks / kLanesPerWarp;

  Chunk chunks[kSteps];

  // Neighbouring lanes load a row, whose place lane % 16 finds.
  KJIT_DEVICE void load(const attention_serving_one_part_params &p, const OnePartResult &result, int warp, int lane) {
    int query, head;
    result.find_row(existing_row(result, warp * 16 + lane % 16), query, head);
    const int64_t own = result.part.sequence * p.q_stride.batch + query * p.q_stride.seq + head * p.q_stride.head;
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int row = (i * kLanesPerWarp + lane) / kChunks, chunk = (i * kLanesPerWarp + lane) % kChunks;
      const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)own, row);
      const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(own >> 32), row);
      const int64_t from = (int64_t)((uint64_t)high << 32 | low);
      chunks[i] = {};
      if (chunk < cfg::kHeadDim / kChunkElements) chunks[i] = ((const Chunk *)((const char *)p.q + 2 * from))[chunk];
    }
  }

  // As TMA would write them, with zeros in columns that are multiplied beside the head's. They are there for the
  // warpgroup behind a further barrier of its threads.
  KJIT_DEVICE void store(Layout at, int warp, int lane) const {
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int row = (i * kLanesPerWarp + lane) / kChunks, chunk = (i * kLanesPerWarp + lane) % kChunks;
      const uint32_t band = at.query() + (chunk / 8 * cfg::kRows + warp * 16 + row) * cfg::kRowBytes;
      st_shared_16(band + ((chunk % 8 ^ row % 8) << 4), chunks[i]);
    }
    fence_async_proxy(); // with the barrier behind
  }
};

// One of the two warpgroups that multiply: rows 64 * consumer to 64 * consumer + 63 of the tile.
struct TurnConsumer {
  static constexpr int kDepth = ceil_div(cfg::kHeadDim, 16); // products of S, 16 columns of Q and K each
  static constexpr int kKeyTiles = cfg::kKeys / 16;          // products of O, 16 keys each
  static constexpr int kColumns8 = cfg::kKeys / 8;
  static constexpr int kOutput8 = OnePartResult::kOutput8;
  static constexpr int kConsumers = 2;
  static constexpr int kSlack = 15; // log2 of the sum with which a new maximum is looked for
  using Softmax = OnlineSoftmax<1, kColumns8, kOutput8, true, kSlack, true>;

  const attention_serving_one_part_params &p;
  const Layout at;
  const Part &part;
  const OnePartResult &result;
  const int warp, lane, consumer;
  Ring<cfg::kStages> keys, values;
  float s[1][kColumns8][4];
  float o[1][kOutput8][4];
  uint32_t probabilities[kKeyTiles][4];
  Softmax softmax;
  int seen[2]; // keys that this thread's rows see

  KJIT_DEVICE TurnConsumer(const attention_serving_one_part_params &params, Layout layout, const Part &part,
                           const OnePartResult &result, int warp, int lane)
      : p(params), at(layout), part(part), result(result), warp(warp), lane(lane), consumer(warp / kWarps) {}

  // Before the first part.
  KJIT_DEVICE void begin_turns() const {
    if (consumer == kConsumers - 1) bar_arrive(turn_barrier(0), cfg::kWorkers);
  }

  // Compute the part, whose Q is in shared memory behind the barrier of the first turn.
  KJIT_DEVICE void run() {
    start();
    const int all_see = seen_by_row(0);
    if (part.from < part.to) multiply(all_see);
    if (part.parts == 1) {
      result.store(warp, o[0], softmax.max[0], softmax.sum[0]);
      return;
    }
    // The answer takes as long as writing the partial result, so it is asked for before that.
    const bool may_wait = threadIdx.x == 0 && result.may_wait();
    result.keep(warp, o[0], softmax.max[0], softmax.sum[0]);
    result.arrive(may_wait);
  }

private:
  static constexpr int kWarps = SERVING_SM90_WORKERS / kLanesPerWarp; // of a warpgroup

  // Named barriers behind that of all workers.
  KJIT_DEVICE static int turn_barrier(int consumer) { return cfg::kWorkersBarrier + 1 + consumer; }

  // Keys that a row of the tile sees; a later row sees no fewer.
  KJIT_DEVICE int seen_by_row(int row) const {
    if (p.window_right < 0) return part.keys;
    int query, head;
    result.find_row(row, query, head);
    const int keys = query + part.keys - p.rows_q + p.window_right + 1;
    return keys < part.keys ? keys : part.keys;
  }

  KJIT_DEVICE void start() {
#pragma unroll
    for (int n = 0; n < kOutput8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        o[0][n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        probabilities[k][i] = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      seen[r] = seen_by_row(existing_row(result, OnePartResult::own_row(r)));
      softmax.max[0][r] = OnePartResult::kNoKey;
      softmax.sum[0][r] = 0.0f;
    }
  }

  KJIT_DEVICE void multiply(int all_see) {
    first_scores();
#pragma unroll 1
    for (int block = part.from;; block++) {
      if (result.has_rows(warp, 0)) {
        if ((block + 1) * cfg::kKeys > all_see) mask(block * cfg::kKeys);
        compute_probabilities(block == part.from);
      }
      if (block + 1 == part.to) break;
      multiply_both(block > part.from);
    }
    last_output();
  }

  KJIT_DEVICE void wait_for_turn() const {
    bar_sync(turn_barrier(consumer), cfg::kWorkers);
  }
  KJIT_DEVICE void pass_turn() const {
    bar_arrive(turn_barrier(1 - consumer), cfg::kWorkers);
  }

  KJIT_DEVICE void first_scores() {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    wait_for_turn();
    issue_scores();
    pass_turn();
    wgmma_wait_group<0>();
    keys.advance();
  }

  // S of the next block, and O += P V of this one.
  KJIT_DEVICE void multiply_both(int accumulate) {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    wait_for_turn();
    issue_scores();
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    issue_output(accumulate);
    pass_turn();
    wgmma_wait_group<0>();
    mbarrier_arrive_if(at.values_empty(values.slot), lane == 0); // K of that stage was multiplied a step ago
    keys.advance();
    values.advance();
  }

  KJIT_DEVICE void last_output() {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    if (part.to * cfg::kKeys > part.keys) clear_values(part.keys - (part.to - 1) * cfg::kKeys);
    issue_output(part.to > part.from + 1);
    wgmma_wait_group<0>();
    if constexpr (cfg::kHasRuns) { // a further part has further blocks
      mbarrier_arrive_if(at.values_empty(values.slot), lane == 0);
      values.advance();
    }
  }

  // Zero the rows of V from `from` on, because 0 times NaN is NaN.
  KJIT_DEVICE void clear_values(int from) const {
#pragma unroll 1
    for (int i = from * 8 + (int)threadIdx.x; i < cfg::kKeys * 8; i += cfg::kWorkers)
#pragma unroll
      for (int band = 0; band < cfg::kValueBands; band++)
        st_shared_16(at.values(values.slot) + band * cfg::kKeys * cfg::kRowBytes + i * kChunkBytes, {{0, 0, 0, 0}});
    fence_async_proxy(); // before V is multiplied
    cfg::sync_workers();
  }

  KJIT_DEVICE static uint64_t band_step(int band_rows, int depth) {
    return wgmma_descriptor_step(depth / 4 * band_rows * cfg::kRowBytes + depth % 4 * 32);
  }

  KJIT_DEVICE void issue_scores() {
    const uint64_t q = wgmma_descriptor(at.query() + consumer * SERVING_SM90_M * cfg::kRowBytes, 16);
    const uint64_t k = wgmma_descriptor(at.keys(keys.slot), 16);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      Wgmma<cfg::Element, cfg::kKeys>::mma_async_ss(s[0], q + band_step(cfg::kRows, d), k + band_step(cfg::kKeys, d),
                                                    d > 0);
    wgmma_commit_group();
  }

  KJIT_DEVICE void issue_output(int accumulate) {
    const uint64_t v = wgmma_descriptor(at.values(values.slot), cfg::kKeys * cfg::kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Element, cfg::kHeadDimV>::template mma_async_rs<true>(
          o[0], probabilities[k], v + wgmma_descriptor_step(k * 16 * cfg::kRowBytes), k > 0 ? 1 : accumulate);
    wgmma_commit_group();
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
          if (n * 8 + i >= valid) s[0][n][2 * r + i] = masked_score();
    }
  }

  // Relative to the running maximum; a second time, to a new one, where the sums say that it was too low, as it is in
  // the first block.
  KJIT_DEVICE void compute_probabilities(bool is_first) {
    typename Softmax::Rows added;
#pragma unroll 1
    for (int tries = is_first; tries < 2; tries++) {
      if (tries > 0) softmax.raise_max(s, o, p.scale_log2);
      softmax.exponentiate_scores(s, added, p.scale_log2, [&](int, int n, int r, float p0, float p1) {
        probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
      });
      if (!Softmax::exceeds_threshold(added)) break;
    }
    softmax.add(added);
  }
};

struct OnePart {
  static constexpr int kLoader = cfg::kWorkers / kLanesPerWarp; // the warp that loads
  // Registers of each thread after setmaxnreg: the three warpgroups together may have 65,536 / 128 = 512.
  static constexpr int kLoaderRegisters = 40, kWorkerRegisters = 232;

  const attention_serving_one_part_params &p;
  const Layout at;
  const int warp, lane;

  KJIT_DEVICE OnePart(const attention_serving_one_part_params &params, Layout layout, int warp)
      : p(params), at(layout), warp(warp), lane((int)threadIdx.x % kLanesPerWarp) {}

  KJIT_DEVICE void run() {
    if constexpr (cfg::kHasRuns)
      run_parts();
    else
      run_part();
  }

private:
  KJIT_DEVICE int rows_of(const Part &part) const {
    const int left = p.rows_q * p.group - part.row_tile * cfg::kRows;
    return left < cfg::kRows ? left : cfg::kRows;
  }

  KJIT_DEVICE void run_part() {
    OnePartBoxes loads(p, at, warp, lane);
    if (warp == kLoader) loads.begin_barriers();
    parts::touch_table(p, lane);
    const Part part = parts::find(p, lane);
    if (part.parts == 0) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
    const OnePartResult result{p, part, rows_of(part), at.work()};
    if (threadIdx.x == 0 && part.parts > 1) result.begin();
    QueryRows query;
    if (warp == kLoader)
      loads.begin(part);
    else if (warp < kLoader)
      query.load(p, result, warp, lane);
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    if (warp >= kLoader) {
      setmaxnreg_dec<kLoaderRegisters>();
      if (warp == kLoader) load(loads, part);
    } else {
      setmaxnreg_inc<kWorkerRegisters>();
      query.store(at, warp, lane);
      TurnConsumer consumer(p, at, part, result, warp, lane);
      consumer.begin_turns();
      consumer.run();
    }
  }

  KJIT_DEVICE void load(OnePartBoxes &loads, const Part &part) const {
    Ring<cfg::kStages> ring;
#pragma unroll 1
    for (int block = part.from; block < part.to; block++) {
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1); // then K has been multiplied, too
      loads.fill(part, loads.slot() == ring.slot);
      ring.advance();
    }
  }

  // The parts of a run, one after the other.
  KJIT_DEVICE void run_parts() {
    if (warp == kLoader) OnePartBoxes(p, at, warp, lane).begin_barriers();
    parts::touch_table(p, lane);
    const Runs runs(p, lane);
    int next = runs.begin();
    RunPart part = runs.next(next);
    if (part.parts == 0) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
    OnePartResult result{p, part, rows_of(part), at.work(), part.waiting, part.is_last};
    QueryRows query;
    if (warp < kLoader) query.load(p, result, warp, lane);
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    if (warp >= kLoader) {
      setmaxnreg_dec<kLoaderRegisters>();
      if (warp > kLoader) return;
      RunLoads<OnePartBoxes> loads(p, at, warp, lane, runs);
      while (loads.load_next())
        ;
      return;
    }
    setmaxnreg_inc<kWorkerRegisters>();
    TurnConsumer consumer(p, at, part, result, warp, lane);
    consumer.begin_turns();
#pragma unroll 1
    while (true) {
      if (threadIdx.x == 0 && part.parts > 1) result.begin();
      query.store(at, warp, lane);
      consumer.run();
      part = runs.next(next);
      if (part.parts == 0) return;
      result.go_on(rows_of(part), part.waiting, part.is_last);
      query.load(p, result, warp, lane);
      cfg::sync_workers(); // Q has been multiplied, and what merging puts in its place has been read
    }
  }
};
