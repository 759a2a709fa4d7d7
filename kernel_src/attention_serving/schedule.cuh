// The plan pass: write the schedule (plan.cuh). One block of cfg::kThreads threads, whatever the batch.
//
//   1. A thread adds up the costs of neighbouring sequences, ceil(batch / threads) of them. Sums over warps, then over
//      the block, give every thread the totals and where its first sequence begins on the line.
//   2. Runs are found a window at a time, one by each thread. Each sequence in which a run begins leaves a mark, itself
//      and its begin, at the first run of the window that begins there.
//   3. The last mark at or before a run is the run's sequence. Its head and tile follow by a division and a search.
// So no thread walks along the sequences or along the runs, and the time hardly depends on how long these are.
//
// A scheduler has eight of the warps, so that what every warp does takes eight times as long as what one does: warps
// without a sequence, or without a run, skip what is done for these, and one warp adds up what all have. For the same
// reason step 2 does not compute again what the first sequences of a thread cost, and quotients of 64 bits, which take
// a hundred instructions, are estimated in fp32 and corrected.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/config.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/plan.cuh"

namespace plan {

// Of one head of a sequence.
struct Work {
  int64_t cost;
  int keys, tiles;
};

KJIT_DEVICE Work work_of(const attention_serving_params &p, int b) {
  const Sequence s = sequence_of(p, b);
  const int tiles = tiles_of(p, s);
  return {begin_of(p, s, tiles), s.keys, tiles};
}

// floor(a / b) of a >= 0 and b > 0, exactly. The estimate of a quotient below 2^20 is off by one at most.
KJIT_DEVICE int quotient(int64_t a, int64_t b) {
  int q = (int)((float)a / (float)b);
  while (q * b > a)
    q--;
  while ((q + 1) * b <= a)
    q++;
  return q;
}

// The tile that holds position `at` of one head of a sequence of several tiles, and where it begins.
struct Place {
  int64_t begins;
  int tile;
};

KJIT_DEVICE Place place_of(const attention_serving_params &p, int b, int64_t at) {
  const Sequence s = sequence_of(p, b);
  const int tile = tile_at(p, s, at);
  return {begin_of(p, s, tile), tile};
}

struct Schedule {
  static constexpr int kWarps = cfg::kThreads / kLanesPerWarp;
  static_assert(cfg::kPass != cfg::kPlan || kWarps == kLanesPerWarp, "a warp adds up what the warps have");

  // In shared memory: a mark of each run of the window. In its place before: the totals of each warp, and what follows
  // from them.
  struct Sums {
    Totals of_warps[kWarps];
    int64_t begins[kWarps]; // of each warp's first sequence, on the line
    Runs runs;
  };
  struct Marks {
    int64_t begins[cfg::kThreads]; // of the sequence, on the line
    int64_t costs[cfg::kThreads];  // of one head of it; negative: it has several tiles
    int sequences[cfg::kThreads];  // negative: no mark
    int last[kWarps];              // the last mark of each warp's runs, or -1
  };
  // What one head of a sequence costs, negative where that has other than one tile, for the first ones of each thread.
  struct Kept {
    int64_t costs[SERVING_PLAN_KEPT][cfg::kThreads];
  };
  static_assert(sizeof(Kept) + sizeof(Marks) == cfg::kScheduleBytes, "costs and marks have their place");
  static_assert(sizeof(Sums) <= sizeof(Marks), "sums lie where the marks will");

  const attention_serving_params &p;
  Kept &kept;
  Marks &marks;
  const int thread, lane, warp;
  const int from, to; // this thread's sequences
  int64_t begin = 0;  // of the first of them, on the line

  KJIT_DEVICE Schedule(const attention_serving_params &params, char *shared)
      : p(params), kept(*(Kept *)shared), marks(*(Marks *)(shared + sizeof(Kept))), thread((int)threadIdx.x),
        lane(thread % kLanesPerWarp), warp(thread / kLanesPerWarp), from(first_of(thread)), to(first_of(thread + 1)) {}

  KJIT_DEVICE void write(int count) {
    const Runs runs = add_up(count);
    attention_serving_run *const out = (attention_serving_run *)(p.plan + 1);
    if (thread == 0) {
      p.plan->tag = p.plan_tag;
      p.plan->runs = count;
      p.plan->parts = runs.parts;
      p.plan->length = runs.length;
    }
    if (runs.parts) {
      for (int r = thread; r < count; r += cfg::kThreads)
        out[r] = run_of_part(p, runs, r);
      return;
    }
    for (int first = 0; first < count; first += cfg::kThreads) {
      mark(first, runs.length);
      const int found = last_mark();
      if (first + thread < count) out[first + thread] = find((first + thread) * runs.length, found);
    }
  }

private:
  KJIT_DEVICE int first_of(int thread) const {
    const int64_t first = (int64_t)thread * ceil_div(p.batch, cfg::kThreads);
    return first < p.batch ? (int)first : p.batch;
  }

  // Has some lane of the warp a sequence?
  KJIT_DEVICE bool has_sequences() const { return first_of(warp * kLanesPerWarp) < p.batch; }

  // One head of sequence b, which is one of this thread's, after step 1: as Kept has it.
  KJIT_DEVICE int64_t signed_cost(int b) const {
    if (b - from < SERVING_PLAN_KEPT) return kept.costs[b - from][thread];
    return signed_cost(work_of(p, b));
  }
  static KJIT_DEVICE int64_t signed_cost(const Work &work) { return work.tiles == 1 ? work.cost : -work.cost; }
  static KJIT_DEVICE int64_t absolute(int64_t cost) { return cost < 0 ? -cost : cost; }

