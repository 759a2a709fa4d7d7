// What the instructions of kernel_src/kjit/ptx/barrier.cuh do.
#pragma once
#include <kjit/types.cuh>

EMULATOR_PTX("bar.sync %0, %1;"){static void run(int barrier, int threads){emulator->barrier_sync(barrier, threads);
}
}
;

EMULATOR_PTX("bar.arrive %0, %1;"){static void run(int barrier, int threads){emulator->barrier_arrive(barrier, threads);
}
}
;

#include_next <kjit/ptx/barrier.cuh>
