// What the instructions of kernel_src/kjit/ptx/math.cuh do.
#pragma once
#include <kjit/types.cuh>

// .ftz: a subnormal number is zero.
inline float emulator_flushed(float x) {
  return fabsf(x) < 0x1p-126f ? 0.0f * x : x;
}

EMULATOR_PTX("ex2.approx.ftz.f32 %0, %1;"){
    static void run(float &y, float x){y = emulator_flushed(exp2f(emulator_flushed(x)));
}
}
;

EMULATOR_PTX("lg2.approx.ftz.f32 %0, %1;"){static void run(float &y, float x){y = log2f(emulator_flushed(x));
}
}
;

EMULATOR_PTX("rcp.approx.ftz.f32 %0, %1;"){
    static void run(float &y, float x){y = emulator_flushed(1.0f / emulator_flushed(x));
}
}
;

#include_next <kjit/ptx/math.cuh>
