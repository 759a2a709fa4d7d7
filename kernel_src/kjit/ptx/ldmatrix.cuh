// 8x8 matrices of 16-bit values between shared memory and registers: ldmatrix (sm_80 and later).
//
// A fragment is an 8x8 matrix of 16-bit values in one register of each lane of a warp: lane l holds row l / 4, columns
// 2 * (l % 4) and 2 * (l % 4) + 1.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Load four 8x8 matrices; r[i] receives matrix i. Lanes 8i to 8i + 7 give the addresses of the eight 16-byte rows of
// matrix i: shared::cta, 16-byte aligned. All 32 lanes of a warp, converged.
// PTX ISA 9.0, "Warp Level Matrix Instructions: ldmatrix"
KJIT_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

// Like ldmatrix_x4(), with each matrix transposed: lane l receives rows 2 * (l % 4) and + 1 of column l / 4.
// PTX ISA 9.0, "Warp Level Matrix Instructions: ldmatrix"
KJIT_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

} // namespace kjit
