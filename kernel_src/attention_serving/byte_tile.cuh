// A tile of one byte an element in shared memory, kRows x kColumns, as TMA writes it with the swizzle of as many bytes
// as a band has columns, [band][kRows][128] or [64]: a 16-byte chunk's index is XORed with its row, or with the pair of
// rows that share 128 bytes.
#pragma once
#include <kjit/types.cuh>

using namespace kjit;

template <int kTileRows, int kTileColumns, int kColumnsOfBand = 128> struct ByteTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kBandColumns = kColumnsOfBand;
  static constexpr int kBandBytes = kRows * kBandColumns;
  static constexpr int kChunks = kBandColumns / kChunkBytes; // of a band's row
  static constexpr int kRowsOfLine = 128 / kBandColumns;     // rows in 128 bytes, all banks
  static constexpr int kBytes = ceil_div(kColumns, kBandColumns) * kBandBytes;

  // The offset of a 16-byte chunk.
  static KJIT_DEVICE uint32_t offset(int row, int chunk) {
    return (uint32_t)(chunk / kChunks * kBandBytes + row * kBandColumns +
                      ((chunk ^ row / kRowsOfLine) % kChunks) * kChunkBytes);
  }
};
