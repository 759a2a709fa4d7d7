// Where results go: a tile's O and log-sum-exp, or the partial result of a segment and its merging.
//
// Where a run ends inside a tile, the tile's segments of several runs are merged by whoever is last:
//   1. the consumers of a block of threads write their share of the segment's unnormalised O, with the rows' maxima and
//      sums, to the segment's partial result in global memory (keep());
//   2. they arrive at a counter of (tile, rank in the cluster): the blocks of equal rank of all the tile's runs have
//   the
//      same share of its elements;
//   3. the last to arrive adds up the share of all segments, in the order of the runs, and stores O (merge()).
// Nobody waits for anybody, and the order of the sums depends on the parameters alone, so that repeated launches are
// equal to the bit.
//
// A partial result, in floats: O [rows][head_dim_v] relative to the row's maximum, not divided by its sum; then {
// maximum, sum } [rows]. A run has two: one for its first segment and one for its last.
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_decode_sm90/schedule.cuh"
#include "attention_decode_sm90/shared.cuh"

constexpr float kNoKey = -1e30f; // the maximum of a row that has seen no key: finite, so that differences are numbers

// Four neighbouring columns of one row, relative to the row's maximum, and the row's maximum and sum.
struct Piece {
  float x[4];
  float maximum, sum;

  // Add what other keys gave for the same elements.
  KJIT_DEVICE void add(const Piece &other, float scale_log2) {
    const float now = fmaxf(maximum, other.maximum);
    const float mine = ex2_approx((maximum - now) * scale_log2), its = ex2_approx((other.maximum - now) * scale_log2);
#pragma unroll
    for (int i = 0; i < 4; i++)
      x[i] = x[i] * mine + other.x[i] * its;
    sum = sum * mine + other.sum * its;
    maximum = now;
  }
};

// What one access of global memory moves.
struct alignas(16) Floats4 {
  float x[4];
};
struct alignas(8) Statistics {
  float maximum, sum;
};
struct alignas(8) Halves4 {
  uint32_t word[2];
};

KJIT_DEVICE Piece empty_piece() {
  return {{0.0f, 0.0f, 0.0f, 0.0f}, kNoKey, 0.0f};
}

// What one block of threads stores of a segment: quads (four columns) `first` to `end` - 1 of the tile's rows.
struct Share {
  static constexpr int kQuads = cfg::kHeadDimV / 4; // of a row

  int rows; // of the tile, those that exist
  int first, end;

  KJIT_DEVICE Share(const attention_decode_sm90_params &p, const Segment &segment, int rank) {
    const int left = p.seq_q * p.group - segment.row_tile * cfg::kRows;
    rows = left < cfg::kRows ? left : cfg::kRows;
    first = rows * kQuads * rank / cfg::kCluster;
    end = rows * kQuads * (rank + 1) / cfg::kCluster;
  }
};

struct Result {
  const attention_decode_sm90_params &p;
  const Schedule &schedule;
  const Layout at;
  const Segment &segment;
  const Share &share;
  const int thread; // of the consumers

  // Store four columns of a row of O, and with the first four the row's log-sum-exp.
  KJIT_DEVICE void store(int quad, const Piece &piece) const {
    const int row = quad / Share::kQuads, column = quad % Share::kQuads * 4;
    const int number = segment.row_tile * cfg::kRows + row, query = number / p.group;
    const int head = segment.head * p.group + number % p.group;
    const float inverse = piece.sum == 0.0f ? 0.0f : 1.0f / piece.sum;
    const int64_t offset = segment.batch * p.o_batch_stride + query * p.o_seq_stride + head * p.o_head_stride + column;
    Halves4 *const to = (Halves4 *)((char *)p.o + 2 * offset);
    *to = {{cvt_rn_x2(cfg::Element{}, piece.x[0] * inverse, piece.x[1] * inverse),
            cvt_rn_x2(cfg::Element{}, piece.x[2] * inverse, piece.x[3] * inverse)}};
    if (column == 0 && p.lse != nullptr)
      p.lse[segment.batch * p.lse_batch_stride + head * p.lse_head_stride + query] =
          piece.sum == 0.0f ? __int_as_float(0xff800000) : piece.maximum * p.scale + lg2_approx(piece.sum) * kLn2;
  }

  // Write four columns of a row to this run's partial result.
  KJIT_DEVICE void keep(int quad, const Piece &piece) const {
    float *const to = partial(2 * schedule.run + (segment.index > 0));
    *(Floats4 *)(to + 4 * quad) = {{piece.x[0], piece.x[1], piece.x[2], piece.x[3]}};
    if (quad % Share::kQuads == 0) *statistics(to, quad / Share::kQuads) = {piece.maximum, piece.sum};
  }

