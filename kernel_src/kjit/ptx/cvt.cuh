// Conversions from fp32 to pairs of 16-bit values. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Round two fp32 values to nearest even and pack them into one register, `low` in its low half. The first argument
// chooses the type: cvt_rn_x2(Bf16{}, low, high).
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt"
KJIT_DEVICE uint32_t cvt_rn_x2(Fp16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

KJIT_DEVICE uint32_t cvt_rn_x2(Bf16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

} // namespace kjit
