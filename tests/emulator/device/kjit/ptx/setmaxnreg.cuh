// What the instructions of kernel_src/kjit/ptx/setmaxnreg.cuh do.
#pragma once
#include <kjit/types.cuh>

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

#include_next <kjit/ptx/setmaxnreg.cuh>
