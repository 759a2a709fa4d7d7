// one_part.cuh where K and V are of 8 bits: four warps that multiply by mma.sync what they widen in registers
// (worker_e4m3.cuh says why), some along the rows of the tile, the others along the keys of a block, each with a
// softmax of its own. The last warp also loads. When the part is done, the warps along the keys are joined in shared
// memory; from there the result, or the block's partial result, is written.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>

#include "attention_serving_sm90/one_part_boxes.cuh"
#include "attention_serving_sm90/one_part_result.cuh"
#include "attention_serving_sm90/part.cuh"
#include "attention_serving_sm90/shared.cuh"

#include "attention_serving/products_of_config.cuh"
#include "attention_serving/result.cuh"
#include "attention_serving/warp.cuh"

struct OnePart {
  static constexpr int kLoader = cfg::kWorkers / kLanesPerWarp - 1; // the warp that loads

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
        loads(params, layout, warp, lane), products(params.all, layout.keys(0), layout.values(0), warp, lane) {}

  KJIT_DEVICE void run() {
    if (warp == kLoader) loads.begin_barriers();
    parts::touch_table(p, lane);
    part = parts::find(p, lane);
    if (part.parts == 0) {
      griddepcontrol_wait(); // the launch must not end before the append pass in front of it
      return;
    }
    const int left = p.rows_q * p.group - part.row_tile * cfg::kRows, rows = left < cfg::kRows ? left : cfg::kRows;
    const OnePartResult result{p, part, rows, at.work()};
    if (thread == 0 && part.parts > 1) result.begin();
    loads.begin(part);
    __syncthreads();       // the mbarriers are initialised
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    const int all_see = p.window_right >= 0 ? smallest(part.keys - p.rows_q + p.window_right + 1) : part.keys;
    start(result);
    // As in one_part.cuh.
    bool is_first = p.batch > 0;
#pragma unroll 1
    for (int block = part.from - 1; block < part.to; block++) {
      if (!is_first) step(block, all_see);
      if (warp == kLoader) loads.load_block(part, ring, block, is_first);
      if (!is_first) ring.advance();
      is_first = false;
    }
    finish(result);
  }

private:
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
  }

  KJIT_DEVICE void step(int block, int all_see) {
    const int slot = ring.slot, parity = ring.parity, key = block * cfg::kKeys;
    mbarrier_wait_parity(at.keys_full(slot), parity);
    products.step(slot * cfg::kKeyBytes, slot * cfg::kValueBytes, key, key + cfg::kKeys > all_see, [&] {
      mbarrier_wait_parity(at.values_full(slot), parity);
      if (key + cfg::kKeys > part.keys) clear_values(slot, part.keys - key);
    });
    __syncwarp(); // all lanes have read K and V
    mbarrier_arrive_if(at.values_empty(slot), lane == 0);
    __syncwarp();
  }

  // Zero the rows of V from `from` on, because 0 times NaN is NaN.
  KJIT_DEVICE void clear_values(int slot, int from) const {
#pragma unroll 1
    for (int i = from * 8 + thread; i < cfg::kKeys * 8; i += cfg::kWorkers)
#pragma unroll
      for (int band = 0; band < cfg::kValueBands; band++)
        st_shared_16(at.values(slot) + band * cfg::kKeys * cfg::kRowBytes + i * kChunkBytes, {{0, 0, 0, 0}});
    fence_async_proxy(); // before TMA writes the next block here
    __syncthreads();
  }

  // Join the warps along the keys.
  KJIT_DEVICE void finish(const OnePartResult &to) {
    const Sequence sequence = {p.rows_q, part.keys, 0, part.sequence, 0};
    const PackedRows rows(serving, sequence, part.head, part.row_tile);
    const Result result{{{serving, rows, part.sequence}, at.work()}};
    products.end();
    result.keep(products.o, products.softmax, products.scale_log2());
    __syncthreads(); // every warp has left its O
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
