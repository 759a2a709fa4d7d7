/* 8-bit floats, e4m3, on the host: a sign, four bits of exponent with a bias of 7, three of fraction; NaN where all but
 * the sign are set, and no infinity. Pure. */
#ifndef KJIT_TESTS_SUPPORT_E4M3_H
#define KJIT_TESTS_SUPPORT_E4M3_H

#include <math.h>
#include <stdint.h>

static inline float e4m3_to_float(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if ((bits & 0x7f) == 0x7f) return NAN;
  return sign * (exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9));
}

/* The nearest value, ties to even; 448 where the value is larger. */
static inline uint8_t e4m3_from_float(float value) {
  const unsigned sign = signbit(value) ? 0x80u : 0u;
  const float magnitude = fminf(fabsf(value), 448.0f);
  if (isnan(value)) return 0x7f;
  int exponent = magnitude > 0 ? ilogbf(magnitude) : -6;
  if (exponent < -6) exponent = -6;
  const float units = nearbyintf(ldexpf(magnitude, 3 - exponent)); /* up to 16, which is 8 of the next exponent */
  return (uint8_t)(sign | ((unsigned)(exponent + 6) * 8u + (unsigned)units));
}

#endif
