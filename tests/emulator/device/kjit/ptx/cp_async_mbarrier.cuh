// What the instructions of kernel_src/kjit/ptx/cp_async_mbarrier.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"){
    static void run(unsigned barrier){emulator->async_copy_arrive(barrier);
}
}
;

#include_next <kjit/ptx/cp_async_mbarrier.cuh>
