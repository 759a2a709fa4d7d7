// Arrivals at an mbarrier when copies by cp.async are done (sm_90 here; cp_async.cuh has the copies, mbarrier.cuh the
// barriers).
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Arrive once when all copies by cp.async that the calling thread has issued so far have written shared memory, without
// waiting for them here. The arrival counts among those that mbarrier_init() named. Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.mbarrier.arrive" (.noinc)
KJIT_DEVICE void cp_async_mbarrier_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

} // namespace kjit
