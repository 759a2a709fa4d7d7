// In place of kernel_src/kjit/ptx/wgmma.cuh, whose texts are put together from placeholders for every shape: the same
// functions for any shape.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

KJIT_DEVICE void wgmma_fence() {
  emulator->wgmma_fence();
}
KJIT_DEVICE void wgmma_commit_group() {
  emulator->wgmma_commit();
}
template <int kPending> KJIT_DEVICE void wgmma_wait_group() {
  emulator->wgmma_wait(kPending);
}

constexpr bool kWgmmaPartialWaits = true;

template <int kTiles8> KJIT_DEVICE void wgmma_define_accumulators(float (&)[kTiles8][4]) {}

KJIT_DEVICE uint64_t wgmma_descriptor(uint32_t shared, uint32_t band_bytes) {
  return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(band_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}
__device__ constexpr uint64_t wgmma_descriptor_step(int bytes) {
  return (uint64_t)(bytes >> 4);
}

template <typename Element, int kColumns> struct Wgmma {
  static constexpr bool kBf16 = __is_same(Element, Bf16);

  template <bool kTransA = false, bool kTransB = false>
  static KJIT_DEVICE void mma_async_ss(float (&d)[kColumns / 8][4], uint64_t a, uint64_t b, int accumulate) {
    emulator_wgmma product = {&d[0][0], nullptr, a, b, kColumns, kBf16, accumulate != 0, kTransA, kTransB};
    emulator->wgmma(&product);
  }
  template <bool kTransB = false>
  static KJIT_DEVICE void mma_async_rs(float (&d)[kColumns / 8][4], const uint32_t (&a)[4], uint64_t b,
                                       int accumulate) {
    emulator_wgmma product = {&d[0][0], a, 0, b, kColumns, kBf16, accumulate != 0, false, kTransB};
    emulator->wgmma(&product);
  }
};

template <typename Product, int kProducts, bool kTransA = false, bool kTransB = false, int kAtOnce = 4, int kTiles8,
          typename StepA, typename StepB>
KJIT_DEVICE void wgmma_sum_ss(float (&d)[kTiles8][4], uint64_t a, StepA step_a, uint64_t b, StepB step_b,
                              int accumulate) {
  for (int k = 0; k < kProducts; k++)
    Product::template mma_async_ss<kTransA, kTransB>(d, a + step_a(k), b + step_b(k), k > 0 ? 1 : accumulate);
}
template <typename Product, int kProducts, bool kTransB = false, int kAtOnce = 4, int kTiles8, typename StepB>
KJIT_DEVICE void wgmma_sum_rs(float (&d)[kTiles8][4], const uint32_t (*a)[4], uint64_t b, StepB step_b,
                              int accumulate) {
  for (int k = 0; k < kProducts; k++)
    Product::template mma_async_rs<kTransB>(d, a[k], b + step_b(k), k > 0 ? 1 : accumulate);
}

} // namespace kjit

#define KJIT_WGMMA(N, ELEMENT) static_assert((N) % 8 == 0 && (N) <= 256, "a shape that wgmma has");
