// Boxes of tensors of four and five dimensions by TMA, with a cache policy that is known at run time (tma.cuh, sm_90).
#pragma once
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

namespace kjit {

// tma_load() with four or five coordinates, and with a cache policy: a word of tma.cuh or cache_policy.cuh.
// One thread.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk.tensor" (.level::cache_hint), "createpolicy"
KJIT_DEVICE void tma_load_with(uint64_t policy, uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1,
                               int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
               : "memory");
}

KJIT_DEVICE void tma_load_with(uint64_t policy, uint32_t shared, const TensorMap *map, uint32_t barrier, int c0, int c1,
                               int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared),
               "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy)
               : "memory");
}

} // namespace kjit
