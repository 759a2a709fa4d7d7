// Adding shared memory to global memory by the bulk copy engine (sm_90), and taking turns at it.
//
// A sum: all threads that wrote the shared memory call fence_async_proxy() (tma.cuh) and then pass a barrier; one
// thread calls bulk_reduce_add_f32() and cp_async_bulk_commit_group(), and waits for its groups before the shared
// memory is written again. Each element is added by itself, in no order among blocks of threads. Where the order
// matters, a block waits for its turn before it adds, and passes the turn on after its additions have reached global
// memory:
//   while (ld_acquire(turn) != mine) continue;
//   fence_async_proxy_global(); bulk_reduce_add_f32(...); cp_async_bulk_commit_group();
//   cp_async_bulk_wait_group<0>(); red_release_add(turn, 1);
// Behind that wait no fence is needed, because the completion of the copy is one (PTX ISA 9.0, "Async proxy").
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Add `bytes` bytes of fp32 values in shared memory to as many in global memory. One thread.
//   global  16-byte aligned
//   shared  shared::cta address, 16-byte aligned
//   bytes   a multiple of 16
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.reduce.async.bulk"
KJIT_DEVICE void bulk_reduce_add_f32(void *global, uint32_t shared, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global), "r"(shared),
               "r"(bytes)
               : "memory");
}

// The same as a copy: what was in global memory is written over.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk"
KJIT_DEVICE void bulk_store(void *global, uint32_t shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
               : "memory");
}

// Four fp32 values into shared memory, 16-byte aligned, where the copy engine adds them from. Each thread by itself.
// Accumulators of wgmma must go there as the floating-point values that they are: were their bits an integer anywhere,
// the compiler would move them between registers while products are in flight, and ptxas serialise these (C7514).
// PTX ISA 9.0, "Data Movement and Conversion Instructions: st"
KJIT_DEVICE void st_shared_f32_x4(uint32_t shared, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// Add four fp32 values to global memory, 16-byte aligned; each by itself, in no order among threads. Each thread by
// itself. PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: red" (.v4)
KJIT_DEVICE void red_add_f32_x4(void *global, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// Order the calling thread's ordinary accesses to global memory, and those that it has seen, before and after what the
// copy engine does for it. PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: membar, fence"
// (fence.proxy.async.global)
KJIT_DEVICE void fence_async_proxy_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Load 16 bytes of global memory that other blocks have written while the kernel runs, once the calling thread knows
// that they are there. They are kept out of L1.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: ld" (.level::eviction_priority)
KJIT_DEVICE Chunk ld_global_16(const void *global) {
  Chunk c;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "l"(global)
               : "memory");
  return c;
}

// Load a word of global memory; what was written before another thread's red_release_add() to it is then visible.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: ld" (.acquire)
KJIT_DEVICE int ld_acquire(const int *global) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

// Add to a word of global memory, after all that the thread has written or seen written.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: red" (.release)
KJIT_DEVICE void red_release_add(int *global, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

} // namespace kjit
