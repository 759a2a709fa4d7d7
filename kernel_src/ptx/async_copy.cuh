// Global to shared memory without registers: cp.async and its groups (sm_80 and later).
#pragma once
#include "core/types.cuh"

// Copy 16 bytes, bypassing L1, with the whole 128-byte line prefetched into L2.
//   shared  shared::cta address, 16-byte aligned
//   global  16-byte aligned
// Orders: nothing until async_copy_wait(). Any subset of threads.
// PTX ISA 9.0 (CUDA 13.0), "cp.async",
//   archive/13.0.0 #data-movement-and-conversion-instructions-cp-async
KJIT_DEVICE void async_copy_16(uint32_t shared, const void *global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

// The same when `inside`; else write 16 zero bytes and read nothing. Source as above.
KJIT_DEVICE void async_copy_16_or_zero(uint32_t shared, const void *global, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(inside ? kChunkBytes : 0)
               : "memory");
}

// Close this thread's group of the copies issued so far. PTX ISA 9.0, "cp.async.commit_group".
KJIT_DEVICE void async_copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most `kPending` of this thread's latest groups are unfinished; what finished is visible to this thread.
// PTX ISA 9.0, "cp.async.wait_group, cp.async.wait_all".
template <int kPending> KJIT_DEVICE void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
