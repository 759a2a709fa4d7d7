// How many words of a piece of memory still hold the poison, and a digest of all of it: tells whether a kernel wrote
// where it should not, and whether it left its inputs alone.
//
// Any grid, any block: each thread takes every (threads of the grid)-th word.
#include "element.cuh"
#include "params.h"

extern "C" __global__ void census(const __grid_constant__ census_params p) {
  unsigned long long poisoned = 0, digest = 0;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < p.words; i += step) {
    const unsigned word = p.word_bytes == 2 ? ((const unsigned short *)p.memory)[i] : ((const unsigned *)p.memory)[i];
    poisoned += word == p.poison;
    digest += mix_bits((i << 32 | word) + i); // a sum, so that the order of the threads does not matter
  }
  atomicAdd(&p.result->poisoned, poisoned);
  atomicAdd(&p.result->digest, digest);
}
