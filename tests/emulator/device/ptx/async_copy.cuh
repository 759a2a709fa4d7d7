// The instructions of kernel_src/ptx/async_copy.cuh.
#pragma once
#include "core/types.cuh"

EMULATOR_PTX("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"){
    static void run(uint32_t shared, const void *global){emulator->async_copy(shared, global, 16);
}
}
;

EMULATOR_PTX("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"){
    static void run(uint32_t shared, const void *global,
                    int bytes){emulator->async_copy(shared, global, static_cast<unsigned>(bytes));
}
}
;

EMULATOR_PTX("cp.async.commit_group;"){static void run(){emulator->async_copy_commit();
}
}
;

EMULATOR_PTX("cp.async.wait_group %0;"){static void run(int pending){emulator->async_copy_wait(pending);
}
}
;

#include_next "ptx/async_copy.cuh"
