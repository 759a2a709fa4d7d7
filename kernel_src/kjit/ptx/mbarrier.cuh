// Barriers in shared memory that count arrivals and bytes (sm_90): mbarrier objects of 8 bytes, 8-byte aligned.
//
// A barrier goes through phases. A phase completes when as many arrivals as mbarrier_init() named have come and all
// bytes that were expected of asynchronous copies have been written. `barrier` is a shared::cta address everywhere.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier"
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Make a barrier whose phases complete after `arrivals` arrivals and all expected bytes. One thread.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.init"
KJIT_DEVICE void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Make initialised barriers visible to TMA and to the other blocks of the cluster. The thread that initialised them,
// before the barrier of the block or of the cluster that all threads then pass.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: membar, fence" (fence.mbarrier_init)
KJIT_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive once. Release semantics at block scope: the calling thread's earlier writes are visible to whoever waits for
// the phase. Each thread by itself.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.arrive"
KJIT_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive once in the threads for which `condition` holds. Release semantics at block scope. Any threads.
//
// With ptxas of CUDA 12.0 to 12.8 the instruction carries a predicate instead of being branched over, because a branch
// between products of wgmma costs these compilers registers, up to spilling some.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.arrive", "Predicated Execution"
KJIT_DEVICE void mbarrier_arrive_if(uint32_t barrier, bool condition) {
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 9
  asm volatile(
      "{ .reg .pred arrives; setp.ne.s32 arrives, %1, 0; @arrives mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(
          barrier),
      "r"((int)condition)
      : "memory");
#else
  if (condition) mbarrier_arrive(barrier);
#endif
}

// Arrive once in lane 0, not before what the warp has loaded from shared memory is in its registers: for a buffer that
// TMA fills again, because ptxas lets an arrival overtake loads that nothing has waited for yet, and TMA's writes,
// which are of another proxy, are not ordered behind such loads. Release semantics at block scope. Whole warps.
//   read  some bits of a register of each load that may be on its way; the address of the arrival is made to depend on
//         them, by bits that are 0 in lane 0, so that the instruction waits for them
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.arrive"
KJIT_DEVICE void mbarrier_arrive_when_read(uint32_t barrier, int lane, uint32_t read) {
  asm volatile(
      "{ .reg .pred arrives; .reg .b32 at; and.b32 at, %1, %2; add.u32 at, at, %0; setp.eq.s32 arrives, %1, 0; "
      "@arrives mbarrier.arrive.shared::cta.b64 _, [at]; }" ::"r"(barrier),
      "r"(lane), "r"(read)
      : "memory");
}

// Arrive once, and let the current phase also wait for `bytes` that TMA will write. One thread, before or after it
// issues the copies.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.arrive" (.expect_tx)
KJIT_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrive once at a barrier of any block of the cluster: `barrier` is a shared::cluster address (cluster.cuh, mapa()).
// Each thread by itself.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.arrive" (.shared::cluster)
KJIT_DEVICE void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Like mbarrier_arrive_cluster() without release: for a thread that has only read, by wgmma or TMA, and whose reads are
// over, because then nothing needs to be made visible and the fence that a release at cluster scope costs is not
// needed. PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.arrive" (.relaxed)
KJIT_DEVICE void mbarrier_arrive_cluster_relaxed(uint32_t barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Wait until the phase with the given parity has completed: 0 for the first phase, then alternating. Waiting for parity
// 1 on a fresh barrier returns at once, as if the phase before the first had completed. Acquire semantics at block
// scope. Any threads.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait"
KJIT_DEVICE void mbarrier_wait_parity(uint32_t barrier, int parity) {
  asm volatile(
      "{ .reg .pred done; RETRY: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra RETRY; }" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
}

} // namespace kjit
