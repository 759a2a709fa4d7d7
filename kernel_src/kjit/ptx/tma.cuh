// Boxes of tensors between global and shared memory by TMA, the Tensor Memory Accelerator (sm_90).
//
// The host describes a tensor of 1 to 5 dimensions and the box that one copy moves by a tensor map
// (cuTensorMapEncodeTiled), which the kernel receives inside a __grid_constant__ parameter. Coordinates name the box's
// first element, innermost dimension first; what lies outside the tensor is read as zeros and is not written.
//
// A load: one thread calls mbarrier_arrive_expect_tx() with the box's bytes and tma_load(); whoever uses the data waits
// for the mbarrier. A store: all threads that wrote the box call fence_async_proxy(), then pass a barrier; one thread
// calls tma_store() and cp_async_bulk_commit_group(), and waits for its groups before the memory is used again.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.tensor"
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The driver's CUtensorMap, opaque. It must lie in a __grid_constant__ parameter, in __constant__ or in global memory.
struct alignas(64) TensorMap {
  char bytes[128];
};

// Copy the box at (c0, c1, ...) of a tensor of as many dimensions to shared memory. All bytes of the box count on
// `barrier`. One thread.
//   shared   shared::cta address, aligned to 128 bytes; with a 128-byte swizzle to 1024
//   barrier  shared::cta address of an mbarrier
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.tensor"
KJIT_DEVICE void tma_load(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1)
               : "memory");
}

KJIT_DEVICE void tma_load(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

KJIT_DEVICE void tma_load(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

KJIT_DEVICE void tma_load(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2, int c3,
                          int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// Like tma_load() with four coordinates, with a cache policy by which the data stays in L2 longer than other data. The
// policy is the 64-bit word that "createpolicy.fractional.L2::evict_last.b64" makes for a fraction of 1. One thread.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.tensor" (.level::cache_hint), "createpolicy"
constexpr uint64_t kEvictLast = 0x14f0000000000000;
constexpr uint64_t kEvictFirst = 0x12f0000000000000;

template <uint64_t kPolicy>
KJIT_DEVICE void tma_load_hint(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2,
                               int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(kPolicy)
               : "memory");
}

// Copy the box to the same place in the shared memory of every block of the cluster whose bit is set in `blocks`, and
// count its bytes on the barrier at the same place in each of them. One thread of the cluster.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.tensor" (.multicast::cluster)
KJIT_DEVICE void tma_load_multicast(uint32_t shared, const TensorMap *map, uint32_t barrier, unsigned short blocks,
                                    int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared),
               "l"(map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1)
               : "memory");
}

KJIT_DEVICE void tma_load_multicast(uint32_t shared, const TensorMap *map, uint32_t barrier, unsigned short blocks,
                                    int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared),
               "l"(map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

// Copy the box from shared memory to the tensor. One thread, after fence_async_proxy() in all threads that wrote the
// box and a barrier among them.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.tensor"
KJIT_DEVICE void tma_store(const TensorMap *map, uint32_t shared, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared), "r"(c0), "r"(c1)
               : "memory");
}

KJIT_DEVICE void tma_store(const TensorMap *map, uint32_t shared, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(shared), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

KJIT_DEVICE void tma_store(const TensorMap *map, uint32_t shared, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

KJIT_DEVICE void tma_store(const TensorMap *map, uint32_t shared, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Fetch a tensor map into the cache ahead of its first use. One thread.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: prefetch, prefetchu" (.tensormap)
KJIT_DEVICE void prefetch_tensormap(const TensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Close the calling thread's stores since its last call into one group. The thread that issued them.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.commit_group"
KJIT_DEVICE void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most `kPending` of the calling thread's latest groups have not finished: have not read their shared
// memory yet (_read), after which it may be written again, or have not written global memory yet. The thread that
// issued them. PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.wait_group"
template <int kPending> KJIT_DEVICE void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

template <int kPending> KJIT_DEVICE void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Order the calling thread's writes to shared memory by ordinary stores before what TMA and wgmma read of it. Every
// thread that wrote, before the barrier that separates it from the reader.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: membar, fence" (fence.proxy.async)
KJIT_DEVICE void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

} // namespace kjit
