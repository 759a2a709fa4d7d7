// Normally distributed values, mean 0 and variance 1, rounded to the element type: element i of the view depends on
// the seed and i alone, so that a failing case can be made again from what the test printed.
//
// Any grid, any block: each thread takes every (threads of the grid)-th element.
#include "element.cuh"
#include "params.h"

// Box and Muller: two uniform numbers, the first never 0, give one normal one.
__device__ float normal(unsigned long long random) {
  const float radius_uniform = ((float)(unsigned)(random >> 40) + 1.0f) * 0x1p-24f;
  const float angle_uniform = (float)(unsigned)(random & 0xFFFFFFu) * 0x1p-24f;
  return sqrtf(-2.0f * logf(radius_uniform)) * cosf(6.283185307f * angle_uniform);
}

extern "C" __global__ void fill_normal(const __grid_constant__ fill_normal_params p) {
  const long long count = p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3];
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    long long rest = i, offset = 0;
    for (int axis = 3; axis >= 0; axis--) {
      offset += rest % p.shape[axis] * p.out.stride[axis];
      rest /= p.shape[axis];
    }
    const float value = normal(mix_bits(p.seed + 0x9E3779B97F4A7C15ull * (unsigned long long)(i + 1)));
    ((unsigned short *)p.out.data)[offset] = element_bits(value, p.is_bf16);
  }
}
