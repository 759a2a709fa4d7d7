// Registers moved between the warpgroups of a block (sm_90a): setmaxnreg.
//
// A kernel starts with the same number of registers in every thread. A warpgroup that needs few gives some back by
// setmaxnreg_dec(), and one that needs many waits for them in setmaxnreg_inc(). `kRegisters` is per thread, a multiple
// of 8 from 24 to 256. All warps of the warpgroup must execute it, converged, and the kernel needs __launch_bounds__
// with a minimum of blocks per SM; otherwise ptxas ignores the instruction (warning C7504 and the like).
// PTX ISA 9.0, "Miscellaneous Instructions: setmaxnreg"
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Release registers down to `kRegisters`. A whole warpgroup.
template <int kRegisters> KJIT_DEVICE void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Wait until there are enough free registers in the block's pool, and take as many as make `kRegisters`. A whole
// warpgroup.
template <int kRegisters> KJIT_DEVICE void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

} // namespace kjit
