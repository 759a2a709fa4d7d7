// 8x8 matrices of 16-bit values from registers to shared memory: stmatrix (sm_90 and later).
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Store four, or two, 8x8 matrices. Register ri of all lanes is matrix i, in the layout of ldmatrix.cuh; lanes 8i to
// 8i + 7 give the addresses of its eight 16-byte rows: shared::cta, 16-byte aligned. (With two matrices the addresses
// of lanes 16 to 31 are not used.) All 32 lanes of a warp, converged. PTX ISA 9.0, "Warp Level Matrix Instructions:
// stmatrix"
KJIT_DEVICE void stmatrix_x4(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}

KJIT_DEVICE void stmatrix_x2(uint32_t shared, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared), "r"(r0), "r"(r1) : "memory");
}

} // namespace kjit
