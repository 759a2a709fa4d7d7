// What the instructions of kernel_src/kjit/ptx/ldmatrix.cuh do.
#pragma once
#include <kjit/types.cuh>

inline void emulator_load_matrix(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3, unsigned shared,
                                 bool transposed) {
  emulator_matrix_access access = {shared, {&r0, &r1, &r2, &r3}, 4, transposed};
  emulator->load_matrix(&access);
}

EMULATOR_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"){
    static void run(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3,
                    unsigned shared){emulator_load_matrix(r0, r1, r2, r3, shared, false);
}
}
;

EMULATOR_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"){
    static void run(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3,
                    unsigned shared){emulator_load_matrix(r0, r1, r2, r3, shared, true);
}
}
;

#include_next <kjit/ptx/ldmatrix.cuh>
