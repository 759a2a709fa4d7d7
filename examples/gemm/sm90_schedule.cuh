// Which tiles a block of the Hopper kernel works on, and its place in the cluster.
//
// A cluster of cluster_m * cluster_n * split_k blocks takes cluster_m x cluster_n neighbouring tiles; split_k blocks
// share the depth of each. Without splitting, as many clusters as fit the card walk over all tiles; with it, each
// cluster has one.
#pragma once
#include "params.cuh"
#include "sm90_config.cuh"
#include "tiles.cuh"

struct Place {
  int m, n, k; // of this block in its cluster

  KJIT_DEVICE static Place own() {
    const int rank = cfg::kClusterSize > 1 ? (int)cluster_ctarank() : 0;
    return {rank % cfg::kClusterM, rank / cfg::kClusterM % cfg::kClusterN, rank / (cfg::kClusterM * cfg::kClusterN)};
  }
  KJIT_DEVICE static int rank(int m, int n, int k) { return m + cfg::kClusterM * (n + cfg::kClusterN * k); }

  // Blocks that use the same part of the left operand, of the right one, as a mask of ranks.
  KJIT_DEVICE unsigned short sharers_of_left() const {
    unsigned mask = 0;
    for (int i = 0; i < cfg::kClusterN; i++)
      mask |= 1u << rank(m, i, k);
    return (unsigned short)mask;
  }
  KJIT_DEVICE unsigned short sharers_of_right() const {
    unsigned mask = 0;
    for (int i = 0; i < cfg::kClusterM; i++)
      mask |= 1u << rank(i, n, k);
    return (unsigned short)mask;
  }
};

struct Tile {
  int row, column; // of C, or with `swap` of C transposed, its first
};

// The tiles of a block, one after the other. Every block of a cluster takes part in all of the cluster's tiles, also in
// those that lie outside of C, because the others wait for its share of the loads.
class Schedule {
public:
  int first_step, steps; // of BK along K: those of this block

  KJIT_DEVICE Schedule(const gemm_params &p, Place place)
      : grid{ceil_div(cfg::kSwap ? p.n : p.m, cfg::kBM * cfg::kClusterM),
             ceil_div(cfg::kSwap ? p.m : p.n, cfg::kBN * cfg::kClusterN)},
        place(place), number((int)blockIdx.x / cfg::kClusterSize) {
    const int all = ceil_div(p.k, cfg::kBK);
    first_step = (int)((int64_t)all * place.k / cfg::kSplitK);
    steps = (int)((int64_t)all * (place.k + 1) / cfg::kSplitK) - first_step;
  }

  KJIT_DEVICE bool has_tile() const { return number < grid.count(); }

  KJIT_DEVICE Tile tile() const {
    int row, column;
    grid.find(number, row, column);
    return {(row * cfg::kClusterM + place.m) * cfg::kBM, (column * cfg::kClusterN + place.n) * cfg::kBN};
  }

  KJIT_DEVICE void next(int tiles = 1) { number += tiles * ((int)gridDim.x / cfg::kClusterSize); }

private:
  TileGrid grid;
  Place place;
  int number;
};
