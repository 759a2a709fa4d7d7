// Conversion from 16-bit values to fp32, which is exact. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The fp32 values of the two 16-bit values in a register, the one of its low half in `low`. The first argument chooses
// the type: cvt_f32_x2(Bf16{}, pair, low, high). A bf16 value is the upper half of an fp32 value.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt"
KJIT_DEVICE void cvt_f32_x2(Fp16, uint32_t pair, float &low, float &high) {
  asm("cvt.f32.f16 %0, %1;" : "=f"(low) : "h"((unsigned short)(pair & 0xffff)));
  asm("cvt.f32.f16 %0, %1;" : "=f"(high) : "h"((unsigned short)(pair >> 16)));
}

KJIT_DEVICE void cvt_f32_x2(Bf16, uint32_t pair, float &low, float &high) {
  low = __uint_as_float(pair << 16);
  high = __uint_as_float(pair & 0xffff0000u);
}

} // namespace kjit
