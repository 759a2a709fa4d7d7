// Tiles in shared memory as wgmma and TMA's 128-byte swizzle take them: what attention_sm90 and attention_short_sm90
// have in common.
//
// A tile lies in bands of 64 columns of 16 bits, [band][rows][64], so that a band's row is 128 bytes; the 16-byte chunk
// of column c of row r lies at chunk c / 8 % 8 XOR r % 8 of that row.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/stmatrix.cuh>
#include <kjit/ptx/wgmma.cuh>
#include <kjit/ring.cuh>
#include <kjit/types.cuh>

namespace bands {

using namespace kjit;

constexpr int kRowBytes = 128;

// What to add to a descriptor for the product `depth`, 16 columns each: 32 bytes within a band; the next band lies
// behind all rows of this one.
KJIT_DEVICE uint64_t step(int rows, int depth) {
  return wgmma_descriptor_step(depth / 4 * rows * kRowBytes + depth % 4 * 32);
}

template <typename Element> KJIT_DEVICE uint32_t pack(const float (&c)[4], int i) {
  return cvt_rn_x2(Element{}, c[i], c[i + 1]);
}

// Write 16 rows of a warp's accumulators, bands first to end - 1 of them, to shared memory at `out`, rounded to 16
// bits, 16 columns at a time. A band has `rows` rows, of which `row` is this lane's: the warp's first plus lane % 16.
template <typename Element, int kColumns8>
KJIT_DEVICE void store(uint32_t out, const float (&o)[kColumns8][4], int rows, int row, int half, int first, int end) {
#pragma unroll
  for (int d = 0; d < (kColumns8 + 1) / 2; d++) {
    if (d / 4 < first || d / 4 >= end) continue;
    const uint32_t row_at = out + (d / 4 - first) * rows * kRowBytes + row * kRowBytes;
    const uint32_t address = row_at + (((d % 4 * 2 + half) ^ (row % 8)) << 4);
    const uint32_t r0 = pack<Element>(o[2 * d], 0), r1 = pack<Element>(o[2 * d], 2);
    if (2 * d + 1 < kColumns8)
      stmatrix_x4(address, r0, r1, pack<Element>(o[2 * d + 1], 0), pack<Element>(o[2 * d + 1], 2));
    else
      stmatrix_x2(address, r0, r1);
  }
}

} // namespace bands
