// What the instructions of kernel_src/kjit/ptx/cp_async.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"){
    static void run(unsigned shared, const void *global){emulator->async_copy(shared, global, 16);
}
}
;

EMULATOR_PTX("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"){
    static void run(unsigned shared, const void *global,
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

#include_next <kjit/ptx/cp_async.cuh>
