// What the instructions of kernel_src/kjit/ptx/cvt.cuh do.
#pragma once
#include <kjit/types.cuh>

// The first source becomes the upper half.
EMULATOR_PTX("cvt.rn.f16x2.f32 %0, %1, %2;"){static void run(unsigned &r, float high, float low){
    r = static_cast<unsigned>(emulator_to_fp16(high)) << 16 | emulator_to_fp16(low);
}
}
;

EMULATOR_PTX("cvt.rn.bf16x2.f32 %0, %1, %2;"){static void run(unsigned &r, float high, float low){
    r = static_cast<unsigned>(emulator_to_bf16(high)) << 16 | emulator_to_bf16(low);
}
}
;

#include_next <kjit/ptx/cvt.cuh>
