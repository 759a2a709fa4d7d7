// The end of a tile: from the accumulators of mma.sync to O and the log-sum-exp, or to a partial result (merge.cuh).
//
// Whoever includes this has included a config.cuh that defines the constants of namespace cfg, and Products.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_serving/merge.cuh"
#include "attention_serving/params.h"
#include "attention_serving/rows.cuh"
#include "attention_serving/tile_chunks.cuh"

struct Result : Merge {
  // O of a warp along the keys, and its statistics, in shared memory.
  KJIT_DEVICE float *output(int key_warp, int row) const {
    return (float *)shared + (key_warp * cfg::kRows + row) * cfg::kOutputStride;
  }

  // Put a warp's accumulators into shared memory. All threads have read what lay there.
  template <typename Softmax>
  KJIT_DEVICE void keep(const float (&o)[1][cfg::kOutputTiles8][4], const Softmax &softmax, float scale_log2) const {
    const int warp = (int)threadIdx.x / kLanesPerWarp, lane = (int)threadIdx.x % kLanesPerWarp;
    const int key_warp = warp / cfg::kRowWarps, row_warp = warp % cfg::kRowWarps;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = row_warp * 16 + r * 8 + lane / 4;
      const float sum = quad_sum(softmax.sum[0][r]);
      if (lane % 4 == 0)
        statistics(key_warp)[row] = {sum == 0.0f ? masked_score() : softmax.max[0][r] * scale_log2, sum};
      float *const to = output(key_warp, row) + Products::lane_column(lane);
#pragma unroll
      for (int n = 0; n < cfg::kOutputTiles8; n++) {
        to[Products::tile_column(n)] = Products::low_of(o[0], n, r);
        to[Products::tile_column(n) + 1] = Products::high_of(o[0], n, r);
      }
    }
  }

  // Statistics of all warps along the keys together, and their weights.
  KJIT_DEVICE Statistics join(int row, float (&weights)[cfg::kKeyWarps]) const {
    Statistics all = {masked_score(), 0.0f};
#pragma unroll
    for (int w = 0; w < cfg::kKeyWarps; w++)
      all.maximum = fmaxf(all.maximum, statistics(w)[row].maximum);
#pragma unroll
    for (int w = 0; w < cfg::kKeyWarps; w++) {
      weights[w] = weight(statistics(w)[row].maximum, all.maximum);
      all.sum += weights[w] * statistics(w)[row].sum;
    }
    return all;
  }

  KJIT_DEVICE void joined_chunk(int row, int chunk, const float (&weights)[cfg::kKeyWarps], float (&values)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; i++)
      values[i] = 0.0f;
#pragma unroll
    for (int w = 0; w < cfg::kKeyWarps; w++)
#pragma unroll
      for (int i = 0; i < 8; i++)
        values[i] += weights[w] * output(w, row)[chunk * 8 + i];
  }

  // The whole result of a warp that has its rows' keys alone, 16 rows, straight from its accumulators: through shared
  // memory in 16 bits, so that whole rows are stored. All threads have read what lay there.
  template <typename Softmax>
  KJIT_DEVICE void finish_rows(const float (&o)[1][cfg::kOutputTiles8][4], const Softmax &softmax,
                               float scale_log2) const {
    const int first = (int)threadIdx.x / kLanesPerWarp * 16, lane = (int)threadIdx.x % kLanesPerWarp;
    const uint32_t tile = cvta_to_shared(shared);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = first + r * 8 + lane / 4;
      const float sum = quad_sum(softmax.sum[0][r]);
      Statistics all = {sum == 0.0f ? masked_score() : softmax.max[0][r] * scale_log2, sum};
      int query, head;
      float factor = 1.0f;
      if (rows.find(row, query, head)) {
        all = with_sink(all, head, factor);
        if (lane % 4 == 0) write_log_sum_exp(query, head, all);
      }
      const float inverse = all.sum == 0.0f ? 0.0f : factor / all.sum;
#pragma unroll
      for (int n = 0; n < cfg::kOutputTiles8; n++)
        st_shared_4(
            tile + chunk_offset<cfg::OTile>(row, Products::chunk_of(n, lane)) + Products::byte_of(n, lane),
            cvt_rn_x2(cfg::Element{}, Products::low_of(o[0], n, r) * inverse, Products::high_of(o[0], n, r) * inverse));
    }
    __syncwarp(); // the rows below were written by other lanes
    for (int i = lane; i < 16 * kChunks; i += kLanesPerWarp) {
      const int row = first + i / kChunks, chunk = i % kChunks;
      int query, head;
      if (rows.find(row, query, head))
        st_global_16((char *)p.o + output_at(query, head) * 2 + chunk * kChunkBytes,
                     ld_shared_16(tile + chunk_offset<cfg::OTile>(row, chunk)));
    }
  }

  // The tile was computed as a whole: what keep() left is the result.
  KJIT_DEVICE void finish() const {
    const int count = rows.count();
    for (int i = (int)threadIdx.x; i < count * kChunks; i += cfg::kWorkers) {
      const int row = i / kChunks, chunk = i % kChunks;
      float weights[cfg::kKeyWarps], values[8];
      const Statistics all = join(row, weights);
      joined_chunk(row, chunk, weights, values);
      write(row, chunk, all, values);
    }
  }

  // Write what keep() left as the partial result of this block of threads.
  KJIT_DEVICE void write_partial(int first) const {
    const int count = rows.count(); // rows that do not exist are neither written nor merged
    float *const to = partial((int)blockIdx.x, (int)blockIdx.x == first);
    for (int i = (int)threadIdx.x; i < count * kChunks; i += cfg::kWorkers) {
      const int row = i / kChunks, chunk = i % kChunks;
      float weights[cfg::kKeyWarps], values[8];
      const Statistics all = join(row, weights);
      joined_chunk(row, chunk, weights, values);
      keep_chunk(to, row, chunk, all, values);
    }
  }
};
