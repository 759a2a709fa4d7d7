// Approximate functions of the special function unit. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

constexpr float kLog2E = 1.4426950408889634f; // log2(e)
constexpr float kLn2 = 0.6931471805599453f;   // ln(2)

// 2^x, with a relative error below 2^-22; 2^-inf is 0. Subnormal operands and results are flushed to zero.
// PTX ISA 9.0, "Floating Point Instructions: ex2"
KJIT_DEVICE float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x); log2(0) is -inf. Subnormal operands are flushed to zero.
// PTX ISA 9.0, "Floating Point Instructions: lg2"
KJIT_DEVICE float lg2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, with a relative error of at most 1 ulp; 1 / inf is 0. Subnormal operands and results are flushed to zero.
// PTX ISA 9.0, "Floating Point Instructions: rcp"
KJIT_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

} // namespace kjit
