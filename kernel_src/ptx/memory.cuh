// Plain loads and stores with the width and cache policy spelled out.
#pragma once
#include "core/types.cuh"

// The address that shared-memory instructions take. PTX ISA 9.0, "cvta".
KJIT_DEVICE uint32_t shared_address(const void *pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

// 16 bytes of read-only global memory. PTX ISA 9.0, "ld.global.nc".
KJIT_DEVICE Chunk load_global_16(const void *global) {
  Chunk c;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "l"(global));
  return c;
}

// 16 bytes that nobody reads again soon: kept out of L1. PTX ISA 9.0, "st", level::eviction_priority.
KJIT_DEVICE void store_global_16(void *global, Chunk c) {
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(c.word[0]), "r"(c.word[1]),
               "r"(c.word[2]), "r"(c.word[3])
               : "memory");
}

KJIT_DEVICE void store_shared_16(uint32_t shared, Chunk c) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(c.word[0]), "r"(c.word[1]), "r"(c.word[2]),
               "r"(c.word[3])
               : "memory");
}

KJIT_DEVICE Chunk load_shared_16(uint32_t shared) {
  Chunk c;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "r"(shared)
               : "memory");
  return c;
}

KJIT_DEVICE void store_shared_4(uint32_t shared, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

KJIT_DEVICE uint32_t load_shared_4(uint32_t shared) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(shared) : "memory");
  return value;
}
