// Attention forward, slow and obvious: O = softmax(scale * Q * K^T) * V for each (batch, head).
//
// Two variants by REFERENCE_16:
//   0  everything in float64: what is right. Writes O as double, and the log-sum-exp of each row.
//   1  what eager PyTorch computes in the 16-bit type: scores accumulated in fp32 and rounded to 16 bits, softmax in
//      fp32 rounded to 16 bits, P * V accumulated in fp32 and rounded to 16 bits. Its distance from variant 0 says what
//      error the type itself brings.
//
// Tensors: params.h. q, k, v by strides; o and lse contiguous.
// Grid (ceil(seq_q / 32), heads, batch), 256 threads: a block owns 32 query rows of one head, 8 threads a row.
// Thread (row, lane) owns keys lane + 8i of each tile of 32 and output columns lane + 8i.
// Two passes over K: the first finds each row's largest score and sum, the second needs no rescaling for them.
// Causal: aligned bottom right; a row that sees no key gives zeros and a log-sum-exp of -inf.
// Dynamic shared memory: two tiles of 32 rows of head_dim (of V: head_dim_v) + 1 floats (Q; K or V), the longer of the
// two, one of 32 * 33 numbers (P).
// The row length + 1 keeps threads that read one column of different rows in different banks.
#include "element.cuh"
#include "params.h"

#if REFERENCE_16
typedef float real;
#else
typedef double real;
#endif

constexpr int kRows = 32; // query rows of a block
constexpr int kKeys = 32; // keys of a tile
constexpr int kLanes = 8; // threads that share a row
constexpr int kThreads = kRows * kLanes;
constexpr int kKeysPerThread = kKeys / kLanes;
constexpr int kMaxHeadDim = 256;
constexpr int kColumnsPerThread = kMaxHeadDim / kLanes;
constexpr int kPitchP = kKeys + 1;

static_assert(kRows == kKeys, "one tile shape serves Q, K and V");

struct position {
  int row, lane; // of this thread in its block
  int batch, head, kv_head;
  int keys; // that this thread's row sees
};

// As many of the first keys as a row sees: none or fewer than none where a causal row begins before them.
__device__ __forceinline__ int keys_of_row(int row, const attention_reference_params &p) {
  return p.causal ? min(p.seq_kv, row + p.seq_kv - p.seq_q + 1) : p.seq_kv;
}

// Copy rows [first, first + 32) of one head to shared memory; rows past the end become zeros.
__device__ void load_tile(float *tile_s, const check_view &view, int batch, int head, int first, int rows, int columns,
                          bool is_bf16) {
  const unsigned short *head_g = (const unsigned short *)view.data + batch * view.stride[0] + head * view.stride[2];
  for (int i = threadIdx.x; i < kRows * columns; i += kThreads) {
    const int row = i / columns, column = i % columns;
    float value = 0.0f;
    if (first + row < rows)
      value = element_value(head_g[(first + row) * view.stride[1] + column * view.stride[3]], is_bf16);
    tile_s[row * (columns + 1) + column] = value;
  }
}

// Rounded as the variant rounds what it stores between two operations.
__device__ __forceinline__ real rounded(real value, bool is_bf16) {
#if REFERENCE_16
  return element_value(element_bits(value, is_bf16), is_bf16);
#else
  return value;
#endif
}

// The scores of this thread's row with its keys of the tile.
__device__ void dot_products(real (&scores)[kKeysPerThread], const float *q_s, const float *k_s, const position &at,
                             const attention_reference_params &p) {
  const int pitch = p.head_dim + 1;
  for (int i = 0; i < kKeysPerThread; i++)
    scores[i] = 0;
  for (int column = 0; column < p.head_dim; column++) {
    const real q = q_s[at.row * pitch + column];
#pragma unroll
    for (int i = 0; i < kKeysPerThread; i++)
      scores[i] += q * (real)k_s[(at.lane + kLanes * i) * pitch + column];
  }
  for (int i = 0; i < kKeysPerThread; i++)
    scores[i] = rounded(scores[i] * (real)p.scale, p.is_bf16);
}

// Largest score and sum of exp(score - largest) over the keys seen so far.
struct row_sum {
  real largest, sum;

  __device__ void add(real score) {
    if (score > largest) {
      sum = sum * exp(largest - score) + 1;
      largest = score;
    } else {
      sum += exp(score - largest);
    }
  }
};

