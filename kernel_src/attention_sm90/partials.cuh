// Split-KV: the partial results of a tile whose key blocks are shared out among several blocks of threads.
//
// A tile's key blocks are divided into `num_splits` splits, each worked on like a tile of its own. Each consumer
// warpgroup of a split, all of its 128 threads together,
//   1. writes its unnormalised O and its rows' maxima and sums to a partial result in global memory (keep());
//   2. arrives at a counter of its group of up to kMergedAtOnce neighbouring splits (arrive(), is_last());
//   3. when it is the last of the group to arrive, merges the group's partial results, in the order of the splits, into
//      the partial result of the group's first split (merge());
//   4. arrives for the whole group at the counter of the next level, where up to kMergedAtOnce groups meet, and so on.
// Whoever merges the last level has the tile's result. Nobody waits for anybody. The order of the sums depends on the
// number of splits alone, not on who is last, so that repeated runs are equal to the bit.
//
// A partial result, in floats (R is p.partial_rows; an octet is 8 rows, a piece 16 columns of an octet):
//
//   O            [R / 8 octets][pieces][32 lanes][4]   relative to the row's maximum, not divided by its sum. A piece
//                                                      lies as a warp's accumulators do, so that a warp moves 512 bytes
//                                                      at a time. Columns beyond head_dim_v hold nothing of use.
//   statistics   [2]{ maximum [R], sum [R] }           [0] is written by keep(), [1] by a merge: a merge must not write
//                                                      what other warps still read of its first member
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
  static constexpr int kMergedAtOnce =
      SM90_MERGED_AT_ONCE; // members of a group: two levels make the 256 splits that there may be
  // A thread has loads of this many splits, and of this many pieces of each, under way. O's own registers cannot hold
  // them, because ptxas assumes that the next tile's first product adds to O.
  static constexpr int kSplitsLoaded = 8;
  static constexpr int kPiecesLoaded = cfg::kHeadDimV <= 128 ? 2 : 1;
  static constexpr int kPieces = ceil_div(cfg::kHeadDimV, (int)SM90_PIECE_COLUMNS);
  static constexpr int kPieceFloats = 4 * kLanesPerWarp;
  static constexpr int kOctetFloats = kPieces * kPieceFloats; // of 8 rows
  static constexpr int kWarps = kThreadsPerWarpgroup / kLanesPerWarp;

  struct alignas(16) Quad {
    float x[4];
  };

  const attention_sm90_params &p;
  const Tile &tile;
  const int consumer, thread, warp, lane;
  const int rows;          // of the consumer's 64, those whose query exists
  const int first_partial; // the index of the partial result of this tile's and consumer's split 0

  // The current level of the merge tree: this group's first split, its number of members (1 to kMergedAtOnce), the
  // distance from one member to the next in splits (kMergedAtOnce^round), and the level, from 0.
  int first, count, distance, round;

  KJIT_DEVICE Partials(const attention_sm90_params &params, const Tile &tile, int consumer, int thread)
      : p(params), tile(tile), consumer(consumer), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp), rows(rows_used()),
        first_partial((tile.index * cfg::kConsumers + consumer) * p.splits), round(0) {}

  // Write this thread's accumulators, of rows thread / 32 * 16 + lane / 4 and + 8, to the split's partial result.
  //   maxima, sums  of these two rows, the sums over all columns
  template <int kTiles8>
  KJIT_DEVICE void keep(const float (&o)[kTiles8][4], const float (&maxima)[2], const float (&sums)[2]) const {
    float *const to = partial(tile.split);
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

  // Arrive, and merge level after level as long as this consumer is the last of its group to arrive. All threads of
  // the consumer.
  //   barrier  a named barrier of the consumer's own threads
  //   word     4 bytes of shared memory through which thread 0 tells them whether they merge
  //   @return  true when the last level was merged: the tile's O is then at `out` in shared memory
  KJIT_DEVICE bool arrive(int barrier, uint32_t word, uint32_t out) {
    int split = tile.split, num_splits = tile.num_splits, *counters = p.arrivals + first_partial;
#pragma unroll 1
    for (distance = 1;; distance *= kMergedAtOnce, round++) {
      const int groups = ceil_div(num_splits, kMergedAtOnce), group = split / kMergedAtOnce;
      first = group * kMergedAtOnce * distance;
      count = num_splits - group * kMergedAtOnce < kMergedAtOnce ? num_splits - group * kMergedAtOnce : kMergedAtOnce;
      if (!is_last(counters + group, barrier, word)) return false;
      merge(groups == 1, out);
      if (groups == 1) return true;
      counters += groups;
      split = group;
      num_splits = groups;
    }
  }

private:
  // Softmax weights exp2(max_i - max) of up to kMergedAtOnce members i for the 8 rows of an octet, spread over a warp:
  // lane l holds row l / 4 and the members i with i % 4 == l % 4.
  struct Weights {
    float of_split[kMergedAtOnce / 4];
    float maximum, total; // the maximum of all members and the weighted sum of their sums, of row l / 4

    // The weight of member n, below kSplitsLoaded, for this lane's row.
    KJIT_DEVICE float get(int n, int lane) const {
      return __shfl_sync(0xffffffffu, of_split[n / 4], lane / 4 * 4 + n % 4);
    }
    // Renumber the members, so that member kSplitsLoaded becomes member 0.
    KJIT_DEVICE void advance() {
#pragma unroll
      for (int i = 0; i < (kMergedAtOnce - kSplitsLoaded) / 4; i++)
        of_split[i] = of_split[i + kSplitsLoaded / 4];
    }
  };

  // The queries end somewhere in the last tile. Rows beyond are neither kept nor merged, except for those in the octet
  // that holds the last query.
  KJIT_DEVICE int rows_used() const {
    const int left = p.seq_q - tile.first_query(consumer);
    return left < cfg::kConsumerQueries ? left * cfg::kPackGqa : cfg::kConsumerRows;
  }

  // An int is enough for its index too: all partial results together are at most 64 MiB.
  KJIT_DEVICE int partial_floats() const {
    return p.partial_rows * (kOctetFloats / 8 + SM90_STATISTICS);
  }
  KJIT_DEVICE float *partial(int split) const {
    return p.partials + (first_partial + split) * partial_floats();
  }
  // This lane's four values of piece n: row lane / 4 of the octet, columns n * 16 + lane % 4 * 2 and the next, and the
  // two columns that lie 8 further.
  KJIT_DEVICE Quad *piece(float *partial, int octet, int n) const {
    return (Quad *)(partial + octet * kOctetFloats + n * kPieceFloats) + lane;
  }
  // The rows' maxima and sums after `merges` levels: 0 as keep() left them, 1 as the first level's merge did.
  KJIT_DEVICE float *maximum_of(float *partial, int merges) const {
    return partial + p.partial_rows * (kOctetFloats / 8 + SM90_STATISTICS / 2 * merges);
  }
  KJIT_DEVICE float *sum_of(float *partial, int merges) const {
    return maximum_of(partial, merges) + p.partial_rows;
  }

  // Is this consumer the last of `count` to arrive? What the others wrote before they arrived is then visible to all of
  // its threads.
  KJIT_DEVICE bool is_last(int *counter, int barrier, uint32_t word) const {
    // All threads have written their results, and have read the word of the level before.
    bar_sync(barrier, kThreadsPerWarpgroup);
    if (thread == 0) {
      __threadfence(); // the warpgroup's writes come before the arrival
      const bool last = atomicAdd(counter, 1) == count - 1;
      if (last) *counter = 0; // for the next launch
      __threadfence();        // the others' arrivals come before what is read of them
      st_shared_4(word, last);
    }
    bar_sync(barrier, kThreadsPerWarpgroup);
    return ld_shared_4(word) != 0;
  }

  // Merge the `count` members of the group. The warps take octets of rows in turn; where there are fewer octets than
  // warps, two or four warps take the pieces of one octet in turn.
  KJIT_DEVICE void merge(bool is_result, uint32_t out) const {
    const int octets = ceil_div(rows, 8), sharing = octets == 1 ? 4 : octets == 2 ? 2 : 1;
#pragma unroll 1
    for (int octet = warp / sharing; octet < octets; octet += kWarps / sharing) {
      const Weights weights = split_weights(octet);
#pragma unroll 1
      for (int n = warp % sharing; n < kPieces; n += sharing * kPiecesLoaded)
        merge_pieces(weights, octet, n, sharing, is_result, out);
      if (warp % sharing == 0 && lane % 4 == 0) store_statistics(weights.maximum, weights.total, octet, is_result);
    }
  }

  KJIT_DEVICE Weights split_weights(int octet) const {
    Weights weights;
    const int row = octet * 8 + lane / 4;
    float sums[kMergedAtOnce / 4];
    weights.maximum = masked_score();
#pragma unroll
    for (int i = 0; i < kMergedAtOnce / 4; i++) {
      float *const from = member(4 * i + lane % 4);
      weights.of_split[i] = maximum_of(from, round)[row];
      sums[i] = sum_of(from, round)[row];
      weights.maximum = fmaxf(weights.maximum, weights.of_split[i]);
    }
    weights.maximum = quad_max(weights.maximum);
    weights.total = 0.0f;
#pragma unroll
    for (int i = 0; i < kMergedAtOnce / 4; i++) {
      const float weight = ex2_approx((weights.of_split[i] - weights.maximum) * p.scale_log2);
      weights.of_split[i] = 4 * i + lane % 4 < count ? weight : 0.0f;
      weights.total += weights.of_split[i] * sums[i];
    }
    weights.total = quad_sum(weights.total);
    return weights;
  }

  // The partial result of member n; beyond the last member, the last again, so that the number of loads is constant
  // (their weight is 0).
  KJIT_DEVICE float *member(int n) const {
    return partial(first + (n < count ? n : count - 1) * distance);
  }

  // Merge kPiecesLoaded pieces of an octet: n, n + step, ...
  KJIT_DEVICE void merge_pieces(Weights weights, int octet, int n, int step, bool is_result, uint32_t out) const {
    const float inverse = weights.total == 0.0f ? 0.0f : 1.0f / weights.total;
    Quad sums[kPiecesLoaded] = {};
#pragma unroll 1
    for (int split = 0; split < count; split += kSplitsLoaded) {
      Quad values[kSplitsLoaded][kPiecesLoaded];
#pragma unroll
      for (int m = 0; m < kSplitsLoaded; m++)
#pragma unroll
        for (int i = 0; i < kPiecesLoaded; i++)
          values[m][i] = *piece(member(split + m), octet, n + i * step < kPieces ? n + i * step : n);
#pragma unroll
      for (int m = 0; m < kSplitsLoaded; m++) {
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
        *piece(partial(first), octet, n + i * step) = sums[i];
    }
  }

  static KJIT_DEVICE void add(Quad &sum, float weight, const Quad &value) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum.x[i] += weight * value.x[i];
  }

  // Write one piece of O to shared memory with the 128-byte swizzle of TMA: 16-byte chunk index XOR row % 8.
  KJIT_DEVICE void store_result(const Quad &sum, float inverse, int octet, int piece, uint32_t out) const {
    const uint32_t row_at =
        out + piece / 4 * cfg::kConsumerRows * cfg::kRowBytes + (octet * 8 + lane / 4) * cfg::kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint32_t value = cvt_rn_x2(cfg::Element{}, sum.x[2 * half] * inverse, sum.x[2 * half + 1] * inverse);
      st_shared_4(row_at + (((piece % 4 * 2 + half) ^ lane / 4) << 4) + lane % 4 * 4, value);
    }
  }

  // Write a row's maximum and sum for the next level; or, at the last level, its log-sum-exp to p.lse.
  KJIT_DEVICE void store_statistics(float maximum, float total, int octet, bool is_result) const {
    const int row = octet * 8 + lane / 4;
    if (!is_result) {
      maximum_of(partial(first), round + 1)[row] = maximum;
      sum_of(partial(first), round + 1)[row] = total;
      return;
    }
    const OutputRow to = output_row(p, tile, consumer, row);
    if (p.lse != nullptr && to.query < p.seq_q && to.in_gqa_group)
      p.lse[tile.batch * p.lse_batch_stride + to.head * p.lse_head_stride + to.query] =
          total == 0.0f ? masked_score() : maximum * p.scale + lg2_approx(total) * kLn2;
  }
};
