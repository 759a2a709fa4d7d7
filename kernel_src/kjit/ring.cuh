// A ring of buffers in shared memory that a producer fills and consumers empty, in turn.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// A ring of `kSlots` buffers as the producer or a consumer sees it: the slot that is next, and the parity of the phase
// to wait for on that slot's mbarriers.
template <int kSlots> struct Ring {
  int slot = 0;
  int parity = 0;

  KJIT_DEVICE void advance() {
    slot++;
    if (slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

} // namespace kjit