// Pass 1: every thread sums over its own keys, then the 8 threads of a row put theirs together.
__device__ row_sum sum_row(const float *q_s, float *k_s, real *p_s, const position &at,
                           const attention_reference_params &p) {
  row_sum own = {minus_infinity(), 0};
  for (int first = 0; first < p.seq_kv; first += kKeys) {
    load_tile(k_s, p.k, at.batch, at.kv_head, first, p.seq_kv, p.head_dim, p.is_bf16);
    __syncthreads(); // the tile is complete
    real scores[kKeysPerThread];
    dot_products(scores, q_s, k_s, at, p);
    for (int i = 0; i < kKeysPerThread; i++)
      if (first + at.lane + kLanes * i < at.keys) own.add(scores[i]);
    __syncthreads(); // everyone has read the tile
  }
  real *row_s = p_s + at.row * kPitchP;
  row_s[at.lane] = own.largest;
  row_s[kLanes + at.lane] = own.sum;
  __syncthreads(); // the 8 pairs of each row are there
  row_sum all = {minus_infinity(), 0};
  for (int lane = 0; lane < kLanes; lane++)
    all.largest = fmax(all.largest, row_s[lane]);
  for (int lane = 0; lane < kLanes; lane++)
    if (row_s[kLanes + lane] > 0) all.sum += row_s[kLanes + lane] * exp(row_s[lane] - all.largest);
  __syncthreads(); // everyone has read them: P takes their place
  return all;
}

// One tile of pass 2: P of this tile to shared memory, then V in K's place, then O += P * V.
__device__ void add_tile(real (&o)[kColumnsPerThread], const float *q_s, float *kv_s, real *p_s, const row_sum &row,
                         int first, const position &at, const attention_reference_params &p) {
  load_tile(kv_s, p.k, at.batch, at.kv_head, first, p.seq_kv, p.head_dim, p.is_bf16);
  __syncthreads(); // K is complete
  real scores[kKeysPerThread];
  dot_products(scores, q_s, kv_s, at, p);
  for (int i = 0; i < kKeysPerThread; i++) {
    const int key = at.lane + kLanes * i;
    const real weight = first + key < at.keys ? exp(scores[i] - row.largest) / row.sum : 0;
    p_s[at.row * kPitchP + key] = rounded(weight, p.is_bf16);
  }
  __syncthreads(); // P is complete, and everyone is done with K
  load_tile(kv_s, p.v, at.batch, at.kv_head, first, p.seq_kv, p.head_dim_v, p.is_bf16);
  __syncthreads(); // V is complete
  for (int key = 0; key < kKeys; key++) {
    const real weight = p_s[at.row * kPitchP + key];
#pragma unroll
    for (int i = 0; i < kColumnsPerThread; i++)
      if (at.lane + kLanes * i < p.head_dim_v)
        o[i] += weight * (real)kv_s[key * (p.head_dim_v + 1) + at.lane + kLanes * i];
  }
  __syncthreads(); // everyone is done with V and P
}

__device__ void store_row(const real (&o)[kColumnsPerThread], const row_sum &sum, int row, const position &at,
                          const attention_reference_params &p) {
  const long long start = (((long long)at.batch * p.seq_q + row) * p.heads + at.head) * p.head_dim_v;
#pragma unroll
  for (int i = 0; i < kColumnsPerThread; i++) {
    const int column = at.lane + kLanes * i;
    if (column >= p.head_dim_v) break;
#if REFERENCE_16
    ((unsigned short *)p.o)[start + column] = element_bits(o[i], p.is_bf16);
#else
    ((double *)p.o)[start + column] = o[i];
#endif
  }
#if !REFERENCE_16
  if (p.lse && at.lane == 0)
    p.lse[((long long)at.batch * p.heads + at.head) * p.seq_q + row] = sum.largest + log(sum.sum);
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attention_reference(const __grid_constant__ attention_reference_params p) {
  extern __shared__ float tiles_s[];
  float *q_s = tiles_s, *kv_s = q_s + kRows * (p.head_dim + 1);
  real *p_s = (real *)(kv_s + kKeys * (max(p.head_dim, p.head_dim_v) + 1));
  const int first_row = blockIdx.x * kRows, row_in_block = threadIdx.x / kLanes, head = blockIdx.y;
  const position at = {row_in_block, (int)threadIdx.x % kLanes, (int)blockIdx.z,
                       head,         head / p.heads_per_kv,     keys_of_row(first_row + row_in_block, p)};

  load_tile(q_s, p.q, at.batch, at.head, first_row, p.seq_q, p.head_dim, p.is_bf16);
  const row_sum row = sum_row(q_s, kv_s, p_s, at, p);
  real o[kColumnsPerThread] = {};
  for (int first = 0; first < p.seq_kv; first += kKeys)
    add_tile(o, q_s, kv_s, p_s, row, first, at, p);
  if (first_row + at.row < p.seq_q) store_row(o, row, first_row + at.row, at, p);
}
