// A tile of 16-bit values in shared memory, `kRows` x `kColumns`, split along the columns into bands.
//
//   band 0          band 1 …         last bands
//   [kRows][64]     [kRows][64]      [kRows][32] if 32 remain, [kRows][16] if 16 remain
//
// A row of a band is 128, 64 or 32 bytes, so a band's eight 16-byte rows of an 8x8 matrix would fall on one, two or
// four groups of banks. Swizzled, the 16-byte chunk index is XORed with bits of the row so that they fall on all eight:
//
//   width   chunks a row   rows per 128 bytes   chunk' = chunk ^
//   64      8              1                    row % 8
//   32      4              2                    (row / 2) % 4
//   16      2              4                    (row / 4) % 2
//
// Example, width 64: row 3, column 8 is chunk 1, stored as chunk 1 ^ 3 = 2: byte 3 * 128 + 2 * 16 = 416.
//
// Row offsets that are multiples of 8 leave the XOR alone, and the two chunks of a 16-column slice are bit 0 of the
// index: a lane that walks a tile in steps of 16 rows and 16 columns needs one precomputed offset and XORs with
// constants.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

template <int kRows_, int kColumns_, bool kSwizzled_> struct SharedTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr bool kSwizzled = kSwizzled_;
  static constexpr int kBytes = kRows * kColumns * 2;
  static constexpr int kSlices = kColumns / 16; // 16-column slices

  static constexpr int kWideBands = kColumns / 64;
  static constexpr int kBand32 = kColumns % 64 >= 32;
  static constexpr int kBand16 = kColumns % 32 >= 16;
  static constexpr int kBands = kWideBands + kBand32 + kBand16;

  // Columns of a band.
  static __device__ constexpr int band_width(int band) {
    return band < kWideBands ? 64 : (band == kWideBands && kBand32) ? 32 : 16;
  }
  // First column of a band; also its byte offset in the tile divided by 2 * kRows.
  static __device__ constexpr int band_column(int band) {
    return band <= kWideBands ? band * 64 : kWideBands * 64 + 32;
  }
  static __device__ constexpr int band_offset(int band) { return band_column(band) * kRows * 2; }
  static __device__ constexpr int slice_band(int slice) {
    return slice < 4 * kWideBands ? slice / 4 : (kBand32 && slice < 4 * kWideBands + 2) ? kWideBands : kBands - 1;
  }

  // Byte offset inside a band `width` columns wide.
  static KJIT_DEVICE uint32_t offset_in_band(int width, int row, int chunk) {
    const int chunks = width / kChunkElements;
    const int rows_per_line = 8 / chunks;
    const int stored = kSwizzled ? chunk ^ ((row / rows_per_line) & (chunks - 1)) : chunk;
    return (uint32_t)(row * chunks + stored) * kChunkBytes;
  }
};

// Where a lane's row of an 8x8 matrix lies, for every slice of a tile. Stepping to another slice of a band flips bits
// of the chunk index whether or not it is swizzled, so one offset per band width is enough; the rest are immediates.
template <typename Tile> struct LaneOffsets {
  uint32_t wide, band32, band16;

  // tile_address: 128-byte aligned. row: the lane's row in the tile's first 16 rows, plus any multiple of 8.
  // half: which 8 of a slice's 16 columns.
  KJIT_DEVICE LaneOffsets(uint32_t tile_address, int row, int half)
      : wide(tile_address + Tile::offset_in_band(64, row, half)),
        band32(tile_address + Tile::offset_in_band(32, row, half)),
        band16(tile_address + Tile::offset_in_band(16, row, half)) {}

  // Address for 16-column slice `slice` (a constant after unrolling), `row16` groups of 16 rows further down.
  KJIT_DEVICE uint32_t at(int row16, int slice) const {
    const int band = Tile::slice_band(slice);
    const int width = Tile::band_width(band);
    const int slice_in_band = slice - Tile::band_column(band) / 16;
    const uint32_t base = width == 64 ? wide : width == 32 ? band32 : band16;
    return (base ^ (uint32_t)(slice_in_band * 2 * kChunkBytes)) +
           (uint32_t)(Tile::band_offset(band) + row16 * 16 * width * 2);
  }
};

} // namespace kjit
