// Groups of 128 threads (sm_90a): registers, order of wgmma, named barriers, stmatrix.
#pragma once
#include "core/types.cuh"

// Give up registers, or wait for and take them; per thread, a multiple of 8 from 24 to 256. All warps of the warpgroup,
// converged; needs a launch bound with a minimum of blocks. PTX ISA 9.0, "setmaxnreg".
template <int kRegisters> KJIT_DEVICE void warpgroup_give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> KJIT_DEVICE void warpgroup_take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Before the first product after a write to a register that a product uses. PTX ISA 9.0, "wgmma.fence".
KJIT_DEVICE void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Close a group of products. PTX ISA 9.0, "wgmma.commit_group".
KJIT_DEVICE void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most kPending groups are unfinished. PTX ISA 9.0, "wgmma.wait_group".
template <int kPending> KJIT_DEVICE void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Barrier 1 to 15 of the block, for `threads` threads: wait for the others, or only be counted. PTX ISA 9.0, "bar".
KJIT_DEVICE void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
KJIT_DEVICE void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Store four, or two, 8x8 matrices of 16-bit values; addresses and registers as for load_matrix_x4.
// PTX ISA 9.0, "stmatrix".
KJIT_DEVICE void store_matrix_x4(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}
KJIT_DEVICE void store_matrix_x2(uint32_t shared, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared), "r"(r0), "r"(r1) : "memory");
}

// A tile in shared memory as wgmma's descriptor, 128-byte swizzle: columns in chunks of 64, a chunk's rows 128 bytes
// apart, 1024-byte aligned. `chunk_bytes`: from one chunk to the next, used for MN-major operands only. PTX ISA 9.0,
// "Asynchronous Warpgroup Level Matrix Shared Memory Layout: Matrix Descriptor":
//   bits 0-13 address / 16, 16-29 leading offset / 16, 32-45 stride offset / 16 (8 rows), 62-63 swizzle (1: 128 bytes)
KJIT_DEVICE uint64_t matrix_descriptor(uint32_t shared, uint32_t chunk_bytes) {
  return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(chunk_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

// What to add to a descriptor to move it by bytes.
__device__ constexpr uint64_t descriptor_step(int bytes) {
  return (uint64_t)(bytes >> 4);
}
