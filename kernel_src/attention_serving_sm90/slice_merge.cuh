// Partial results of a tile whose keys lie in several runs, and how the tile's blocks of threads add them up.
//
// Each block of threads writes its share's unnormalised O, with the rows' maxima and sums, to a partial result in
// global memory, and arrives. The tile's result is cut into slices, and the blocks of threads that arrive merge a slice
// each, so that many multiprocessors read the partial results. It is attention_decode_sm90's way
// (attention_decode_sm90/merge.cuh), with the tiles of a ragged problem:
//   1. When it begins a share, a block counts itself in `started` (begin()).
//   2. When it has written its partial result it arrives: it adds one to `arrived`. If all of the tile's blocks have
//      started and it has nothing else to do, it also adds one to `claims`, in the same word and by the same atomic
//      addition; the number of claims before its own is the slice that it claims. (Blocks that waited with work left
//      would wait for each other one after the other, along the chain of tiles.)
//   3. A block with a slice waits until all have arrived, then adds the slice up over all partial results, in the order
//      of the runs, and stores it. A block without a slice leaves. It can wait safely: it waits only for blocks that
//      have started, and a block does not wait before it arrives.
//   4. The last to arrive merges the slices that nobody has claimed; no claim can come after it.
//   5. The block that finishes the last slice sets the counters to zero for the next launch.
// A tile's counters are at its first run, which begins no other tile that it does not end. The order of the sums
// depends on the schedule alone, so that repeated launches are equal to the bit.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/global.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"

#include "attention_serving/output.cuh"
#include "attention_serving/walk.cuh"

// Four neighbouring columns of one row, relative to the row's maximum, and the row's statistics.
struct Piece {
  float x[4];
  Output::Statistics row;

  // Add what other keys gave for the same elements.
  KJIT_DEVICE void add(const Piece &other) {
    const float now = fmaxf(row.maximum, other.row.maximum);
    const float mine = Output::weight(row.maximum, now), its = Output::weight(other.row.maximum, now);
#pragma unroll
    for (int i = 0; i < 4; i++)
      x[i] = x[i] * mine + other.x[i] * its;
    row = {now, row.sum * mine + other.row.sum * its};
  }
};

static_assert(sizeof(Piece) == SERVING_SM90_SCRATCH_BYTES, "a piece has its place in the scratch");

struct SliceMerge {
  static constexpr int kQuads = cfg::kHeadDimV / 4; // of a row
  static constexpr int kLoaded = 8;                 // partial results that a thread loads at the same time
  static constexpr int kMostHelpers = 8;            // threads that share the partial results of one quad

  const Output &output;
  const Share &share;
  const bool is_last; // of the block's shares
  char *const shared;

  // At the beginning of a share that is not a whole tile.
  KJIT_DEVICE void begin() const {
    if (threadIdx.x == 0) atomicAdd(started(), 1);
  }

  KJIT_DEVICE float *own_partial() const { return output.partial((int)blockIdx.x, (int)blockIdx.x == share.first); }

  // Whether all blocks of the tile have started, so that it is safe to wait for them; thread 0's answer counts. Asked
  // before the partial result is written, because the answer takes as long as that.
  KJIT_DEVICE bool may_wait() const { return threadIdx.x == 0 && is_last && *(volatile int *)started() == count(); }

  // Arrive, and merge slices. All workers, when each has written its part of the partial result.
  KJIT_DEVICE void arrive(bool may_wait) const {
    const Slices slices = cut();
    uint32_t *const word = (uint32_t *)(shared + cfg::kWordAt);
    cfg::sync_workers(); // all have written their part, and have read the word of the tile before
    if (threadIdx.x == 0) *word = meet(may_wait);
    cfg::sync_workers();
    const int claim = (int)(*word >> 16);
    const bool arrives_last = *word & 1, is_waiting = *word & 2;
    if ((!is_waiting && !arrives_last) || claim >= slices.count) return;
    if (!arrives_last) wait_for_all();
    const int end = arrives_last ? slices.count : claim + 1;
    for (int slice = claim; slice < end; slice++)
      merge_slice(slices, slice);
    cfg::sync_workers(); // the scratch has been read; all stores are done
    if (threadIdx.x == 0) finish(end - claim, slices.count);
  }

private:
  KJIT_DEVICE int *started() const { return output.p.arrivals + share.first * SERVING_SM90_MERGE_COUNTERS; }
  KJIT_DEVICE int *met() const { return started() + 1; }  // arrived, and claims << 16
  KJIT_DEVICE int *done() const { return started() + 2; } // slices that are merged

  // How many blocks of threads work on the tile.
  KJIT_DEVICE int count() const { return share.last - share.first + 1; }

