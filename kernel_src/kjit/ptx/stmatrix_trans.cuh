// 8x8 matrices of 16-bit values from registers to shared memory, transposed on the way: stmatrix.trans (sm_90 and
// later).
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Like stmatrix_x4() (stmatrix.cuh), but the address of lane 8i + c is where column c of matrix i goes as 16 bytes. All
// 32 lanes of a warp, converged. PTX ISA 9.0, "Warp Level Matrix Instructions: stmatrix" (.trans)
KJIT_DEVICE void stmatrix_trans_x4(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}

} // namespace kjit
