// Tiles whose key blocks are shared out in parts.
//
// Each part leaves what it has of a consumer's rows in a place of its own in global memory and arrives at a counter.
// The last of up to kMergedAtOnce neighbours to arrive merges them, in their order, into the first one's place, and
// arrives for all of them among the next neighbours; who merges the last ones has the result. The order of the sums
// depends on the number of parts alone, not on who is last, so that runs are bitwise alike. Nobody waits for anybody.
//
//   place   O [partial_rows / 8][column pieces][32 lanes][4] fp32, relative to a maximum and not divided by the sum:
//           16 columns of 8 rows are a piece, which lies as a warp's accumulators do, so that a warp moves 512 bytes
//           at a time; columns that there are none of hold nothing of use
//           two of { maximum [partial_rows], sum [partial_rows] } fp32: as a part leaves them, as a merge does, so that
//           a merge writes none that it reads
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"
#include "softmax/online_softmax.cuh"

struct Partials {
  static constexpr int kMergedAtOnce = 16; // two rounds of them are the 256 parts that there may be
  // Parts, and pieces of each, of which a thread has loads under way. O's registers are not free meanwhile: ptxas takes
  // the next tile's first product to add to them.
  static constexpr int kPartsLoaded = 8;
  static constexpr int kPiecesLoaded = cfg::kHeadDimV <= 128 ? 2 : 1;
  static constexpr int kPieces = (cfg::kHeadDimV + 15) / 16; // of 16 columns
  static constexpr int kPieceFloats = 4 * kLanesPerWarp;
  static constexpr int kOctetFloats = kPieces * kPieceFloats; // of 8 rows
  static constexpr int kWarps = cfg::kGroupThreads / kLanesPerWarp;

  struct alignas(16) Quad {
    float x[4];
  };

  const attention_sm90_params &p;
  const Tile &tile;
  const int consumer, thread, warp, lane;
  const int rows;   // of the 64 that there is anything of
  const int places; // of this tile and consumer: the index of the first

  // Of the merge at hand: the first part and how many; from one to the next, in parts; how many merges came before.
  int first, count, distance, round;

  KJIT_DEVICE Partials(const attention_sm90_params &params, const Tile &tile, int consumer, int thread)
      : p(params), tile(tile), consumer(consumer), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp), rows(rows_used()), places((tile.index * cfg::kConsumers + consumer) * p.splits),
        round(0) {}

  // Keep this thread's accumulators: rows thread / 32 * 16 + lane / 4 and + 8.
  template <int kTiles8>
  KJIT_DEVICE void keep(const float (&o)[kTiles8][4], const float (&maxima)[2], const float (&sums)[2]) const {
    float *const to = place(tile.part);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int octet = warp * 2 + r, row = octet * 8 + lane / 4;
      if (octet * 8 >= rows) continue;
#pragma unroll
      for (int n = 0; n < kPieces; n++) {
        const int second = 2 * n + 1 < kTiles8 ? 2 * n + 1 : 2 * n;
        *piece(to, octet, n) = {o[2 * n][2 * r], o[2 * n][2 * r + 1], o[second][2 * r], o[second][2 * r + 1]};
      }
      if (lane % 4 == 0) {
        maximum_of(to, 0)[row] = maxima[r];
        sum_of(to, 0)[row] = sums[r];
      }
    }
  }

  // Arrive, and merge as far as this part is the last to arrive. All threads of the consumer.
  // @return whether that was all: the result is at `out` in shared memory
  KJIT_DEVICE bool arrive(int barrier, uint32_t word, uint32_t out) {
    int part = tile.part, parts = tile.parts, *counters = p.arrivals + places;
#pragma unroll 1
    for (distance = 1;; distance *= kMergedAtOnce, round++) {
      const int groups = ceil_div(parts, kMergedAtOnce), group = part / kMergedAtOnce;
      first = group * kMergedAtOnce * distance;
      count = parts - group * kMergedAtOnce < kMergedAtOnce ? parts - group * kMergedAtOnce : kMergedAtOnce;
      if (!is_last(counters + group, barrier, word)) return false;
      merge(groups == 1, out);
      if (groups == 1) return true;
      counters += groups;
      part = group;
      parts = groups;
    }
  }

