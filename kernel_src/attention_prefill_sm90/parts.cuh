// What a consumer does with a tile whose keys are divided into parts (order.cuh), each warp for its own 16 rows.
//
// A part's O, not yet divided by the sums, and its rows' maxima and sums go to a slot of global memory, and the warp
// arrives at a counter. Whoever is the last to arrive adds up all parts, its own among them, in their order, so that
// the bits do not depend on who that is. Nobody waits. Counters are left at zero for the next launch.
#pragma once
#include <kjit/ptx/math.cuh>

#include "attention_prefill_sm90/scaled_consumer.cuh"

struct PartConsumer : ScaledConsumer {
  const attention_serving_params &v;
  float *const slots;

  KJIT_DEVICE PartConsumer(const attention_prefill_params &params, RaggedLayout layout, int consumer, int thread)
      : ScaledConsumer(params.base, layout, consumer, thread), v(params.serving), slots(params.slots) {}

protected:
  // The query and query head of the r-th of this consumer's 64 rows.
  struct Place {
    int query, head;
  };
  KJIT_DEVICE Place place_of(const RaggedTile &tile, int r) const {
    return {tile.first_query(consumer) + r / cfg::kPackGqa, tile.query_head() + r % cfg::kPackGqa};
  }

  // Write this part of a tile; if it is the last one to be done, O and the softmax become those of the whole tile,
  // added up in the parts' order. @return whether it is
  KJIT_DEVICE bool join_parts(const RaggedTile &tile) {
    if (place_of(tile, warp * 16).query >= tile.s.rows) return false; // the warp has no rows
    write_part(tile);
    __threadfence(); // the part comes before the arrival
    __syncwarp();
    int arrived = 0;
    // A tile has two slots or more, so that its warps find a counter each.
    int *const counter = v.arrivals + PREFILL_COUNTERS + 2 * tile.slot() + warp;
    if (lane == 0) arrived = atomicAdd(counter, 1);
    if (broadcast_from_lane_0(arrived) != tile.parts() - 1) return false;
    if (lane == 0) *counter = 0; // for the next launch
    __threadfence();             // the others' arrivals come before what is read of them
    read_parts(tile);
    return true;
  }

private:
  static constexpr int kPartFloats = cfg::kConsumerRows * (cfg::kHeadDimV + 2);

  struct alignas(8) Pair {
    float x[2];
  };

  // O of this thread's r-th row in a part, and behind O of all rows each row's maximum and sum.
  KJIT_DEVICE Pair *part_of(const float *slots, int slot, int r) const {
    return (Pair *)(slots + (int64_t)slot * kPartFloats + own_row(r) * cfg::kHeadDimV + lane % 4 * 2);
  }
  KJIT_DEVICE Pair *statistics_of(const float *slots, int slot, int r) const {
    return (Pair *)(slots + (int64_t)slot * kPartFloats + cfg::kConsumerRows * cfg::kHeadDimV + own_row(r) * 2);
  }

  KJIT_DEVICE void write_part(const RaggedTile &tile) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float total = quad_sum(softmax.sum[0][r]);
      if (place_of(tile, own_row(r)).query >= tile.s.rows) continue;
      Pair *const to = part_of(slots, tile.slot() + tile.part(), r);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        to[n * 4] = {{o[0][n][2 * r], o[0][n][2 * r + 1]}};
      if (lane % 4 == 0) *statistics_of(slots, tile.slot() + tile.part(), r) = {{softmax.max[0][r], total}};
    }
  }

  KJIT_DEVICE void read_parts(const RaggedTile &tile) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const bool exists = place_of(tile, own_row(r)).query < tile.s.rows;
      float maximum = masked_score(), total = 0.0f;
#pragma unroll 1
      for (int i = 0; i < tile.parts() && exists; i++)
        maximum = fmaxf(maximum, statistics_of(slots, tile.slot() + i, r)->x[0]);
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        o[0][n][2 * r] = o[0][n][2 * r + 1] = 0.0f;
#pragma unroll 1
      for (int i = 0; i < tile.parts() && exists; i++) {
        const Pair statistics = *statistics_of(slots, tile.slot() + i, r), *const from =
                                                                               part_of(slots, tile.slot() + i, r);
        const float factor = ex2_approx((statistics.x[0] - maximum) * scale_log2(tile));
        total += statistics.x[1] * factor;
#pragma unroll
        for (int n = 0; n < kOutput8; n++) {
          const Pair pair = from[n * 4];
          o[0][n][2 * r] += pair.x[0] * factor;
          o[0][n][2 * r + 1] += pair.x[1] * factor;
        }
      }
      softmax.max[0][r] = maximum;
      softmax.sum[0][r] = lane % 4 == 0 ? total : 0.0f; // finish_rows() adds up what the four lanes of a row have
    }
  }
};
