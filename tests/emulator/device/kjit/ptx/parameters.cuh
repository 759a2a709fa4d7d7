// What the instructions of kernel_src/kjit/ptx/parameters.cuh do: a parameter's address is that of its bytes.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("ld.param::entry.u64 %0, [%1];"){
    static void run(uint64_t & value, uint64_t address){__builtin_memcpy(&value, (const void *)address, sizeof value);
}
}
;

#include_next <kjit/ptx/parameters.cuh>
