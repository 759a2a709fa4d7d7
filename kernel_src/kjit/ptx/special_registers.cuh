// Special registers. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The thread's index in a one-dimensional block, read from %tid.x at this point of the program. Code off the main path
// uses it instead of threadIdx.x, because what the compiler derives from threadIdx.x would occupy registers all along.
// PTX ISA 9.0, "Special Registers: %tid"
KJIT_DEVICE int read_tid_x() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

} // namespace kjit
