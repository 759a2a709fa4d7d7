/* fp16 and bf16 on the host: conversion in both directions, and the size of a rounding error. Both types are
 * described by three numbers, and all arithmetic is done in double, which holds every value of either exactly; speed
 * does not matter here. No state; any thread may call. */
#include "support/half.h"

#include <math.h>
#include <string.h>

/* A floating-point type: the stored bits of its fraction, and the exponents of its smallest and largest normal numbers.
 */
struct format {
  int fraction_bits;
  int least_exponent;
  int most_exponent;
};

static struct format format_of(int32_t dtype) {
  return dtype == KJIT_BF16 ? (struct format){7, -126, 127} : (struct format){10, -14, 15};
}

float half_to_float(int32_t dtype, uint16_t bits) {
  const struct format format = format_of(dtype);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent_mask = 2 * format.most_exponent + 1;
  const int biased = (bits >> format.fraction_bits) & exponent_mask;
  const float sign = (bits & 0x8000u) ? -1.0f : 1.0f;
  if (biased == exponent_mask) return fraction ? NAN : sign * INFINITY;
  const int significand = biased ? fraction | (1 << format.fraction_bits) : fraction;
  const int exponent = biased ? biased - format.most_exponent : format.least_exponent;
  return sign * ldexpf((float)significand, exponent - format.fraction_bits);
}

/* The distance between neighbouring values of the type at this magnitude. */
static double spacing(struct format format, double magnitude) {
  int exponent = format.least_exponent;
  if (magnitude > 0) exponent = ilogb(magnitude);
  if (exponent < format.least_exponent) exponent = format.least_exponent;
  return ldexp(1.0, exponent - format.fraction_bits);
}

uint16_t half_from_float(int32_t dtype, float value) {
  const struct format format = format_of(dtype);
  const unsigned sign = signbit(value) ? 0x8000u : 0u;
  const unsigned infinity = (unsigned)(2 * format.most_exponent + 1) << format.fraction_bits;
  if (isnan(value)) return (uint16_t)(sign | infinity | 1u);
  if (isinf(value)) return (uint16_t)(sign | infinity);
  const double magnitude = fabs((double)value), step = spacing(format, magnitude);
  const double rounded = nearbyint(magnitude / step) * step;
  if (rounded >= ldexp(1.0, format.most_exponent + 1)) return (uint16_t)(sign | infinity);
  const double final_step = spacing(format, rounded);
  const unsigned units = (unsigned)(rounded / final_step);
  if (units < 1u << format.fraction_bits) return (uint16_t)(sign | units);
  const int biased = ilogb(rounded) + format.most_exponent;
  return (uint16_t)(sign | ((unsigned)biased << format.fraction_bits) | (units - (1u << format.fraction_bits)));
}

double half_rounding_error(int32_t dtype, double magnitude) {
  return spacing(format_of(dtype), magnitude) / 2;
}
