// Matrix products of one warpgroup on 16-bit operands with fp32 accumulators: wgmma.mma_async m64nNk16 (sm_90a).
//
// A product is asynchronous. A warpgroup calls wgmma_fence(), issues products, closes them into a group by
// wgmma_commit_group() and waits by wgmma_wait_group(); until then it must touch neither the accumulators nor the
// registers of A. All 128 threads of the warpgroup execute each of these functions, converged.
//
// Inline assembly needs one placeholder for each accumulator register, so every N needs a text of its own.
// KJIT_WGMMA(N, Bf16) or KJIT_WGMMA(N, Fp16), once at namespace scope, makes Wgmma<Bf16, N>; N is a multiple of 8 up to
// 256.
// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions"
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Wgmma<Element, N>::mma_async_ss<kTransA, kTransB>(d, a, b, accumulate): d (+)= A * B, both in shared memory.
// Wgmma<Element, N>::mma_async_rs<kTransB>(d, a, b, accumulate): d (+)= A * B, A in registers.
// mma_async_ss_x2 to _x4, mma_async_rs_x2 to _x4: so many a and b, whose products are added one after the other;
//             `accumulate` is the first one's. wgmma_sum_ss() and wgmma_sum_rs() call these.
//   d           64 x N accumulators. Thread t holds rows 16 * (t / 32) + t % 32 / 4 and + 8, and of every 8 columns
//               2 * (t % 4) and + 1: d[n][0..1] is of the first row, d[n][2..3] of the second, columns 8 * n to
//               8 * n + 7
//   a           64 x 16: the descriptor of a tile in shared memory (wgmma_descriptor()), or the registers of
//               mma_m16n8k16() (mma.cuh), warp w holding rows 16 * w to 16 * w + 15
//   b           the descriptor of a 16 x N tile in shared memory
//   kTransA,    false when the tile is K-major, that is, when the elements of one row of A, or of one column of B, are
//   kTransB     neighbours in memory; true when it is M- or N-major
//   accumulate  0: d = A * B; otherwise d += A * B
// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async"
template <typename Element, int kColumns> struct Wgmma;

// Order the warpgroup's accesses to registers before the products that follow: needed before the first product, and
// whenever registers that a product uses have been written otherwise. One warpgroup.
// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence"
KJIT_DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Close the products since the last call into one group. One warpgroup.
// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.commit_group"
KJIT_DEVICE void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most `kPending` of the latest groups are unfinished. One warpgroup.
// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group"
template <int kPending> KJIT_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// False with ptxas of CUDA 12.5, which does not keep count of groups: after wgmma_wait_group<1>() it waits for all
// groups before the first use of any accumulator, with a warning (C7517, "warpgroup.wait is injected"). Waiting for all
// of them in the source costs the same there and compiles without the warning.
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ == 5
constexpr bool kWgmmaPartialWaits = false;
#else
constexpr bool kWgmmaPartialWaits = true;
#endif

