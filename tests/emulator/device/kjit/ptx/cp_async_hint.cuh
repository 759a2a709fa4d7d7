// What the instruction of kernel_src/kjit/ptx/cp_async_hint.cuh does. Which data stays in L2 is not looked at.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"){
    static void run(unsigned shared, const void *global, int bytes,
                    unsigned long long){emulator->async_copy(shared, global, static_cast<unsigned>(bytes));
}
}
;

#include_next <kjit/ptx/cp_async_hint.cuh>
