// What the instructions of kernel_src/kjit/ptx/griddepcontrol.cuh do: nothing, because kernels run one after the other.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("griddepcontrol.wait;"){static void run(){}};

EMULATOR_PTX("griddepcontrol.launch_dependents;"){static void run(){}};

#include_next <kjit/ptx/griddepcontrol.cuh>
