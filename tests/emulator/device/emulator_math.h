// CUDA's arithmetic without a header.
#ifndef KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_MATH_H
#define KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_MATH_H

#include <stdbool.h>

extern "C" {
float fmaxf(float, float);
float fmaf(float, float, float);
float fminf(float, float);
float fabsf(float);
float sqrtf(float);
float expf(float);
float exp2f(float);
float logf(float);
float log2f(float);
float tanhf(float);
float erff(float);
float powf(float, float);
float floorf(float);
float ceilf(float);
float sinf(float);
float cosf(float);
double fmax(double, double);
double fmin(double, double);
double fabs(double);
double sqrt(double);
double exp(double);
double log(double);
}

inline float __fdividef(float a, float b) {
  return a / b;
}
inline float exp(float x) {
  return expf(x);
}
inline float log(float x) {
  return logf(x);
}
inline float fabs(float x) {
  return fabsf(x);
}
template <typename Real> inline bool isfinite(Real x) {
  return __builtin_isfinite(x);
}
template <typename Real> inline bool isnan(Real x) {
  return __builtin_isnan(x);
}

template <typename A, typename B> constexpr auto min(A a, B b) -> decltype(a + b) {
  return a < b ? a : b;
}
template <typename A, typename B> constexpr auto max(A a, B b) -> decltype(a + b) {
  return a > b ? a : b;
}

inline int __clz(int bits) {
  return bits ? __builtin_clz(static_cast<unsigned>(bits)) : 32;
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
// Byte i of the result is the byte of (high, low) that nibble i of `selector` names.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; i++)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
  return result;
}
inline float __int_as_float(int bits) {
  return emulator_bits<float>(bits);
}
inline int __float_as_int(float x) {
  return emulator_bits<int>(x);
}
inline float __uint_as_float(unsigned bits) {
  return emulator_bits<float>(bits);
}
inline unsigned __float_as_uint(float x) {
  return emulator_bits<unsigned>(x);
}

// The nearest float that is not below x.
inline float __double2float_ru(double x) {
  const float near = static_cast<float>(x);
  return static_cast<double>(near) < x ? __builtin_nextafterf(near, __builtin_inff()) : near;
}

// 16-bit types by their bits, to nearest even.
inline float emulator_from_bf16(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

inline unsigned short emulator_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  if (__builtin_isnan(x)) return 0x7fff;
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float emulator_from_fp16(unsigned short bits) {
  const unsigned sign = static_cast<unsigned>(bits & 0x8000u) << 16;
  const unsigned exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

inline unsigned short emulator_to_fp16(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned short sign = static_cast<unsigned short>(bits >> 16 & 0x8000u);
  const float magnitude = fabsf(x);
  if (__builtin_isnan(x)) return 0x7fff;
  if (magnitude >= 65520.0f) return static_cast<unsigned short>(sign | 0x7c00u);
  // Below 2^-14 a step is 2^-24: adding 0.5 leaves the steps in the last bits, rounded as asked.
  if (magnitude < 0x1p-14f)
    return static_cast<unsigned short>(sign | (__float_as_uint(magnitude + 0.5f) - 0x3f000000u));
  const unsigned up = __float_as_uint(magnitude) - (112u << 23);
  return static_cast<unsigned short>(sign | (up + 0xfffu + (up >> 13 & 1u)) >> 13);
}

#endif
