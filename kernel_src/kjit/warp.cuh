// Exchanges among the lanes of a warp.
//
// All 32 lanes must call each of these functions.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The largest value, and the sum, over the four lanes of a quad (lanes 4i to 4i + 3): the lanes that share a row of an
// accumulator of mma.m16n8 and of wgmma. Every lane of the quad receives the result.
KJIT_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
}

KJIT_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 2);
  return x + __shfl_xor_sync(0xffffffffu, x, 1);
}

// The value of lane 0, in every lane.
KJIT_DEVICE int broadcast_from_lane_0(uint32_t x) {
  return (int)__shfl_sync(0xffffffffu, x, 0);
}

} // namespace kjit
