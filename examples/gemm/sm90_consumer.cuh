// The consumers: warpgroups that multiply and store.
//
// Together ("cooperative") the consumers of a block share each tile, BM / consumers rows each. With pingpong each has
// every second tile, so that one stores while the other multiplies; the ring is then used by turns, tile by tile, and
// each skips what belongs to the other.
#pragma once
#include "epilogue.cuh"
#include "sm90_schedule.cuh"
#include "store.cuh"
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/stmatrix.cuh>
#include <kjit/ptx/tma.cuh>

class Consumer {
public:
  KJIT_DEVICE Consumer(const gemm_params &p, shared::Layout at, Place place, int consumer, int thread)
      : p(p), at(at), place(place), consumer(consumer), thread(thread), warp(thread / 32), lane(thread % 32) {}

  KJIT_DEVICE void run() {
    Schedule schedule(p, place);
    if (cfg::kPingpong && consumer == 1) {
      schedule.next();
      ring.skip(schedule.steps);
      give_turn();
    }
    while (schedule.has_tile()) {
      const Tile tile = schedule.tile();
      if constexpr (cfg::kPingpong) bar_sync(turn_of(consumer), 2 * cfg::kWarpgroupThreads);
      multiply(schedule.steps);
      store(tile);
      schedule.next(cfg::kPingpong ? 2 : 1);
      if (cfg::kPingpong) ring.skip(schedule.steps);
    }
    if (thread == 0) cp_async_bulk_wait_group_read<0>(); // the memory must outlive the stores' reading
  }

  // With kThroughSums, instead of run().
  KJIT_DEVICE void run_to_sums() {
    Schedule schedule(p, place);
    clear_unless(schedule.steps > 0);
    multiply(schedule.steps);
    bar_sync(kConsumersBarrier, cfg::kConsumers * cfg::kWarpgroupThreads); // nobody reads the operands any more
    keep_sums();
  }

  // Then, once all blocks of the cluster have kept theirs: this block's share of the tile.
  KJIT_DEVICE void store_sums() const {
    const Tile tile = Schedule(p, place).tile();
    const int row = cfg::kSwap ? tile.column : tile.row, column = cfg::kSwap ? tile.row : tile.column; // of C
    constexpr int kThreads = cfg::kSplitK * cfg::kConsumers * cfg::kWarpgroupThreads;
    constexpr int kPieces = shared::kSumColumns / 8;
    const int rows = p.m - row < shared::kSumRows ? p.m - row : shared::kSumRows;
    for (int i = (place.k * cfg::kConsumers + consumer) * cfg::kWarpgroupThreads + thread; i < rows * kPieces;
         i += kThreads)
      store_sum(row, column, i / kPieces, i % kPieces * 8);
  }

private:
  static constexpr int kConsumersBarrier = 1; // of all consumers; own_barrier() is of one
  static constexpr int kOuter = cfg::kBN / 8;
  // Groups of 8 columns of C that are prepared together: fewer where the sums leave few registers.
  static constexpr int kTogether = cfg::kBlocks64 * kOuter * 4 > 160 ? 2 : 8;

  const gemm_params &p;
  const shared::Layout at;
  const Place place;
  const int consumer, thread, warp, lane; // thread: in the warpgroup
  RingPosition ring;
  int buffer = 0; // of C, the next
  float sums[cfg::kBlocks64][kOuter][4];

  KJIT_DEVICE int own_barrier() const { return 2 + consumer; }
  KJIT_DEVICE static int turn_of(int consumer) { return 5 + consumer; }
  KJIT_DEVICE int first_row() const { return cfg::kPingpong ? 0 : consumer * cfg::kRowsPerConsumer; }

  // With pingpong a consumer begins its tile when the other has seen all of its own tile arrive, because a wait for a
  // parity tells a phase from the one before it, not from the one before that.
  KJIT_DEVICE void give_turn() const { bar_arrive(turn_of(1 - consumer), 2 * cfg::kWarpgroupThreads); }

  // --- products

  // One group of wgmmas stays in flight while the next is issued; the slot of a group is given back when the next has
  // been issued and the group is done. Small groups are waited for, because ptxas serialises products on few registers
  // that are in flight across the end of a loop's body.
  KJIT_DEVICE void multiply(int steps) {
    constexpr int kInFlight = cfg::kBN < 32 ? 0 : 1;
    int previous = 0;
    for (int step = 0; step < steps; step++) {
      mbarrier_wait_parity(at.full(ring.slot), ring.parity);
      wgmma_fence();
      multiply_slot(ring.slot, step > 0);
      wgmma_commit_group();
      wgmma_wait_group<kInFlight>();
      if (kInFlight == 0 || step > 0) release(kInFlight == 0 ? ring.slot : previous);
      previous = ring.slot;
      ring.advance();
    }
    if constexpr (cfg::kPingpong) give_turn();
    wgmma_wait_group<0>();
    hold_sums();
    if (kInFlight == 1 && steps > 0) release(previous);
  }