// Call this once on accumulators whose first product decides at run time, by `accumulate`, whether it reads them.
//
// ptxas of CUDA 12.0 to 12.8 must then define registers that nothing has written. It does so between the product's
// wgmma_fence() and wgmma_wait_group(), and for that reason runs all products of the kernel one after the other
// (warning C7515, "non wgmma instructions defining accumulator registers"). With these compilers the accumulators are
// set to zero here, ahead of the fence; with others the function does nothing. Each thread by itself.
template <int kTiles8> KJIT_DEVICE void wgmma_define_accumulators(float (&d)[kTiles8][4]) {
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 9
#pragma unroll
  for (int n = 0; n < kTiles8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      d[n][i] = 0.0f;
#endif
}

// The descriptor of a tile in shared memory with the 128-byte swizzle: rows of 128 bytes (64 elements), the 16-byte
// chunk at index c of row r stored at index c ^ (r % 8), as TMA writes it with CU_TENSOR_MAP_SWIZZLE_128B. A tile of
// more than 64 columns is several such bands, one after the other.
//   shared       shared::cta address, 1024-byte aligned
//   band_bytes   from one band to the next; used for M- or N-major operands only
// Fields: bits 0-13 address / 16, 16-29 leading byte offset / 16, 32-45 stride byte offset / 16 (8 rows: 1024 bytes),
// 62-63 swizzle (1: 128 bytes). Each thread by itself.
// PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Shared Memory Layout: Matrix Descriptor Format"
KJIT_DEVICE uint64_t wgmma_descriptor(uint32_t shared, uint32_t band_bytes) {
  return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(band_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

// What to add to a descriptor so that it points `bytes` further.
__device__ constexpr uint64_t wgmma_descriptor_step(int bytes) {
  return (uint64_t)(bytes >> 4);
}

// Issue d (+)= A_0 * B_0 + A_1 * B_1 + ..., kProducts of them, each by wgmma.mma_async of `Product`, which is a Wgmma.
//   a, b            where the tiles begin: descriptors; with wgmma_sum_rs() `a` is registers, four for each product
//   step_a, step_b  functions from the number of a product to what to add to `a` or `b` for it
//   accumulate      the first product's
// Up to kAtOnce products, at most four, are one asm statement. Each statement reads and writes all accumulators, which
// is what a kernel of wgmma spends much of its compile on; the machine code is hardly ever another.
template <typename Product, int kProducts, bool kTransA = false, bool kTransB = false, int kAtOnce = 4, int kFrom = 0,
          int kTiles8, typename StepA, typename StepB>
KJIT_DEVICE void wgmma_sum_ss(float (&d)[kTiles8][4], uint64_t a, StepA step_a, uint64_t b, StepB step_b,
                              int accumulate) {
  constexpr int kCount = kProducts - kFrom < kAtOnce ? kProducts - kFrom : kAtOnce;
  if constexpr (kCount == 1)
    Product::template mma_async_ss<kTransA, kTransB>(d, a + step_a(kFrom), b + step_b(kFrom), accumulate);
  else if constexpr (kCount == 2)
    Product::template mma_async_ss_x2<kTransA, kTransB>(d, a + step_a(kFrom), b + step_b(kFrom), a + step_a(kFrom + 1),
                                                        b + step_b(kFrom + 1), accumulate);
  else if constexpr (kCount == 3)
    Product::template mma_async_ss_x3<kTransA, kTransB>(d, a + step_a(kFrom), b + step_b(kFrom), a + step_a(kFrom + 1),
                                                        b + step_b(kFrom + 1), a + step_a(kFrom + 2),
                                                        b + step_b(kFrom + 2), accumulate);
  else
    Product::template mma_async_ss_x4<kTransA, kTransB>(
        d, a + step_a(kFrom), b + step_b(kFrom), a + step_a(kFrom + 1), b + step_b(kFrom + 1), a + step_a(kFrom + 2),
        b + step_b(kFrom + 2), a + step_a(kFrom + 3), b + step_b(kFrom + 3), accumulate);
  if constexpr (kFrom + kCount < kProducts)
    wgmma_sum_ss<Product, kProducts, kTransA, kTransB, kAtOnce, kFrom + kCount>(d, a, step_a, b, step_b, 1);
}
template <typename Product, int kProducts, bool kTransB = false, int kAtOnce = 4, int kFrom = 0, int kTiles8,
          typename StepB>
KJIT_DEVICE void wgmma_sum_rs(float (&d)[kTiles8][4], const uint32_t (*a)[4], uint64_t b, StepB step_b,
                              int accumulate) {
  constexpr int kCount = kProducts - kFrom < kAtOnce ? kProducts - kFrom : kAtOnce;
  if constexpr (kCount == 1)
    Product::template mma_async_rs<kTransB>(d, a[kFrom], b + step_b(kFrom), accumulate);
  else if constexpr (kCount == 2)
    Product::template mma_async_rs_x2<kTransB>(d, a[kFrom], b + step_b(kFrom), a[kFrom + 1], b + step_b(kFrom + 1),
                                               accumulate);
  else if constexpr (kCount == 3)
    Product::template mma_async_rs_x3<kTransB>(d, a[kFrom], b + step_b(kFrom), a[kFrom + 1], b + step_b(kFrom + 1),
                                               a[kFrom + 2], b + step_b(kFrom + 2), accumulate);
  else
    Product::template mma_async_rs_x4<kTransB>(d, a[kFrom], b + step_b(kFrom), a[kFrom + 1], b + step_b(kFrom + 1),
                                               a[kFrom + 2], b + step_b(kFrom + 2), a[kFrom + 3], b + step_b(kFrom + 3),
                                               accumulate);
  if constexpr (kFrom + kCount < kProducts)
    wgmma_sum_rs<Product, kProducts, kTransB, kAtOnce, kFrom + kCount>(d, a, b, step_b, 1);
}

} // namespace kjit

// KJIT_WGMMA_D<N>: placeholders of N / 2 accumulators. KJIT_WGMMA_O<N>: the operands themselves.
// clang-format off
#define KJIT_WGMMA_D8 "%0, %1, %2, %3"
#define KJIT_WGMMA_D16 KJIT_WGMMA_D8 ", %4, %5, %6, %7"
#define KJIT_WGMMA_D24 KJIT_WGMMA_D16 ", %8, %9, %10, %11"
#define KJIT_WGMMA_D32 KJIT_WGMMA_D24 ", %12, %13, %14, %15"
#define KJIT_WGMMA_D40 KJIT_WGMMA_D32 ", %16, %17, %18, %19"
#define KJIT_WGMMA_D48 KJIT_WGMMA_D40 ", %20, %21, %22, %23"
#define KJIT_WGMMA_D56 KJIT_WGMMA_D48 ", %24, %25, %26, %27"
#define KJIT_WGMMA_D64 KJIT_WGMMA_D56 ", %28, %29, %30, %31"
#define KJIT_WGMMA_D72 KJIT_WGMMA_D64 ", %32, %33, %34, %35"
#define KJIT_WGMMA_D80 KJIT_WGMMA_D72 ", %36, %37, %38, %39"
#define KJIT_WGMMA_D88 KJIT_WGMMA_D80 ", %40, %41, %42, %43"
#define KJIT_WGMMA_D96 KJIT_WGMMA_D88 ", %44, %45, %46, %47"
#define KJIT_WGMMA_D104 KJIT_WGMMA_D96 ", %48, %49, %50, %51"
#define KJIT_WGMMA_D112 KJIT_WGMMA_D104 ", %52, %53, %54, %55"
#define KJIT_WGMMA_D120 KJIT_WGMMA_D112 ", %56, %57, %58, %59"
#define KJIT_WGMMA_D128 KJIT_WGMMA_D120 ", %60, %61, %62, %63"
#define KJIT_WGMMA_D136 KJIT_WGMMA_D128 ", %64, %65, %66, %67"
#define KJIT_WGMMA_D144 KJIT_WGMMA_D136 ", %68, %69, %70, %71"
#define KJIT_WGMMA_D152 KJIT_WGMMA_D144 ", %72, %73, %74, %75"
#define KJIT_WGMMA_D160 KJIT_WGMMA_D152 ", %76, %77, %78, %79"
#define KJIT_WGMMA_D168 KJIT_WGMMA_D160 ", %80, %81, %82, %83"
#define KJIT_WGMMA_D176 KJIT_WGMMA_D168 ", %84, %85, %86, %87"
#define KJIT_WGMMA_D184 KJIT_WGMMA_D176 ", %88, %89, %90, %91"
#define KJIT_WGMMA_D192 KJIT_WGMMA_D184 ", %92, %93, %94, %95"
#define KJIT_WGMMA_D200 KJIT_WGMMA_D192 ", %96, %97, %98, %99"
#define KJIT_WGMMA_D208 KJIT_WGMMA_D200 ", %100, %101, %102, %103"
#define KJIT_WGMMA_D216 KJIT_WGMMA_D208 ", %104, %105, %106, %107"
#define KJIT_WGMMA_D224 KJIT_WGMMA_D216 ", %108, %109, %110, %111"
#define KJIT_WGMMA_D232 KJIT_WGMMA_D224 ", %112, %113, %114, %115"
#define KJIT_WGMMA_D240 KJIT_WGMMA_D232 ", %116, %117, %118, %119"
#define KJIT_WGMMA_D248 KJIT_WGMMA_D240 ", %120, %121, %122, %123"
#define KJIT_WGMMA_D256 KJIT_WGMMA_D248 ", %124, %125, %126, %127"
#define KJIT_WGMMA_O8 "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
#define KJIT_WGMMA_O16 KJIT_WGMMA_O8, "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
#define KJIT_WGMMA_O24 KJIT_WGMMA_O16, "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3])
#define KJIT_WGMMA_O32 KJIT_WGMMA_O24, "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
#define KJIT_WGMMA_O40 KJIT_WGMMA_O32, "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3])
#define KJIT_WGMMA_O48 KJIT_WGMMA_O40, "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3])
#define KJIT_WGMMA_O56 KJIT_WGMMA_O48, "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3])
#define KJIT_WGMMA_O64 KJIT_WGMMA_O56, "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
#define KJIT_WGMMA_O72 KJIT_WGMMA_O64, "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3])
#define KJIT_WGMMA_O80 KJIT_WGMMA_O72, "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3])
#define KJIT_WGMMA_O88 KJIT_WGMMA_O80, "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3])
#define KJIT_WGMMA_O96 KJIT_WGMMA_O88, "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3])
#define KJIT_WGMMA_O104 KJIT_WGMMA_O96, "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3])
#define KJIT_WGMMA_O112 KJIT_WGMMA_O104, "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3])
#define KJIT_WGMMA_O120 KJIT_WGMMA_O112, "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3])
#define KJIT_WGMMA_O128 KJIT_WGMMA_O120, "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
#define KJIT_WGMMA_O136 KJIT_WGMMA_O128, "+f"(d[16][0]), "+f"(d[16][1]), "+f"(d[16][2]), "+f"(d[16][3])
#define KJIT_WGMMA_O144 KJIT_WGMMA_O136, "+f"(d[17][0]), "+f"(d[17][1]), "+f"(d[17][2]), "+f"(d[17][3])
#define KJIT_WGMMA_O152 KJIT_WGMMA_O144, "+f"(d[18][0]), "+f"(d[18][1]), "+f"(d[18][2]), "+f"(d[18][3])
#define KJIT_WGMMA_O160 KJIT_WGMMA_O152, "+f"(d[19][0]), "+f"(d[19][1]), "+f"(d[19][2]), "+f"(d[19][3])
#define KJIT_WGMMA_O168 KJIT_WGMMA_O160, "+f"(d[20][0]), "+f"(d[20][1]), "+f"(d[20][2]), "+f"(d[20][3])
#define KJIT_WGMMA_O176 KJIT_WGMMA_O168, "+f"(d[21][0]), "+f"(d[21][1]), "+f"(d[21][2]), "+f"(d[21][3])
#define KJIT_WGMMA_O184 KJIT_WGMMA_O176, "+f"(d[22][0]), "+f"(d[22][1]), "+f"(d[22][2]), "+f"(d[22][3])
#define KJIT_WGMMA_O192 KJIT_WGMMA_O184, "+f"(d[23][0]), "+f"(d[23][1]), "+f"(d[23][2]), "+f"(d[23][3])
#define KJIT_WGMMA_O200 KJIT_WGMMA_O192, "+f"(d[24][0]), "+f"(d[24][1]), "+f"(d[24][2]), "+f"(d[24][3])
#define KJIT_WGMMA_O208 KJIT_WGMMA_O200, "+f"(d[25][0]), "+f"(d[25][1]), "+f"(d[25][2]), "+f"(d[25][3])
#define KJIT_WGMMA_O216 KJIT_WGMMA_O208, "+f"(d[26][0]), "+f"(d[26][1]), "+f"(d[26][2]), "+f"(d[26][3])
#define KJIT_WGMMA_O224 KJIT_WGMMA_O216, "+f"(d[27][0]), "+f"(d[27][1]), "+f"(d[27][2]), "+f"(d[27][3])
#define KJIT_WGMMA_O232 KJIT_WGMMA_O224, "+f"(d[28][0]), "+f"(d[28][1]), "+f"(d[28][2]), "+f"(d[28][3])
#define KJIT_WGMMA_O240 KJIT_WGMMA_O232, "+f"(d[29][0]), "+f"(d[29][1]), "+f"(d[29][2]), "+f"(d[29][3])
#define KJIT_WGMMA_O248 KJIT_WGMMA_O240, "+f"(d[30][0]), "+f"(d[30][1]), "+f"(d[30][2]), "+f"(d[30][3])
#define KJIT_WGMMA_O256 KJIT_WGMMA_O248, "+f"(d[31][0]), "+f"(d[31][1]), "+f"(d[31][2]), "+f"(d[31][3])

// KJIT_WGMMA_I<N>: numbers of the 22 operands behind the accumulators.
#define KJIT_WGMMA_I8 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25
#define KJIT_WGMMA_I16 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
#define KJIT_WGMMA_I24 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33
#define KJIT_WGMMA_I32 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37
#define KJIT_WGMMA_I40 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41
#define KJIT_WGMMA_I48 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45
#define KJIT_WGMMA_I56 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49
#define KJIT_WGMMA_I64 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53
#define KJIT_WGMMA_I72 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57
#define KJIT_WGMMA_I80 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61
#define KJIT_WGMMA_I88 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65
#define KJIT_WGMMA_I96 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69
#define KJIT_WGMMA_I104 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73
#define KJIT_WGMMA_I112 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77
#define KJIT_WGMMA_I120 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81
#define KJIT_WGMMA_I128 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85
#define KJIT_WGMMA_I136 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89
#define KJIT_WGMMA_I144 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93
#define KJIT_WGMMA_I152 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97
#define KJIT_WGMMA_I160 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101
#define KJIT_WGMMA_I168 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105
#define KJIT_WGMMA_I176 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109
#define KJIT_WGMMA_I184 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, \
  103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113
#define KJIT_WGMMA_I192 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, \
  107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117
#define KJIT_WGMMA_I200 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, \
  111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121
#define KJIT_WGMMA_I208 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, \
  115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125
#define KJIT_WGMMA_I216 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, \
  119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129
#define KJIT_WGMMA_I224 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, \
  123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133
#define KJIT_WGMMA_I232 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, \
  127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137
#define KJIT_WGMMA_I240 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, \
  131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141
#define KJIT_WGMMA_I248 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, \
  135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145
#define KJIT_WGMMA_I256 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, \
  139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149

// The text of a product: P is the predicate that says whether it reads D, the others are numbers of operands.
#define KJIT_WGMMA_SS(N, TYPE, P, A, B, TRANS_A, TRANS_B)                                                              \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" KJIT_WGMMA_D##N "}, %" #A ", %" #B ", " P       \
  ", 1, 1, %" #TRANS_A ", %" #TRANS_B "; "
#define KJIT_WGMMA_RS(N, TYPE, P, A0, A1, A2, A3, B, TRANS_B)                                                          \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" KJIT_WGMMA_D##N "}, {%" #A0 ", %" #A1 ", %" #A2 \
  ", %" #A3 "}, %" #B ", " P ", 1, 1, %" #TRANS_B "; "
// In front of the products of a statement: p is the first one's predicate, q the others'.
#define KJIT_WGMMA_BEGIN(ACCUMULATE) "{ .reg .pred p, q; setp.ne.b32 p, %" #ACCUMULATE ", 0; setp.ne.b32 q, 1, 0; "
#define KJIT_WGMMA_A(A) "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3])

#define KJIT_WGMMA_FUNCTIONS(N, ELEMENT, TYPE, I0, I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, I15,   \
                             I16, I17, I18, I19, I20, I21)                                                             \
  namespace kjit {                                                                                                     \
  template <> struct Wgmma<ELEMENT, N> {                                                                               \
    template <bool kTransA = false, bool kTransB = false>                                                              \
    static KJIT_DEVICE void mma_async_ss(float (&d)[N / 8][4], uint64_t a0, uint64_t b0, int accumulate) {             \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_SS(N, TYPE, "p", I3, I4, I1, I2) "}"                                \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransA), "n"((int)kTransB), "l"(a0), "l"(b0));                         \
    }                                                                                                                  \
    template <bool kTransA = false, bool kTransB = false>                                                              \
    static KJIT_DEVICE void mma_async_ss_x2(float (&d)[N / 8][4], uint64_t a0, uint64_t b0, uint64_t a1, uint64_t b1,  \
                                            int accumulate) {                                                          \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_SS(N, TYPE, "p", I3, I4, I1, I2)                                    \
                   KJIT_WGMMA_SS(N, TYPE, "q", I5, I6, I1, I2) "}"                                                     \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransA), "n"((int)kTransB), "l"(a0), "l"(b0), "l"(a1), "l"(b1));       \
    }                                                                                                                  \
    template <bool kTransA = false, bool kTransB = false>                                                              \
    static KJIT_DEVICE void mma_async_ss_x3(float (&d)[N / 8][4], uint64_t a0, uint64_t b0, uint64_t a1, uint64_t b1,  \
                                            uint64_t a2, uint64_t b2, int accumulate) {                                \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_SS(N, TYPE, "p", I3, I4, I1, I2)                                    \
                   KJIT_WGMMA_SS(N, TYPE, "q", I5, I6, I1, I2) KJIT_WGMMA_SS(N, TYPE, "q", I7, I8, I1, I2) "}"         \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransA), "n"((int)kTransB), "l"(a0), "l"(b0), "l"(a1), "l"(b1),        \
                     "l"(a2), "l"(b2));                                                                                \
    }                                                                                                                  \
    template <bool kTransA = false, bool kTransB = false>                                                              \
    static KJIT_DEVICE void mma_async_ss_x4(float (&d)[N / 8][4], uint64_t a0, uint64_t b0, uint64_t a1, uint64_t b1,  \
                                            uint64_t a2, uint64_t b2, uint64_t a3, uint64_t b3, int accumulate) {      \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_SS(N, TYPE, "p", I3, I4, I1, I2)                                    \
                   KJIT_WGMMA_SS(N, TYPE, "q", I5, I6, I1, I2) KJIT_WGMMA_SS(N, TYPE, "q", I7, I8, I1, I2)             \
                   KJIT_WGMMA_SS(N, TYPE, "q", I9, I10, I1, I2) "}"                                                    \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransA), "n"((int)kTransB), "l"(a0), "l"(b0), "l"(a1), "l"(b1),        \
                     "l"(a2), "l"(b2), "l"(a3), "l"(b3));                                                              \
    }                                                                                                                  \
    template <bool kTransB = false>                                                                                    \
    static KJIT_DEVICE void mma_async_rs(float (&d)[N / 8][4], const uint32_t (&a0)[4], uint64_t b0, int accumulate) { \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_RS(N, TYPE, "p", I2, I3, I4, I5, I6, I1) "}"                        \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransB), KJIT_WGMMA_A(a0), "l"(b0));                                   \
    }                                                                                                                  \
    template <bool kTransB = false>                                                                                    \
    static KJIT_DEVICE void mma_async_rs_x2(float (&d)[N / 8][4], const uint32_t (&a0)[4], uint64_t b0,                \
                                            const uint32_t (&a1)[4], uint64_t b1, int accumulate) {                    \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_RS(N, TYPE, "p", I2, I3, I4, I5, I6, I1)                            \
                   KJIT_WGMMA_RS(N, TYPE, "q", I7, I8, I9, I10, I11, I1) "}"                                           \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransB), KJIT_WGMMA_A(a0), "l"(b0), KJIT_WGMMA_A(a1), "l"(b1));        \
    }                                                                                                                  \
    template <bool kTransB = false>                                                                                    \
    static KJIT_DEVICE void mma_async_rs_x3(float (&d)[N / 8][4], const uint32_t (&a0)[4], uint64_t b0,                \
                                            const uint32_t (&a1)[4], uint64_t b1, const uint32_t (&a2)[4],             \
                                            uint64_t b2, int accumulate) {                                             \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_RS(N, TYPE, "p", I2, I3, I4, I5, I6, I1)                            \
                   KJIT_WGMMA_RS(N, TYPE, "q", I7, I8, I9, I10, I11, I1)                                               \
                   KJIT_WGMMA_RS(N, TYPE, "q", I12, I13, I14, I15, I16, I1) "}"                                        \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransB), KJIT_WGMMA_A(a0), "l"(b0), KJIT_WGMMA_A(a1), "l"(b1),         \
                     KJIT_WGMMA_A(a2), "l"(b2));                                                                       \
    }                                                                                                                  \
    template <bool kTransB = false>                                                                                    \
    static KJIT_DEVICE void mma_async_rs_x4(float (&d)[N / 8][4], const uint32_t (&a0)[4], uint64_t b0,                \
                                            const uint32_t (&a1)[4], uint64_t b1, const uint32_t (&a2)[4],             \
                                            uint64_t b2, const uint32_t (&a3)[4], uint64_t b3, int accumulate) {       \
      asm volatile(KJIT_WGMMA_BEGIN(I0) KJIT_WGMMA_RS(N, TYPE, "p", I2, I3, I4, I5, I6, I1)                            \
                   KJIT_WGMMA_RS(N, TYPE, "q", I7, I8, I9, I10, I11, I1)                                               \
                   KJIT_WGMMA_RS(N, TYPE, "q", I12, I13, I14, I15, I16, I1)                                            \
                   KJIT_WGMMA_RS(N, TYPE, "q", I17, I18, I19, I20, I21, I1) "}"                                        \
                   : KJIT_WGMMA_O##N                                                                                   \
                   : "r"(accumulate), "n"((int)kTransB), KJIT_WGMMA_A(a0), "l"(b0), KJIT_WGMMA_A(a1), "l"(b1),         \
                     KJIT_WGMMA_A(a2), "l"(b2), KJIT_WGMMA_A(a3), "l"(b3));                                            \
    }                                                                                                                  \
  };                                                                                                                   \
  }
// Steps in between, so that each argument is expanded before it is pasted or counted.
#define KJIT_WGMMA_SPREAD(N, ELEMENT, TYPE, ...) KJIT_WGMMA_FUNCTIONS(N, ELEMENT, TYPE, __VA_ARGS__)
#define KJIT_WGMMA_PASTE(N, ELEMENT) KJIT_WGMMA_SPREAD(N, ELEMENT, KJIT_WGMMA_TYPE_##ELEMENT, KJIT_WGMMA_I##N)
#define KJIT_WGMMA_TYPE_Fp16 "f16"
#define KJIT_WGMMA_TYPE_Bf16 "bf16"
#define KJIT_WGMMA(N, ELEMENT) KJIT_WGMMA_PASTE(N, ELEMENT)
// clang-format on
