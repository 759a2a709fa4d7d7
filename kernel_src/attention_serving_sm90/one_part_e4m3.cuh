// one_part.cuh where K and V are of 8 bits: four warps multiply by mma.sync what they widen in registers
// (worker_e4m3.cuh says why), some along the rows of the tile, the others along the keys of a block, each with a
// softmax of its own. A block of threads computes several parts, one after the other (one_part_runs.cuh). When a part
// is done, the warps along the keys are joined in shared memory; from there the result, or the block's partial result,
// is written.
//
// A fifth warp loads. It finds the parts, and hands them to the others through the jobs in shared memory, so that what
// finding them takes is in no register of a warp that multiplies.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>

#include "attention_serving_sm90/one_part_boxes.cuh"
#include "attention_serving_sm90/one_part_result.cuh"
#include "attention_serving_sm90/one_part_runs.cuh"
#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

#include "attention_serving/products_of_config.cuh"
#include "attention_serving/result.cuh"
#include "attention_serving/warp.cuh"

struct OnePart {
  static constexpr int kLoader = cfg::kWorkers / kLanesPerWarp; // the warp that loads
  static constexpr int kFewSequences = 2 * kLanesPerWarp;       // of which parts::find() finds those of few tiles

  const attention_serving_one_part_params &p;
  const attention_serving_params &serving;
  const Layout at;
  const int thread, warp, lane;
  OnePartBoxes loads;
  Part part;
  Ring<cfg::kStages> ring;
  Warp products;

  KJIT_DEVICE OnePart(const attention_serving_one_part_params &params, Layout layout, int warp)
      : p(params), serving(params.all), at(layout), thread((int)threadIdx.x), warp(warp), lane(thread % kLanesPerWarp),
        loads(params, layout, warp, lane), products(params.all, layout.keys(0), layout.values(0), warp, lane) {
    if constexpr (cfg::kQueryShared)
      products.products.query =
          layout.query() + cfg::kQueryAt + row_warp() * NarrowProducts::kQueryBytes + lane * kChunkBytes;
  }

  KJIT_DEVICE void run() {
    if (warp == kLoader) loads.begin_barriers();
    __syncthreads(); // the mbarriers are initialised
    if (warp == kLoader) {
      load_run();
      return;
    }
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    for (Ring<SERVING_SM90_JOBS> jobs;; jobs.advance()) {
      mbarrier_wait_parity(at.job_full(jobs.slot), jobs.parity);
      const RunPart now = run_part_of(jobs.slot);
      mbarrier_arrive(at.job_empty(jobs.slot));
      if (now.parts == 0) return;
      work_on(now);
    }
  }

private:
  KJIT_DEVICE void work_on(const RunPart &now) {
    part = now;
    const int left = p.rows_q * p.group - part.row_tile * cfg::kRows, rows = left < cfg::kRows ? left : cfg::kRows;
    const OnePartResult result{p, part, rows, at.work(), now.waiting, now.is_last};
    if (thread == 0 && part.parts > 1) result.begin();
    const int all_see = p.window_right >= 0 ? smallest(part.keys - p.rows_q + p.window_right + 1) : part.keys;
    start(result);
#pragma unroll 1
    for (int block = part.from; block < part.to; block++) {
      step(block, all_see);
      ring.advance();
    }
    if constexpr (!cfg::kQueryShared) cfg::sync_workers(); // what the part before left in shared memory has been read
    finish(result);
  }

  // ---- The warp that loads ----

  // As far ahead as there are stages, across the ends of parts too. Few tiles have a part for each block of threads,
  // which is found with less code: this comes from memory before the first key does.
  KJIT_DEVICE void load_run() {
    parts::touch_table(p, lane);
    Ring<SERVING_SM90_JOBS> jobs;
    if (p.batch <= kFewSequences && p.runs_of_tile >= SERVING_SM90_FEW_TILES) {
      const Part only = parts::find(p, lane);
      load_part(jobs, {only, only.parts, true}, only.to - only.from);
      if (only.parts > 0) hand_on(jobs, {});
      return;
    }
    const Runs runs(p, lane);
    int next = runs.begin();
    RunPart now;
#pragma unroll 1
    do {
      now = runs.next(next);
      load_part(jobs, now, runs.length);
    } while (now.parts > 0);
  }

