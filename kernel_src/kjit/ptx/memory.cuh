// Loads and stores with their width and cache policy spelled out, and shared-memory addresses. Each thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The shared::cta address of a pointer to shared memory: what the instructions on shared memory take.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cvta"
KJIT_DEVICE uint32_t cvta_to_shared(const void *pointer) {
  return (uint32_t)__cvta_generic_to_shared(pointer);
}

// Load 16 bytes of global memory that no thread writes while the kernel runs. They are kept out of L1.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: ld.global.nc"
KJIT_DEVICE Chunk ld_global_nc_16(const void *global) {
  Chunk c;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "l"(global));
  return c;
}

// Store 16 bytes to global memory, keeping them out of L1, since nobody reads them again soon.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: st" (.level::eviction_priority)
KJIT_DEVICE void st_global_16(void *global, Chunk c) {
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(c.word[0]), "r"(c.word[1]),
               "r"(c.word[2]), "r"(c.word[3])
               : "memory");
}

// 16, 8 and 4 bytes of shared memory, by shared::cta address.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: st", "ld"
KJIT_DEVICE void st_shared_16(uint32_t shared, Chunk c) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(c.word[0]), "r"(c.word[1]), "r"(c.word[2]),
               "r"(c.word[3])
               : "memory");
}

KJIT_DEVICE Chunk ld_shared_16(uint32_t shared) {
  Chunk c;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3])
               : "r"(shared)
               : "memory");
  return c;
}

KJIT_DEVICE void st_shared_4(uint32_t shared, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

KJIT_DEVICE void st_shared_8(uint32_t shared, uint32_t low, uint32_t high) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(shared), "r"(low), "r"(high) : "memory");
}

KJIT_DEVICE void ld_shared_8(uint32_t shared, int &low, int &high) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(shared) : "memory");
}

KJIT_DEVICE uint32_t ld_shared_4(uint32_t shared) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(shared) : "memory");
  return value;
}

// Two fp32 values to shared memory: 8 bytes, 8-byte aligned.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: st"
KJIT_DEVICE void st_shared_f32_x2(uint32_t shared, float low, float high) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared), "f"(low), "f"(high) : "memory");
}

// Four fp32 values from the shared memory of any block of the cluster: `shared` is a shared::cluster address
// (cluster.cuh, mapa()), 16-byte aligned.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: ld" (.shared::cluster)
KJIT_DEVICE void ld_cluster_f32_x4(float (&values)[4], uint32_t shared) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "r"(shared)
               : "memory");
}

} // namespace kjit
