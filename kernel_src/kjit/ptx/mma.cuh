// Matrix products of one warp on 16-bit operands with fp32 accumulators: mma.sync m16n8k16 (sm_80 and later).
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// c += A * B, where A is 16 x 16, B 16 x 8 and C 16 x 8. The first argument chooses the operands' type.
//   a       A by rows, as four fragments (ldmatrix.cuh): (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15)
//   b0, b1  B by columns, as two fragments: k 0-7 and k 8-15; lane l holds column l / 4
//   c       lane l holds row l / 4, columns 2 * (l % 4) and + 1, in c[0] and c[1], and row l / 4 + 8 in c[2] and c[3]
// All 32 lanes of a warp, converged.
// PTX ISA 9.0, "Warp Level Matrix Instructions: mma", "Matrix Fragments for mma.m16n8k16 with floating point type"
KJIT_DEVICE void mma_m16n8k16(Fp16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

KJIT_DEVICE void mma_m16n8k16(Bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace kjit
