// Integer types and the few words that every header of this library uses. No toolkit header is needed.
//
// Everything of this library lies in namespace kjit, so that a kernel may include it beside the toolkit's headers.
#pragma once

#define KJIT_DEVICE __device__ __forceinline__

namespace kjit {

using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;

constexpr int kLanesPerWarp = 32;
constexpr int kThreadsPerWarpgroup = 128;

// A chunk is 16 bytes: the widest access of one thread, and one row of an 8x8 matrix of 16-bit values.
constexpr int kChunkBytes = 16;
constexpr int kChunkElements = 8; // of 16 bits

struct alignas(kChunkBytes) Chunk {
  uint32_t word[4];
};

__device__ constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

// The 16-bit floating-point types, by which functions choose their instruction.
struct Fp16 {};
struct Bf16 {};

// The type by its number in PyTorch's ScalarType, which is what kjit's configs hold.
template <int kCode> struct ElementOf;
template <> struct ElementOf<5> { using type = Fp16; };
template <> struct ElementOf<15> { using type = Bf16; };

} // namespace kjit
