// What the instruction of kernel_src/kjit/ptx/stmatrix_trans.cuh does.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"){
    static void run(unsigned shared, unsigned r0, unsigned r1, unsigned r2,
                    unsigned r3){emulator_matrix_access access = {shared, {&r0, &r1, &r2, &r3}, 4, true};
emulator->store_matrix(&access);
}
}
;

#include_next <kjit/ptx/stmatrix_trans.cuh>
