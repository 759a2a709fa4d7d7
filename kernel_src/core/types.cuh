// Integer types and the few words that every kernel uses. No toolkit header is needed or wanted.
#pragma once

using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;

#define KJIT_DEVICE __device__ __forceinline__

constexpr int kLanesPerWarp = 32;

// One 16-byte access: what a lane moves between global and shared memory, and one row of an 8x8 matrix of 16-bit
// values.
constexpr int kChunkBytes = 16;
constexpr int kChunkElements = 8;

struct alignas(kChunkBytes) Chunk {
  uint32_t word[4];
};

__device__ constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

// The thread's index in a one-dimensional block, read anew: for code off the main path, so that what it derives from
// the index does not occupy registers meanwhile. PTX ISA 9.0, "Special Registers: %tid".
KJIT_DEVICE int fresh_thread_index() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
