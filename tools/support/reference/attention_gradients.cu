// Attention backward, slow and obvious: the gradients of q, k and v.
//
// Two variants by REFERENCE_16:
//   0  everything in float64: what is right.
//   1  what eager PyTorch computes in the 16-bit type: scores, P, dP and dS are rounded to 16 bits, products are
//      accumulated in fp32. Its distance from variant 0 says what error the type itself brings.
//
// P and dS of all pairs are kept in device memory, so problems must be small. Four launches, by `stage`:
//   0  grid (seq_q, heads, batch): P and dS of one query with all keys
//   1  grid (seq_q, heads, batch): dq of one query
//   2  grid (seq_kv, heads_kv, batch): dk of one key
//   3  grid (seq_kv, heads_kv, batch): dv of one key
// 128 threads, 8 bytes of dynamic shared memory each: a thread takes every 128th key in stage 0, and every 128th column
// otherwise. Tensors: params.h. Causal: aligned bottom right; what meets nothing has a gradient of 0.
#include "element.cuh"
#include "params.h"

#if REFERENCE_16
typedef float real;
#else
typedef double real;
#endif

constexpr int kThreads = 128;

__device__ __forceinline__ real rounded(real value, bool is_bf16) {
#if REFERENCE_16
  return element_value(element_bits(value, is_bf16), is_bf16);
#else
  return value;
#endif
}

__device__ __forceinline__ real element(const check_view &view, int batch, int row, int head, int column,
                                        bool is_bf16) {
  const long long at = batch * view.stride[0] + row * view.stride[1] + head * view.stride[2] + column * view.stride[3];
  return element_value(((const unsigned short *)view.data)[at], is_bf16);
}

// The sum, or the largest, of every thread's value, for all threads; `values_s` has room for one of each.
__device__ real reduce(real *values_s, real value, bool largest) {
  values_s[threadIdx.x] = value;
  __syncthreads(); // every value is there
  real result = values_s[0];
  for (int i = 1; i < kThreads; i++)
    result = largest ? fmax(result, values_s[i]) : result + values_s[i];
  __syncthreads(); // everyone has read them
  return result;
}

__device__ real product(const check_view &a, int row_a, int head_a, const check_view &b, int row_b, int head_b,
                        int columns, const attention_gradients_params &p) {
  real sum = 0;
  for (int c = 0; c < columns; c++)
    sum += element(a, blockIdx.z, row_a, head_a, c, p.is_bf16) * element(b, blockIdx.z, row_b, head_b, c, p.is_bf16);
  return sum;
}

// Where the pairs of a query begin in p.probabilities and p.derivatives.
__device__ __forceinline__ long long pairs_of(int query, int head, const attention_gradients_params &p) {
  return (((long long)blockIdx.z * p.heads + head) * p.seq_q + query) * p.seq_kv;
}

__device__ void pairs(real *values_s, const attention_gradients_params &p) {
  const int query = blockIdx.x, head = blockIdx.y, kv_head = head / p.heads_per_kv;
  const int keys = p.causal ? min(p.seq_kv, query + p.seq_kv - p.seq_q + 1) : p.seq_kv;
  real *probabilities = (real *)p.probabilities + pairs_of(query, head, p);
  real *derivatives = (real *)p.derivatives + pairs_of(query, head, p);
  real largest = minus_infinity(), sum = 0, delta = 0;
  for (int key = threadIdx.x; key < keys; key += kThreads) {
    const real score = product(p.q, query, head, p.k, key, kv_head, p.head_dim, p) * (real)p.scale;
    probabilities[key] = rounded(score, p.is_bf16);
    largest = fmax(largest, probabilities[key]);
  }
  largest = reduce(values_s, largest, true);
  for (int key = threadIdx.x; key < keys; key += kThreads)
    sum += exp(probabilities[key] - largest);
  sum = reduce(values_s, sum, false);
  for (int key = threadIdx.x; key < keys; key += kThreads) {
    probabilities[key] = rounded(exp(probabilities[key] - largest) / sum, p.is_bf16);
    derivatives[key] = rounded(product(p.dout, query, head, p.v, key, kv_head, p.head_dim_v, p), p.is_bf16);
    delta += probabilities[key] * derivatives[key];
  }
  delta = reduce(values_s, delta, false);
  if (p.dlse) delta -= p.dlse[((long long)blockIdx.z * p.heads + head) * p.seq_q + query];
  for (int key = threadIdx.x; key < p.seq_kv; key += kThreads) {
    derivatives[key] = key < keys ? rounded(probabilities[key] * (derivatives[key] - delta), p.is_bf16) : 0;
    if (key >= keys) probabilities[key] = 0;
  }
}

__device__ void write(real value, int row, int rows, int heads, int column, int columns,
                      const attention_gradients_params &p) {
  const long long at = (((long long)blockIdx.z * rows + row) * heads + blockIdx.y) * columns + column;
#if REFERENCE_16
  ((unsigned short *)p.out)[at] = element_bits(value, p.is_bf16);
#else
  ((double *)p.out)[at] = value;
#endif
}

__device__ void query_gradient(const attention_gradients_params &p) {
  const int query = blockIdx.x, head = blockIdx.y;
  const real *derivatives = (const real *)p.derivatives + pairs_of(query, head, p);
  for (int column = threadIdx.x; column < p.head_dim; column += kThreads) {
    real sum = 0;
    for (int key = 0; key < p.seq_kv; key++)
      sum += derivatives[key] * element(p.k, blockIdx.z, key, head / p.heads_per_kv, column, p.is_bf16);
    write(sum * (real)p.scale, query, p.seq_q, p.heads, column, p.head_dim, p);
  }
}

// dk and dv: sums over the queries of all query heads that share the key head, of weights times rows of `view`.
__device__ void key_gradient(const check_view &view, const void *weights, int columns, real factor,
                             const attention_gradients_params &p) {
  const int key = blockIdx.x, first_head = blockIdx.y * p.heads_per_kv;
  for (int column = threadIdx.x; column < columns; column += kThreads) {
    real sum = 0;
    for (int head = first_head; head < first_head + p.heads_per_kv; head++)
      for (int query = 0; query < p.seq_q; query++)
        sum += ((const real *)weights)[pairs_of(query, head, p) + key] *
               element(view, blockIdx.z, query, head, column, p.is_bf16);
    write(sum * factor, key, p.seq_kv, p.heads / p.heads_per_kv, column, columns, p);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attention_gradients(const __grid_constant__ attention_gradients_params p) {
  extern __shared__ double shared[];
  if (p.stage == 0) pairs((real *)shared, p);
  if (p.stage == 1) query_gradient(p);
  if (p.stage == 2) key_gradient(p.q, p.derivatives, p.head_dim, (real)p.scale, p);
  if (p.stage == 3) key_gradient(p.dout, p.probabilities, p.head_dim_v, 1, p);
}
