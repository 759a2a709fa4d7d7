// Boxes of four- and five-dimensional tensors between global and shared memory by the copy engine (sm_90).
#pragma once
#include "core/types.cuh"

// The driver's CUtensorMap, opaque. Passed inside a __grid_constant__ argument.
struct alignas(64) TensorMap {
  char bytes[128];
};

// Copy the box at (c0, c1, c2, c3), innermost first, to shared memory; what lies outside the tensor arrives as zeros.
// The whole box counts on `barrier` when it has arrived. One thread.
//   shared  1024-byte aligned for the 128-byte swizzle
// PTX ISA 9.0 (CUDA 13.0), "cp.async.bulk.tensor",
//   archive/13.0.0 #data-movement-and-conversion-instructions-cp-async-bulk-tensor
KJIT_DEVICE void tensor_load(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// The same, to stay in L2 longer than what is not so marked. PTX ISA 9.0, "cp.async.bulk.tensor", .L2::cache_hint; the
// policy is what "createpolicy.fractional.L2::evict_last" of all of it makes.
KJIT_DEVICE void tensor_load_to_stay(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2,
                                     int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(0x14f0000000000000)
               : "memory");
}

// The same of a five-dimensional tensor.
KJIT_DEVICE void tensor_load(uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1, int c2, int c3,
                             int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// The way back; what lies outside the tensor is not written. One thread, after shared_writes_to_copy_engine() in all
// threads that wrote the box and a barrier among them.
KJIT_DEVICE void tensor_store(const TensorMap *map, uint32_t shared, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// The same of a five-dimensional tensor.
KJIT_DEVICE void tensor_store(const TensorMap *map, uint32_t shared, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Close this thread's group of stores. PTX ISA 9.0, "cp.async.bulk.commit_group".
KJIT_DEVICE void tensor_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until this thread's stores have read shared memory, so that it may be written again; or have finished
// altogether. PTX ISA 9.0, "cp.async.bulk.wait_group".
KJIT_DEVICE void tensor_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
KJIT_DEVICE void tensor_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Order this thread's ordinary writes to shared memory before what the copy engine or wgmma reads of it.
// PTX ISA 9.0, "membar, fence", fence.proxy.async.
KJIT_DEVICE void shared_writes_to_copy_engine() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
