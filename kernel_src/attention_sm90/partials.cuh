// Tiles whose key blocks are shared out in parts.
//
// Each part leaves what it has of a consumer's rows in a place of its own in global memory and arrives at a counter.
// The last of up to kMergedAtOnce neighbours to arrive merges them, in their order, into the first one's place, and
// arrives for all of them among the next neighbours; who merges the last ones has the result. The order of the sums
// depends on the number of parts alone, not on who is last, so that runs are bitwise alike. Nobody waits for anybody.
//
//   place   O [partial_rows][head_dim_v] fp32, relative to a maximum and not divided by the sum
//           two of { maximum [partial_rows], sum [partial_rows] } fp32: as a part leaves them, as a merge does, so that
//           a merge writes none that it reads
#pragma once
#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"
#include "ptx/memory.cuh"
#include "ptx/warpgroup.cuh"
#include "softmax/online_softmax.cuh"

struct Partials {
  static constexpr int kMergedAtOnce = 16; // two rounds of them are the 256 parts that there may be
  // Places whose loads go out together. O's registers are not free meanwhile: ptxas takes the next tile's first product
  // to add to them.
  static constexpr int kLoadedAtOnce = cfg::kHeadDimV <= 128 ? 8 : cfg::kHeadDimV <= 192 ? 4 : 2;
  static constexpr int kRowChunks = cfg::kHeadDimV / 8;

  struct alignas(8) Pair {
    float x[2];
  };
  struct alignas(16) Quad {
    float x[4];
  };

  const attention_sm90_params &p;
  const Tile &tile;
  const int consumer, thread;
  const int rows;   // of the 64 that there is anything of
  const int places; // of this tile and consumer: the index of the first

  // Of the merge at hand: the first part and how many; from one to the next, in parts; how many merges came before.
  int first, count, distance, round;

  KJIT_DEVICE Partials(const attention_sm90_params &params, const Tile &tile, int consumer, int thread)
      : p(params), tile(tile), consumer(consumer), thread(thread), rows(rows_used()),
        places((tile.index * cfg::kConsumers + consumer) * p.splits), round(0) {}

  // Keep this thread's accumulators: rows thread / 32 * 16 + lane / 4 and + 8.
  template <int kTiles8>
  KJIT_DEVICE void keep(const float (&o)[kTiles8][4], const float (&maxima)[2], const float (&sums)[2]) const {
    const int lane = thread % kLanesPerWarp;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = thread / kLanesPerWarp * 16 + lane / 4 + 8 * r;
      if (row >= rows) continue;
      float *out = place(tile.part) + row * cfg::kHeadDimV + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kTiles8; n++)
        *(Pair *)(out + n * 8) = {o[n][2 * r], o[n][2 * r + 1]};
      if (lane % 4 == 0) {
        maximum_of(place(tile.part), 0)[row] = maxima[r];
        sum_of(place(tile.part), 0)[row] = sums[r];
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
#pragma unroll 1
      for (int i = thread; i < rows * kRowChunks; i += cfg::kGroupThreads)
        merge(i / kRowChunks, i % kRowChunks, groups == 1, out);
      if (groups == 1) return true;
      counters += groups;
      part = group;
      parts = groups;
    }
  }

