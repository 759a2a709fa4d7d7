// A row of Q in bf16 as fp16: with the row's largest magnitude from 2^-6 to below 2^15 all elements that count are
// exact. Another row is multiplied by a power of two first, and its scores by the inverse. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

using namespace kjit;

struct RowScale {
  float multiplier, inverse; // 1 where the row fits as it is
};

// The larger of `most`, the bits of a magnitude in bf16, and the magnitudes of a pair: bits are ordered as these are.
KJIT_DEVICE uint32_t fp16_row_larger(uint32_t most, uint32_t pair) {
  const uint32_t low = pair & 0x7fffu, high = pair >> 16 & 0x7fffu;
  most = low > most ? low : most;
  return high > most ? high : most;
}

KJIT_DEVICE RowScale fp16_row_scale(float largest) {
  const int exponent = (int)(__float_as_uint(largest) >> 23);
  if (largest == 0.0f || (exponent >= 127 - 6 && exponent <= 127 + 14)) return {1.0f, 1.0f};
  const int wanted = 127 + 127 + 14 - exponent, bits = wanted < 227 ? wanted : 227;
  return {__uint_as_float((uint32_t)bits << 23), __uint_as_float((uint32_t)(254 - bits) << 23)};
}
