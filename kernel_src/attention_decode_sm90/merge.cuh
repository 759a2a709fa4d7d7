// Partial results of a tile whose key blocks lie in several runs, and how the tile's blocks of threads add them up.
//
// Each block of threads writes its segment's unnormalised O, with the rows' maxima and sums, to a partial result in
// global memory, and arrives. The tile's result is cut into slices, and the blocks of threads that arrive merge a slice
// each, so that many SMs read the partial results:
//   1. When it begins a segment, a block counts itself in `started` (begin()).
//   2. When it has written its partial result it arrives: it adds one to `arrived`. If all of the tile's blocks have
//      started and its run is at its end, it also adds one to `claims`, in the same word and by the same atomic
//      addition; the number of claims before its own is the slice that it claims. (Blocks that waited with work left
//      would wait for each other one after the other, along the chain of tiles.)
//   3. A block with a slice waits until all have arrived, then adds the slice up over all partial results, in the order
//      of the runs, and stores it. A block without a slice leaves. It can wait safely: it waits only for blocks that
//      have started, and a block does not wait before it arrives.
//   4. The last to arrive merges the slices that nobody has claimed; no claim can come after it.
//   5. The block that finishes the last slice sets the counters to zero for the next launch.
// The order of the sums depends on the parameters alone, so that repeated launches are equal to the bit.
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

// What one access of global memory moves.
struct alignas(16) Floats4 {
  float x[4];
};
struct alignas(8) Floats2 {
  float x[2];
};
struct alignas(8) Halves4 {
  uint32_t word[2];
};

// A quad: four neighbouring columns of one row, relative to the row's maximum, and the row's maximum and sum.
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

// Where the rows of a tile are in O and in the log-sum-exp.
struct Output {
  const attention_decode_sm90_params &p;
  const Cursor &at;

  // The address of a row of O. `number` is the row among all rows of the key head.
  KJIT_DEVICE char *row(int number) const {
    const int64_t offset = at.batch * p.o_batch_stride + number / p.group * p.o_seq_stride +
                           (at.head * p.group + number % p.group) * p.o_head_stride;
    return (char *)p.o + 2 * offset;
  }
  KJIT_DEVICE void store_lse(int number, float maximum, float sum) const {
    if (p.lse == nullptr) return;
    p.lse[at.batch * p.lse_batch_stride + (at.head * p.group + number % p.group) * p.lse_head_stride +
          number / p.group] = sum == 0.0f ? __int_as_float(0xff800000) : maximum * p.scale + lg2_approx(sum) * kLn2;
  }
};

struct Merge {
  static constexpr int kQuads = cfg::kHeadDimV / 4; // of a row
  static constexpr int kLoaded = 8;                 // partial results that a thread loads at the same time
  static constexpr int kMostHelpers = 8;            // threads that share the partial results of one quad
  static constexpr int kBarrier = 1;

  const attention_decode_sm90_params &p;
  const Schedule &schedule;
  const Layout at;
  const Segment &segment;
  const int thread;
  const int rows; // of the tile, those that exist

  // Thread 0, at the beginning of a segment that is not a whole tile.
  KJIT_DEVICE void begin() const { atomicAdd(started(), 1); }

  // This run's partial result of the segment.
  KJIT_DEVICE float *own_partial() const { return partial(2 * schedule.run + (segment.index > 0)); }
  KJIT_DEVICE static float *statistics(float *partial, int row) {
    return partial + cfg::kRows * cfg::kHeadDimV + 2 * row;
  }

  // Arrive, and merge slices. All threads, when all have written their part of the partial result.
  KJIT_DEVICE void arrive() const {
    const int first_block = segment.tile * schedule.blocks;
    const int first_run = schedule.run_of(first_block);
    const int parts = schedule.run_of(first_block + schedule.blocks - 1) - first_run + 1;
    const int first_slot = 2 * first_run + (schedule.start_of(first_run) < first_block);
    const Slices slices = cut(parts);
    bar_sync(kBarrier, cfg::kThreads);
    if (thread == 0) st_shared_4(at.word(), meet(parts));
    bar_sync(kBarrier, cfg::kThreads);
    const uint32_t met = ld_shared_4(at.word());
    const int claim = met >> 16 & 0x7fff;
    const bool is_last = met & 1, is_waiting = met & 2;
    if ((!is_waiting && !is_last) || claim >= slices.count) return;
    if (!is_last) wait_for_all(parts);
    const int end = is_last ? slices.count : claim + 1;
    for (int slice = claim; slice < end; slice++)
      for (int quad = slice * slices.at_once; quad < slices.quads; quad += slices.count * slices.at_once)
        merge(quad, slices, first_run, first_slot, parts);
    bar_sync(kBarrier, cfg::kThreads); // the scratch has been read; all stores are done
    if (thread == 0) finish(end - claim, slices.count);
  }

private:
  KJIT_DEVICE int *started() const { return p.merge_counters + segment.tile * DECODE_MERGE_COUNTERS; }
  KJIT_DEVICE int *word() const { return started() + 1; } // arrived, and claims << 16
  KJIT_DEVICE int *done() const { return started() + 2; } // slices that are merged

  KJIT_DEVICE float *partial(int slot) const {
    return p.partials + (int64_t)slot * (cfg::kRows * (cfg::kHeadDimV + 2));
  }

