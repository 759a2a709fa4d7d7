// What the instruction with five coordinates of kernel_src/kjit/ptx/tma_hint.cuh does; tma.cuh here has the one with
// four. Which data stays in L2 is not looked at.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
             " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;"){
    static void run(unsigned shared, const void *map, unsigned barrier, int c0, int c1, int c2, int c3, int c4,
                    unsigned long long){const int at[5] = {c0, c1, c2, c3, c4};
emulator->tensor_load(shared, map, barrier, at, 5);
}
}
;

#include_next <kjit/ptx/tma_hint.cuh>
