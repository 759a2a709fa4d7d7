// Where 16-byte chunks lie in tiles in shared memory.
#pragma once
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "attention_serving/byte_tile.cuh"

using namespace kjit;

// The offset of a 16-byte chunk in a swizzled tile.
template <typename Tile> KJIT_DEVICE uint32_t chunk_offset(int row, int chunk) {
  const int band = Tile::slice_band(chunk / 2);
  return Tile::band_offset(band) +
         Tile::offset_in_band(Tile::band_width(band), row, chunk - Tile::band_column(band) / kChunkElements);
}

// The same for tiles of 16-bit elements and of bytes.
template <typename Tile> struct TileChunks {
  static constexpr int kRow = Tile::kColumns / kChunkElements; // of a row
  static KJIT_DEVICE uint32_t offset(int row, int chunk) { return chunk_offset<Tile>(row, chunk); }
};
template <int kRows, int kColumns> struct TileChunks<ByteTile<kRows, kColumns>> {
  static constexpr int kRow = ceil_div(kColumns, 64) * 4; // columns are multiplied 64 at a time
  static KJIT_DEVICE uint32_t offset(int row, int chunk) { return ByteTile<kRows, kColumns>::offset(row, chunk); }
};
