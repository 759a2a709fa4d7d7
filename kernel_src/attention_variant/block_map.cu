// Turns lists of blocks, in the layout of PyTorch's BlockMask, into a map of states: attention_block_map in params.h.
// A block in the full list is seen as a whole, whatever the mask says.
//
// Grid      (rows of blocks, heads, batch): one row of blocks each
// Threads   any number: first all states of the row become empty, then the listed ones are set
#include <kjit/ptx/griddepcontrol.cuh>

#include "attention_variant/list_params.h"

namespace {

// Set the state of the blocks that a list names. A number that is no block's is left out.
__device__ void mark(const attention_block_map_params &p, unsigned char *row, int count, const int *indices,
                     unsigned char state) {
  for (int i = threadIdx.x; i < count && i < p.columns; i += blockDim.x)
    if (indices[i] >= 0 && indices[i] < p.columns) row[indices[i]] = state;
}

} // namespace

extern "C" __global__
__launch_bounds__(MAP_THREADS) void attention_block_map(const __grid_constant__ attention_block_map_params p) {
  kjit::griddepcontrol_launch_dependents(); // attention_block_list begins meanwhile, and waits before it reads a state
  const long long b = blockIdx.z, h = blockIdx.y, r = blockIdx.x;
  unsigned char *const row = p.states + ((b * gridDim.y + h) * p.rows + r) * p.columns;
  for (int i = threadIdx.x; i < p.columns; i += blockDim.x)
    row[i] = VARIANT_EMPTY;
  __syncthreads();
  mark(p, row, p.counts[b * p.count_batch_stride + h * p.count_head_stride + r],
       p.indices + b * p.index_batch_stride + h * p.index_head_stride + r * p.index_row_stride, VARIANT_PARTIAL);
  if (p.full_counts == nullptr) return;
  __syncthreads();
  mark(p, row, p.full_counts[b * p.full_count_batch_stride + h * p.full_count_head_stride + r],
       p.full_indices + b * p.full_index_batch_stride + h * p.full_index_head_stride + r * p.full_index_row_stride,
       VARIANT_FULL);
}
