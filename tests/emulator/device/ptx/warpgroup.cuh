// The instructions of kernel_src/ptx/warpgroup.cuh.
#pragma once
#include "core/types.cuh"

EMULATOR_PTX("setmaxnreg.dec.sync.aligned.u32 %0;"){
    static void run(int registers){emulator->set_registers(registers, false);
}
}
;

EMULATOR_PTX("setmaxnreg.inc.sync.aligned.u32 %0;"){
    static void run(int registers){emulator->set_registers(registers, true);
}
}
;

EMULATOR_PTX("wgmma.fence.sync.aligned;"){static void run(){emulator->wgmma_fence();
}
}
;

EMULATOR_PTX("wgmma.commit_group.sync.aligned;"){static void run(){emulator->wgmma_commit();
}
}
;

EMULATOR_PTX("wgmma.wait_group.sync.aligned %0;"){static void run(int pending){emulator->wgmma_wait(pending);
}
}
;

EMULATOR_PTX("bar.sync %0, %1;"){static void run(int barrier, int threads){emulator->barrier_sync(barrier, threads);
}
}
;

EMULATOR_PTX("bar.arrive %0, %1;"){static void run(int barrier, int threads){emulator->barrier_arrive(barrier, threads);
}
}
;

EMULATOR_PTX("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"){
    static void run(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2,
                    uint32_t r3){emulator_matrix_access access = {shared, {&r0, &r1, &r2, &r3}, 4, false};
emulator->store_matrix(&access);
}
}
;

EMULATOR_PTX("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"){
    static void run(uint32_t shared, uint32_t r0,
                    uint32_t r1){emulator_matrix_access access = {shared, {&r0, &r1, nullptr, nullptr}, 2, false};
emulator->store_matrix(&access);
}
}
;

#include_next "ptx/warpgroup.cuh"
