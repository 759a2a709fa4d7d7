// What the instruction of kernel_src/kjit/ptx/bulk_load.cuh does.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];"){
    static void run(unsigned shared, const void *global, unsigned barrier,
                    int bytes){emulator->bulk_load(shared, global, barrier, (unsigned)bytes);
}
}
;

#include_next <kjit/ptx/bulk_load.cuh>
