// The 16-bit element types, by their bits: the checking kernels take either type at run time.
#pragma once

// Exact.
__device__ __forceinline__ float element_value(unsigned short bits, bool is_bf16) {
  if (is_bf16) return __uint_as_float((unsigned)bits << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// To nearest, ties to even. PTX ISA, "Data Movement and Conversion Instructions: cvt".
__device__ __forceinline__ unsigned short element_bits(float value, bool is_bf16) {
  unsigned short bits;
  if (is_bf16)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// NVRTC has no INFINITY.
__device__ __forceinline__ float minus_infinity() {
  return __uint_as_float(0xFF800000u);
}

// SplitMix64's finaliser: every input bit reaches every output bit.
__device__ __forceinline__ unsigned long long mix_bits(unsigned long long x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