  // No more slices than blocks, because the last to arrive would merge the rest one after the other. As long as a slice
  // leaves threads without work, several of them share a quad's partial results.
  struct Slices {
    int quads, count, helpers; // quads of all slices together
    int each;                  // quads of a slice
  };
  KJIT_DEVICE Slices cut() const {
    const int quads = output.rows.count() * kQuads, parts = count();
    int helpers = 1;
    while (helpers < kMostHelpers && helpers * kLoaded < parts && ceil_div(quads, parts) * helpers * 2 <= cfg::kWorkers)
      helpers *= 2;
    const int wanted = ceil_div(quads * helpers, cfg::kWorkers), slices = wanted < parts ? wanted : parts;
    return {quads, slices, helpers, ceil_div(quads, slices)};
  }

  // Arrive, and claim a slice if it is safe to wait for the others and no other work is left to do. Thread 0.
  // @return bit 0: this is the last to arrive; bit 1: a slice is claimed; from bit 16 on, the claims that came before
  KJIT_DEVICE uint32_t meet(bool may_wait) const {
    // The block's partial result comes before its arrival, the others' arrivals before what is read of them.
    const uint32_t before = atom_acq_rel_add(met(), may_wait ? 0x10001 : 1);
    const bool arrives_last = (before & 0xffff) == (uint32_t)count() - 1;
    return (before >> 16) << 16 | (may_wait ? 2 : 0) | (arrives_last ? 1 : 0);
  }

  KJIT_DEVICE void wait_for_all() const {
    if (threadIdx.x == 0) {
      while ((int)(ld_acquire_u32(met()) & 0xffff) != count())
        __nanosleep(20);
    }
    cfg::sync_workers();
  }

  KJIT_DEVICE void finish(int merged, int slices) const {
    if (atomicAdd(done(), merged) + merged != slices) return;
    *started() = 0;
    *met() = 0;
    *done() = 0;
  }

  // Merge one slice, as many quads at a time as the threads and their helpers make.
  KJIT_DEVICE void merge_slice(const Slices &slices, int slice) const {
    Piece *const scratch = (Piece *)shared;
    const int at_once = cfg::kWorkers / slices.helpers, thread = (int)threadIdx.x, helper = thread / at_once;
    const int from = slice * slices.each, to = from + slices.each < slices.quads ? from + slices.each : slices.quads;
#pragma unroll 1
    for (int first = from; first < to; first += at_once) {
      const int quad = first + thread % at_once;
      Piece sum = {{0.0f, 0.0f, 0.0f, 0.0f}, {masked_score(), 0.0f}};
      if (quad < to) add_up(sum, quad, helper, slices.helpers);
      if (slices.helpers > 1) {
        cfg::sync_workers(); // the scratch of the quads before has been read
        if (helper > 0) scratch[thread] = sum;
        cfg::sync_workers();
        for (int i = 1; i < slices.helpers && helper == 0; i++)
          sum.add(scratch[thread + i * at_once]);
      }
      if (quad < to && helper == 0) store(quad, sum);
    }
  }

  // The sum of a quad over the partial results from, from + step, ...
  KJIT_DEVICE void add_up(Piece &sum, int quad, int from, int step) const {
    const int parts = count();
#pragma unroll 1
    for (int i = from; i < parts; i += kLoaded * step) {
      Piece pieces[kLoaded];
#pragma unroll
      for (int n = 0; n < kLoaded; n++) {
        const int part = i + n * step < parts ? i + n * step : i;
        float *const of_part = output.partial(share.first + part, part == 0);
        const Output::Quad x = *(const Output::Quad *)(of_part + 4 * quad);
        pieces[n] = {{x.x[0], x.x[1], x.x[2], x.x[3]}, Output::statistics_of(of_part)[quad / kQuads]};
      }
#pragma unroll
      for (int n = 0; n < kLoaded; n++)
        if (i + n * step < parts) sum.add(pieces[n]);
    }
  }

  struct alignas(8) Halves {
    uint32_t word[2];
  };

  KJIT_DEVICE void store(int quad, const Piece &piece) const {
    const int row = quad / kQuads, column = quad % kQuads * 4;
    int query, head;
    output.rows.find(row, query, head);
    float factor;
    const Output::Statistics all = output.with_sink(piece.row, head, factor);
    const float inverse = all.sum == 0.0f ? 0.0f : factor / all.sum;
    *(Halves *)((char *)output.p.o + 2 * (output.output_at(query, head) + column)) = {
        {cvt_rn_x2(cfg::Element{}, piece.x[0] * inverse, piece.x[1] * inverse),
         cvt_rn_x2(cfg::Element{}, piece.x[2] * inverse, piece.x[3] * inverse)}};
    if (column == 0) output.write_log_sum_exp(query, head, all);
  }
};
