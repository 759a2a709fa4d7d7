// Named barriers of a block: bar (all architectures).
//
// A block has barriers 0 to 15; __syncthreads() is barrier 0. `threads` is how many threads take part in all, those
// that wait and those that only arrive, a multiple of 32. Every thread of a warp that calls one of these functions
// counts. PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: bar, barrier"
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Arrive, and wait until `threads` threads have arrived. Their writes to shared memory are then visible. Whole warps.
KJIT_DEVICE void bar_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrive without waiting. Whole warps.
KJIT_DEVICE void bar_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

} // namespace kjit
