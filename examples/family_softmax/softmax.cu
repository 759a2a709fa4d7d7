// out[r][c] = exp(in[r][c] - max_r) / sum_r, row by row, in float.
//
// A block has KJIT_rows rows, and KJIT_threads threads for each. A row is gone through three times: its maximum, the
// sum of its exponentials, the result. With KJIT_cached the first pass keeps the row in shared memory for the other
// two.
//
// threadIdx.x is the thread of a row, threadIdx.y the row of the block. Every thread reaches every barrier, also those
// whose row is behind the last.

#if KJIT_dtype == KJIT_fp32
using Element = float;
#else
using Element = unsigned short; // the 16 bits of an fp16 or bf16 number
#endif

// KJIT_vec elements, loaded and stored by one instruction.
struct alignas(KJIT_vec_bytes) Vector {
  Element element[KJIT_vec];
};

__device__ inline float to_float(Element value) {
#if KJIT_dtype == KJIT_fp32
  return value;
#elif KJIT_dtype == KJIT_bf16
  return __uint_as_float(static_cast<unsigned>(value) << 16);
#else
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value));
  return result;
#endif
}

__device__ inline Element from_float(float value) {
#if KJIT_dtype == KJIT_fp32
  return value;
#elif KJIT_dtype == KJIT_bf16
  Element result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
#else
  Element result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
#endif
}

struct Maximum {
  __device__ static float first() { return __int_as_float(0xff800000); } // minus infinity
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

struct Sum {
  __device__ static float first() { return 0.0f; }
  __device__ static float join(float a, float b) { return a + b; }
};

// One value of each thread of a row, joined; every thread gets the result.
template <typename Operation> __device__ inline float reduce(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = Operation::join(value, __shfl_xor_sync(0xffffffff, value, offset));
  if constexpr (KJIT_warps > 1) {
    __shared__ float partial[KJIT_rows][KJIT_warps];
    __syncthreads(); // the last reduction has been read
    if (threadIdx.x % 32 == 0) partial[threadIdx.y][threadIdx.x / 32] = value;
    __syncthreads();
    value = Operation::first();
    for (int warp = 0; warp < KJIT_warps; warp++)
      value = Operation::join(value, partial[threadIdx.y][warp]);
  }
  return value;
}

// The row in shared memory, where it is kept. A thread reads only what it wrote itself, so that no barrier is needed.
__device__ inline float *cache_of_row() {
#if KJIT_cached
  extern __shared__ float cache[];
  return cache + threadIdx.y * KJIT_max_columns;
#else
  return nullptr;
#endif
}

__device__ inline void load(const Element *row, int column, float (&values)[KJIT_vec]) {
  const Vector vector = *reinterpret_cast<const Vector *>(row + column);
  for (int i = 0; i < KJIT_vec; i++)
    values[i] = to_float(vector.element[i]);
}

__device__ inline void load_again(const Element *row, int column, float (&values)[KJIT_vec]) {
  if constexpr (KJIT_cached) {
    for (int i = 0; i < KJIT_vec; i++)
      values[i] = cache_of_row()[column + i];
  } else {
    load(row, column, values);
  }
}

extern "C" __global__ void __launch_bounds__(KJIT_block_threads)
    softmax(Element *out, const Element *in, int row_count, int columns) {
  const int row = blockIdx.x * KJIT_rows + threadIdx.y;
  const int end = row < row_count ? columns : 0; // nothing to do behind the last row
  const Element *from = in + static_cast<long long>(row) * columns;
  Element *to = out + static_cast<long long>(row) * columns;
  const int first = threadIdx.x * KJIT_vec, step = KJIT_threads * KJIT_vec;
  float values[KJIT_vec];

  float maximum = Maximum::first();
  for (int column = first; column < end; column += step) {
    load(from, column, values);
    for (int i = 0; i < KJIT_vec; i++) {
      maximum = fmaxf(maximum, values[i]);
      if constexpr (KJIT_cached) cache_of_row()[column + i] = values[i];
    }
  }
  maximum = reduce<Maximum>(maximum);

  float sum = 0.0f;
  for (int column = first; column < end; column += step) {
    load_again(from, column, values);
    for (int i = 0; i < KJIT_vec; i++)
      sum += __expf(values[i] - maximum);
  }
  const float scale = 1.0f / reduce<Sum>(sum);

  for (int column = first; column < end; column += step) {
    Vector vector;
    load_again(from, column, values);
    for (int i = 0; i < KJIT_vec; i++)
      vector.element[i] = from_float(__expf(values[i] - maximum) * scale);
    *reinterpret_cast<Vector *>(to + column) = vector;
  }
}
