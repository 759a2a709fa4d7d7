// A row of global memory into shared memory by the bulk copy engine (sm_90).
//
// One thread calls mbarrier_arrive_expect_tx() with the bytes and bulk_load(); whoever uses the data waits for the
// mbarrier.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// Copy `bytes` bytes, which count on `barrier`. One thread.
//   shared   shared::cta address, 16-byte aligned
//   global   16-byte aligned
//   barrier  shared::cta address of an mbarrier
//   bytes    a multiple of 16
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.bulk"
KJIT_DEVICE void bulk_load(uint32_t shared, const void *global, uint32_t barrier, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::"r"(shared),
               "l"(global), "r"(barrier), "r"(bytes)
               : "memory");
}

} // namespace kjit
