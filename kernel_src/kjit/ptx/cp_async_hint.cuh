// Copies from global to shared memory by cp.async with a cache policy (sm_80 and later); cp_async.cuh has the others,
// and how they are waited for.
#pragma once
#include <kjit/ptx/cache_policy.cuh>
#include <kjit/types.cuh>

namespace kjit {

// Copy the first `bytes` (0 to 16) of 16 bytes; the others are written as zeros. L1 is bypassed, and the whole 128-byte
// line is prefetched into L2, where the policy says how soon it is replaced: kReadOften or kReadOnce.
//   shared  shared::cta address, 16-byte aligned
//   global  16-byte aligned
// Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async" (.level::cache_hint, src-size)
KJIT_DEVICE void cp_async_16_with(uint64_t policy, uint32_t shared, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
               "r"(bytes), "l"(policy)
               : "memory");
}

} // namespace kjit
