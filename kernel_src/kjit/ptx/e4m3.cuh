// Conversions between 8-bit floating point, e4m3, and wider types. Each thread by itself.
//
// e4m3 has a sign, four bits of exponent and three of mantissa: 448 is its largest value, 2^-9 its least above zero; it
// has NaN and no infinity. fp16 holds each of its values exactly. From sm_89 on instructions convert; before, integer
// operations do, for which a NaN is 480.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Four e4m3 values as fp16: the first two of `word` (its low half) in `low`, the others in `high`.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt"
KJIT_DEVICE void widen_e4m3(uint32_t word, uint32_t &low, uint32_t &high) {
#if __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 first, second; mov.b32 {first, second}, %2; "
      "cvt.rn.f16x2.e4m3x2 %0, first; cvt.rn.f16x2.e4m3x2 %1, second; }"
      : "=r"(low), "=r"(high)
      : "r"(word));
#else
  // A value's bits, moved to fp16's places, are the value times 2^-8, also where it is subnormal.
  const uint32_t odd = word & 0xff00ff00u, even = (word & 0x00ff00ffu) << 8;
  const uint32_t odds = (odd & 0x80008000u) | (odd & 0x7f007f00u) >> 1;
  const uint32_t evens = (even & 0x80008000u) | (even & 0x7f007f00u) >> 1;
  low = (odds & 0xffffu) << 16 | (evens & 0xffffu);
  high = (odds & 0xffff0000u) | evens >> 16;
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(low) : "r"(0x5c005c00u)); // 256
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(high) : "r"(0x5c005c00u));
#endif
}

// The bits of a magnitude up to 448, rounded to nearest even.
KJIT_DEVICE uint32_t e4m3_magnitude(float magnitude) {
  const float least_normal = 0.015625f, subnormals = 16384.0f; // 2^-6; 2^14, whose neighbours are 2^-9 apart
  if (magnitude < least_normal) return __float_as_uint(magnitude + subnormals) - __float_as_uint(subnormals);
  const uint32_t bits = __float_as_uint(magnitude);
  return ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - (120u << 3); // of the exponents' biases 127 and 7
}

KJIT_DEVICE uint32_t e4m3_bits(float value) {
  const uint32_t sign = __float_as_uint(value) >> 24 & 0x80u;
  const float magnitude = __uint_as_float(__float_as_uint(value) & 0x7fffffffu);
  if (magnitude != magnitude) return 0x7fu;
  return sign | e4m3_magnitude(magnitude < 448.0f ? magnitude : 448.0f);
}

// Round two fp32 values to e4m3, to nearest even; what is too large becomes 448, NaN stays NaN. `low` lands in bits 0
// to 7, `high` in 8 to 15.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt"
KJIT_DEVICE uint32_t cvt_e4m3_x2(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint32_t r;
  asm("{ .reg .b16 pair; cvt.rn.satfinite.e4m3x2.f32 pair, %1, %2; cvt.u32.u16 %0, pair; }"
      : "=r"(r)
      : "f"(high), "f"(low));
  return r;
#else
  return e4m3_bits(low) | e4m3_bits(high) << 8;
#endif
}

// The quotient, rounded to nearest even, whatever --use_fast_math makes of a division.
// PTX ISA 9.0, "Floating Point Instructions: div"
KJIT_DEVICE float div_rn(float dividend, float divisor) {
  float r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(dividend), "f"(divisor));
  return r;
}

} // namespace kjit