  // Arrive; the last of the tile's runs merges this share. All consumer threads, when all have kept theirs.
  KJIT_DEVICE void arrive() const {
    const int first_block = segment.tile * schedule.blocks;
    const int first_run = schedule.run_of(first_block);
    const int runs = schedule.run_of(first_block + schedule.blocks - 1) - first_run + 1;
    bar_sync(kConsumerBarrier, cfg::kConsumerThreads);
    if (thread == 0) {
      int *const counter = p.arrivals + segment.tile * cfg::kCluster + schedule.rank;
      __threadfence(); // the block's partial result comes before its arrival
      const bool last = atomicAdd(counter, 1) == runs - 1;
      if (last) *counter = 0; // for the next launch
      __threadfence();        // the others' arrivals come before what is read of them
      st_shared_4(at.word(), last);
    }
    bar_sync(kConsumerBarrier, cfg::kConsumerThreads);
    if (ld_shared_4(at.word()) != 0) merge(first_run, runs, schedule.start_of(first_run) < first_block);
  }

  static constexpr int kConsumerBarrier = 1; // of all consumers

private:
  static constexpr int kLoaded = 4; // partial results of which a thread loads its quad at the same time

  KJIT_DEVICE float *partial(int index) const {
    return p.partials + (int64_t)index * (cfg::kRows * (cfg::kHeadDimV + 2));
  }
  KJIT_DEVICE static Statistics *statistics(float *partial, int row) {
    return (Statistics *)(partial + cfg::kRows * cfg::kHeadDimV) + row;
  }

  // Add up the share of all runs. Where the share has fewer quads than there are threads, several threads add up the
  // runs of one quad, and the first of them adds up their sums.
  //   begins_before  the first run has begun before this tile, which is then its second segment or a later one
  KJIT_DEVICE void merge(int first_run, int runs, bool begins_before) const {
    const int quads = share.end - share.first;
    if (quads <= 0) return;
    const int most = cfg::kConsumerThreads / quads, helpers = most < 1 ? 1 : most < runs ? most : runs;
    if (helpers == 1) {
      for (int quad = share.first + thread; quad < share.end; quad += cfg::kConsumerThreads)
        store(quad, add_up(quad, 0, 1, first_run, runs, begins_before));
      return;
    }
    const int helper = thread / quads, quad = share.first + thread % quads;
    Piece sum = empty_piece();
    if (helper < helpers) {
      sum = add_up(quad, helper, helpers, first_run, runs, begins_before);
      if (helper > 0) put(at.scratch(thread), sum);
    }
    bar_sync(kConsumerBarrier, cfg::kConsumerThreads);
    if (helper > 0) return;
    for (int i = 1; i < helpers; i++)
      sum.add(get(at.scratch(thread + i * quads)), p.scale_log2);
    store(quad, sum);
  }

  // The sum of a quad over the runs first_run + from, + from + step, ...
  KJIT_DEVICE Piece add_up(int quad, int from, int step, int first_run, int runs, bool begins_before) const {
    Piece sum = empty_piece();
#pragma unroll 1
    for (int i = from; i < runs; i += kLoaded * step) {
      Piece pieces[kLoaded];
#pragma unroll
      for (int n = 0; n < kLoaded; n++) {
        const int run = i + n * step < runs ? i + n * step : i;
        float *const part = partial(2 * (first_run + run) + (run == 0 && begins_before));
        const Floats4 x = *(const Floats4 *)(part + 4 * quad);
        const Statistics of_row = *statistics(part, quad / Share::kQuads);
        pieces[n] = {{x.x[0], x.x[1], x.x[2], x.x[3]}, of_row.maximum, of_row.sum};
      }
#pragma unroll
      for (int n = 0; n < kLoaded; n++)
        if (i + n * step < runs) sum.add(pieces[n], p.scale_log2);
    }
    return sum;
  }

  KJIT_DEVICE static void put(uint32_t shared, const Piece &piece) {
    st_shared_f32_x2(shared, piece.x[0], piece.x[1]);
    st_shared_f32_x2(shared + 8, piece.x[2], piece.x[3]);
    st_shared_f32_x2(shared + 16, piece.maximum, piece.sum);
  }
  KJIT_DEVICE static Piece get(uint32_t shared) {
    Piece piece;
    for (int i = 0; i < 4; i++)
      piece.x[i] = __uint_as_float(ld_shared_4(shared + 4 * i));
    piece.maximum = __uint_as_float(ld_shared_4(shared + 16));
    piece.sum = __uint_as_float(ld_shared_4(shared + 20));
    return piece;
  }
};
