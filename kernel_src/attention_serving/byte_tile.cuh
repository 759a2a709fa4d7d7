// A tile of one byte an element in shared memory, kRows x kColumns, as TMA writes it with the 128-byte swizzle: bands
// of 128 columns, [band][kRows][128], in which a 16-byte chunk's index is XORed with its row.
#pragma once
#include <kjit/types.cuh>

using namespace kjit;

template <int kTileRows, int kTileColumns> struct ByteTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kBandColumns = 128;
  static constexpr int kBandBytes = kRows * kBandColumns;
  static constexpr int kBytes = ceil_div(kColumns, kBandColumns) * kBandBytes;

  // The offset of a 16-byte chunk.
  static KJIT_DEVICE uint32_t offset(int row, int chunk) {
    return (uint32_t)(chunk / 8 * kBandBytes + row * kBandColumns + ((chunk ^ row) % 8) * kChunkBytes);
  }
};
