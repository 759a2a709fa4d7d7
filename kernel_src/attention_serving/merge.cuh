// The merge of partial results, level by level.
//
// Where the keys of a tile were divided among the blocks of threads `first` to `last`, each writes a partial result and
// arrives at the counter of its group of up to kMergedAtOnce neighbours. The last of a group to arrive merges the
// group's partial results, in their order, into that of the group's first block, and arrives for the whole group at the
// counter of the next level, where up to kMergedAtOnce groups meet, and so on; the last level's merge is the result. So
// the bits do not depend on who is last, nobody waits for anybody, and no block reads more than kMergedAtOnce partial
// results a level. Counters are left at zero for the next launch.
//
// Whoever includes this has included a config.cuh that defines, beside what output.cuh takes, the threads that merge,
// which are the block's first kWorkers, and sync_workers(), their barrier; and, in their shared memory, kStatisticsAt
// and kWordAt. What lies in front of kStatisticsAt is theirs during a merge.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/output.cuh"

struct Merge : Output {
  static constexpr int kChunks = cfg::kHeadDimV / kChunkElements; // of a row of O
  // Members' statistics lie in front of the rows', where heads of V of few columns leave little room.
  static constexpr int kRoom = cfg::kStatisticsAt / (cfg::kRows * 8), kMergedAtOnce = kRoom < 16 ? kRoom : 16;

  char *const shared;

  KJIT_DEVICE Statistics *statistics(int key_warp) const {
    return (Statistics *)(shared + cfg::kStatisticsAt) + key_warp * cfg::kRows;
  }

  // Write one chunk of O, and with the first chunk of a row its log-sum-exp.
  KJIT_DEVICE void write(int row, int chunk, Statistics all, const float (&values)[8]) const {
    int query, head;
    if (!rows.find(row, query, head)) return;
    float factor;
    all = with_sink(all, head, factor);
    const float inverse = all.sum == 0.0f ? 0.0f : factor / all.sum;
    Chunk out;
#pragma unroll
    for (int i = 0; i < 4; i++)
      out.word[i] = cvt_rn_x2(cfg::Element{}, values[2 * i] * inverse, values[2 * i + 1] * inverse);
    st_global_16((char *)p.o + output_at(query, head) * 2 + chunk * kChunkBytes, out);
    if (chunk == 0) write_log_sum_exp(query, head, all);
  }

  // One chunk of a partial result, and with the first chunk of a row its statistics.
  static KJIT_DEVICE void keep_chunk(float *partial, int row, int chunk, Statistics all, const float (&values)[8]) {
    Quad *const quads = (Quad *)(partial + row * cfg::kHeadDimV + chunk * 8);
    quads[0] = {{values[0], values[1], values[2], values[3]}};
    quads[1] = {{values[4], values[5], values[6], values[7]}};
    if (chunk == 0) statistics_of(partial)[row] = all;
  }

  // Arrive with a partial result, and merge level after level as long as this block of threads is the last of its group
  // to arrive. The counters of a tile are those of its blocks but the last, which no other tile uses: fewer groups meet
  // on all levels together than blocks work on the tile.
  KJIT_DEVICE void arrive(int first, int last) const {
    int member = (int)blockIdx.x - first, count = last - first + 1, *counters = p.arrivals + first;
#pragma unroll 1
    for (int distance = 1;; distance *= kMergedAtOnce) {
      const int groups = ceil_div(count, kMergedAtOnce), group = member / kMergedAtOnce;
      const int left = count - group * kMergedAtOnce, members = left < kMergedAtOnce ? left : kMergedAtOnce;
      if (!is_last(counters + group, members)) return;
      merge({first, first + group * kMergedAtOnce * distance, distance, members}, groups == 1);
      if (groups == 1) return;
      counters += groups;
      member = group;
      count = groups;
    }
  }

private:
  // Partial results that are merged together: of the blocks of threads from `from` on, each `distance` behind the one
  // before; `first` began the tile.
  struct Group {
    int first, from, distance, count;
  };

  KJIT_DEVICE float *partial_of(const Group &group, int member) const {
    const int block = group.from + member * group.distance;
    return partial(block, block == group.first);
  }

  // Is this block of threads the last of `count` to arrive? What the others wrote is then visible to all its threads.
  KJIT_DEVICE bool is_last(int *counter, int count) const {
    int *const word = (int *)(shared + cfg::kWordAt);
    cfg::sync_workers(); // all threads have written their part, and have read the word of the level before
    if (threadIdx.x == 0) {
      __threadfence(); // the block's writes come before the arrival
      const bool last = atomicAdd(counter, 1) == count - 1;
      if (last) *counter = 0; // for the next launch
      __threadfence();        // the others' arrivals come before what is read of them
      *word = last;
    }
    cfg::sync_workers();
    return *word != 0;
  }

  // Each member's statistics for each row; later each member's weight in place of the maximum.
  KJIT_DEVICE Statistics *members(int member) const {
    return (Statistics *)shared + member * cfg::kRows;
  }

  // Merge a group into its first member's partial result or, at the last level, into the result.
  KJIT_DEVICE void merge(const Group &group, bool is_result) const {
    const int count = rows.count();
    Statistics *const all = statistics(0);
    // A thread loads few of the members' statistics, because one after the other each would be waited for.
    for (int i = (int)threadIdx.x; i < group.count * count; i += cfg::kWorkers)
      members(i / count)[i % count] = statistics_of(partial_of(group, i / count))[i % count];
    cfg::sync_workers(); // all statistics are here
    for (int row = (int)threadIdx.x; row < count; row += cfg::kWorkers) {
      Statistics joined = {masked_score(), 0.0f};
      for (int m = 0; m < group.count; m++)
        joined.maximum = fmaxf(joined.maximum, members(m)[row].maximum);
      for (int m = 0; m < group.count; m++) {
        Statistics &part = members(m)[row];
        part.maximum = weight(part.maximum, joined.maximum);
        joined.sum += part.maximum * part.sum;
      }
      all[row] = joined;
    }
    cfg::sync_workers(); // the weights are known to all
    float *const to = partial_of(group, 0);
    for (int i = (int)threadIdx.x; i < count * kChunks; i += cfg::kWorkers) {
      const int row = i / kChunks, chunk = i % kChunks;
      float values[8];
      merge_chunk(group, row, chunk, values);
      if (is_result)
        write(row, chunk, all[row], values);
      else
        keep_chunk(to, row, chunk, all[row], values);
    }
  }

  // Neighbouring members are loaded together, because one after the other each would be waited for.
  KJIT_DEVICE void merge_chunk(const Group &group, int row, int chunk, float (&values)[8]) const {
#pragma unroll
    for (int n = 0; n < 8; n++)
      values[n] = 0.0f;
#pragma unroll 4
    for (int m = 0; m < group.count; m++) {
      const Quad *const quads = (const Quad *)(partial_of(group, m) + row * cfg::kHeadDimV + chunk * 8);
      const Quad low = quads[0], high = quads[1];
      const float part = members(m)[row].maximum;
#pragma unroll
      for (int n = 0; n < 4; n++) {
        values[n] += part * low.x[n];
        values[4 + n] += part * high.x[n];
      }
    }
  }
};
