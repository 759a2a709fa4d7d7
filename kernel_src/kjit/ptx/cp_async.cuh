// Copies from global to shared memory that do not pass through registers: cp.async and its groups (sm_80 and later).
//
// A thread issues copies, closes them into a group by cp_async_commit_group(), and waits for its groups in their order.
// Other threads see the data only after a barrier that follows the wait.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Copy 16 bytes. L1 is bypassed, and the whole 128-byte line is prefetched into L2.
//   shared  shared::cta address, 16-byte aligned
//   global  16-byte aligned
// Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async"
KJIT_DEVICE void cp_async_16(uint32_t shared, const void *global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

// Like cp_async_16() when `inside`; otherwise write 16 zero bytes and read nothing (the operand src-size is then 0).
// Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async"
KJIT_DEVICE void cp_async_16_zfill(uint32_t shared, const void *global, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(inside ? kChunkBytes : 0)
               : "memory");
}

// Like cp_async_16(), of which only the first `bytes` (0 to 16) are read; the others are written as zeros.
// Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async" (src-size)
KJIT_DEVICE void cp_async_16_first(uint32_t shared, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes)
               : "memory");
}

// Close the calling thread's copies since its last call into one group. Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.commit_group"
KJIT_DEVICE void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most `kPending` of the calling thread's latest groups are unfinished. The data of the finished ones is
// visible to this thread. Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.wait_group, cp.async.wait_all"
template <int kPending> KJIT_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

} // namespace kjit
