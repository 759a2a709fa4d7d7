// What happens to an accumulator before it is stored: alpha, bias, activation, residual. Everything is fp32.
#pragma once
#include "config.cuh"
#include "params.cuh"
#include <kjit/ptx/math.cuh>

// Two 16-bit values of a word as fp32, and one.
KJIT_DEVICE float to_float(Bf16, uint32_t bits) {
  return __uint_as_float(bits << 16);
}
KJIT_DEVICE float to_float(Fp16, uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)bits));
  return value;
}
struct Pair {
  float low, high;
};
KJIT_DEVICE Pair to_floats(uint32_t word) {
  return {to_float(cfg::Element{}, word & 0xffff), to_float(cfg::Element{}, word >> 16)};
}

// Elements `at` and `at` + 1 of which those below `end` exist; the others come as zeros. `at` is even and `row` 4-byte
// aligned, so that both come by one load.
KJIT_DEVICE uint32_t load_pair(const void *row, int at, int end) {
  if (at + 1 < end) return *(const uint32_t *)((const char *)row + (int64_t)at * 2);
  if (at < end) return *(const unsigned short *)((const char *)row + (int64_t)at * 2);
  return 0;
}

// 1 / (1 + exp(-x)): ex2 and rcp of the multi-function unit, relative error about 1e-6.
KJIT_DEVICE float sigmoid(float x) {
  return rcp_approx(1.0f + ex2_approx(-kLog2E * x));
}

// x * Phi(x), Phi the normal distribution's integral: PyTorch's gelu, not its tanh form. ln(Phi / (1 - Phi)) is odd and
// nearly linear, so that a short odd polynomial in front of the sigmoid gives gelu with an absolute error below 1e-5
// and, from -3 on, a relative one below 3e-4, at half the instructions of erf. The coefficients are a weighted minimax
// fit over [-5.5, 5.5], times log2(e); beyond it the polynomial grows on, and Phi is 0 or 1 to within 1e-8.
KJIT_DEVICE float gelu(float x) {
  const float square = x * x;
  float slope = 2.3954967e-06f;
  slope = fmaf(slope, square, -6.8219558e-05f);
  slope = fmaf(slope, square, -5.0907552e-04f);
  slope = fmaf(slope, square, 1.0560956e-01f);
  slope = fmaf(slope, square, 2.3017894e+00f);
  return x * rcp_approx(1.0f + ex2_approx(-slope * x));
}

// alpha * x + bias through the activation, or plus the residual; what the config does not have is not passed on.
KJIT_DEVICE float finish(float x, float alpha, float bias, float residual) {
  if constexpr (cfg::kHasResidual) return fmaf(alpha, x, residual);
  x = cfg::kHasBias ? fmaf(alpha, x, bias) : alpha * x;
  if constexpr (cfg::kEpilogue == cfg::kBiasGelu) return gelu(x);
  if constexpr (cfg::kEpilogue == cfg::kBiasSilu) return x * sigmoid(x);
  return x;
}
