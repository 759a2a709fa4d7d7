// 16-bit values as fp32, exactly. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

using namespace kjit;

KJIT_DEVICE float element_value(Fp16, uint32_t bits) {
  const unsigned short half = (unsigned short)bits;
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}

KJIT_DEVICE float element_value(Bf16, uint32_t bits) {
  return __uint_as_float(bits << 16);
}

// The two values of a register: the low half first.
template <typename Element> KJIT_DEVICE void element_pair(uint32_t word, float &low, float &high) {
  low = element_value(Element{}, word & 0xffffu);
  high = element_value(Element{}, word >> 16);
}