  // Hand on a part, or the end, and load its keys and values. The part is handed on first, so that Q is loaded beside
  // them. `length`: of the run.
  KJIT_DEVICE void load_part(Ring<SERVING_SM90_JOBS> &jobs, RunPart now, int length) {
    loads.begin(now, ring.slot);
    hand_on(jobs, now);
    griddepcontrol_wait(); // the launch must not end before the append pass, whose keys are read from here on
    const int blocks = now.to - now.from;
    now.from = now.to - length; // parts::policy_of() is to decide by the blocks of the run
#pragma unroll 1
    for (int i = 0; i < blocks; i++) {
      const bool is_own = loads.slot() == ring.slot;
      mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);
      loads.fill_keys(now, is_own);
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);
      loads.fill_values(now, is_own);
      ring.advance();
    }
  }

  // Let the workers have a part, or the end.
  KJIT_DEVICE void hand_on(Ring<SERVING_SM90_JOBS> &jobs, const RunPart &now) const {
    mbarrier_wait_parity(at.job_empty(jobs.slot), jobs.parity ^ 1);
    __syncwarp(); // all lanes have seen this phase: a short part can be done, and the next phase over, in no time
    if (lane == 0) {
      run_part_of(jobs.slot) = now;
      mbarrier_arrive(at.job_full(jobs.slot));
    }
    __syncwarp();
    jobs.advance();
  }

  KJIT_DEVICE RunPart &run_part_of(int slot) const {
    static_assert(sizeof(RunPart) <= SERVING_SM90_JOB_BYTES, "a part has the place of a job");
    return (RunPart &)at.job(slot);
  }

  // ---- The warps that multiply ----

  KJIT_DEVICE int row_warp() const {
    return warp % cfg::kRowWarps;
  }

  KJIT_DEVICE int smallest(int keys) const {
    return keys < part.keys ? keys : part.keys;
  }

  KJIT_DEVICE void start(const OnePartResult &result) {
    const int first = warp % cfg::kRowWarps * 16;
    Seen seen[2] = {{0, part.keys}, {0, part.keys}};
    for (int r = 0; r < 2 && p.window_right >= 0; r++) {
      int query, head;
      result.find_row(first + r * 8 + lane / 4, query, head);
      seen[r].high = smallest(query + part.keys - p.rows_q + p.window_right + 1);
    }
    products.start(descales_of(serving, part.sequence, part.head), seen);
    products.products.take_query(lane, [&](int row, int chunk) {
      int query, head;
      if (first + row >= result.rows || chunk * kChunkElements >= cfg::kHeadDim) return Chunk{};
      result.find_row(first + row, query, head);
      return ld_global_nc_16((const char *)p.q + chunk * kChunkBytes +
                             2 * (part.sequence * p.q_stride.batch + query * p.q_stride.seq + head * p.q_stride.head));
    });
    if constexpr (cfg::kQueryShared) {
      if (warp < cfg::kRowWarps) products.products.share_query();
      cfg::sync_workers(); // Q of all rows is there
    }
  }

  KJIT_DEVICE void step(int block, int all_see) {
    const int slot = ring.slot, parity = ring.parity, key = block * cfg::kKeys;
    mbarrier_wait_parity(at.keys_full(slot), parity);
    const bool masked = key + cfg::kKeys > all_see;
    const uint32_t read = products.step(slot * cfg::kKeyBytes, slot * cfg::kValueBytes, key, masked, [&] {
      __syncwarp(); // all lanes have read K
      mbarrier_arrive_if(at.keys_empty(slot), lane == 0);
      mbarrier_wait_parity(at.values_full(slot), parity);
      if (key + cfg::kKeys > part.keys) clear_values(slot, part.keys - key);
    });
    __syncwarp(); // all lanes have read V
    mbarrier_arrive_when_read(at.values_empty(slot), lane, read);
    __syncwarp();
  }

  // Zero the rows of V from `from` on, because 0 times NaN is NaN.
  KJIT_DEVICE void clear_values(int slot, int from) const {
    constexpr int kRowChunks = cfg::VTile::kChunks;
    if constexpr (cfg::kRowWarps > 1) cfg::sync_workers(); // all have read what was here before (shared.cuh)
#pragma unroll 1
    for (int i = from * kRowChunks + thread; i < cfg::kKeys * kRowChunks; i += cfg::kWorkers)
#pragma unroll
      for (int band = 0; band < cfg::kValueBands; band++)
        st_shared_16(at.values(slot) + band * cfg::VTile::kBandBytes + i * kChunkBytes, {{0, 0, 0, 0}});
    fence_async_proxy(); // before TMA writes the next block here
    cfg::sync_workers();
  }

  // Join the warps along the keys.
  KJIT_DEVICE void finish(const OnePartResult &to) {
    const Sequence sequence = {p.rows_q, part.keys, 0, part.sequence, 0};
    const PackedRows rows(serving, sequence, part.head, part.row_tile);
    const Result result{{{serving, rows, part.sequence}, at.work()}};
    products.end();
    result.keep(products.o, products.softmax, products.scale_log2());
    cfg::sync_workers(); // every warp has left its O
    if (part.parts == 1) {
      result.finish();
      return;
    }
    const bool may_wait = thread == 0 && to.may_wait();
#pragma unroll 1
    for (int i = thread; i < to.rows * Result::kChunks; i += cfg::kWorkers) {
      const int row = i / Result::kChunks, chunk = i % Result::kChunks;
      float weights[cfg::kKeyWarps], values[8];
      const Output::Statistics all = result.join(row, weights);
      result.joined_chunk(row, chunk, weights, values);
      to.keep_chunk(row, chunk, values, all.sum == 0.0f ? OnePartResult::kNoKey : all.maximum, all.sum);
    }
    to.arrive(may_wait);
  }
};