private:
  // Positions end somewhere in the last tile; what lies behind is neither kept nor merged.
  KJIT_DEVICE int rows_used() const {
    const int left = p.seq_q - tile.first_position(consumer);
    return left < cfg::kGroupPositions ? left * cfg::kPacked : cfg::kGroupRows;
  }

  // All places together are 64 MiB at most.
  KJIT_DEVICE int place_floats() const {
    return p.partial_rows * (cfg::kHeadDimV + 4);
  }
  KJIT_DEVICE float *place(int part) const {
    return p.partials + (places + part) * place_floats();
  }
  KJIT_DEVICE float *maximum_of(float *place, int merges) const {
    return place + p.partial_rows * (cfg::kHeadDimV + 2 * merges);
  }
  KJIT_DEVICE float *sum_of(float *place, int merges) const {
    return maximum_of(place, merges) + p.partial_rows;
  }

  // Is this the last of `count` to arrive? Their writes before are visible to all threads of the last one.
  KJIT_DEVICE bool is_last(int *counter, int barrier, uint32_t word) const {
    named_barrier_sync(barrier, cfg::kGroupThreads); // every thread's writes, and its reading of the word, come before
    if (thread == 0) {
      __threadfence(); // the group's writes before the arrival
      const bool last = atomicAdd(counter, 1) == count - 1;
      if (last) *counter = 0; // for the next launch
      __threadfence();        // the others' arrivals before what is read of them
      store_shared_4(word, last);
    }
    named_barrier_sync(barrier, cfg::kGroupThreads);
    return load_shared_4(word) != 0;
  }

  // Sum `count` places from `first` on: eight columns of a row. The loads of kLoadedAtOnce places go out together, so
  // there are always as many: of the last place again, without weight.
  KJIT_DEVICE void merge(int row, int chunk, bool is_result, uint32_t out) const {
    float maximum = masked_score(), total = 0.0f, sum[8] = {};
    const int step = distance * place_floats();
    float *const from = place(first), *const maximum_at = maximum_of(from, round) + row;
    float *const sum_at = sum_of(from, round) + row, *const output_at = from + row * cfg::kHeadDimV + chunk * 8;
#pragma unroll
    for (int n = 0; n < kMergedAtOnce; n++)
      maximum = fmaxf(maximum, maximum_at[member(n) * step]);
#pragma unroll 1
    for (int loaded = 0; loaded < count; loaded += kLoadedAtOnce)
#pragma unroll
      for (int n = loaded; n < loaded + kLoadedAtOnce; n++) {
        const int at = member(n) * step;
        const float weight = n < count ? exp2_approx((maximum_at[at] - maximum) * p.scale_log2) : 0.0f;
        total += weight * sum_at[at];
        add(sum, weight, output_at + at);
      }
    if (is_result)
      store_result(row, chunk, sum, maximum, total, out);
    else
      store_merged(row, chunk, sum, maximum, total);
  }
  KJIT_DEVICE int member(int n) const {
    return n < count ? n : count - 1;
  }

  static KJIT_DEVICE void add(float (&sum)[8], float weight, const float *values) {
    const Quad low = *(const Quad *)values, high = *(const Quad *)(values + 4);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[i] += weight * low.x[i];
      sum[4 + i] += weight * high.x[i];
    }
  }

  // Into the first one's place.
  KJIT_DEVICE void store_merged(int row, int chunk, const float (&sum)[8], float maximum, float total) const {
    float *const to = place(first), *const output = to + row * cfg::kHeadDimV + chunk * 8;
    *(Quad *)output = {sum[0], sum[1], sum[2], sum[3]};
    *(Quad *)(output + 4) = {sum[4], sum[5], sum[6], sum[7]};
    if (chunk != 0) return;
    maximum_of(to, round + 1)[row] = maximum;
    sum_of(to, round + 1)[row] = total;
  }

  // O into shared memory in the copy engine's swizzle, the log-sum-exp to where it belongs.
  KJIT_DEVICE void store_result(int row, int chunk, const float (&sum)[8], float maximum, float total,
                                uint32_t out) const {
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    Chunk rounded;
#pragma unroll
    for (int i = 0; i < 4; i++)
      rounded.word[i] = pack_16(cfg::Element{}, sum[2 * i] * inverse, sum[2 * i + 1] * inverse);
    const uint32_t row_at = out + chunk / 8 * cfg::kGroupRows * cfg::kRowBytes + row * cfg::kRowBytes;
    store_shared_16(row_at + ((chunk % 8 ^ row % 8) << 4), rounded);
    const OutputRow to = output_row(p, tile, consumer, row);
    if (p.lse != nullptr && chunk == 0 && to.position < p.seq_q && to.in_group)
      p.lse[tile.batch * p.lse_batch_stride + to.head * p.lse_head_stride + to.position] =
          total == 0.0f ? masked_score() : maximum * p.scale + log2_approx(total) * kLn2;
  }
};
