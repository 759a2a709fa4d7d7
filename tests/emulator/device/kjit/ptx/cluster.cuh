// In place of kernel_src/kjit/ptx/cluster.cuh: there are no clusters here, so that every block is one by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

KJIT_DEVICE uint32_t cluster_ctarank() {
  return 0;
}
KJIT_DEVICE uint32_t mapa(uint32_t shared, uint32_t rank) {
  if (rank != 0) emulator->trap();
  return shared;
}
KJIT_DEVICE void cluster_arrive() {}
KJIT_DEVICE void cluster_arrive_relaxed() {}
KJIT_DEVICE void cluster_wait() {
  __syncthreads();
}

} // namespace kjit
