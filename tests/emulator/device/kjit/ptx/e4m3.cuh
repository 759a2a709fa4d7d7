// What the instructions of kernel_src/kjit/ptx/e4m3.cuh do.
#pragma once
#include <kjit/types.cuh>

inline unsigned emulator_e4m3_to_fp16(unsigned bits) {
  const unsigned exponent = bits >> 3 & 15u, mantissa = bits & 7u;
  if ((bits & 0x7fu) == 0x7fu) return 0x7fff;
  const float magnitude =
      exponent ? __uint_as_float((exponent + 120) << 23 | mantissa << 20) : static_cast<float>(mantissa) * 0x1p-9f;
  return emulator_to_fp16(bits & 0x80u ? -magnitude : magnitude);
}

// The nearest value, found by looking at all of them: ties go to the one with an even mantissa.
inline unsigned emulator_to_e4m3(float x) {
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return 0x7f;
  unsigned nearest = 0;
  float least = __builtin_inff();
  for (unsigned bits = 0; bits < 0x7f; bits++) {
    const float far = fabsf(emulator_from_fp16(static_cast<unsigned short>(emulator_e4m3_to_fp16(bits))) - fabsf(x));
    if (far < least || (far == least && bits % 2 == 0)) {
      nearest = bits;
      least = far;
    }
  }
  if (fabsf(x) > 448.0f) nearest = 0x7e;
  return sign | nearest;
}

EMULATOR_PTX("{ .reg .b16 first, second; mov.b32 {first, second}, %2; "
             "cvt.rn.f16x2.e4m3x2 %0, first; cvt.rn.f16x2.e4m3x2 %1, second; }"){
    static void run(unsigned &low, unsigned &high, unsigned word){low = emulator_e4m3_to_fp16(word >> 8 & 0xffu) << 16 |
                                                                        emulator_e4m3_to_fp16(word & 0xffu);
high = emulator_e4m3_to_fp16(word >> 24) << 16 | emulator_e4m3_to_fp16(word >> 16 & 0xffu);
}
}
;

EMULATOR_PTX("mul.rn.f16x2 %0, %0, %1;"){static void run(unsigned &word, unsigned factors){unsigned product = 0;
for (int shift = 0; shift < 32; shift += 16)
  product |= static_cast<unsigned>(emulator_to_fp16(emulator_from_fp16(static_cast<unsigned short>(word >> shift)) *
                                                    emulator_from_fp16(static_cast<unsigned short>(factors >> shift))))
             << shift;
word = product;
}
}
;

EMULATOR_PTX("{ .reg .b16 pair; cvt.rn.satfinite.e4m3x2.f32 pair, %1, %2; cvt.u32.u16 %0, pair; }"){
    static void run(unsigned &r, float high, float low){r = emulator_to_e4m3(high) << 8 | emulator_to_e4m3(low);
}
}
;

EMULATOR_PTX("div.rn.f32 %0, %1, %2;"){static void run(float &r, float dividend, float divisor){r = dividend / divisor;
}
}
;

#include_next <kjit/ptx/e4m3.cuh>
