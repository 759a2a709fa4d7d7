// How a block of rows of K or V lies in shared memory as bands of 64 columns of 16 bits, each row of a band 128 bytes
// that TMA swizzles (sm_90). The swizzle's pattern repeats every 8 rows.
//
//   boxes of a band        [band][row][64]: a box of TMA brings rows of one band
//   boxes of all bands     [row / 8][band][row % 8][64]: a box brings rows of all bands, and what it brings lies
//   together
//
// The distances from one band, and from 8 rows, to the next are parts of a descriptor for wgmma.
#pragma once
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>

namespace kjit {

enum { kPatternRows = 8, kBandRowBytes = 128, kPatternBytes = kPatternRows * kBandRowBytes };

template <int kRows, int kBands, bool kGrouped> struct BandedTile {
  static constexpr int kToNextBand = kGrouped ? kPatternBytes : kRows * kBandRowBytes;
  static constexpr int kToNextPattern = kGrouped ? kBands * kPatternBytes : kPatternBytes;

  // Where the index-th 16 bytes of a band are, of which a row has 8.
  static KJIT_DEVICE int chunk_at(int band, int index) {
    const int pattern = index / (kPatternBytes / kChunkBytes);
    return band * kToNextBand + pattern * (kToNextPattern - kPatternBytes) + index * kChunkBytes;
  }

  // As the B operand of S = Q K^T, whose columns are the tile's rows, and of O = P V, whose rows they are. The
  // product's `depth` counts 16 columns of the tile, and 16 rows of it.
  static KJIT_DEVICE uint64_t keys(uint32_t shared) { return descriptor(shared, 16); }
  static __device__ constexpr uint64_t keys_step(int depth) {
    return wgmma_descriptor_step(depth / 4 * kToNextBand + depth % 4 * 32);
  }
  static KJIT_DEVICE uint64_t values(uint32_t shared) { return descriptor(shared, kToNextBand); }
  static __device__ constexpr uint64_t values_step(int depth) {
    return wgmma_descriptor_step(depth * 2 * kToNextPattern);
  }

private:
  static KJIT_DEVICE uint64_t descriptor(uint32_t shared, int to_next_band) {
    return wgmma_descriptor(shared, to_next_band) + ((uint64_t)((kToNextPattern - kPatternBytes) >> 4) << 32);
  }
};

} // namespace kjit
