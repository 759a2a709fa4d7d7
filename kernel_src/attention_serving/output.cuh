// Where a tile's result goes, and what a partial result is: O of the tile in fp32, not divided by the sums, then each
// row's statistics. A block of threads has two slots for partial results: for the tile that it began and did not end,
// and for a tile that another began.
//
// Whoever includes this has included a config.cuh that defines cfg::Element, kRows, kHeadDimV and kPartialFloats.
#pragma once
#include <kjit/ptx/math.cuh>
#include <kjit/types.cuh>

#include "attention_serving/element.cuh"
#include "attention_serving/params.h"
#include "attention_serving/rows.cuh"
#include "softmax/online_softmax.cuh"

struct Output {
  const attention_serving_params &p;
  const PackedRows &rows;
  const int sequence;

  struct Statistics {
    float maximum, sum; // the largest score times log2 e, and the sum of exp2(score * log2 e - maximum)
  };

  // The factor by which what is relative to `maximum` is made relative to `to`. It is 0 where there was no key.
  static KJIT_DEVICE float weight(float maximum, float to) {
    return maximum == masked_score() ? 0.0f : ex2_approx(maximum - to);
  }

  // This tile's sink takes part in a row's statistics: one more score without a value. `factor`: what O is multiplied
  // by.
  KJIT_DEVICE Statistics with_sink(Statistics all, int head, float &factor) const {
    factor = 1.0f;
    if (!p.sinks) return all;
    const float logit = p.sinks_fp32 ? ((const float *)p.sinks)[head]
                                     : element_value(cfg::Element{}, ((const unsigned short *)p.sinks)[head]);
    const float sink = logit * kLog2E, maximum = fmaxf(all.maximum, sink);
    factor = weight(all.maximum, maximum);
    return {maximum, all.sum * factor + weight(sink, maximum)};
  }

  // Where a row of O lies, in elements.
  KJIT_DEVICE int64_t output_at(int query, int head) const {
    return sequence * p.o_stride.batch + (rows.s.first_row + query) * p.o_stride.seq + head * p.o_stride.head;
  }

  KJIT_DEVICE void write_log_sum_exp(int query, int head, Statistics all) const {
    if (p.lse)
      p.lse[sequence * p.lse_batch_stride + head * p.lse_head_stride + rows.s.first_row + query] =
          all.sum == 0.0f ? masked_score() : (all.maximum + lg2_approx(all.sum)) * kLn2;
  }

  KJIT_DEVICE float *partial(int block, bool began) const {
    return p.partials + (int64_t)(2 * block + began) * cfg::kPartialFloats;
  }
  static KJIT_DEVICE Statistics *statistics_of(float *partial) {
    return (Statistics *)(partial + cfg::kRows * cfg::kHeadDimV);
  }

  struct alignas(16) Quad {
    float x[4];
  };
};
