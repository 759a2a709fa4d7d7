// The plan pass: write the schedule (plan.cuh). One block of cfg::kThreads threads, whatever the batch.
//
//   1. A thread adds up the costs of neighbouring sequences, ceil(batch / threads) of them. Sums over warps, then over
//      the block, give every thread the totals and where its first sequence begins on the line.
//   2. A thread for each run finds, by a search among the threads' begins, the thread whose sequences hold the run's
//      begin, and among these the sequence. The head and the tile follow by a division and a search.
// So no thread walks along the sequences or along the runs, and the time hardly depends on how long these are.
//
// A scheduler has eight of the warps, so that what every warp does takes eight times as long as what one does: warps
// without a sequence, or without a run, skip what is done for these, one warp adds up what all have, and a sequence
// of a batch that decodes costs few instructions. Step 2 computes again only what a thread has no room to keep.
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
  if (is_usual(p) && (int64_t)p.rows_q * p.group <= rows_of_tile(p)) {
    const Sequence s = usual_sequence(p, b);
    return {begin_of(p, s, s.rows > 0), s.keys, s.rows > 0};
  }
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

  // In shared memory: the totals of each warp, and what follows from them.
  struct Sums {
    Totals of_warps[kWarps];
    int64_t begins[kWarps]; // of each warp's first sequence, on the line
    Runs runs;
  };
  // What one head of a sequence costs, negative where that has other than one tile, for the first ones of each thread;
  // and where its first sequence begins on the line.
  struct Kept {
    int64_t costs[SERVING_PLAN_KEPT][cfg::kThreads];
    int64_t begins[cfg::kThreads];
  };
  static_assert(sizeof(Kept) + SERVING_PLAN_SUMS_BYTES == cfg::kScheduleBytes || cfg::kPass != cfg::kPlan,
                "costs and sums have their place");
  static_assert(sizeof(Sums) <= SERVING_PLAN_SUMS_BYTES, "sums have their place");

  const attention_serving_params &p;
  Kept &kept;
  Sums &sums;
  const int thread, lane, warp;
  const int each; // sequences of a thread

  KJIT_DEVICE Schedule(const attention_serving_params &params, char *shared)
      : p(params), kept(*(Kept *)shared), sums(*(Sums *)(shared + sizeof(Kept))), thread((int)threadIdx.x),
        lane(thread % kLanesPerWarp), warp(thread / kLanesPerWarp), each(ceil_div(p.batch, cfg::kThreads)) {}

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
    for (int r = thread; r < count; r += cfg::kThreads)
      out[r] = find(r * runs.length);
  }

private:
  KJIT_DEVICE int first_of(int thread) const {
    const int64_t first = (int64_t)thread * each;
    return first < p.batch ? (int)first : p.batch;
  }

  // Has some lane of the warp a sequence?
  KJIT_DEVICE bool has_sequences() const { return first_of(warp * kLanesPerWarp) < p.batch; }

  // One head of sequence b, which is the thread's number `index`, after step 1: as Kept has it.
  KJIT_DEVICE int64_t signed_cost(int of_thread, int b, int index) const {
    return index < SERVING_PLAN_KEPT ? kept.costs[index][of_thread] : signed_cost(work_of(p, b));
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
  // sequence, unless there is none at all. The least and the largest cost are right where they are equal; otherwise
  // only that they differ is right, which is all that callers need.
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

  // Step 1: the runs; where the threads' sequences begin.
  KJIT_DEVICE Runs add_up(int count) {
    const int from = first_of(thread), mine = first_of(thread + 1) - from;
    int64_t in_warp = 0;
    Totals own;
    if (has_sequences()) {
#pragma unroll 1
      for (int i = 0; i < mine; i++) {
        const Work work = work_of(p, from + i);
        if (i < SERVING_PLAN_KEPT) kept.costs[i][thread] = signed_cost(work);
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
    if (has_sequences()) kept.begins[thread] = (in_warp + sums.begins[warp]) * p.heads_kv;
    __syncthreads(); // the begins are there
    return sums.runs;
  }

  // Step 2, for a run that begins at `at`: the tile that holds it.
  KJIT_DEVICE attention_serving_run find(int64_t at) const {
    const int holder = thread_at(at), from = first_of(holder), to = first_of(holder + 1);
    int64_t before = kept.begins[holder];
#pragma unroll 1
    for (int b = from; b < to; b++) {
      const int64_t signed_one = signed_cost(holder, b, b - from), cost = absolute(signed_one);
      if (at < before + cost * p.heads_kv) return find_tile(b, signed_one, before, at);
      before += cost * p.heads_kv;
    }
    return {p.batch, 0, 0, 0, 0}; // behind all work
  }

  // The last thread whose sequences begin no later than `at`.
  KJIT_DEVICE int thread_at(int64_t at) const {
    int low = 0, high = (p.batch - 1) / each;
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (kept.begins[middle] <= at)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  // The tile of sequence b, which begins at `before`, that holds `at`. `one`: what a head costs, as Kept has it.
  KJIT_DEVICE attention_serving_run find_tile(int b, int64_t one, int64_t before, int64_t at) const {
    const int64_t cost = absolute(one);
    const int head = quotient(at - before, cost);
    const int64_t begins = before + head * cost;
    if (one > 0) return {b, head, 0, 0, begins};
    const Place place = place_of(p, b, at - begins);
    return {b, head, place.tile, 0, begins + place.begins};
  }
};

} // namespace plan
