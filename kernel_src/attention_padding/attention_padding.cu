// Copies K and V into rows that are whole lines of L2, for attention_sm90.
//
// A row of 200 columns is 400 bytes, so that rows begin anywhere in a line of 128 bytes. The boxes of 64 columns that
// TMA loads then lie in two lines each, and L2 is asked for nearly twice as many lines as the boxes have. Where many
// query tiles read the same keys, copying them once costs less than that.
//
// Tensors   up to two of (batch, seq, heads, columns), 16 bits, columns a multiple of 8, any strides that are multiples
//           of 16 bytes; each copy is (batch, heads, seq) rows of `row_bytes` bytes, of which those behind the columns
//           are not written, because a tensor map has zeros there.
// Grid      x: (batch, head, piece of `rows` rows), the piece fastest; y: the tensor
// Threads   256: a thread has four loads of 16 bytes on their way at a time. Offsets are 64 bits wide.
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_padding/params.h"

#if !defined(KJIT_rows)
#error "attention_padding needs KJIT_rows"
#endif

using namespace kjit;

namespace {

constexpr int kRows = KJIT_rows;
constexpr int kLoads = 4; // of a thread, on their way at the same time

static_assert(KJIT_threads == PADDING_THREADS, "the host launches as many threads");
static_assert(PADDING_CHUNK_BYTES == kChunkBytes, "a thread copies a chunk at a time");

} // namespace

extern "C" __global__
__launch_bounds__(PADDING_THREADS) void attention_padding(const __grid_constant__ attention_padding_params p) {
  const attention_padding_tensor &tensor = p.tensors[blockIdx.y];
  const int pair = blockIdx.x / p.pieces, first = blockIdx.x % p.pieces * kRows;
  const int64_t batch = pair / p.heads, head = pair % p.heads;
  const int rows = p.seq - first < kRows ? p.seq - first : kRows;
  const char *const from =
      tensor.from + batch * tensor.batch_stride + head * tensor.head_stride + first * tensor.seq_stride;
  char *const to = tensor.to + ((int64_t)pair * p.seq + first) * tensor.row_bytes;
  const int chunks = rows * tensor.chunks;
  for (int begin = threadIdx.x; begin < chunks; begin += kLoads * PADDING_THREADS) {
    Chunk loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
      const int at = begin + i * PADDING_THREADS, row = at / tensor.chunks;
      if (at < chunks)
        loaded[i] = ld_global_nc_16(from + row * tensor.seq_stride + (at - row * tensor.chunks) * kChunkBytes);
    }
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
      const int at = begin + i * PADDING_THREADS, row = at / tensor.chunks;
      if (at < chunks)
        st_global_16(to + (int64_t)row * tensor.row_bytes + (at - row * tensor.chunks) * kChunkBytes, loaded[i]);
    }
  }
}
