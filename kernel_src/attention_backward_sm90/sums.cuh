// Where dq is summed in global memory, and the two kernels around pass 7: the one that writes delta and zeros before
// it, and the one that makes dq of the sums behind it.
//
// The sums of 64 queries of a head are a tile, in the order of wgmma's accumulators: [columns / 8][thread][4], so that
// a consumer's threads write, and these kernels read, 16 bytes each side by side. Where the consumers share the columns
// (config.cuh), those of the second follow those of the first.
#pragma once
#include <kjit/ptx/bulk_reduce.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_backward_sm90/consumer.cuh"

struct Sums {
  const attention_backward_sm90_params &p;
  const int64_t first; // tile of this batch and head

  KJIT_DEVICE Sums(const attention_backward_sm90_params &p, int batch, int head)
      : p(p), first(((int64_t)batch * heads(p) + head) * p.row_blocks) {}

  // The sums of queries 64 * block to 64 * block + 63.
  KJIT_DEVICE char *tile(int block) const { return (char *)p.sums + (first + block) * cfg::kSumBytes; }

  // The counter of a step's additions by one consumer.
  KJIT_DEVICE int *turn(int step, int consumer) const { return p.turns + (first + step) * 2 + consumer; }
  KJIT_DEVICE int *state(int step, int consumer) const { return p.states + (first + step) * 2 + consumer; }

  // How many parts of a key head's tiles of keys are in the sums. A part is what one consumer adds for one tile.
  KJIT_DEVICE static int *done(const attention_backward_sm90_params &p, int batch, int key_head, int key_heads) {
    return p.done + (int64_t)batch * key_heads + key_head;
  }

private:
  KJIT_DEVICE static int heads(const attention_backward_sm90_params &p) {
    return cfg::kSumsDq ? Extent(p).heads * p.rest.heads_per_kv : gridDim.y;
  }
};

// Tiles of keys take turns at a tile of queries: the first tile begins; in causal attention the last that meets the
// queries does, because it is there first. Blocks start in this order, so that none waits for one that cannot start.
KJIT_DEVICE bool wait_for_turn(const attention_backward_sm90_params &p, const Work &work, const int *turn, int step) {
  int mine = work.tile;
  if constexpr (cfg::kCausal) mine = (keys_seen(p.rest, (step + 1) * cfg::kStepRows - 1) - 1) / cfg::kOwnRows - mine;
  while (ld_acquire(turn) != mine)
    __nanosleep(20);
  return mine == 0;
}

// Where a consumer's half of a step is summed.
KJIT_DEVICE char *part_of(const Sums &sums, int step, int consumer) {
  return cfg::kSumsRows ? sums.tile(2 * step + consumer) : sums.tile(step) + consumer * cfg::kDqBytes;
}

// Add a consumer's half of a step from registers. All threads of the consumer.
template <int kDq8> KJIT_DEVICE void add_dq(const Consumer &c, const float (&dq)[kDq8][4], int head, int step) {
  const Sums sums(c.p, c.work.batch, head);
  char *const to = part_of(sums, step, c.consumer) + c.thread * kChunkBytes;
  int *const turn = c.p.turns ? sums.turn(step, c.consumer) : nullptr;
  if (turn) {
    if (c.thread == 0) wait_for_turn(c.p, c.work, turn, step);
    bar_sync(1 + c.consumer, kThreadsPerWarpgroup);
  }
#pragma unroll
  for (int n = 0; n < kDq8; n++)
    red_add_f32_x4(to + n * kThreadsPerWarpgroup * kChunkBytes, dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
  if (!turn) return;
  __threadfence(); // the additions come before the turn is passed on
  bar_sync(1 + c.consumer, kThreadsPerWarpgroup);
  if (c.thread == 0) red_release_add(turn, 1);
}

// Say that a consumer has added all of its part of a tile of keys, by its threads. Behind a fence of each of them and a
// barrier.
KJIT_DEVICE void count_part(const Consumer &c) {
  if (c.thread == 0) red_release_add(Sums::done(c.p, c.work.batch, c.work.head, Extent(c.p).heads), 1);
}

// Pass 8: four warps of 16 queries each; a block has 64 queries of a head.
struct BeginSums {
  const attention_backward_sm90_params &p;

  KJIT_DEVICE void run() const {
    const Sums sums(p, blockIdx.z, blockIdx.y);
    char *const tile = sums.tile(blockIdx.x);
    for (int i = cfg::kStores && blockIdx.x >= p.zero_blocks ? cfg::kSumBytes : threadIdx.x;
         i < cfg::kSumBytes / kChunkBytes; i += kThreadsPerWarpgroup)
      st_global_16(tile + i * kChunkBytes, Chunk{});
    const int group = p.rest.heads_per_kv;
    if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x == 0) *p.next_tile = 0;
    if (blockIdx.x + blockIdx.y % group + threadIdx.x == 0)
      *Sums::done(p, blockIdx.z, blockIdx.y / group, gridDim.y / group) = 0;
    if (threadIdx.x < 2) *sums.turn(blockIdx.x, threadIdx.x) = 0;
    const int lane = threadIdx.x % kLanesPerWarp, row = blockIdx.x * 64 + threadIdx.x / kLanesPerWarp * 16 + lane / 4;
    own_statistics<cfg::Element, cfg::kHeadDimV>(p.rest, blockIdx.z, blockIdx.y, {row, row + 8}, lane);
  }
};

// Pass 16: the accumulators as they were, scaled, rounded and stored as a consumer does it.
//
// Its blocks begin when multiprocessors find no more work in pass 7, and wait for the sums of their own head alone. So
// the sums of most heads are read and dq of them written while the last tiles of keys are still worked on. They may
// look at once, because pass 7 lets them begin only after pass 8, which sets the counters to 0, has ended. The last
// block waits for the end of pass 7 as a whole, so that who waits for this kernel also finds dk and dv.
struct EndSums : Consumer {
  using Consumer::Consumer;

  KJIT_DEVICE void run() {
    if (blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y && blockIdx.z + 1 == gridDim.z)
      griddepcontrol_wait();
    if (thread == 0) {
      const int group = p.rest.heads_per_kv;
      const int *const done = Sums::done(p, work.batch, work.head / group, gridDim.y / group);
      while (ld_acquire(done) != p.parts)
        __nanosleep(500); // many blocks ask for few words
    }
    bar_sync(own_barrier(), kThreadsPerWarpgroup); // what thread 0 has seen is there for all
    const char *const tile = Sums(p, work.batch, work.head).tile(work.tile) + thread * kChunkBytes;
#pragma unroll
    for (int n = 0; n < kDx8; n++) {
      const Chunk chunk = ld_global_16(tile + n * kThreadsPerWarpgroup * kChunkBytes);
#pragma unroll
      for (int i = 0; i < 4; i++)
        dx[n][i] = __uint_as_float(chunk.word[i]);
    }
    to_shared<cfg::kSumColumns>(dx, p.rest.scale, at.own(0));
    fence_async_proxy();
    bar_sync(own_barrier(), kThreadsPerWarpgroup);
    if (thread != 0) return;
    store<cfg::kHeadDim>(p.out, at.own(0));
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>(); // shared memory must live until TMA has read it
  }
};
