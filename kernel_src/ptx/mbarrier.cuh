// Barriers in shared memory that count arrivals and bytes (sm_90): mbarrier objects, 8 bytes, 8-byte aligned.
// PTX ISA 9.0 (CUDA 13.0), "Parallel Synchronization and Communication Instructions: mbarrier",
//   archive/13.0.0 #parallel-synchronization-and-communication-instructions-mbarrier
#pragma once
#include "core/types.cuh"

// Make a barrier whose phase completes after `arrivals` arrivals and all expected bytes. One thread.
KJIT_DEVICE void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Make initialised barriers visible to the tensor copy engine. The thread that initialised them, before a block
// barrier.
KJIT_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive. Orders: release at block scope.
KJIT_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive and let the phase also wait for `bytes` from the copy engine.
KJIT_DEVICE void mbarrier_arrive_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Wait until the phase with the given parity has completed: 0 for the first, then alternating; waiting for parity 1 on
// a fresh barrier returns at once. Orders: acquire at block scope. Any subset of threads.
KJIT_DEVICE void mbarrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{ .reg .pred done; RETRY: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra RETRY; }" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
}
