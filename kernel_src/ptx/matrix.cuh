// Warp-level matrix instructions on 16-bit operands: ldmatrix and mma.sync m16n8k16 (sm_80 and later).
//
// A fragment is an 8x8 matrix of 16-bit values: lane l holds row l / 4, columns 2 * (l % 4) and + 1, in one register.
#pragma once
#include "core/types.cuh"

// Load four 8x8 matrices. Lanes 8i to 8i + 7 give the addresses of the eight 16-byte rows of matrix i.
// All 32 lanes must call it; addresses are shared::cta, 16-byte aligned.
// PTX ISA 9.0 (CUDA 13.0), "ldmatrix",
//   archive/13.0.0 #warp-level-matrix-instructions-ldmatrix
KJIT_DEVICE void load_matrix_x4(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

// The same with each matrix transposed.
KJIT_DEVICE void load_matrix_x4_transposed(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

struct Fp16 {};
struct Bf16 {};

// The element type by its number in a config: PyTorch's ScalarType.
template <int kCode> struct ElementOf;
template <> struct ElementOf<5> { using type = Fp16; };
template <> struct ElementOf<15> { using type = Bf16; };

// c += A * B, A 16x16 by rows: a = fragments (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15);
// B 16x8 by columns: b0, b1 = k 0-7, 8-15; c = (row l/4, columns 2(l%4), +1), then row + 8. fp32 accumulation.
// PTX ISA 9.0, "Multiply-and-Accumulate Instruction: mma",
//   archive/13.0.0 #warp-level-matrix-instructions-mma
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

// Round two fp32 values to nearest even and pack them, `low` in the low half. PTX ISA 9.0, "cvt".
KJIT_DEVICE uint32_t pack_16(Fp16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

KJIT_DEVICE uint32_t pack_16(Bf16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
