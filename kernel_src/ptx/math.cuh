// Approximate transcendental functions of the multi-function unit, and quad shuffles.
#pragma once
#include "core/types.cuh"

// 2^x; 2^-inf = 0. Relative error below 2^-22. PTX ISA 9.0, "ex2".
KJIT_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x). PTX ISA 9.0, "lg2".
KJIT_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Largest and sum over the four lanes of a quad: the lanes that share a row of an accumulator.
KJIT_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
}

KJIT_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 2);
  return x + __shfl_xor_sync(0xffffffffu, x, 1);
}

// The first lane's value.
KJIT_DEVICE int from_first_lane(uint32_t x) {
  return (int)__shfl_sync(0xffffffffu, x, 0);
}
