// Which tile of C a block works on, in which order.
//
// Tiles are numbered so that those worked on at the same time read few rows of A and columns of B: `group_m` rows of
// tiles are walked together, column by column, and what they read stays in L2. A cluster takes cluster_m x cluster_n
// neighbouring tiles at once and is numbered as one.
#pragma once
#include "config.cuh"

struct TileGrid {
  int rows, columns; // of clusters of tiles

  KJIT_DEVICE int count() const { return rows * columns; }

  // Row and column of a cluster of tiles.
  KJIT_DEVICE void find(int number, int &row, int &column) const {
    const int per_group = cfg::kGroupM * columns;
    const int first = number / per_group * cfg::kGroupM;
    const int height = rows - first < cfg::kGroupM ? rows - first : cfg::kGroupM;
    const int in_group = number % per_group;
    row = first + in_group % height;
    column = in_group / height;
  }
};
