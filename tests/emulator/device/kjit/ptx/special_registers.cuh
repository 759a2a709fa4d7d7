// What the instructions of kernel_src/kjit/ptx/special_registers.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("mov.u32 %0, %%tid.x;"){static void run(int &thread){thread = static_cast<int>(threadIdx.x);
}
}
;

#include_next <kjit/ptx/special_registers.cuh>
