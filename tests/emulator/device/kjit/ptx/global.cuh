// What the instructions of kernel_src/kjit/ptx/global.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"){
    static void run(unsigned &before, int *global,
                    unsigned value){before = (unsigned)emulator_add(global, (int)value, EMULATOR_BOTH);
}
}
;

EMULATOR_PTX("ld.acquire.gpu.global.u32 %0, [%1];"){static void run(unsigned &value, const int *global){
    emulator->load_atomic(&value, global, sizeof value, EMULATOR_ACQUIRES);
}
}
;

EMULATOR_PTX("prefetch.global.L2 [%0];"){static void run(const void *){}};

#include_next <kjit/ptx/global.cuh>
