// The producer: one thread that fills the ring by TMA, in the order in which the consumers use it.
#pragma once
#include "sm90_schedule.cuh"
#include <kjit/ptx/tma.cuh>

struct Producer {
  const gemm_params &p;
  const shared::Layout at;
  const Place place;

  KJIT_DEVICE void run() {
    const TensorMap *const left = cfg::kSwap ? p.b_map : p.a_map;
    const TensorMap *const right = cfg::kSwap ? p.a_map : p.b_map;
    RingPosition ring;
    for (Schedule schedule(p, place); schedule.has_tile(); schedule.next()) {
      const Tile tile = schedule.tile();
      int depth = schedule.first_step * cfg::kBK;
      for (int step = 0; step < schedule.steps; step++, depth += cfg::kBK) {
        mbarrier_wait_parity(at.empty(ring.slot), ring.parity ^ 1);
        mbarrier_arrive_expect_tx(at.full(ring.slot), cfg::kLeftBytes + cfg::kRightBytes);
        load<cfg::kLeftKMajor, cfg::kBM, cfg::kClusterN>(left, at.left(ring.slot), at.full(ring.slot), place.n,
                                                         place.sharers_of_left(), tile.row, depth);
        load<cfg::kRightKMajor, cfg::kBN, cfg::kClusterM>(right, at.right(ring.slot), at.full(ring.slot), place.m,
                                                          place.sharers_of_right(), tile.column, depth);
        ring.advance();
      }
    }
  }

private:
  // A tile of `kWidth` rows of the left operand, or columns of the right one, from `outer` on, BK deep. Of the
  // `kSharers` blocks that use it each loads a share of its 128-byte rows and sends it to all of them.
  template <bool kKMajor, int kWidth, int kSharers>
  KJIT_DEVICE static void load(const TensorMap *map, uint32_t shared, uint32_t full, int share, unsigned short sharers,
                               int outer, int depth) {
    constexpr int kBands = kKMajor ? cfg::kBK / 64 : kWidth / 64;
    constexpr int kRows = kKMajor ? kWidth : cfg::kBK; // of a band
    constexpr int kShare = kRows / kSharers;
#pragma unroll
    for (int band = 0; band < kBands; band++) {
      const uint32_t to = shared + (band * kRows + share * kShare) * cfg::kRowBytes;
      const int column = (kKMajor ? depth : outer) + band * 64;
      const int row = (kKMajor ? outer : depth) + share * kShare;
      if constexpr (kSharers > 1)
        tma_load_multicast(to, map, full, sharers, column, row);
      else
        tma_load(to, map, full, column, row);
    }
  }
};
