// The workers where K and V are of 8 bits: four warps that multiply by mma.sync what they widen in registers
// (attention_serving/products_e4m3.cuh). wgmma would take 8-bit operands from shared memory only if Q were of 8 bits
// too, and V with its keys contiguous.
//
// kRowWarps of the warps stand along the rows of a tile, the others along the keys of a block, each with a softmax of
// its own. When a share is done, the warps along the keys are joined in the workers' memory; a tile that lies in
// several runs is then merged as with K and V of 16 bits (slice_merge.cuh).
//
// Rows of V that no row sees are zeroed in shared memory before they are multiplied, because 0 times NaN is NaN.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/shared.cuh"
#include "attention_serving_sm90/slice_merge.cuh"

#include "attention_serving/products_of_config.cuh"
#include "attention_serving/result.cuh"
#include "attention_serving/rotary.cuh"
#include "attention_serving/walk.cuh"
#include "attention_serving/warp.cuh"

struct Worker {
  const attention_serving_params &p;
  const Layout at;
  const int row_warp;
  Warp warp;
  Ring<cfg::kStages> ring; // the block that is being multiplied

  KJIT_DEVICE Worker(const attention_serving_params &params, Layout layout, int warp_index, int lane)
      : p(params), at(layout), row_warp(warp_index % cfg::kRowWarps),
        warp(params, layout.keys(0), layout.values(0), warp_index, lane) {
    if constexpr (cfg::kQueryShared)
      warp.products.query =
          layout.query() + cfg::kQueryAt + row_warp * NarrowProducts::kQueryBytes + lane * kChunkBytes;
  }

  KJIT_DEVICE void run() {
    for (Ring<SERVING_SM90_JOBS> jobs;; jobs.advance()) {
      mbarrier_wait_parity(at.job_full(jobs.slot), jobs.parity);
      const Job &job = at.job(jobs.slot);
      if (job.tile.sequence >= p.batch) return;
      work_on(job.tile, job.share, job.is_last);
      mbarrier_arrive(at.job_empty(jobs.slot));
    }
  }

private:
  KJIT_DEVICE void work_on(const PlannedTile &tile, const Share &share, bool is_last) {
    const PackedRows rows(p, tile.s, tile.head, tile.index);
    const Result result{{{p, rows, tile.sequence}, at.work()}};
    const SliceMerge merge{result, share, is_last, at.work()};
    if (share.first != share.last) merge.begin();
    warp.start(rows, tile.sequence, tile.head, row_warp);
    take_query(tile, rows);
#pragma unroll 1
    for (int block = share.from; block < share.to; block++)
      step(tile, tile.start + block * cfg::kKeys);
    warp.end();
    cfg::sync_workers(); // what was merged in the workers' memory is done with
    finish(result, merge);
  }

  KJIT_DEVICE void finish(const Result &result, const SliceMerge &merge) const {
    const bool is_whole = merge.share.first == merge.share.last;
    if (is_whole && cfg::kKeyWarps == 1) {
      result.finish_rows(warp.o, warp.softmax, warp.scale_log2());
      return;
    }
    result.keep(warp.o, warp.softmax, warp.scale_log2());
    cfg::sync_workers(); // every warp has left its O
    if (is_whole) {
      result.finish();
      return;
    }
    const bool may_wait = merge.may_wait();
    result.write_partial(merge.share.first);
    merge.arrive(may_wait);
  }

  // Q from global memory to registers, or on to shared memory, where all warps have done with the tile before.
  KJIT_DEVICE void take_query(const PlannedTile &tile, const PackedRows &rows) {
    const char *const base = (const char *)p.q + 2 * tile.sequence * p.q_stride.batch;
    warp.products.take_query(warp.lane, [&](int row, int chunk) {
      int query, head;
      if (!rows.find(row_warp * 16 + row, query, head) || chunk * kChunkElements >= cfg::kHeadDim) return Chunk{};
      const int64_t element = (tile.s.first_row + query) * p.q_stride.seq + head * p.q_stride.head;
      if (p.cos) return rotary::turned(p, base + 2 * element, chunk, rotary::position_of(p, tile.sequence, query));
      return ld_global_nc_16(base + 2 * element + chunk * kChunkBytes);
    });
    if constexpr (cfg::kQueryShared) {
      if ((int)threadIdx.x / kLanesPerWarp < cfg::kRowWarps) warp.products.share_query();
      cfg::sync_workers(); // Q of all rows is there
    }
  }

  // One key block, whose first key is `key`.
  KJIT_DEVICE void step(const PlannedTile &tile, int key) {
    const int slot = ring.slot, parity = ring.parity;
    mbarrier_wait_parity(at.keys_full(slot), parity);
    const bool masked = key < tile.all_see.low || key + cfg::kKeys > tile.all_see.high;
    const uint32_t read = warp.step(slot * cfg::kKeyBytes, slot * cfg::kValueBytes, key, masked, [&] {
      __syncwarp(); // all lanes have read K
      mbarrier_arrive_if(at.keys_empty(slot), warp.lane == 0);
      mbarrier_wait_parity(at.values_full(slot), parity);
      if (key < tile.keys.low || key + cfg::kKeys > tile.keys.high)
        clear_values(slot, tile.keys.low - key, tile.keys.high - key);
    });
    __syncwarp(); // all lanes have read V
    mbarrier_arrive_when_read(at.values_empty(slot), warp.lane, read);
    ring.advance();
  }

  // Zero the rows of V in front of `from` and from `to` on.
  KJIT_DEVICE void clear_values(int slot, int from, int to) const {
    if constexpr (cfg::kRowWarps > 1) cfg::sync_workers(); // all have read what was here before (shared.cuh)
    constexpr int kChunks = cfg::kValueRowBytes / kChunkBytes, kInBand = cfg::kKeys * kChunks;
    for (int i = (int)threadIdx.x; i < cfg::kValueBands * kInBand; i += cfg::kWorkers) {
      const int row = i % kInBand / kChunks;
      if (row < from || row >= to) st_shared_16(at.values(slot) + i * kChunkBytes, {{0, 0, 0, 0}});
    }
    fence_async_proxy(); // before TMA writes the next block here
    cfg::sync_workers();
  }
};