  // The sum of the values of this lane and of those before it.
  KJIT_DEVICE int64_t sum_to_lane(int64_t value) const {
#pragma unroll
    for (int distance = 1; distance < kLanesPerWarp; distance *= 2) {
      const int64_t before = value_of_lane(value, lane - distance);
      if (lane >= distance) value += before;
    }
    return value;
  }

  // The totals of a warp whose lanes have `own`, and a cost of `to_lane` up to each; the first lane's are of a
  // sequence, unless there is none at all. The least and the largest cost are right where they are equal, and else
  // different, because nothing more is asked of them.
  KJIT_DEVICE Totals totals_of_lanes(const Totals &own, int64_t to_lane) const {
    const int64_t first = value_of_lane(own.least, 0);
    const bool is_none = own.least > own.most, is_alike = is_none || (own.least == first && own.most == first);
    Totals all;
    all.cost = value_of_lane(to_lane, kLanesPerWarp - 1);
    all.least = first;
    all.most = __ballot_sync(0xffffffffu, is_alike) == 0xffffffffu ? first : first + 1;
    all.keys = own.keys;
#pragma unroll
    for (int lanes = kLanesPerWarp / 2; lanes > 0; lanes /= 2) {
      const int keys = __shfl_xor_sync(0xffffffffu, all.keys, lanes);
      all.keys = keys > all.keys ? keys : all.keys;
    }
    all.single = __ballot_sync(0xffffffffu, own.single) == 0xffffffffu;
    return all;
  }

  // Step 1: the runs; `begin` of this thread's sequences.
  KJIT_DEVICE Runs add_up(int count) {
    Sums &sums = *(Sums *)&marks;
    int64_t in_warp = 0;
    Totals own;
    if (has_sequences()) {
      for (int b = from; b < to; b++) {
        const Work work = work_of(p, b);
        if (b - from < SERVING_PLAN_KEPT) kept.costs[b - from][thread] = signed_cost(work);
        Totals one;
        one.cost = one.least = one.most = work.cost;
        one.keys = work.keys;
        one.single = work.tiles == 1;
        own.add(one);
      }
      const int64_t to_lane = sum_to_lane(own.cost);
      in_warp = to_lane - own.cost;
      own = totals_of_lanes(own, to_lane);
    }
    if (lane == 0) sums.of_warps[warp] = own;
    __syncthreads(); // the warps' totals are there
    if (warp == 0) {
      const Totals other = sums.of_warps[lane];
      const int64_t to_lane = sum_to_lane(other.cost);
      sums.begins[lane] = to_lane - other.cost;
      const Totals all = totals_of_lanes(other, to_lane);
      if (lane == 0) sums.runs = runs_of(p, all, count);
    }
    __syncthreads(); // the sums are there
    begin = (in_warp + sums.begins[warp]) * p.heads_kv;
    const Runs runs = sums.runs;
    __syncthreads(); // everybody has read them
    return runs;
  }

  // Step 2, for the runs from `first` on.
  KJIT_DEVICE void mark(int first, int64_t length) {
    marks.sequences[thread] = -1;
    __syncthreads(); // the marks are cleared, and those of the window before were read
    int64_t at = begin;
    int run = from < to ? quotient(at + length - 1, length) : 0;
    for (int b = from; b < to; b++) {
      const int64_t cost = signed_cost(b), end = at + absolute(cost) * p.heads_kv;
      const int behind = quotient(end + length - 1, length), place = (run < first ? first : run) - first;
      if (behind > run && behind > first && place < cfg::kThreads) {
        marks.sequences[place] = b;
        marks.begins[place] = at;
        marks.costs[place] = cost;
      }
      at = end;
      run = behind;
    }
    __syncthreads(); // the marks are there
  }

  // The place of the last mark at or before this thread's; -1 where there is none.
  KJIT_DEVICE int last_mark() {
    const unsigned marked = __ballot_sync(0xffffffffu, marks.sequences[thread] >= 0);
    const unsigned up_to_lane = marked & (0xffffffffu >> (kLanesPerWarp - 1 - lane));
    if (lane == 0) marks.last[warp] = highest(marked);
    __syncthreads(); // the warps' last marks are there
    const unsigned with = __ballot_sync(0xffffffffu, lane < warp && marks.last[lane] >= 0);
    if (up_to_lane) return warp * kLanesPerWarp + highest(up_to_lane);
    return with ? highest(with) * kLanesPerWarp + marks.last[highest(with)] : -1;
  }

  static KJIT_DEVICE int highest(unsigned bits) {
    return bits ? 31 - __clz((int)bits) : -1;
  }

  // Step 3: the tile that holds position `at`, of the sequence that left mark `found`.
  KJIT_DEVICE attention_serving_run find(int64_t at, int found) const {
    if (found < 0) return {p.batch, 0, 0, 0, 0};
    const int b = marks.sequences[found];
    const int64_t before = marks.begins[found], marked = marks.costs[found], cost = absolute(marked);
    if (at >= before + cost * p.heads_kv) return {p.batch, 0, 0, 0, 0}; // behind all work
    const int head = quotient(at - before, cost);
    const int64_t begins = before + head * cost;
    if (marked > 0) return {b, head, 0, 0, begins};
    const Place place = place_of(p, b, at - begins);
    return {b, head, place.tile, 0, begins + place.begins};
  }
};

} // namespace plan
