// In place of kernel_src/ptx/wgmma.cuh, whose texts are put together from placeholders for every shape: the same
// functions for any shape.
#pragma once
#include "core/types.cuh"

struct Bf16;

template <typename Element, int kColumns> struct Wgmma {
  static constexpr bool kBf16 = __is_same(Element, Bf16);

  static KJIT_DEVICE void multiply_shared(float (&d)[kColumns / 8][4], uint64_t a, uint64_t b, int accumulate) {
    emulator_wgmma product = {&d[0][0], nullptr, a, b, kColumns, kBf16, accumulate != 0, false};
    emulator->wgmma(&product);
  }
  static KJIT_DEVICE void multiply_registers(float (&d)[kColumns / 8][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
    emulator_wgmma product = {&d[0][0], a, 0, b, kColumns, kBf16, accumulate != 0, true};
    emulator->wgmma(&product);
  }
};

#define KJIT_WGMMA_SHAPE(N, ELEMENT, TYPE) static_assert((N) % 8 == 0 && (N) <= 256, "a shape that wgmma has");