  // Keeps the compiler from moving what reads the sums to where products on them are still in flight.
  KJIT_DEVICE void hold_sums() {
#pragma unroll
    for (int i = 0; i < cfg::kBlocks64; i++)
#pragma unroll
      for (int j = 0; j < kOuter; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          asm volatile("" : "+f"(sums[i][j][e])::"memory");
  }

  KJIT_DEVICE void multiply_slot(int slot, int accumulate) {
    const uint32_t left = at.left(slot) + first_row() * (cfg::kLeftKMajor ? cfg::kRowBytes : cfg::kBK * 2);
    const uint64_t a = wgmma_descriptor(left, cfg::kBK * cfg::kRowBytes);
    const uint64_t b = wgmma_descriptor(at.right(slot), cfg::kBK * cfg::kRowBytes);
#pragma unroll
    for (int k = 0; k < cfg::kBK / 16; k++)
#pragma unroll
      for (int i = 0; i < cfg::kBlocks64; i++)
        Wgmma<cfg::Element, cfg::kBN>::template mma_async_ss<!cfg::kLeftKMajor, !cfg::kRightKMajor>(
            sums[i], a + step_of<cfg::kLeftKMajor, cfg::kBM>(k, i), b + step_of<cfg::kRightKMajor, cfg::kBN>(k, 0),
            k > 0 ? 1 : accumulate);
  }

  // What a descriptor grows by for 16 elements along K, number k, and 64 rows, number i.
  template <bool kKMajor, int kWidth> static __device__ constexpr uint64_t step_of(int k, int i) {
    return kKMajor ? (uint64_t)(k / 4 * kWidth * cfg::kRowBytes + k % 4 * 32 + i * 64 * cfg::kRowBytes) >> 4
                   : (uint64_t)(k * 16 * cfg::kRowBytes + i * cfg::kBK * cfg::kRowBytes) >> 4;
  }

  // Tell every block whose loads fill this block's slot, and this one. One thread for each, of another warp as far as
  // there are enough.
  KJIT_DEVICE void release(int slot) const {
    if constexpr (cfg::kClusterM * cfg::kClusterN == 1) {
      if (thread == 0) mbarrier_arrive(at.empty(slot));
    } else {
      const int m = thread % cfg::kClusterM, n = thread / cfg::kClusterM;
      if (n < cfg::kClusterN && (m == place.m || n == place.n))
        mbarrier_arrive_cluster_relaxed(mapa(at.empty(slot), Place::rank(m, n, place.k)));
    }
  }

  KJIT_DEVICE void clear_unless(bool has_steps) {
    if (has_steps) return;
#pragma unroll
    for (int i = 0; i < cfg::kBlocks64; i++)
#pragma unroll
      for (int j = 0; j < kOuter; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          sums[i][j][e] = 0;
  }

  // --- C by TMA: pieces of 64 x 64 through this consumer's own buffers

  KJIT_DEVICE void store(const Tile &tile) {
#pragma unroll
    for (int i = 0; i < cfg::kBlocks64; i++)
#pragma unroll
      for (int piece = 0; piece < cfg::kBN / 64; piece++)
        store_piece(sums[i], tile.row + first_row() + i * 64, tile.column, piece);
  }

  KJIT_DEVICE void store_piece(const float (&block)[kOuter][4], int row, int tile_column, int piece) {
    const int column = tile_column + piece * 64;
    Addends addends;
    addends.load(p, row + warp * 16 + lane / 4, column + lane % 4 * 2);
    uint32_t words[kTogether][2];
    addends.finish(words, block, p.alpha, piece * 8);
    if (thread == 0) cp_async_bulk_wait_group_read<cfg::kStoreBuffers - 1>(); // what was in this buffer has left it
    bar_sync(own_barrier(), cfg::kWarpgroupThreads);
    to_shared(words, 0);
#pragma unroll
    for (int j = kTogether; j < 8; j += kTogether) {
      addends.load(p, row + warp * 16 + lane / 4, column + j * 8 + lane % 4 * 2);
      addends.finish(words, block, p.alpha, piece * 8 + j);
      to_shared(words, j);
    }
    fence_async_proxy();
    bar_sync(own_barrier(), cfg::kWarpgroupThreads);
    if (thread == 0) {
      tma_store(p.c_map, at.c(consumer, buffer), column, row);
      cp_async_bulk_commit_group();
    }
    buffer = buffer + 1 == cfg::kStoreBuffers ? 0 : buffer + 1;
  }

  // 8-column groups from number `first` on of a piece.
  KJIT_DEVICE void to_shared(const uint32_t (&words)[kTogether][2], int first) const {
    const uint32_t start = at.c(consumer, buffer) + (warp * 16 + lane % 16) * cfg::kRowBytes;
#pragma unroll
    for (int j = 0; j < kTogether; j += 2)
      stmatrix_x4(start + ((first + j + lane / 16) ^ (lane % 8)) * kChunkBytes, words[j][0], words[j][1],
                  words[j + 1][0], words[j + 1][1]);
  }

  // Bias and residual of this thread's share of kTogether groups of 8 columns: columns 8 j and 8 j + 1 beyond `column`,
  // rows `row` and `row` + 8.
  struct Addends {
    uint32_t bias[cfg::kHasBias ? kTogether : 1];
    uint32_t residual[cfg::kHasResidual ? kTogether : 1][2];

    KJIT_DEVICE void load(const gemm_params &p, int row, int column) {
      // Hides the column from the compiler, which otherwise keeps the comparisons of all columns in registers.
      asm volatile("" : "+r"(column));
#pragma unroll
      for (int j = 0; j < kTogether; j++) {
        if constexpr (cfg::kHasBias) bias[j] = load_pair(p.bias, column + 8 * j, p.n);
        if constexpr (cfg::kHasResidual)
#pragma unroll
          for (int r = 0; r < 2; r++)
            residual[j][r] =
                row + 8 * r < p.m
                    ? load_pair((const char *)p.residual + (int64_t)(row + 8 * r) * p.ldr * 2, column + 8 * j, p.n)
                    : 0;
      }
    }

    // The groups of the sums from number `first` on, as pairs of 16-bit values.
    KJIT_DEVICE void finish(uint32_t (&words)[kTogether][2], const float (&sums)[kOuter][4], float alpha,
                            int first) const {
#pragma unroll
      for (int j = 0; j < kTogether; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          Pair b = {0, 0}, add = {0, 0};
          if constexpr (cfg::kHasBias) b = to_floats(bias[j]);
          if constexpr (cfg::kHasResidual) add = to_floats(residual[j][r]);
          words[j][r] = cvt_rn_x2(cfg::Element{}, ::finish(sums[first + j][2 * r], alpha, b.low, add.low),
                                  ::finish(sums[first + j][2 * r + 1], alpha, b.high, add.high));
        }
    }
  };

  // --- C by way of fp32 sums

  KJIT_DEVICE void keep_sums() const {
#pragma unroll
    for (int i = 0; i < cfg::kBlocks64; i++) {
      const int row = first_row() + i * 64 + warp * 16 + lane / 4;
#pragma unroll
      for (int j = 0; j < kOuter; j++)
#pragma unroll
        for (int r = 0; r < 2; r++)
          keep_two(row + 8 * r, j * 8 + lane % 4 * 2, sums[i][j][2 * r], sums[i][j][2 * r + 1]);
    }
  }

  // Two columns of a row of the tile that was multiplied.
  KJIT_DEVICE void keep_two(int row, int column, float low, float high) const {
    if constexpr (cfg::kSwap) {
      st_shared_4(at.sum(column, row), __float_as_uint(low));
      st_shared_4(at.sum(column + 1, row), __float_as_uint(high));
    } else {
      st_shared_f32_x2(at.sum(row, column), low, high);
    }
  }

  // 8 columns of a row of the tile of C that begins at (tile_row, tile_column): the sums of all blocks that share it,
  // in the order of K.
  KJIT_DEVICE void store_sum(int tile_row, int tile_column, int row, int column) const {
    float total[8];
#pragma unroll
    for (int k = 0; k < cfg::kSplitK; k++) {
      float part[8];
      load_sums(part, at.sum(row, column), k);
#pragma unroll
      for (int e = 0; e < 8; e++)
        total[e] = k == 0 ? part[e] : total[e] + part[e];
    }
    store_row(total, tile_row + row, tile_column + column);
  }

  KJIT_DEVICE void load_sums(float (&part)[8], uint32_t local, int k) const {
    if constexpr (cfg::kSplitK > 1) {
      const uint32_t there = mapa(local, Place::rank(place.m, place.n, k));
      float low[4], high[4];
      ld_cluster_f32_x4(low, there);
      ld_cluster_f32_x4(high, there + 16);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        part[e] = low[e];
        part[4 + e] = high[e];
      }
    } else {
      const Chunk low = ld_shared_16(local), high = ld_shared_16(local + 16);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        part[e] = __uint_as_float(low.word[e]);
        part[4 + e] = __uint_as_float(high.word[e]);
      }
    }
  }

  KJIT_DEVICE void store_row(const float (&total)[8], int row, int column) const {
    Chunk out;
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      Pair b = {0, 0}, add = {0, 0};
      if constexpr (cfg::kHasBias) b = to_floats(load_pair(p.bias, column + e, p.n));
      if constexpr (cfg::kHasResidual)
        add = to_floats(load_pair((const char *)p.residual + (int64_t)row * p.ldr * 2, column + e, p.n));
      out.word[e / 2] = cvt_rn_x2(cfg::Element{}, finish(total[e], p.alpha, b.low, add.low),
                                  finish(total[e + 1], p.alpha, b.high, add.high));
    }
    store_chunk(p, out, row, column);
  }
};
