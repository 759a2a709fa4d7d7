// What the instructions of kernel_src/kjit/ptx/mma.cuh do.
#pragma once
#include <kjit/types.cuh>

// c is read and written, so that "+f" names it once.
struct EmulatorMma {
  template <bool kBf16>
  static void go(float &c0, float &c1, float &c2, float &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                 unsigned b0, unsigned b1) {
    emulator_mma mma = {{&c0, &c1, &c2, &c3}, {a0, a1, a2, a3}, {b0, b1}, kBf16};
    emulator->mma(&mma);
  }
};

EMULATOR_PTX("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"){
    template <typename... Operands> static void run(Operands && ...operands){EmulatorMma::go<false>(operands...);
}
}
;

EMULATOR_PTX("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"){
    template <typename... Operands> static void run(Operands && ...operands){EmulatorMma::go<true>(operands...);
}
}
;

#include_next <kjit/ptx/mma.cuh>