  // How a result is cut. There are no more slices than parts, because the last to arrive would merge the rest one
  // after the other; so a slice may have several rounds of quads. As long as a slice leaves threads without work,
  // several of them share a quad's partial results.
  struct Slices {
    int quads;   // of all slices together
    int count;   // slices
    int helpers; // threads that share a quad's partial results
    int at_once; // quads of a round, which a block merges at a time
  };
  KJIT_DEVICE Slices cut(int parts) const {
    const int quads = rows * kQuads;
    int helpers = 1;
    while (helpers < kMostHelpers && helpers * kLoaded < parts && ceil_div(quads, parts) * helpers * 2 <= cfg::kThreads)
      helpers *= 2;
    const int at_once = cfg::kThreads / helpers, wanted = ceil_div(quads, at_once);
    return {quads, wanted < parts ? wanted : parts, helpers, at_once};
  }

  // Arrive, and claim a slice if it is safe to wait for the others and no other work is left to do. Thread 0.
  // @return bit 0: this is the last to arrive; bit 1: a slice is claimed; from bit 16 on, the claims that came before
  KJIT_DEVICE uint32_t meet(int parts) const {
    const bool safe = segment.is_last && *(volatile int *)started() == parts;
    __threadfence(); // the block's partial result comes before its arrival
    const uint32_t before = (uint32_t)atomicAdd(word(), safe ? 0x10001 : 1);
    __threadfence(); // the others' arrivals come before what is read of them
    const bool is_last = (before & 0xffff) == (uint32_t)parts - 1;
    return (before >> 16) << 16 | (safe ? 2 : 0) | (is_last ? 1 : 0);
  }

  KJIT_DEVICE void wait_for_all(int parts) const {
    if (thread == 0) {
      while ((*(volatile int *)word() & 0xffff) != parts)
        __nanosleep(20);
      __threadfence();
    }
    bar_sync(kBarrier, cfg::kThreads);
  }

  KJIT_DEVICE void finish(int merged, int slices) const {
    if (atomicAdd(done(), merged) + merged != slices) return;
    *started() = 0;
    *word() = 0;
    *done() = 0;
  }

  // Merge one round: slices.at_once quads from `first` on, of which each has slices.helpers threads, which share the
  // partial results.
  KJIT_DEVICE void merge(int first, const Slices &slices, int first_run, int first_slot, int parts) const {
    const int helper = thread / slices.at_once, quad = first + thread % slices.at_once;
    const bool exists = quad < slices.quads;
    Piece sum = {{0.0f, 0.0f, 0.0f, 0.0f}, kNoKey, 0.0f};
    if (exists) add_up(sum, quad, helper, slices.helpers, first_run, first_slot, parts);
    if (slices.helpers > 1) {
      bar_sync(kBarrier, cfg::kThreads); // the scratch of the quads before has been read
      if (helper > 0) put(at.scratch(thread), sum);
      bar_sync(kBarrier, cfg::kThreads);
      if (helper > 0) return;
      for (int i = 1; i < slices.helpers; i++)
        sum.add(get(at.scratch(thread + i * slices.at_once)), p.scale_log2);
    }
    if (exists) store(quad, sum);
  }

  // The sum of a quad over the partial results from, from + step, ...
  KJIT_DEVICE void add_up(Piece &sum, int quad, int from, int step, int first_run, int first_slot, int parts) const {
#pragma unroll 1
    for (int i = from; i < parts; i += kLoaded * step) {
      Piece pieces[kLoaded];
#pragma unroll
      for (int n = 0; n < kLoaded; n++) {
        const int part = i + n * step < parts ? i + n * step : i;
        float *const of_part = partial(part == 0 ? first_slot : 2 * (first_run + part));
        const Floats4 x = *(const Floats4 *)(of_part + 4 * quad);
        const Floats2 of_row = *(const Floats2 *)statistics(of_part, quad / kQuads);
        pieces[n] = {{x.x[0], x.x[1], x.x[2], x.x[3]}, of_row.x[0], of_row.x[1]};
      }
#pragma unroll
      for (int n = 0; n < kLoaded; n++)
        if (i + n * step < parts) sum.add(pieces[n], p.scale_log2);
    }
  }

  KJIT_DEVICE void store(int quad, const Piece &piece) const {
    const int row = quad / kQuads, column = quad % kQuads * 4, number = segment.at.row_tile * cfg::kRows + row;
    const Output output{p, segment.at};
    const float inverse = piece.sum == 0.0f ? 0.0f : 1.0f / piece.sum;
    *(Halves4 *)(output.row(number) +
                 2 * column) = {{cvt_rn_x2(cfg::Element{}, piece.x[0] * inverse, piece.x[1] * inverse),
                                 cvt_rn_x2(cfg::Element{}, piece.x[2] * inverse, piece.x[3] * inverse)}};
    if (column == 0) output.store_lse(number, piece.maximum, piece.sum);
  }

  KJIT_DEVICE static void put(uint32_t shared, const Piece &piece) {
    st_shared_f32_x2(shared, piece.x[0], piece.x[1]);
    st_shared_f32_x2(shared + 8, piece.x[2], piece.x[3]);
    st_shared_f32_x2(shared + 16, piece.maximum, piece.sum);
  }
  KJIT_DEVICE static Piece get(uint32_t shared) {
    Piece piece;
#pragma unroll
    for (int i = 0; i < 4; i++)
      piece.x[i] = __uint_as_float(ld_shared_4(shared + 4 * i));
    piece.maximum = __uint_as_float(ld_shared_4(shared + 16));
    piece.sum = __uint_as_float(ld_shared_4(shared + 20));
    return piece;
  }
};