private:
  // What 8 rows of several parts weigh in their sum, spread over a warp: lane n has row n / 4; of its parts those that
  // are n % 4 more than a multiple of 4.
  struct Weights {
    float of_part[kMergedAtOnce / 4];
    float maximum, total; // of lane n: row n / 4

    // Of part n, below kPartsLoaded.
    KJIT_DEVICE float get(int n, int lane) const {
      return __shfl_sync(0xffffffffu, of_part[n / 4], lane / 4 * 4 + n % 4);
    }
    // Let what was part kPartsLoaded be part 0.
    KJIT_DEVICE void advance() {
#pragma unroll
      for (int i = 0; i < (kMergedAtOnce - kPartsLoaded) / 4; i++)
        of_part[i] = of_part[i + kPartsLoaded / 4];
    }
  };

  // Positions end somewhere in the last tile; what lies behind is neither kept nor merged, but for the 8 rows that hold
  // the last.
  KJIT_DEVICE int rows_used() const {
    const int left = p.seq_q - tile.first_position(consumer);
    return left < cfg::kGroupPositions ? left * cfg::kPacked : cfg::kGroupRows;
  }

  // All places together are 64 MiB at most.
  KJIT_DEVICE int place_floats() const {
    return p.partial_rows * (kOctetFloats / 8 + 4);
  }
  KJIT_DEVICE float *place(int part) const {
    return p.partials + (places + part) * place_floats();
  }
  // This lane's part of a piece: columns n * 16 + lane % 4 * 2 and the next of row lane / 4 of the octet, and those 8
  // columns further.
  KJIT_DEVICE Quad *piece(float *place, int octet, int n) const {
    return (Quad *)(place + octet * kOctetFloats + n * kPieceFloats) + lane;
  }
  KJIT_DEVICE float *maximum_of(float *place, int merges) const {
    return place + p.partial_rows * (kOctetFloats / 8 + 2 * merges);
  }
  KJIT_DEVICE float *sum_of(float *place, int merges) const {
    return maximum_of(place, merges) + p.partial_rows;
  }

  // Is this the last of `count` to arrive? Their writes before are visible to all threads of the last one.
  KJIT_DEVICE bool is_last(int *counter, int barrier, uint32_t word) const {
    bar_sync(barrier, cfg::kGroupThreads); // every thread's writes, and its reading of the word, come before
    if (thread == 0) {
      __threadfence(); // the group's writes before the arrival
      const bool last = atomicAdd(counter, 1) == count - 1;
      if (last) *counter = 0; // for the next launch
      __threadfence();        // the others' arrivals before what is read of them
      st_shared_4(word, last);
    }
    bar_sync(barrier, cfg::kGroupThreads);
    return ld_shared_4(word) != 0;
  }

  // Sum `count` places from `first` on. Octets of rows are shared out among the warps; where there are fewer octets,
  // several warps share out an octet's pieces.
  KJIT_DEVICE void merge(bool is_result, uint32_t out) const {
    const int octets = ceil_div(rows, 8), sharing = octets == 1 ? 4 : octets == 2 ? 2 : 1;
#pragma unroll 1
    for (int octet = warp / sharing; octet < octets; octet += kWarps / sharing) {
      const Weights weights = weigh(octet);
#pragma unroll 1
      for (int n = warp % sharing; n < kPieces; n += sharing * kPiecesLoaded)
        merge_pieces(weights, octet, n, sharing, is_result, out);
      if (warp % sharing == 0 && lane % 4 == 0) store_statistics(weights.maximum, weights.total, octet, is_result);
    }
  }

  KJIT_DEVICE Weights weigh(int octet) const {
    Weights weights;
    const int row = octet * 8 + lane / 4;
    float sums[kMergedAtOnce / 4];
    weights.maximum = masked_score();
#pragma unroll
    for (int i = 0; i < kMergedAtOnce / 4; i++) {
      float *const from = member(4 * i + lane % 4);
      weights.of_part[i] = maximum_of(from, round)[row];
      sums[i] = sum_of(from, round)[row];
      weights.maximum = fmaxf(weights.maximum, weights.of_part[i]);
    }
    weights.maximum = quad_max(weights.maximum);
    weights.total = 0.0f;
#pragma unroll
    for (int i = 0; i < kMergedAtOnce / 4; i++) {
      const float weight = ex2_approx((weights.of_part[i] - weights.maximum) * p.scale_log2);
      weights.of_part[i] = 4 * i + lane % 4 < count ? weight : 0.0f;
      weights.total += weights.of_part[i] * sums[i];
    }
    weights.total = quad_sum(weights.total);
    return weights;
  }

  // Part n of the merge; beyond the last, the last again, so that there are always as many loads.
  KJIT_DEVICE float *member(int n) const {
    return place(first + (n < count ? n : count - 1) * distance);
  }

  // kPiecesLoaded of an octet, from n on, `step` apart.
  KJIT_DEVICE void merge_pieces(Weights weights, int octet, int n, int step, bool is_result, uint32_t out) const {
    const float inverse = weights.total == 0.0f ? 0.0f : 1.0f / weights.total;
    Quad sums[kPiecesLoaded] = {};
#pragma unroll 1
    for (int part = 0; part < count; part += kPartsLoaded) {
      Quad values[kPartsLoaded][kPiecesLoaded];
#pragma unroll
      for (int m = 0; m < kPartsLoaded; m++)
#pragma unroll
        for (int i = 0; i < kPiecesLoaded; i++)
          values[m][i] = *piece(member(part + m), octet, n + i * step < kPieces ? n + i * step : n);
#pragma unroll
      for (int m = 0; m < kPartsLoaded; m++) {
        const float weight = weights.get(m, lane);
#pragma unroll
        for (int i = 0; i < kPiecesLoaded; i++)
          add(sums[i], weight, values[m][i]);
      }
      weights.advance();
    }
#pragma unroll
    for (int i = 0; i < kPiecesLoaded; i++) {
      if (n + i * step >= kPieces) continue;
      if (is_result)
        store_result(sums[i], inverse, octet, n + i * step, out);
      else
        *piece(place(first), octet, n + i * step) = sums[i];
    }
  }

  static KJIT_DEVICE void add(Quad &sum, float weight, const Quad &value) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum.x[i] += weight * value.x[i];
  }

  // One piece of O into shared memory in the copy engine's swizzle: 16-byte chunk index XOR row % 8.
  KJIT_DEVICE void store_result(const Quad &sum, float inverse, int octet, int piece, uint32_t out) const {
    const uint32_t row_at =
        out + piece / 4 * cfg::kGroupRows * cfg::kRowBytes + (octet * 8 + lane / 4) * cfg::kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint32_t value = cvt_rn_x2(cfg::Element{}, sum.x[2 * half] * inverse, sum.x[2 * half + 1] * inverse);
      st_shared_4(row_at + (((piece % 4 * 2 + half) ^ lane / 4) << 4) + lane % 4 * 4, value);
    }
  }

  // Of a row: for the next merge, or the log-sum-exp to where it belongs.
  KJIT_DEVICE void store_statistics(float maximum, float total, int octet, bool is_result) const {
    const int row = octet * 8 + lane / 4;
    if (!is_result) {
      maximum_of(place(first), round + 1)[row] = maximum;
      sum_of(place(first), round + 1)[row] = total;
      return;
    }
    const OutputRow to = output_row(p, tile, consumer, row);
    if (p.lse != nullptr && to.position < p.seq_q && to.in_group)
      p.lse[tile.batch * p.lse_batch_stride + to.head * p.lse_head_stride + to.position] =
          total == 0.0f ? masked_score() : maximum * p.scale + lg2_approx(total) * kLn2;
  }
};
