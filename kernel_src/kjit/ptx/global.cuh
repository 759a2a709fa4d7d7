// Global memory between blocks of threads: a counter by which they meet, and fetching ahead. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Add to a word, after all that the thread has written or seen written; what others wrote before they added to it is
// visible afterwards. @return the word before
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: atom" (.acq_rel)
KJIT_DEVICE uint32_t atom_acq_rel_add(int *global, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(global), "r"(value) : "memory");
  return before;
}

// Load a word; what was written before another thread's atom_acq_rel_add() to it is then visible.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: ld" (.acquire)
KJIT_DEVICE uint32_t ld_acquire_u32(const int *global) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

// Fetch the line of an address into L2; nobody waits for it.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: prefetch, prefetchu"
KJIT_DEVICE void prefetch_l2(const void *global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

} // namespace kjit
