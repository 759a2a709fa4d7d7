// Clusters of blocks (sm_90): rank, barrier, and addresses of the other blocks' shared memory.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The rank of this block in its cluster, from 0. Each thread by itself.
// PTX ISA 9.0, "Special Registers: %cluster_ctarank"
KJIT_DEVICE uint32_t cluster_ctarank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The shared::cluster address, in block `rank` of the cluster, of what lies at the shared::cta address `shared` here.
// Each thread by itself.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: mapa"
KJIT_DEVICE uint32_t mapa(uint32_t shared, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared), "r"(rank));
  return mapped;
}

// Arrive at the cluster's barrier (release), and wait until all threads of all its blocks have arrived (acquire). Every
// thread of the cluster calls the first and then the second. A block must not end while others use its shared memory.
// PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: barrier.cluster"
KJIT_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Arrive without release: for a barrier after which the blocks use nothing that this thread wrote before by ordinary
// stores, because then the fence that a release costs is not needed.
KJIT_DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

KJIT_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

} // namespace kjit
