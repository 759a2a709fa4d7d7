// The instructions of kernel_src/ptx/matrix.cuh.
#pragma once
#include "core/types.cuh"

inline void emulator_load_matrix(uint32_t &r0, uint32_t &r1, uint32_t &r2, uint32_t &r3, uint32_t shared,
                                 bool transposed) {
  emulator_matrix_access access = {shared, {&r0, &r1, &r2, &r3}, 4, transposed};
  emulator->load_matrix(&access);
}

EMULATOR_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"){
    static void run(uint32_t & r0, uint32_t &r1, uint32_t &r2, uint32_t &r3,
                    uint32_t shared){emulator_load_matrix(r0, r1, r2, r3, shared, false);
}
}
;

EMULATOR_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"){
    static void run(uint32_t & r0, uint32_t &r1, uint32_t &r2, uint32_t &r3,
                    uint32_t shared){emulator_load_matrix(r0, r1, r2, r3, shared, true);
}
}
;

// c is read and written, so that "+f" names it once.
struct EmulatorMma {
  template <bool kBf16>
  static void go(float &c0, float &c1, float &c2, float &c3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                 uint32_t b0, uint32_t b1) {
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

// The first source becomes the upper half.
EMULATOR_PTX("cvt.rn.f16x2.f32 %0, %1, %2;"){static void run(uint32_t & r, float high, float low){
    r = static_cast<uint32_t>(emulator_to_fp16(high)) << 16 | emulator_to_fp16(low);
}
}
;

EMULATOR_PTX("cvt.rn.bf16x2.f32 %0, %1, %2;"){static void run(uint32_t & r, float high, float low){
    r = static_cast<uint32_t>(emulator_to_bf16(high)) << 16 | emulator_to_bf16(low);
}
}
;

#include_next "ptx/matrix.cuh"
