// A kernel's output beside the float64 reference: the largest |out - ref| and where, the largest |ref16 - ref| and
// |ref|, and the elements that are not finite. A maximum of non-negative floats is the maximum of their bits.
//
// Any grid, any block: each thread takes every (threads of the grid)-th element. Linear order (batch, seq, heads,
// head_dim), fewer than 2^32 elements.
#include "element.cuh"
#include "params.h"

__device__ __forceinline__ unsigned long long float_bits_up(double magnitude) {
  return __float_as_uint(__double2float_ru(magnitude));
}

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}

extern "C" __global__ void attention_compare(const __grid_constant__ attention_compare_params p) {
  attention_compare_result own = {};
  const long long count = p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3];
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    long long rest = i, offset = 0;
    for (int axis = 3; axis >= 0; axis--) {
      offset += rest % p.shape[axis] * p.out.stride[axis];
      rest /= p.shape[axis];
    }
    const double ref = p.ref[i];
    const float out = element_value(((const unsigned short *)p.out.data)[offset], p.is_bf16);
    const float ref16 = element_value(p.ref16[i], p.is_bf16);
    const unsigned long long place = ~(unsigned)i; // the smallest index wins a tie
    if (isfinite(out)) {
      own.worst = larger(own.worst, float_bits_up(fabs((double)out - ref)) << 32 | place);
    } else {
      own.not_finite++;
      own.first_not_finite = larger(own.first_not_finite, ~(unsigned long long)i);
    }
    own.error16 = larger(own.error16, float_bits_up(fabs((double)ref16 - ref)));
    own.largest = larger(own.largest, float_bits_up(fabs(ref)));
  }
  atomicMax(&p.result->worst, own.worst);
  atomicMax(&p.result->error16, own.error16);
  atomicMax(&p.result->largest, own.largest);
  atomicAdd(&p.result->not_finite, own.not_finite);
  atomicMax(&p.result->first_not_finite, own.first_not_finite);
}
